# SPDX-License-Identifier: BSD-3-Clause
"""Runs each function of the bridge's test program in a process of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("NBDSPECD", TOP / "build/nbdspecd")).with_name(
    "bridge-test"
)
HANG = 120  # seconds; no test takes a tenth of it


def names() -> list[str]:
    if not PROGRAM.exists():
        return []
    listed = subprocess.run(
        [PROGRAM, "--list"], check=True, capture_output=True, text=True
    )
    return listed.stdout.split()


def test_the_program_was_built() -> None:
    assert PROGRAM.exists(), f"{PROGRAM} is missing: make builds it for run-check"


@pytest.mark.parametrize("name", names())
def test_bridge(name: str) -> None:
    done = subprocess.run(
        [PROGRAM, name], cwd=TOP, capture_output=True, text=True, timeout=HANG
    )
    assert done.returncode == 0, done.stderr[-4000:]
