# SPDX-License-Identifier: BSD-3-Clause
"""The kit where a package that it uses is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit import CASES, Kit

#: Makes a package look as if it were not installed.
HIDE = '''
from importlib.machinery import PathFinder

found = PathFinder.find_spec

def find_spec(cls, name, path=None, target=None):
    return None if name == "{name}" else found(name, path, target)

PathFinder.find_spec = classmethod(find_spec)
'''

RANDOM = '''
import hypothesis

@case("self.random", req=["TX-READ-05"], mode=Mode())
def test_random(wire):
    """A READ brings zeroes, whatever comes."""
    wire.transmit()
'''


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    made = Kit(tmp_path)
    made.write(CASES)
    return made


def without(kit: Kit, name: str) -> dict[str, str]:
    hidden = kit.directory / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(HIDE.format(name=name))
    return {"PYTHONPATH": str(hidden)}


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_without_hypothesis_all_else_runs(kit: Kit, jobs: str) -> None:
    kit.write(RANDOM, "test_random.py")
    run = kit.server("", "--jobs", jobs, **without(kit, "hypothesis"))
    assert run.status == 0, run.err
    assert run.verdicts["self.read"] == "PASS"
    assert "self.random" not in run.verdicts
    assert "test_random.py is left out: hypothesis is not installed" in run.err


def test_list_without_hypothesis(kit: Kit) -> None:
    kit.write(RANDOM, "test_random.py")
    run = kit.run("list", **without(kit, "hypothesis"))
    assert run.status == 0 and "self.read" in run.out


def test_without_xdist_one_after_the_other(kit: Kit) -> None:
    env = without(kit, "xdist")
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # it is not even named to pytest
    run = kit.server("", "--jobs", "2", **env)
    assert (run.status, run.verdicts["self.read"]) == (0, "PASS")
    assert "pytest-xdist is not installed: one case after the other" in run.err
