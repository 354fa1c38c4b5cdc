# SPDX-License-Identifier: BSD-3-Clause
"""nbdspec list: the cases, or the rows of the ledgers."""

from __future__ import annotations

import argparse
import json

from . import ledger
from .cmd_server import add_selection, check_rows
from .collect import by_row, load_all
from .errors import NothingSelected, UsageError
from .options import RunOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_selection(parser)
    parser.add_argument("--rows", action="store_true", help="rows instead of cases")
    parser.add_argument("--json", action="store_true", help="as JSON, on the output")


def run(arguments: argparse.Namespace) -> int:
    if arguments.rows:
        for name in ("case", "level", "client", "quick", "slow"):
            if getattr(arguments, name):
                raise UsageError(f"--{name} is about cases: it does not go with --rows")
    return _rows(arguments) if arguments.rows else _cases(arguments)


def _cases(arguments: argparse.Namespace) -> int:
    options = RunOptions(
        cases=arguments.case,
        sections=arguments.section,
        rows=arguments.row,
        level=arguments.level,
        quick=arguments.quick,
        slow=True,
        everything=True,
    )
    check_rows(options)
    rows = ledger.load()
    found = [
        entry
        for entries in load_all().values()
        for entry in entries
        if options.selects(entry, "", rows)
        and (not arguments.client or set(arguments.client) & set(entry.clients))
    ]
    if arguments.json:
        print(json.dumps([_as_json(entry) for entry in found], indent=1))
    else:
        for entry in found:
            clients = "+".join(entry.clients)
            print(
                f"{entry.id:<40} {entry.level.value:<7} {entry.section:<20} "
                f"{clients:<12} {' '.join(entry.req)}"
            )
    if not found:
        raise NothingSelected("no case was selected")
    return 0


def _as_json(entry) -> dict[str, object]:
    return {
        "id": entry.id,
        "section": entry.section,
        "level": entry.level.value,
        "requirements": list(entry.req),
        "clients": list(entry.clients),
        "needs": [need.word for need in entry.needs],
        "mode": entry.mode.to_json(),
        "claim": entry.doc,
    }


def _rows(arguments: argparse.Namespace) -> int:
    named = by_row()
    rows = [
        row
        for row in ledger.load().values()
        if (not arguments.section or row.section in arguments.section)
        and (not arguments.row or row.id in arguments.row)
    ]
    if arguments.json:
        data = [{**vars(row), "cases": named.get(row.id, [])} for row in rows]
        print(json.dumps(data, indent=1))
    else:
        for row in rows:
            cases = " ".join(named.get(row.id, [])) or (row.reason and "-") or ""
            print(f"{row.id:<20} {row.level:<11} {cases}")
    return 0 if rows else 3
