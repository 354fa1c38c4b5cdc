# SPDX-License-Identifier: BSD-3-Clause
"""What a benchmark is made of: rows to measure, columns to compare, samples.

A scenario (regress/scenarios/NAME.py) has a class Scenario with these members:

    title, question     one line each: what is measured, and what for
    columns             the servers side by side
    rows(options)       the measurements
    server(row, column) the server to start, or None: the cell does not apply
    sample(row, column, server, options)   one measurement
    ratios              which columns to relate to each other
    notes(results)      sentences for the end of the report

and, where it needs them,

    repeat              runs of each cell: as a rule, and with --full
    ended(row, column, sample)   called when a sample's own server has ended
    finish()            ends what it has started
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from .server import Server, ServerSpec

ROOT = Path(__file__).resolve().parents[4]
SCENARIOS = ROOT / "regress" / "scenarios"
PYPLUGINS = ROOT / "pyplugins"


class BenchError(Exception):
    """A bench cannot run; the text is one line that says why."""


@dataclass(frozen=True)
class Options:
    seconds: float  # the length of one timed run
    repeat: int
    full: bool
    directory: Path  # for sockets and images; removed at the end
    data: int = 0  # bytes that a client transfers; 0: as the scenario says
    imageio: str = ""  # the URL of an image at a daemon that runs
    cafile: str = ""  # whom to trust there


@dataclass(frozen=True)
class Column:
    name: str
    host: str  # nbdspecd, nbdkit or limit


@dataclass(frozen=True)
class Row:
    name: str
    unit: str
    params: dict[str, Any] = field(default_factory=dict, hash=False)
    less_is_better: bool = False


@dataclass
class Sample:
    """One measurement. Times are seconds; what was not measured is None."""

    value: float  # in the row's unit
    requests: int | None = None
    real: float | None = None
    client_user: float | None = None
    client_system: float | None = None
    server_cpu: float | None = None
    server_user: float | None = None
    server_system: float | None = None
    server_faults: int | None = None
    helper_cpu: float | None = None  # of what else took part, a daemon say
    foreign: float | None = None  # cores that other processes used meanwhile
    said: str = ""  # what such a daemon reports, for the notes
    extra: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ratio:
    """The column `over` divided by the column `under`, sample by sample."""

    over: str
    under: str
    of: str = "value"  # the field of Sample
    rows: str = "*"  # a glob


@dataclass
class Results:
    """All samples: cells[row name, column name] has one for each repetition."""

    rows: list[Row]
    columns: list[Column]
    cells: dict[tuple[str, str], list[Sample]]
    calls: dict[tuple[str, str], dict[str, float]]  # system calls a request


class Scenario(Protocol):
    title: str
    question: str
    columns: Sequence[Column]
    ratios: Sequence[Ratio]

    def rows(self, options: Options) -> Sequence[Row]: ...

    def server(self, row: Row, column: Column) -> ServerSpec | None: ...

    def sample(
        self, row: Row, column: Column, server: Server, options: Options
    ) -> Sample: ...

    def notes(self, results: Results) -> list[str]: ...
