# SPDX-License-Identifier: BSD-3-Clause
"""The pytest plugin: makes pytest run cases, and tells their outcomes."""

from __future__ import annotations

import pytest

from .case import Case
from .caserun import CaseRun
from .errors import KitError
from .fixtures import *  # noqa: F403  (pytest finds fixtures by their names)
from .ledger import load
from .options import RunOptions
from .process import CannotStart
from .state import State

#: So many runs of one case --quick is content with.
QUICK_RUNS = 4

run_key = pytest.StashKey[CaseRun]()
state_key = pytest.StashKey[State]()
_seconds_key = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nbdspec", default="{}", help="what to run, as JSON")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    options = RunOptions.parse(config.getoption("--nbdspec"))
    config.stash[state_key] = State(options)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Ends the servers, when the last case has let go of its own.

    A worker's findings go to the process that gathers.
    """
    state = session.config.stash.get(state_key, None)
    if state is None:
        return
    ends = [outcome.to_json() for outcome in state.close()]
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["nbdspec"] = ends
    else:
        gatherer = session.config.pluginmanager.get_plugin("nbdspec-gatherer")
        if gatherer is not None:
            gatherer.ends(ends)


# Collection


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A case for both clients is run once with each."""
    case: Case | None = getattr(metafunc.function, "nbdspec", None)
    if case is None:
        return
    if "client" in metafunc.fixturenames:
        metafunc.parametrize("client_name", case.clients, scope="function")
    repeat = metafunc.config.stash[state_key].options.repeat
    if repeat > 1:
        metafunc.fixturenames.append("repetition")
        names = [f"run{i}" for i in range(1, repeat + 1)]
        metafunc.parametrize("repetition", range(repeat), ids=names)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    options = config.stash[state_key].options
    ledger = load()
    kept: list[tuple[tuple, pytest.Item]] = []
    for place, item in enumerate(items):
        case: Case | None = getattr(getattr(item, "function", None), "nbdspec", None)
        if case is None:
            raise pytest.UsageError(f"{item.nodeid}: a test without @case")
        variant = _variant(item)
        if not options.selects(case, variant, ledger):
            continue
        clients = options.clients
        if clients and not set(clients) & set(_played_by(item, case)):
            continue
        item.stash[run_key] = CaseRun(case, variant)
        # Cases that share a server follow one another.
        kept.append(((not case.mode.default, repr(case.mode), place), item))
    if options.quick:
        kept = _sample(kept)
    kept.sort(key=lambda pair: pair[0])
    items[:] = [item for _, item in kept]


def _sample(kept: list[tuple[tuple, pytest.Item]]) -> list[tuple[tuple, pytest.Item]]:
    """Of a case with many runs the first, the last and some between them."""
    runs: dict[str, list[tuple[tuple, pytest.Item]]] = {}
    for pair in kept:
        runs.setdefault(pair[1].stash[run_key].case.id, []).append(pair)
    chosen = []
    for members in runs.values():
        last, most = len(members) - 1, QUICK_RUNS - 1
        if last > most:
            members = [members[round(i * last / most)] for i in range(QUICK_RUNS)]
        chosen += members
    return chosen


def _variant(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    return callspec.id if callspec is not None else ""


def _played_by(item: pytest.Item, case: Case) -> tuple[str, ...]:
    callspec = getattr(item, "callspec", None)
    name = callspec.params.get("client_name") if callspec is not None else None
    return (name,) if name else case.clients


# Outcomes


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    result = yield
    report = result.get_result()
    run = item.stash.get(run_key, None)
    if run is None:
        return
    state = item.config.stash[state_key]
    item.stash[_seconds_key] = item.stash.get(_seconds_key, 0.0) + call.duration
    if call.excinfo is not None:
        error = call.excinfo.value
        if isinstance(error, pytest.skip.Exception):
            run.not_applicable = str(error.msg)
        elif isinstance(error, CannotStart) and _special(run.case):
            run.unstartable(f"it did not start ({run.case.mode.describe()}): {error}")
        elif isinstance(error, KitError):
            state.unusable(str(error))
            run.broken = str(error)
        else:
            run.ended(error, _words(call))
        # The verdict is ours; to pytest nothing went wrong. A set-up that did not
        # come through counts as skipped, or pytest would go on to the case.
        report.outcome = "skipped" if call.when == "setup" else "passed"
        report.longrepr = None
        if call.when == "setup":
            report.longrepr = (case_file(run), run.case.line, "see the verdict")
    if call.when == "teardown":
        outcome = state.judge(run, item.stash[_seconds_key])
        report.user_properties.append(("nbdspec", outcome.to_json()))
        run.transcript.steps.clear()  # items live as long as the session
        if run.broken:
            report.user_properties.append(("nbdspec-broken", run.broken))


def _special(case: Case) -> bool:
    """A server that does not start in a special way fails the case, not the kit."""
    return case.group == "plugin" or not case.mode.default


def case_file(run: CaseRun) -> str:
    return run.case.file


def _words(call: pytest.CallInfo) -> str:
    """An exception in words; assertions come with the values that pytest shows."""
    assert call.excinfo is not None
    error = call.excinfo.value
    if isinstance(error, AssertionError):
        return str(error) or "an assertion"
    where = call.excinfo.traceback[-1]
    name = type(error).__name__
    return f"{name}: {error} ({where.path.name}:{where.lineno + 1})"
