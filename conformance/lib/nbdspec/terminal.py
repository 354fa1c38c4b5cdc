# SPDX-License-Identifier: BSD-3-Clause
"""What a run prints: a line a case, then what went wrong, then a table."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from .result import Result
from .verdict import Outcome, Verdict

_COLOUR = {
    Verdict.PASS: "32",
    Verdict.FAIL: "31;1",
    Verdict.WARN: "33",
    Verdict.INFO: "36",
    Verdict.NA: "2",
    Verdict.KNOWN: "35",
    Verdict.STALE: "31;1",
}
_SHOWN = [
    Verdict.PASS,
    Verdict.FAIL,
    Verdict.WARN,
    Verdict.INFO,
    Verdict.KNOWN,
    Verdict.STALE,
    Verdict.NA,
]


class Terminal:
    """On a terminal a status line that moves; in a pipe plain lines only."""

    def __init__(self, out: TextIO | None = None, *, quiet: bool = False) -> None:
        self._out = out or sys.stdout
        self._live = self._out.isatty() and os.environ.get("TERM") != "dumb"
        self._colour = self._live and "NO_COLOR" not in os.environ
        self._quiet = quiet
        self._count = 0
        self.expected = 0

    def _paint(self, verdict: Verdict, width: int = 5) -> str:
        word = f"{verdict.value:<{width}}"
        return f"\033[{_COLOUR[verdict]}m{word}\033[0m" if self._colour else word

    def _line(self, text: str) -> None:
        clear = "\r\033[K" if self._live else ""
        self._out.write(clear + text + "\n")

    def header(self, text: str) -> None:
        self._line(text)
        self._out.flush()

    def outcome(self, outcome: Outcome) -> None:
        self._count += 1
        first = outcome.message.splitlines()[0] if outcome.message else ""
        if outcome.verdict in (Verdict.PASS,):
            first = ""
        if not (self._quiet and outcome.verdict in (Verdict.PASS, Verdict.NA)):
            tail = f"  {first}" if first else ""
            self._line(f"{self._paint(outcome.verdict)} {outcome.name}{tail}")
        if self._live:
            of = f" of {self.expected}" if self.expected else ""
            self._out.write(f"\r\033[K{self._count}{of}")
        self._out.flush()

    def summary(self, result: Result, seconds: float) -> None:
        self._details(result)
        self._table(result)
        totals = result.totals
        words = ", ".join(f"{totals[v.value]} {v.value}" for v in _SHOWN)
        stopped = " (interrupted)" if result.interrupted else ""
        self._line(
            f"{result.target} {result.version}: {len(result.cases)} cases: {words}; "
            f"{seconds:.1f} s{stopped}"
        )
        self._out.flush()

    def _details(self, result: Result) -> None:
        """Everything about what failed; a warning is told in full as well."""
        for wanted in (Verdict.WARN, Verdict.STALE, Verdict.FAIL):
            for id in sorted(result.cases):
                for outcome in result.cases[id].runs:
                    if outcome.verdict is wanted:
                        self._detail(outcome)

    def _detail(self, outcome: Outcome) -> None:
        self._line("")
        self._line(f"{self._paint(outcome.verdict)} {outcome.name}")
        for line in outcome.message.splitlines():
            self._line(f"      {line}")
        if outcome.replay:
            self._line(f"      replay: nbdspec replay {outcome.replay}")

    def _table(self, result: Result) -> None:
        table = result.by_section()
        if not table:
            return
        used = [v for v in _SHOWN if any(row[v.value] for row in table.values())]
        width = max(len(name) for name in [*table, "section"])
        self._line("")
        head = "".join(f"{v.value:>7}" for v in used)
        self._line(f"{'section':<{width}}{head}")
        for name, row in table.items():
            cells = "".join(f"{row[v.value] or '.':>7}" for v in used)
            self._line(f"{name:<{width}}{cells}")
        sums = "".join(f"{result.totals[v.value]:>7}" for v in used)
        self._line(f"{'total':<{width}}{sums}")
