# SPDX-License-Identifier: BSD-3-Clause
"""One run of one case: its evidence, and the judgement."""

from __future__ import annotations

import errno
import re
import subprocess
import zlib
from pathlib import Path

from .case import Case
from .clock import Clock
from .ledger import sentence
from .targets.base import CannotDo
from .transcript import Transcript
from .verdict import Breach, Finding, Hang, Level, NotApplicable, Outcome, Verdict


_LATE = (
    "What does not come in time fails a case of any level. Where the machine is busy, "
    "NBDSPEC_TIME_FACTOR=4 gives it four times as long."
)


#: What a case ends with when the server did not do as it should.
_OF_THE_SERVER = (AssertionError, OSError, subprocess.TimeoutExpired)
#: No server's fault.
_OF_THE_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS)


class CaseRun:
    def __init__(self, case: Case, variant: str) -> None:
        self.case = case
        self.variant = variant
        self.transcript = Transcript()
        self.findings: list[Finding] = []
        self.breach: BaseException | None = None
        self.words = ""
        self.broken = ""
        self.not_applicable = ""

    def ended(self, error: BaseException, words: str) -> None:
        """The case ended by an exception; words: how pytest tells it."""
        if isinstance(error, (NotApplicable, CannotDo)):
            self.not_applicable = str(error)
        elif isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
            self.broken = words
        elif isinstance(error, _OF_THE_SERVER) or _from_libnbd(error):
            # What the server did first counts, not what followed from it.
            if self.breach is None:
                self.breach, self.words = error, words
                if isinstance(error, Hang):
                    Clock.case_hung(self.case.id)
        else:
            self.broken = words

    def trouble(self, text: str) -> None:
        """A crash, a hang or a leak: fails the case, whatever its level."""
        self.findings.append(Finding(Level.MUST, text))

    def unstartable(self, text: str) -> None:
        """No server in the mode of the case: that is as bad as the case says."""
        self.findings.append(Finding(self.case.level, text))

    # The judgement

    def outcome(self, seconds: float) -> Outcome:
        verdict, message = self._judge()
        return Outcome(
            case=self.case.id,
            variant=self.variant,
            section=self.case.section,
            requirements=list(self.case.req),
            level=self.case.level.value,
            verdict=verdict,
            message=message,
            seconds=seconds,
        )

    def _judge(self) -> tuple[Verdict, str]:
        if self.broken:
            return Verdict.FAIL, f"the case itself broke: {self.broken}"
        found = [self._told(finding) for finding in self.findings]
        verdict = Verdict.PASS
        if self.breach is not None:
            level = getattr(self.breach, "level", None) or self.case.level
            verdict = level.verdict
            found.insert(0, self._breach_words())
        elif self.not_applicable and not found:
            return Verdict.NA, self.not_applicable
        for finding in self.findings:
            verdict = max(verdict, finding.verdict, key=lambda v: v.weight)
        return verdict, "\n".join(found)

    def _breach_words(self) -> str:
        breach = self.breach
        lines = [f"sent: {self.transcript.last_sent()}"]
        rows = list(self.case.req)
        if isinstance(breach, Breach):
            lines += [f"expected: {breach.expected}", f"came: {breach.came}"]
            if isinstance(breach, Hang):
                lines.append(_LATE)
            if breach.row:
                rows = [breach.row]
        else:
            lines.append(self.words)
        return "\n".join(lines + [sentence(row) for row in rows[:3]])

    def _told(self, finding: Finding) -> str:
        row = f"\n{sentence(finding.row)}" if finding.row else ""
        return finding.text + row

    # The replay file

    def write_replay(self, directory: Path, outcome: Outcome, head: dict) -> None:
        name = re.sub(r"[^\w.=-]+", "_", outcome.name).strip("_")
        if re.search(r"[^\w.=-]", outcome.variant):  # others may look the same
            name += f"-{zlib.crc32(outcome.name.encode()):08x}"
        path = directory / f"{name}.jsonl"
        head = {
            "case": outcome.case,
            "variant": outcome.variant,
            **head,
            "requirements": outcome.requirements,
            "verdict": outcome.verdict.value,
            "message": outcome.message,
        }
        self.transcript.write(path, head)
        outcome.replay = str(path)


def _from_libnbd(error: BaseException) -> bool:
    """nbd.Error, without importing nbd: the raw cases work where it is missing."""
    kind = type(error)
    return kind.__module__ == "nbd" and kind.__name__ == "Error"
