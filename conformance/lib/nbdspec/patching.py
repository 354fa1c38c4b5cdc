# SPDX-License-Identifier: BSD-3-Clause
"""Applies unified diffs: exactly, wherever the lines have moved to."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .errors import BadFile

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")


@dataclass
class Hunk:
    line: int
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)


def parse(diff: str, where: str) -> dict[str, list[Hunk]]:
    """File -> its hunks."""
    files: dict[str, list[Hunk]] = {}
    hunks: list[Hunk] | None = None
    for number, line in enumerate(diff.splitlines(), 1):
        if line.startswith("+++ "):
            name = line[4:].split("\t")[0]
            hunks = files.setdefault(name.removeprefix("b/"), [])
        elif line.startswith(("--- ", "diff ", "index ")):
            continue
        elif match := _HUNK.match(line):
            if hunks is None:
                raise BadFile(f"{where}: diff line {number}: no +++ line before it")
            hunks.append(Hunk(int(match.group(1))))
        elif hunks and line[:1] in (" ", "-", "+", ""):
            if line[:1] != "+":
                hunks[-1].old.append(line[1:])
            if line[:1] != "-":
                hunks[-1].new.append(line[1:])
        elif not line.startswith("\\"):
            raise BadFile(f"{where}: diff line {number}: {line[:30]!r} is no diff")
    return files


def apply(text: str, hunks: list[Hunk], where: str) -> str:
    """The text with the hunks applied, each at the place nearest to where it was."""
    lines = text.split("\n")
    moved = 0
    for number, hunk in enumerate(hunks, 1):
        wanted = hunk.line - 1 + moved
        place = _find(lines, hunk.old, wanted)
        if place is None:
            raise BadFile(f"{where}: hunk {number} no longer applies: {hunk.old[0]!r}")
        lines[place : place + len(hunk.old)] = hunk.new
        moved = place - (hunk.line - 1) + len(hunk.new) - len(hunk.old)
    return "\n".join(lines)


def _find(lines: list[str], old: list[str], wanted: int) -> int | None:
    """Where these lines are, nearest to a line number."""
    places = [
        at
        for at in range(len(lines) - len(old) + 1)
        if lines[at] == old[0] and lines[at : at + len(old)] == old
    ]
    return min(places, key=lambda at: abs(at - wanted), default=None)
