# SPDX-License-Identifier: BSD-3-Clause
"""nbdspec explain: what a case claims, or what a row demands."""

from __future__ import annotations

import argparse
import os
import textwrap

from . import HOME, ledger
from .case import Case
from .collect import by_row, load_all
from .errors import UsageError
from .mutants import kills
from .verdict import ENDS_IN_ORDER, ENDS_IN_ORDER_CLAIM


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="CASE|ROW", nargs="+")


def run(arguments: argparse.Namespace) -> int:
    cases, rows = load_all(), ledger.load()
    for what in arguments.what:
        id = what.partition("[")[0]
        if id in cases:
            for entry in cases[id]:
                _explain_case(entry, rows)
        elif id == ENDS_IN_ORDER:
            print(id)
            _say("claim", ENDS_IN_ORDER_CLAIM)
        elif what in rows:
            _explain_row(rows[what])
        else:
            close = ", ".join(_close_to(what, [*cases, *rows]))
            hint = f"; did you mean {close}?" if close else ""
            raise UsageError(f"{what}: neither a case nor a row{hint}")
    return 0


def _close_to(what: str, names: list[str]) -> list[str]:
    import difflib

    return difflib.get_close_matches(what, names, n=3)


def _say(label: str, text: str) -> None:
    indent = " " * 12
    print(textwrap.fill(f"{label:<12}{text}", 88, subsequent_indent=indent))


def _explain_case(entry: Case, rows: dict[str, ledger.Row]) -> None:
    print(entry.id)
    _say("claim", " ".join(entry.doc.split()))
    _say("level", entry.level.value)
    for id in entry.req:
        _say("row", ledger.sentence(id))
    if entry.needs:
        _say("needs", " ".join(need.word for need in entry.needs))
    if not entry.mode.default:
        _say("server", entry.mode.describe())
    _say("clients", ", ".join(entry.clients))
    for mutant, words in kills().get(entry.id, []):
        _say("kills", f"{mutant}: {words}" if words else mutant)
    place = os.path.relpath(entry.file, HOME.parent)
    _say("source", f"{place}:{entry.line}")
    _say("run", f"nbdspec server --case {entry.id}")


def _explain_row(row: ledger.Row) -> None:
    print(row.id)
    _say("section", row.section)
    _say("level", f"{row.level}, {row.side}; observable: {row.observable}")
    _say("demands", row.requirement)
    _say("test", row.how_to_test)
    for id in by_row().get(row.id, []):
        _say("case", id)
    if row.reason:
        _say("no case", row.reason)
