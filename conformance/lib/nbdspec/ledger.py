# SPDX-License-Identifier: BSD-3-Clause
"""The ledgers: every requirement, one a row."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from . import HOME
from .errors import BadFile

COLUMNS = [
    "id",
    "section",
    "side",
    "level",
    "requirement",
    "observable",
    "how_to_test",
    "reason",
]
LEVELS = ("MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY")
#: plugin.tsv: what a host of plugins promises; each row is about the host, and can be
#: observed, or has a reason.
PLUGIN_COLUMNS = ["id", "section", "level", "requirement", "reason"]
PLUGIN_LEVELS = ("contract", "superset", "robustness")


@dataclass(frozen=True)
class Row:
    id: str
    section: str
    level: str
    requirement: str
    reason: str
    side: str = ""
    observable: str = ""
    how_to_test: str = ""

    @property
    def extended_headers(self) -> bool:
        """Part of an experimental extension."""
        return self.id.startswith(("XH-", "OPT-XH-"))

    @property
    def plugin(self) -> bool:
        """A row of the plugin contract."""
        return self.level in PLUGIN_LEVELS

    @property
    def in_scope(self) -> bool:
        """A row about servers that needs a case, or a reason why there is none."""
        return (
            self.side in ("server", "both")
            and self.level != "MAY"
            and self.observable in ("yes", "partly")
            and not self.extended_headers
        )


def read(path: Path) -> dict[str, Row]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadFile(f"{path}: {error}; expected text in UTF-8") from None
    plugin = path.name == "plugin.tsv"
    columns = PLUGIN_COLUMNS if plugin else COLUMNS
    levels = PLUGIN_LEVELS if plugin else LEVELS
    if not lines or lines[0].split("\t") != columns:
        raise BadFile(f"{path}:1: expected the columns {' '.join(columns)}")
    rows: dict[str, Row] = {}
    for number, line in enumerate(lines[1:], 2):
        fields = line.split("\t")
        if len(fields) != len(columns):
            raise BadFile(
                f"{path}:{number}: {len(fields)} fields, expected {len(columns)}"
            )
        row = Row(**dict(zip(columns, fields)))
        if row.id in rows:
            raise BadFile(f"{path}:{number}: id {row.id} twice")
        if row.level not in levels:
            raise BadFile(f"{path}:{number}: level {row.level!r}, expected one of "
                          + ", ".join(levels))
        rows[row.id] = row
    return rows


@functools.cache
def load() -> dict[str, Row]:
    """All rows of all ledgers by id."""
    rows: dict[str, Row] = {}
    for path in sorted((HOME / "ledger").glob("*.tsv")):
        for row in read(path).values():
            if row.id in rows:
                raise BadFile(f"{path}: id {row.id} is in another ledger too")
            rows[row.id] = row
    return rows


def sentence(id: str) -> str:
    """The words of a row, for a message."""
    row = load().get(id)
    return f"{id}: {row.requirement}" if row else f"{id}: no such row"
