# SPDX-License-Identifier: BSD-3-Clause
"""ci/specification finds the sentences of a newer specification that have no row."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
COMMIT = "0" * 39 + "1"
OLD = """\
# Requests

A server MUST answer each request. It does so
in any order; the client MAY wait.

* The server SHOULD be *quick*,
  and MUST NOT lie.
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the check reads, with OLD as the text that is pinned."""
    for part in ("ci/specification", "conformance/lib", "conformance/ledger"):
        source, target = TOP / part, tmp_path / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)
    (tmp_path / "old.md").write_text(OLD)
    done = run(tmp_path, "--pin", COMMIT, "old.md")
    assert done.returncode == 0, done.stderr
    return tmp_path


def run(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(tree / "ci" / "specification"), *words]
    return subprocess.run(argv, cwd=tree, capture_output=True, text=True)


def test_ledger_names_its_commits() -> None:
    lines = (TOP / "conformance" / "ledger" / "nbd.sentences").read_text().splitlines()
    assert re.fullmatch(r"# commit [0-9a-f]{40}: \d+ sentences", lines[0])
    assert len(lines) > 400
    assert all(re.fullmatch(r"#.*|[0-9a-f]{16}", line) for line in lines)


def test_text_that_is_pinned(tree: Path) -> None:
    done = run(tree, "old.md")
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 normative sentences, 0 without a row" in done.stdout


def test_other_line_breaks_are_no_change(tree: Path) -> None:
    text = OLD.replace("It does so\nin", "It does\nso in").replace("*quick*", "quick")
    (tree / "new.md").write_text(text)
    assert run(tree, "new.md").returncode == 0


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("MUST NOT lie", "SHOULD NOT lie", "new.md:6: Requests: The server SHOULD be"),
        ("MAY wait.", "MAY wait.  A read MUST NOT be long.", "Requests: A read MUST"),
        ("# Requests", "# Ends\n\nIt is REQUIRED to end.\n\n# Requests", ":3: Ends: It"),
    ],
    ids=["changed", "added", "section"],
)
def test_sentence_without_a_row(tree: Path, old: str, new: str, told: str) -> None:
    assert old in OLD
    (tree / "new.md").write_text(OLD.replace(old, new))
    done = run(tree, "new.md")
    assert done.returncode == 1
    assert told in done.stdout
    assert ", 1 without a row" in done.stdout
    assert re.search(r"no row; closest: [A-Z]+-\S+, ", done.stdout)


def test_pin_wants_commits(tree: Path) -> None:
    done = run(tree, "--pin", "master", "old.md")
    assert done.returncode == 2
    assert "master: expected a commit" in done.stderr


def test_file_that_is_not_there(tree: Path) -> None:
    done = run(tree, "none.md")
    assert (done.returncode, done.stderr) == (2, "none.md: No such file or directory\n")
