# SPDX-License-Identifier: BSD-3-Clause
"""All cases, without running them: for list, explain, the ledger and the docs."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Collection

from . import HOME
from .case import GROUPS, Case, cases
from .errors import KitError

#: What a file of cases that is not right ends with.
_BROKEN = (
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    SyntaxError,
    TypeError,
    ValueError,
)

_RANDOM = re.compile(r"^(?:from|import) hypothesis\b", re.M)


def case_dirs(groups: Collection[str] = GROUPS) -> list[Path]:
    """Where cases of these suites are.

    NBDSPEC_CASES names further directories; with NBDSPEC_CASES_ONLY they are all.
    """
    more = os.environ.get("NBDSPEC_CASES", "")
    named = [Path(p) for p in more.split(os.pathsep) if p]
    if os.environ.get("NBDSPEC_CASES_ONLY"):
        return named
    own = [HOME / "cases" / group for group in GROUPS if group in groups]
    return [path for path in own if path.is_dir()] + named


def load_all() -> dict[str, list[Case]]:
    skipped = left_out(GROUPS)
    for directory in case_dirs():
        for path in sorted(directory.glob("test_*.py")):
            if path not in skipped:
                _load(path)
    return cases()


def left_out(groups: Collection[str]) -> list[Path]:
    """Files of cases that need hypothesis, where there is none."""
    if importlib.util.find_spec("hypothesis") is not None:
        return []
    files = [
        path for place in case_dirs(groups) for path in sorted(place.glob("test_*.py"))
    ]
    return [path for path in files if _RANDOM.search(path.read_text("utf-8", "replace"))]


def _load(path: Path) -> None:
    name = f"nbdspec_cases_{path.parent.name}_{path.stem}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise KitError(f"{path}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # A section's helpers may lie beside its cases, as pytest has it.
    try:
        spec.loader.exec_module(module)
    except _BROKEN as error:
        raise KitError(f"{path}: {type(error).__name__}: {error}") from None


def by_row() -> dict[str, list[str]]:
    """Ledger row -> the cases that name it."""
    table: dict[str, list[str]] = {}
    for id, entries in load_all().items():
        for entry in entries:
            for row in entry.req:
                named = table.setdefault(row, [])
                if id not in named:
                    named.append(id)
    return table
