# SPDX-License-Identifier: BSD-3-Clause
"""Runs the cases through pytest and gathers their outcomes."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from _pytest.config import create_terminal_writer

from . import HOME, interrupt
from .collect import case_dirs, left_out
from .errors import KitError
from .options import RunOptions
from .result import Result
from .terminal import Terminal
from .verdict import Outcome


class Gatherer:
    """Lives in the process that was started; the workers send it their reports."""

    def __init__(self, result: Result, terminal: Terminal, known=None) -> None:
        self.result = result
        self.terminal = terminal
        self.known = known
        self.pytest_output = io.StringIO()
        self.broken: list[str] = []
        self.problems: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """pytest's own reporter writes aside; it is shown when pytest fails."""
        reporter = config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter._tw = create_terminal_writer(config, self.pytest_output)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.terminal.expected = len(session.items)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.problems.append(report.longreprtext)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node, ids) -> None:
        self.terminal.expected = len(ids)

    def pytest_internalerror(self, excrepr: object) -> None:
        self.problems.append(str(excrepr))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error) -> None:
        if error:
            self.problems.append(f"a worker ended: {error}")
        self.ends(getattr(node, "workeroutput", {}).get("nbdspec", []))

    def ends(self, outcomes: list[dict]) -> None:
        """How the servers ended: told when it went wrong, and once when not."""
        for data in outcomes:
            outcome = Outcome.from_json(data)
            if outcome.verdict.value != "PASS":
                self._take(outcome)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for key, value in report.user_properties:
            if key == "nbdspec":
                self._take(Outcome.from_json(value))  # type: ignore[arg-type]
            elif key == "nbdspec-broken":
                if not any(value in told for told in self.broken):
                    self.broken.append(f"{report.nodeid}: {value}")
        if report.failed:
            self.problems.append(f"{report.nodeid}: {report.longreprtext}")

    def _take(self, outcome: Outcome) -> None:
        if self.known is not None:
            self.known.apply(outcome)
        self.result.add(outcome)
        self.terminal.outcome(outcome)


def run(
    options: RunOptions, gatherer: Gatherer, *, jobs: int = 0, paths: list[Path] = []
) -> int:
    """Runs what was asked for; pytest's exit status."""
    scratch = tempfile.mkdtemp(prefix="nbdspec.")
    args = [
        *(str(path) for path in paths or case_dirs(options.groups())),
        "-c",
        str(HOME / "cases" / "pytest.ini"),
        "--rootdir",
        str(HOME / "cases"),
        "-p",
        "nbdspec.plugin",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        f"--basetemp={scratch}",
        "--nbdspec",
        options.dump(),
    ]
    for path in left_out(options.groups()):
        note(f"{path.name} is left out: hypothesis is not installed")
        args += ["--ignore", str(path)]
    if jobs > 1 and find_spec("xdist") is None:
        note("pytest-xdist is not installed: one case after the other")
        jobs = 1
    if jobs > 1:
        args += ["-n", str(jobs), "--maxfail=0"]
    os.environ.pop("PYTEST_ADDOPTS", None)
    try:
        return int(pytest.main(args, plugins=[_Registrar(gatherer)]))
    finally:
        _remove(scratch)


class _Registrar:
    """Gives the gatherer a name by which the plugin finds it."""

    def __init__(self, gatherer: Gatherer) -> None:
        self._gatherer = gatherer

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.pluginmanager.register(self._gatherer, "nbdspec-gatherer")


def _remove(path: str) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def run_and_report(
    options: RunOptions,
    result: Result,
    terminal: Terminal,
    *,
    jobs: int,
    known=None,
    paths: list[Path] = [],
) -> tuple[int, list[str]]:
    """Exit status of nbdspec, and what kept the kit from doing its work."""
    start = time.monotonic()
    gatherer = Gatherer(result, terminal, known)
    status = run(options, gatherer, jobs=jobs, paths=paths)
    result.interrupted = interrupt.came()
    # What would have failed may not have run.
    if known is not None and not result.interrupted:
        for outcome in known.finish(result):
            terminal.outcome(outcome)
    problems = gatherer.problems + gatherer.broken
    if result.cases:
        terminal.summary(result, time.monotonic() - start)
    if result.interrupted:
        return 2, ["interrupted" + ("; what is above is kept" if result.cases else "")]
    if problems:
        return 2, problems
    if status == pytest.ExitCode.NO_TESTS_COLLECTED or not result.cases:
        if status not in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
            return 2, [gatherer.pytest_output.getvalue().strip()]
        return 3, ["no case was selected"]
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return 2, [gatherer.pytest_output.getvalue().strip()]
    return result.status(options.fail_on), []


def default_jobs(options: RunOptions) -> int:
    """As many as there are cores; for a handful of cases one will do."""
    narrow = options.cases or options.rows or options.only
    return 1 if narrow else min(4, len(os.sched_getaffinity(0)))


def note(text: str) -> None:
    print(f"nbdspec: {text}", file=sys.stderr)


__all__ = ["Gatherer", "KitError", "default_jobs", "note", "run_and_report"]
