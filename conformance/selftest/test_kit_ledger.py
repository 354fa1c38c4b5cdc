# SPDX-License-Identifier: BSD-3-Clause
"""The ledgers against the cases, and the mutants against the tree."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from nbdspec import collect, ledger, mutants, mutants_run, proof
from nbdspec.errors import BadFile
from nbdspec.known import read as read_known
from nbdspec.patching import apply, parse


@pytest.fixture(scope="module")
def named() -> dict[str, list[str]]:
    return collect.by_row()


def test_numbers_of_rows() -> None:
    """What the project says of itself counts these rows."""
    rows = [row for row in ledger.load().values() if not row.plugin]
    scope = [row for row in rows if row.in_scope]
    must = [row for row in scope if row.level.startswith("MUST")]
    seen = [row for row in scope if row.observable == "yes"]
    assert (len(rows), len(scope), len(seen), len(must)) == (579, 277, 255, 192)


def test_each_row_has_a_case_or_a_reason(named: dict[str, list[str]]) -> None:
    missing = [
        row.id
        for row in ledger.load().values()
        if row.in_scope and row.id not in named and not row.reason
    ]
    assert missing == []


def test_each_case_names_rows_that_exist(named: dict[str, list[str]]) -> None:
    rows = ledger.load()
    unknown = {id: cases for id, cases in named.items() if id not in rows}
    assert unknown == {}
    bare = [e.id for es in collect.load_all().values() for e in es if not e.req]
    assert bare == [], "cases without a row"


def test_ledger_with_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "nbd.tsv"
    head = "\t".join(ledger.COLUMNS)
    for text, words in (
        ("id\tsection\n", ":1: expected the columns"),
        (f"{head}\nA-1\tx\n", ":2: 2 fields, expected 8"),
        (f"{head}\n" + "A-1\ts\tserver\tSHALL\tr\tyes\th\t\n", ":2: level 'SHALL'"),
        (f"{head}\n" + "A-1\ts\tserver\tMUST\tr\tyes\th\t\n" * 2, ":3: id A-1 twice"),
    ):
        path.write_text(text)
        with pytest.raises(BadFile) as caught:
            ledger.read(path)
        assert words in str(caught.value)


def test_known_files_name_cases_that_exist() -> None:
    ids = collect.load_all()
    for path in (ledger.HOME / "known").glob("*.toml"):
        assert read_known(path, ids)


# Mutants


def test_each_mutant_applies() -> None:
    assert mutants_run.check(list(mutants.load().values())) == []


def test_each_case_has_a_mutant_or_a_reason() -> None:
    """And docs/proof.md says so."""
    cases, killers, reasons = set(collect.load_all()), mutants.kills(), mutants.spared()
    assert set(reasons) <= cases
    assert not set(reasons) & set(killers)
    assert sorted(cases - set(killers) - set(reasons)) == []
    page = (ledger.HOME.parent / "docs" / "proof.md").read_text("utf-8")
    assert page == proof.page(list(mutants.load().values()), sorted(cases), reasons)


DIFF = """\
--- a/file
+++ b/file
@@ -2,3 +2,3 @@
 two
-three
+3
 four
"""


def test_patch_finds_its_place() -> None:
    hunks = parse(DIFF, "p")["file"]
    assert apply("one\ntwo\nthree\nfour\n", hunks, "p") == "one\ntwo\n3\nfour\n"
    moved = "zero\n" * 5 + "one\ntwo\nthree\nfour\n"
    assert apply(moved, hunks, "p") == "zero\n" * 5 + "one\ntwo\n3\nfour\n"
    twice = "two\nthree\nfour\n" + "x\n" * 9 + "two\nthree\nfour\n"
    assert apply(twice, hunks, "p").startswith("two\n3\nfour\n")


def test_patch_that_no_longer_applies() -> None:
    hunks = parse(DIFF, "p")["file"]
    with pytest.raises(BadFile, match="hunk 1 no longer applies"):
        apply("one\ntwo\nfour\n", hunks, "p: file")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Breaks: HS-07\nKills: a.b: c\n\n" + DIFF, "Source: is missing"),
        ("Source: s\nKills: a.b: c\n\n" + DIFF, "Breaks: is missing"),
        ("Source: s\nBreaks: HS-07\n\n" + DIFF, "Kills: is missing"),
        ("Source: s\nBreaks: HS-07\nKills: a.b: c\n", "a unified diff is missing"),
        ("Sauce: s\n" + DIFF, ":1: 'Sauce: s'; expected Source:"),
    ],
    ids=["source", "breaks", "kills", "diff", "key"],
)
def test_mutant_with_a_mistake(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "a.patch"
    path.write_text(text)
    with pytest.raises(BadFile) as caught:
        mutants.parse(path)
    assert words in str(caught.value)


def test_survivor_is_told(tmp_path: Path) -> None:
    """A case that passes, or fails for another reason, has not killed the mutant."""
    path = tmp_path / "a.patch"
    path.write_text("Source: s\nBreaks: HS-07\nKills: a.b: words\n\n" + DIFF)
    mutant = mutants.parse(path)
    survived = mutants_run._survived
    assert survived(mutant, {"a.b": ("FAIL", "these words")}) == []
    assert survived(mutant, {"a.b": ("PASS", "")}) == ["a.b: PASS, has to fail"]
    assert "without the words" in survived(mutant, {"a.b": ("FAIL", "other")})[0]
    assert survived(mutant, {}) == ["a.b: N/A, has to fail"]


def test_judge_that_ends_is_told(tmp_path: Path) -> None:
    """One that is killed, or cannot go on, leaves the others their results."""

    def killed() -> tuple[list[str], list[str]]:
        os.kill(os.getpid(), signal.SIGKILL)
        return [], []

    def stuck() -> tuple[list[str], list[str]]:
        raise BadFile("no such thing")

    task = mutants_run.Task
    tasks = [task("a", killed), task("b", stuck), task("c c", lambda: (["x"], []))]
    found = {t.name: result for t, result in mutants_run._all(tasks, 2, tmp_path)}
    assert "ended with status 9" in found["a"][1][0]
    assert found["b"][1] == ["no such thing"]
    assert found["c c"] == (["x"], [])
