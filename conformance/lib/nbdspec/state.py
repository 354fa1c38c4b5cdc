# SPDX-License-Identifier: BSD-3-Clause
"""What one process of a run holds: the target, its servers, the judgement."""

from __future__ import annotations

from pathlib import Path

from .caserun import CaseRun
from .errors import KitError
from .mode import Mode
from .options import RunOptions
from .pool import Lease, Pool
from .process import ends_by
from .targets import Server, make
from .verdict import ENDS_IN_ORDER, Outcome, Verdict

#: A server that crashes has ended so long after its connections have.
_CRASH = 0.25


class State:
    def __init__(self, options: RunOptions) -> None:
        self.options = options
        self._pool: Pool | None = None
        self._version: str | None = None
        #: set when going on makes no sense
        self.cannot_run = ""

    @property
    def pool(self) -> Pool:
        """Made on first use: collecting cases needs no server."""
        if self.cannot_run:
            raise KitError(self.cannot_run)
        if self._pool is None:
            self._pool = Pool(make(self.options.target))
        return self._pool

    @property
    def version(self) -> str:
        if self._version is None:
            self._version = self.pool.target.version()
        return self._version

    def unusable(self, why: str) -> None:
        """The kit cannot go on: what is left is not even tried."""
        self.cannot_run = self.cannot_run or why

    def judge(self, run: CaseRun, seconds: float) -> Outcome:
        outcome = run.outcome(seconds)
        record = self.options.record
        wanted = outcome.verdict in (Verdict.FAIL, Verdict.WARN)
        if self.options.replay_dir and (record == "all" or wanted):
            if record != "none" and run.transcript.steps:
                head = {
                    "target": self.options.target.target,
                    "version": self.version,
                    "seed": self.options.seed,
                    "mode": run.case.mode.to_json(),
                }
                directory = Path(self.options.replay_dir)
                try:
                    run.write_replay(directory, outcome, head)
                except OSError as error:
                    outcome.message += f"\nno replay: {directory}: {error.strerror}"
        return outcome

    def check_health(self, run: CaseRun, lease: Lease) -> None:
        """After a case: does its server still run, in good order?"""
        server = lease.server
        process = server.process
        if process is not None and server.ended_by is not None:
            if process.wait() not in ends_by(server.ended_by):
                run.trouble(process.end_in_words())
            self.pool.drop(lease)
            return
        if process is not None and run.breach is not None:
            process.ends_within(_CRASH)  # its connections are the first to go
        if process is not None and process.status is not None:
            run.trouble(process.end_in_words())
            self.pool.drop(lease)
            return
        for trouble in lease.health.check():
            run.trouble(trouble)
        if run.breach is not None and process is not None and not _goes_on(server):
            # Whatever it got into, the next case is not to suffer from it.
            self.pool.drop(lease)
        elif server.mode.private:
            trouble = server.stop()
            if trouble:
                run.trouble(trouble)

    def close(self) -> list[Outcome]:
        """Ends the servers; how they end is a verdict too."""
        if self._pool is None:
            return []
        pool, self._pool = self._pool, None
        pool.close()
        return [_end(mode, trouble) for mode, trouble in pool.ends]


def _goes_on(server: Server) -> bool:
    """Whether what went wrong ended with the connection that it went wrong on."""
    return server.forks and not server.mode.private


def _end(mode: Mode, trouble: str) -> Outcome:
    """What sanitizers and clean-ups say when a server is told to end."""
    return Outcome(
        case=ENDS_IN_ORDER,
        variant=mode.describe(),
        section="server",
        requirements=[],
        level="must",
        verdict=Verdict.FAIL if trouble else Verdict.PASS,
        message=trouble,
    )
