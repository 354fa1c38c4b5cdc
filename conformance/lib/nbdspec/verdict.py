# SPDX-License-Identifier: BSD-3-Clause
"""Levels, findings and verdicts: what a case may conclude."""

from __future__ import annotations

import contextlib
import enum
from dataclasses import dataclass, field
from typing import Iterator


class Level(enum.Enum):
    """How strongly the specification asks for something."""

    MUST = "must"
    SHOULD = "should"
    MAY = "may"

    @property
    def verdict(self) -> "Verdict":
        """The verdict when what is asked for at this level is not done."""
        return {
            Level.MUST: Verdict.FAIL,
            Level.SHOULD: Verdict.WARN,
            Level.MAY: Verdict.INFO,
        }[self]


MUST, SHOULD, MAY = Level.MUST, Level.SHOULD, Level.MAY


class Verdict(enum.Enum):
    PASS = "PASS"
    FAIL = "FAIL"
    WARN = "WARN"
    INFO = "INFO"
    NA = "N/A"
    KNOWN = "KNOWN"
    STALE = "STALE"

    @property
    def weight(self) -> int:
        """Where a case has several runs, the heaviest one speaks for it."""
        return _WEIGHT.index(self)


# N/A weighs least: a case that could run with one client out of two did run.
_WEIGHT = [
    Verdict.NA,
    Verdict.PASS,
    Verdict.INFO,
    Verdict.KNOWN,
    Verdict.WARN,
    Verdict.STALE,
    Verdict.FAIL,
]


@dataclass
class Finding:
    """One thing that was seen to differ from what the specification asks for."""

    level: Level
    text: str
    row: str | None = None

    @property
    def verdict(self) -> Verdict:
        return self.level.verdict


class Breach(AssertionError):
    """The server did not do what it had to; ends the case.

    Without a level of its own it counts at the level of the case.
    """

    def __init__(
        self,
        expected: str,
        came: str,
        *,
        row: str | None = None,
        level: Level | None = None,
    ) -> None:
        super().__init__(f"expected {expected}; came {came}")
        self.expected = expected
        self.came = came
        self.row = row
        self.level = level


class Closed(Breach):
    """The server closed the connection where an answer was due."""

    def __init__(self, expected: str, came: str = "end of stream") -> None:
        super().__init__(expected, came, level=MUST)


class Hang(Breach):
    """The server sent nothing within the time limit where something was due."""

    def __init__(self, expected: str, came: str) -> None:
        super().__init__(expected, came, level=MUST)


@contextlib.contextmanager
def counts_as(level: Level, row: str | None = None) -> Iterator[None]:
    """A connection that is closed inside counts at this level, not as a MUST."""
    try:
        yield
    except Closed as closed:
        closed.level, closed.row = level, row
        raise


#: No case of its own, and in no ledger: what is seen when the kit ends its servers.
ENDS_IN_ORDER = "server.ends-in-order"
ENDS_IN_ORDER_CLAIM = (
    "A server that is told to end by SIGTERM ends with status 0, by that signal, or "
    "with 128 plus its number; what a sanitizer finds at the end shows here, too."
)


class NotApplicable(Exception):
    """The target lacks what the case is about: N/A, with the reason."""


def may_write(allowed: bool) -> None:
    """Stops a case before it writes to what is not the kit's own."""
    if not allowed:
        raise NotApplicable("the case writes, and --write was not given")


@dataclass
class Outcome:
    """The verdict of one run of one case, on its way to the reports."""

    case: str
    variant: str
    section: str
    requirements: list[str]
    level: str
    verdict: Verdict = Verdict.PASS
    message: str = ""
    seconds: float = 0.0
    replay: str | None = None
    known: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.case}[{self.variant}]" if self.variant else self.case

    def to_json(self) -> dict[str, object]:
        return {
            "case": self.case,
            "variant": self.variant,
            "section": self.section,
            "requirements": self.requirements,
            "level": self.level,
            "verdict": self.verdict.value,
            "message": self.message,
            "seconds": round(self.seconds, 4),
            "replay": self.replay,
            "known": self.known,
            "notes": self.notes,
        }

    @classmethod
    def from_json(cls, data: dict[str, object]) -> "Outcome":
        fields = dict(data)
        fields["verdict"] = Verdict(fields["verdict"])
        return cls(**fields)  # type: ignore[arg-type]
