# SPDX-License-Identifier: BSD-3-Clause
"""Runs the daemon as a process of its own, and reads what it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent / "imageiod"
STOP_LIMIT = 60.0  # a guard: it ends at once


class CannotStart(Exception):
    """One line that says why there is no daemon."""


class Daemon:
    """Started with the options of `imageiod`, and ready when this returns."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._log = directory / "imageiod.log"
        with open(self._log, "w") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), "--stdin", "--dir", str(directory)]
                + list(options),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise CannotStart(self.log().strip().split("\n")[-1])
        ready = json.loads(line)
        self.url: str = ready["url"]
        self.image: str = ready["image"]
        self.unix_socket: str = ready["unix_socket"]
        self.control: str = ready["control"]
        self.pid: int = ready["pid"]

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> str:
        """Ends it; its whole log."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return self.log()


@dataclass(frozen=True)
class Phase:
    """One bracket of a statistics line."""

    name: str
    operations: int
    seconds: float
    size: str = ""
    rate: str = ""

    def __str__(self) -> str:
        size = f", {self.size}, {self.rate}" if self.size else ""
        return f"[{self.name} {self.operations} ops, {self.seconds:.6f} s{size}]"


PHASE = re.compile(
    r"\[([a-z.]+) (\d+) ops, ([\d.]+) s(?:, ([\d.]+ \w+), ([\d.]+ \w+/s))?\]"
)


def phases(text: str) -> list[list[Phase]]:
    """The statistics in a log, connection by connection.

    The daemon puts a connection's on one line; in mails there is a line to each
    phase. So a new connection begins where a phase of that name does.
    """
    answer: list[list[Phase]] = []
    for name, operations, seconds, size, rate in PHASE.findall(text):
        if name == "connection":
            answer.append([])
        if answer:
            answer[-1].append(Phase(name, int(operations), float(seconds), size, rate))
    return answer


def most_at_once(log: str) -> dict[str, int]:
    """Requests in flight, by kind: the most that there were."""
    found = re.search(r"^MOST AT ONCE (.*)$", log, re.MULTILINE)
    words: Sequence[str] = found[1].split() if found else ()
    return {kind: int(n) for kind, _, n in (word.partition("=") for word in words)}
