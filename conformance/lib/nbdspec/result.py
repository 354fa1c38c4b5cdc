# SPDX-License-Identifier: BSD-3-Clause
"""The outcome of a whole run: what the JSON file holds and the table shows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from . import __version__
from .errors import BadFile
from .verdict import Outcome, Verdict

_VERDICTS = {verdict.value for verdict in Verdict}
COUNTS_AT = {
    "must": (Verdict.FAIL, Verdict.STALE),
    "should": (Verdict.FAIL, Verdict.STALE, Verdict.WARN),
    "any": (Verdict.FAIL, Verdict.STALE, Verdict.WARN, Verdict.INFO),
}


@dataclass
class CaseResult:
    """A case with all of its runs; the worst of them speaks for it."""

    id: str
    section: str
    requirements: list[str]
    level: str
    runs: list[Outcome] = field(default_factory=list)

    @property
    def worst(self) -> Outcome:
        return max(self.runs, key=lambda outcome: outcome.verdict.weight)

    @property
    def verdict(self) -> Verdict:
        return self.worst.verdict

    @property
    def seconds(self) -> float:
        return sum(outcome.seconds for outcome in self.runs)

    def to_json(self) -> dict[str, object]:
        return {
            "id": self.id,
            "section": self.section,
            "requirements": self.requirements,
            "level": self.level,
            "verdict": self.verdict.value,
            "message": self.worst.message,
            "replay": self.worst.replay,
            "seconds": round(self.seconds, 4),
            "variants": [_variant(outcome) for outcome in self.runs],
        }


def _variant(outcome: Outcome) -> dict[str, object]:
    keys = ("variant", "verdict", "message", "replay", "seconds", "known")
    data = outcome.to_json()
    return {key: data[key] for key in keys}


@dataclass
class Result:
    target: str
    version: str
    profile: dict[str, object] = field(default_factory=dict)
    cases: dict[str, CaseResult] = field(default_factory=dict)
    interrupted: bool = False

    def add(self, outcome: Outcome) -> CaseResult:
        entry = self.cases.get(outcome.case)
        if entry is None:
            entry = self.cases[outcome.case] = CaseResult(
                outcome.case, outcome.section, outcome.requirements, outcome.level
            )
        entry.runs.append(outcome)
        return entry

    @property
    def totals(self) -> dict[str, int]:
        counts = {verdict.value: 0 for verdict in Verdict}
        for entry in self.cases.values():
            counts[entry.verdict.value] += 1
        return counts

    def by_section(self) -> dict[str, dict[str, int]]:
        table: dict[str, dict[str, int]] = {}
        for entry in self.cases.values():
            row = table.setdefault(entry.section, {v.value: 0 for v in Verdict})
            row[entry.verdict.value] += 1
        return dict(sorted(table.items()))

    def status(self, fail_on: str) -> int:
        """0, or 1 when something counts."""
        bad = COUNTS_AT[fail_on]
        runs = (run for entry in self.cases.values() for run in entry.runs)
        return 1 if any(run.verdict in bad for run in runs) else 0

    def to_json(self) -> dict[str, object]:
        data: dict[str, object] = {
            "nbdspec": __version__,
            "target": self.target,
            "version": self.version,
            "profile": self.profile,
            "totals": self.totals,
            "cases": [self.cases[id].to_json() for id in sorted(self.cases)],
        }
        if self.interrupted:
            data["interrupted"] = True
        return data

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.to_json(), indent=1) + "\n")


def read(path: Path) -> dict:
    """A result file, as far as others rely on it."""
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path}: {error}; expected a result file in JSON") from None
    for key in ("nbdspec", "target", "cases"):
        if not isinstance(data, dict) or key not in data:
            raise BadFile(f"{path}: no {key!r}; expected a result of nbdspec --json")
    if not isinstance(data["cases"], list):
        raise BadFile(f"{path}: key 'cases': expected a list")
    for number, case in enumerate(data["cases"], 1):
        _check_case(f"{path}: case {number}", case, ("id", "verdict", "message"))
        _check_variants(f"{path}: case {number}", case)
    totals = data.get("totals", {})
    if not isinstance(totals, dict) or set(totals) - _VERDICTS:
        raise BadFile(f"{path}: key 'totals': expected a number for each verdict")
    return data


def _check_case(where: str, case: object, keys: tuple[str, ...]) -> None:
    if not isinstance(case, dict):
        raise BadFile(f"{where}: expected an object")
    for key in keys:
        if not isinstance(case.get(key), str):
            raise BadFile(f"{where}: key {key!r}: expected a string")
    if case["verdict"] not in _VERDICTS:
        allowed = ", ".join(sorted(_VERDICTS))
        raise BadFile(f"{where}: key 'verdict': expected one of {allowed}")


def _check_variants(where: str, case: dict) -> None:
    runs = case.get("variants", [])
    if not isinstance(runs, list):
        raise BadFile(f"{where}: key 'variants': expected a list")
    for run in runs:
        _check_case(f"{where}, variants", run, ("variant", "verdict"))
