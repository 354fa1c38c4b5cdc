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
#: Seconds; on a machine of its own no test takes a tenth of it.
HANG = 120 * float(os.environ.get("NBDSPEC_TIME_FACTOR", "1"))
#: Half the time of a traceback's text goes into the marks under its lines.  Where
#: tens of thousands of them are made, they are made without; elsewhere with.
PLAIN = ("slope-raise", "slope-raise-v1")


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
        [PROGRAM, name],
        cwd=TOP,
        env={**os.environ, **({"PYTHONNODEBUGRANGES": "1"} if name in PLAIN else {})},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr[-4000:]
