# SPDX-License-Identifier: BSD-3-Clause
"""The kit's library is importable from its own tests."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

# What a shell starts behind it ignores the interrupt, and so would all that the
# tests start and then interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
