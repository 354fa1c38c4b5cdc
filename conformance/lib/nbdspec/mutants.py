# SPDX-License-Identifier: BSD-3-Clause
"""Mutants: patches that break the bundled server, and the cases that notice.

The head of a patch:

    Source: where this bug was, or could be
    Breaks: ROW ROW
    Kills: case-id: words of the message
    Kills: third-case: words | other words, where it depends on who is quicker
    Kills: other-case

then a blank line and a unified diff against the tree.
"""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from . import HOME
from .errors import BadFile

_KEYS = ("Source", "Breaks", "Kills")


@dataclass
class Mutant:
    path: Path
    source: str = ""
    breaks: list[str] = field(default_factory=list)
    #: (case id, words that its message has to hold)
    kills: list[tuple[str, str]] = field(default_factory=list)
    diff: str = ""

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def files(self) -> list[str]:
        """The files that it changes, from the top of the tree."""
        return re.findall(r"^\+\+\+ b/(\S+)", self.diff, re.M)


def parse(path: Path) -> Mutant:
    mutant = Mutant(path)
    try:
        lines = path.read_text("utf-8").splitlines(keepends=True)
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadFile(f"{path}: {error}; expected text in UTF-8") from None
    number = 0
    for number, line in enumerate(lines, 1):
        if line.startswith(("--- ", "diff ")):
            number -= 1
            break
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, colon, value = text.partition(":")
        if not colon or key not in _KEYS:
            if line[0] in " \t" and mutant.source:
                mutant.source += " " + text
                continue
            allowed = ", ".join(f"{key}:" for key in _KEYS)
            raise BadFile(f"{path}:{number}: {text[:40]!r}; expected {allowed} or a diff")
        value = value.strip()
        if key == "Source":
            mutant.source = value
        elif key == "Breaks":
            mutant.breaks += value.split()
        elif key == "Kills":
            id, _, words = value.partition(":")
            mutant.kills.append((id.strip(), words.strip()))
    mutant.diff = "".join(lines[number:])
    for what, there in (
        ("Source:", mutant.source),
        ("Breaks:", mutant.breaks),
        ("Kills:", mutant.kills),
        ("a unified diff", mutant.files),
    ):
        if not there:
            raise BadFile(f"{path}: {what} is missing")
    return mutant


def directory() -> Path:
    return HOME / "mutants"


@functools.cache
def load() -> dict[str, Mutant]:
    found = [parse(path) for path in sorted(directory().glob("*.patch"))]
    return {mutant.name: mutant for mutant in found}


@functools.cache
def spared() -> dict[str, str]:
    """Case id -> why no mutant of the bundled server can be noticed by it."""
    path = directory() / "spared.toml"
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise BadFile(f"{path}: {error}") from None
    for id, reason in found.items():
        if not isinstance(reason, str) or not reason:
            raise BadFile(f"{path}: {id}: expected a reason")
    return found


def kills() -> dict[str, list[tuple[str, str]]]:
    """Case id -> the mutants that it kills, with the words of its message."""
    table: dict[str, list[tuple[str, str]]] = {}
    for mutant in load().values():
        for id, words in mutant.kills:
            table.setdefault(id.partition("[")[0], []).append((mutant.name, words))
    return table
