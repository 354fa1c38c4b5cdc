# SPDX-License-Identifier: BSD-3-Clause
"""Known failures: what is expected to go wrong, with the reason why that is so.

    [[known]]
    server = "nbdkit"              # the target
    versions = ">=1.20,<1.40"      # may be left out: all
    case = "go.*"                  # an id, or a glob, or id[variant]
    verdict = "FAIL"               # or WARN
    text = "part of the message"
    reason = "why it is left as it is"
    reference = "https://..."      # may be left out
    may-pass = false               # true: undefined behaviour, KNOWN either way

An entry whose cases all pass is stale, and that is an error: it would hide the next
failure. So is one that names no case.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterable

from .errors import BadFile
from .result import Result
from .verdict import ENDS_IN_ORDER, Outcome, Verdict

REQUIRED = {"server": str, "case": str, "verdict": str, "text": str, "reason": str}
OPTIONAL = {"versions": str, "reference": str, "may-pass": bool}
_CONDITION = re.compile(r"\s*(>=|<=|==|>|<)\s*(\d+(?:\.\d+)*)\s*")


@dataclass
class Entry:
    path: Path
    number: int
    server: str
    case: str
    verdict: Verdict
    text: str
    reason: str
    versions: str = ""
    reference: str = ""
    may_pass: bool = False
    used: bool = False
    passed: list[Outcome] = field(default_factory=list)

    def names(self, outcome: Outcome) -> bool:
        return glob(outcome.case, self.case) or glob(outcome.name, self.case)

    def where(self) -> str:
        return f"{self.path}: entry {self.number} (case {self.case})"


def glob(name: str, pattern: str) -> bool:
    """fnmatch in which brackets mean themselves: variants are written in them."""
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


def read(path: Path, ids: Iterable[str] | None = None) -> list[Entry]:
    """The entries of a file; `ids`: the cases there are, to find misspelt ones."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFile(f"{path}: {error}; expected TOML with [[known]] tables") from None
    for key in data:
        if key != "known":
            raise BadFile(f"{path}: key {key!r} is unknown; expected [[known]] tables")
    tables = data.get("known", [])
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise BadFile(f"{path}: key known: expected [[known]] tables")
    entries = [_entry(path, n, table) for n, table in enumerate(tables, 1)]
    if ids is not None:
        _check_ids(entries, list(ids))
    return entries


def _entry(path: Path, number: int, table: dict) -> Entry:
    where = f"{path}: [[known]] table {number}"
    for key in table:
        if key not in REQUIRED and key not in OPTIONAL:
            allowed = ", ".join([*REQUIRED, *OPTIONAL])
            raise BadFile(f"{where}: key {key!r} is unknown; expected one of {allowed}")
    for key, kind in {**REQUIRED, **OPTIONAL}.items():
        if key not in table:
            if key in REQUIRED:
                raise BadFile(f"{where}: key {key!r} is missing")
        elif not isinstance(table[key], kind):
            raise BadFile(f"{where}: key {key!r}: expected a {kind.__name__}")
    if table["verdict"] not in ("FAIL", "WARN"):
        raise BadFile(f"{where}: key 'verdict': expected FAIL or WARN")
    if not table["text"] or not table["reason"]:
        raise BadFile(f"{where}: text and reason: expected words")
    _conditions(table.get("versions", ""), where)
    return Entry(
        path=path,
        number=number,
        server=table["server"],
        case=table["case"],
        verdict=Verdict(table["verdict"]),
        text=table["text"],
        reason=table["reason"],
        versions=table.get("versions", ""),
        reference=table.get("reference", ""),
        may_pass=table.get("may-pass", False),
    )


def _conditions(text: str, where: str) -> list[tuple[str, tuple[int, ...]]]:
    found = []
    for part in text.split(",") if text else []:
        match = _CONDITION.fullmatch(part)
        if match is None:
            raise BadFile(f"{where}: key 'versions': {part!r}; expected >=1.2,<2")
        found.append((match.group(1), _numbers(match.group(2))))
    return found


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version)[:4])


def covers(versions: str, version: str) -> bool:
    """Whether a version fulfils all conditions. What has no number fulfils none."""
    have = _numbers(version)
    if not versions:
        return True
    if not have:
        return False
    tests = {
        ">=": lambda a, b: a >= b,
        "<=": lambda a, b: a[: len(b)] <= b,
        "==": lambda a, b: a[: len(b)] == b,
        ">": lambda a, b: a[: len(b)] > b,
        "<": lambda a, b: a < b,
    }
    return all(tests[op](have, want) for op, want in _conditions(versions, versions))


def _check_ids(entries: list[Entry], ids: list[str]) -> None:
    for entry in entries:
        base = entry.case.partition("[")[0]
        names = [*ids, ENDS_IN_ORDER]
        if not any(fnmatch.fnmatchcase(id, base) for id in names):
            raise BadFile(f"{entry.where()}: there is no such case")


class Known:
    """The entries that apply to one server."""

    def __init__(self, entries: Iterable[Entry], server: str, version: str) -> None:
        name = server.partition(":")[0]
        entries = list(entries)
        self.entries = [
            e
            for e in entries
            if e.server in (server, name) and covers(e.versions, version)
        ]
        #: how many are for other servers or versions
        self.others = len(entries) - len(self.entries)

    def apply(self, outcome: Outcome) -> None:
        """Turns an expected failure into KNOWN; one that fails otherwise stays."""
        for entry in self.entries:
            if not entry.names(outcome):
                continue
            failed = outcome.verdict in (entry.verdict, Verdict.FAIL)
            if failed and outcome.verdict is entry.verdict:
                if entry.text in outcome.message:
                    entry.used = True
                    self._known(outcome, entry)
                    return
            if outcome.verdict is Verdict.PASS:
                if entry.may_pass:
                    self._known(outcome, entry)
                    return
                entry.passed.append(outcome)

    def _known(self, outcome: Outcome, entry: Entry) -> None:
        outcome.verdict = Verdict.KNOWN
        reference = f" ({entry.reference})" if entry.reference else ""
        outcome.known = entry.reason + reference
        outcome.message = f"known: {outcome.known}\n{outcome.message}".rstrip()

    def finish(self, result: Result) -> list[Outcome]:
        """Marks what passed though an entry says that it fails."""
        stale = []
        for entry in self.entries:
            if entry.used:
                continue
            for outcome in entry.passed:
                outcome.verdict = Verdict.STALE
                outcome.message = (
                    f"passed, though it is a known failure: {entry.where()}; "
                    "remove the entry"
                )
                stale.append(outcome)
        return stale
