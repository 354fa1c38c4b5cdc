# SPDX-License-Identifier: BSD-3-Clause
"""The kit's library is importable from its own tests; fixtures of many of them."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

# What a shell starts behind it ignores the interrupt, and so would all that the
# tests start and then interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short path: a socket's may have 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="np.", dir="/tmp"))
    yield path
    shutil.rmtree(path)
