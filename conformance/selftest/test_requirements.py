# SPDX-License-Identifier: BSD-3-Clause
"""docs/requirements.md says what is so."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PARTS = ("ci/requirements", "conformance/lib", "conformance/ledger", "conformance/cases")


def check(tree: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(tree / "ci" / "requirements"), "--check"]
    return subprocess.run(argv, capture_output=True, text=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the page is made from, and of the page."""
    for part in (*PARTS, "docs"):
        source, target = TOP / part, tmp_path / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)
    return tmp_path


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def test_page_is_true() -> None:
    done = check(TOP)
    assert done.returncode == 0, done.stderr


def test_case_that_is_gone(tree: Path) -> None:
    change(tree / "docs" / "requirements.md", "`xh.beyond-4g`", "`xh.beyond-5g`")
    done = check(tree)
    assert done.returncode == 1
    assert "XH-32: xh.beyond-5g does not check it" in done.stderr


def test_row_without_a_text(tree: Path) -> None:
    change(tree / "docs" / "requirements.tsv", "XH-32\t", "XH-99\t")
    done = check(tree)
    assert done.returncode == 1
    assert "XH-32: no text" in done.stderr
    assert "XH-99: no such row" in done.stderr


def test_text_that_was_changed(tree: Path) -> None:
    change(tree / "docs" / "requirements.tsv", "XH-32\t", "XH-32\tNot ")
    done = check(tree)
    assert done.returncode == 1
    assert "its text differs" in done.stderr
