# SPDX-License-Identifier: BSD-3-Clause
"""Runs nbdspec as its users do, with cases that a test writes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
NBDSPEC = HERE.parent / "nbdspec"
FAKE = HERE / "fake_server.py"

HEAD = '''
import pytest
from nbdspec import nbd
from nbdspec.case import MAY, MUST, SHOULD, Mode, case
from nbdspec.nbd import EINVAL, EIO, ENOSPC, GO, LIST
from nbdspec.verdict import NotApplicable

SECTION = "selftest"
'''

#: One case of each kind; the fake server decides how they go.
CASES = '''
@case("self.read", req=["TX-READ-05"], mode=Mode())
def test_read(wire):
    """A READ brings zeroes."""
    wire.transmit()
    assert wire.read(512, 0) == bytes(512), "other data"

@case("self.flags", req=["ERR-08"], level=SHOULD)
def test_flags(wire):
    """An unknown flag is refused."""
    wire.transmit()
    wire.expect_errno(wire.request(nbd.READ, 0, 512, flags=1 << 15), EINVAL)
    wire.in_step()

@case("self.beyond", req=["ERR-01"])
def test_beyond(wire):
    """A WRITE beyond the end gives ENOSPC."""
    wire.transmit()
    cookie = wire.request(nbd.WRITE, wire.export.size, data=b"x" * 512)
    wire.expect_errno(cookie, ENOSPC, also={EINVAL: MUST, EIO: SHOULD})
    wire.in_step()

@case("self.option", req=["HS-20"])
def test_option(wire):
    """An unknown option is skipped."""
    wire.option(99, bytes(100))
    wire.expect_error(99, nbd.ERR_UNSUP)
    wire.in_step()
'''


@dataclass
class Run:
    status: int
    out: str
    err: str
    directory: Path

    @property
    def result(self) -> dict:
        return json.loads((self.directory / "out.json").read_text())

    @property
    def verdicts(self) -> dict[str, str]:
        return {case["id"]: case["verdict"] for case in self.result["cases"]}

    def message(self, id: str) -> str:
        (found,) = [case for case in self.result["cases"] if case["id"] == id]
        return found["message"]


class Kit:
    """nbdspec in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cases = directory / "cases"
        self.cases.mkdir()

    def write(self, text: str, name: str = "test_self.py") -> None:
        (self.cases / name).write_text(HEAD + textwrap.dedent(text))

    def environment(self, **more: str) -> dict[str, str]:
        env = dict(os.environ, NBDSPEC_CASES=str(self.cases), NBDSPEC_CASES_ONLY="1")
        env.setdefault("NBDSPEC_TIME_FACTOR", "1")
        for name in ("PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER"):
            env.pop(name, None)
        env.update(more)
        return env

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, str(NBDSPEC), *words]

    def run(self, *words: str, **env: str) -> Run:
        done = subprocess.run(
            self.argv(*words),
            cwd=self.directory,
            env=self.environment(**env),
            capture_output=True,
            text=True,
            timeout=120,
        )
        return Run(done.returncode, done.stdout, done.stderr, self.directory)

    def fake(self, mistake: str = "") -> str:
        """The --cmd of the fake server."""
        return shlex.join([sys.executable, str(FAKE), "{socket}", *mistake.split()])

    def server(self, mistake: str = "", *words: str, **env: str) -> Run:
        """The cases against the fake server."""
        return self.run(
            "server",
            "--cmd",
            self.fake(mistake),
            "--json",
            "out.json",
            "--replay-dir",
            "replay",
            *([] if "--jobs" in words else ["--jobs", "1"]),
            *words,
            **env,
        )
