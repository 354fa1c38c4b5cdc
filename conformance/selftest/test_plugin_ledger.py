# SPDX-License-Identifier: BSD-3-Clause
"""The plugin contract's ledger: every row has a case, every case has rows."""

from __future__ import annotations

from nbdspec import ledger
from nbdspec.collect import by_row, load_all
from nbdspec.ledger import PLUGIN_LEVELS


def rows() -> list[ledger.Row]:
    return [row for row in ledger.load().values() if row.plugin]


def test_every_row_has_a_case_or_a_reason() -> None:
    named = by_row()
    bare = [row.id for row in rows() if row.id not in named and not row.reason]
    assert not bare


def test_plugin_cases_name_rows_of_the_contract() -> None:
    mine = {row.id for row in rows()}
    for entries in load_all().values():
        for entry in entries:
            if entry.group == "plugin":
                assert entry.req, f"{entry.id} names no row"
                assert set(entry.req) <= mine, f"{entry.id}: {set(entry.req) - mine}"


def test_every_level_is_there() -> None:
    found = rows()
    assert {row.level for row in found} == set(PLUGIN_LEVELS)
    assert len(found) >= 300
