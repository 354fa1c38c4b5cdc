# SPDX-License-Identifier: BSD-3-Clause
"""What an interrupted bench leaves to the next one."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbdspec.bench.journal import Journal
from nbdspec.bench.model import Sample

HEAD = {"name": "x", "full": False}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a journal with two measurements."""
    answer = tmp_path / "out" / "x.partial"
    journal = Journal(answer, HEAD)
    journal.add("row", "column", 0, Sample(1.5, requests=7, extra={"a": 0.25}))
    journal.add("row", "column", 1, Sample(2.5, said="text\nmore"))
    return answer


def test_all_of_a_sample_is_kept(path: Path) -> None:
    journal = Journal(path, HEAD)
    assert len(journal) == 2
    first = journal.find("row", "column", 0)
    assert first == Sample(1.5, requests=7, extra={"a": 0.25})
    assert journal.find("row", "column", 1) == Sample(2.5, said="text\nmore")
    assert journal.find("row", "column", 2) is None


def test_measurements_of_something_else_are_dropped(path: Path) -> None:
    assert len(Journal(path, HEAD | {"full": True})) == 0
    assert len(Journal(path, HEAD)) == 0


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_line_that_was_cut_off(path: Path, cut: int) -> None:
    """By a crash in the middle of writing: what is before it counts."""
    path.write_bytes(path.read_bytes()[: -1 - cut])
    journal = Journal(path, HEAD)
    assert len(journal) == 1
    journal.add("row", "column", 1, Sample(3.0))
    assert len(Journal(path, HEAD)) == 2


def test_not_a_journal(path: Path) -> None:
    path.write_bytes(b"\xff\0{")
    assert len(Journal(path, HEAD)) == 0
