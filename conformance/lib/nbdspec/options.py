# SPDX-License-Identifier: BSD-3-Clause
"""What a run was asked to do; travels to the worker processes as JSON."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import asdict, dataclass, field

from .case import GROUPS, Case, group_of
from .ledger import Row
from .targets.base import Options as TargetOptions


@dataclass
class RunOptions:
    target: TargetOptions = field(default_factory=TargetOptions)
    cases: list[str] = field(default_factory=list)
    sections: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    level: str = ""
    only: list[str] = field(default_factory=list)
    everything: bool = False
    quick: bool = False
    slow: bool = False
    clients: list[str] = field(default_factory=list)
    record: str = "failures"
    replay_dir: str = ""
    repeat: int = 1
    seed: int = 0
    known: list[str] = field(default_factory=list)
    fail_on: str = "must"

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> "RunOptions":
        data = json.loads(text)
        data["target"] = TargetOptions(**data["target"])
        return cls(**data)

    def selects(self, case: Case, variant: str, ledger: dict[str, Row]) -> bool:
        """Whether this run of a case was asked for."""
        name = f"{case.id}[{variant}]" if variant else case.id
        if self.only:
            return name in self.only
        if self.cases and not any(_matches(name, case.id, g) for g in self.cases):
            return False
        if self.sections and not any(in_section(case, s) for s in self.sections):
            return False
        if case.group not in self.groups():
            return False
        if self.rows and not set(self.rows) & set(case.req):
            return False
        if self.level and case.level.value != self.level:
            return False
        if self.quick and not case.quick:
            return False
        return self.slow or not case.slow


    def groups(self) -> set[str]:
        """Of which suites the run can have cases; the others need not be read."""
        if self.only:
            return set(GROUPS)
        if self.sections:
            return {group_of(section) for section in self.sections}
        asked = self.cases or self.rows or self.everything
        return set(GROUPS) if asked else {"protocol"}


def in_section(case: Case, wanted: str) -> bool:
    """"plugin" stands for all of its sections."""
    return case.section == wanted or case.section.startswith(wanted + ".")


def _matches(name: str, id: str, glob: str) -> bool:
    """A glob may mean a case or one of its variants; brackets are not magic."""
    pattern = glob.replace("[", "[[]")
    return fnmatch.fnmatchcase(id, pattern) or fnmatch.fnmatchcase(name, pattern)
