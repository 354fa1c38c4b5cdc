# SPDX-License-Identifier: BSD-3-Clause
"""Scenarios are loaded as the bench loads them."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "regress"))
sys.path.insert(0, str(ROOT / "conformance" / "lib"))

# What a shell starts behind it ignores the interrupt, and so would all that the
# tests start and then interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: not for make check")
