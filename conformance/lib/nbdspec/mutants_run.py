# SPDX-License-Identifier: BSD-3-Clause
"""make mutants: builds each mutant and demands that its cases notice.

A mutant is the bundled server with one patch. Every case that a patch names has to
fail, with the patch's words in its message; all of them have to pass on the clean
server. Each mutant is built and judged by a process of its own, forked when everything
is imported; a few of them run at once, as most of the time is waiting.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from . import known, ledger, pki, syncs
from .collect import load_all
from .errors import BadFile, KitError
from .mutants import Mutant, load
from .mutants_build import TREE, Builder, patched
from .targets.base import CannotDo
from .verdict import ENDS_IN_ORDER

#: A mutant may hang its cases; each of them has its own limit long before.
LIMIT = 300
#: So many at once for each core.
EACH_CORE = 3

Found = dict[str, tuple[str, str]]


@dataclass
class Task:
    """Something to be judged: lines that tell about it, and what is wrong."""

    name: str
    work: Callable[[], tuple[list[str], list[str]]]
    start: float = 0.0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a glob; else all")
    parser.add_argument("--check", action="store_true", help="only that they apply")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="a sample: each Nth by name"
    )
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="GLOB",
        help="cases that the patch does not name; those that fail are shown",
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=cores * EACH_CORE)
    arguments = parser.parse_args(argv)
    try:
        wanted = _select(arguments.names)[:: max(arguments.every, 1)]
        problems = check(wanted)
        if problems or arguments.check:
            for problem in problems:
                print(problem)
            print(f"{len(wanted)} mutants, {len(problems)} problems")
            return 1 if problems else 0
        return _run(wanted, max(1, arguments.jobs), arguments.also)
    except KitError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2


def _select(names: list[str]) -> list[Mutant]:
    everything = list(load().values())
    if not names:
        return everything
    found = [m for m in everything if any(known.glob(m.name, n) for n in names)]
    if not found:
        raise KitError(f"no mutant is called {' or '.join(names)}")
    return found


def check(mutants: list[Mutant]) -> list[str]:
    """Whether each still applies, and names rows and cases that exist."""
    rows, cases = ledger.load(), load_all()
    problems = []
    for mutant in mutants:
        where = f"{mutant.path.name}"
        problems += [f"{where}: no row {r}" for r in mutant.breaks if r not in rows]
        for id, _ in mutant.kills:
            if id.partition("[")[0] not in cases:
                problems.append(f"{where}: no case {id}")
        try:
            patched(mutant)
        except BadFile as error:
            problems.append(str(error))
    return problems


# Running


def _run(mutants: list[Mutant], jobs: int, also: list[str]) -> int:
    directory = TREE / "build" / "mutants"
    builder = Builder(directory)
    start, spent = time.monotonic(), os.times()
    clean = builder.build_base()
    _prepare()
    named = {id for mutant in mutants for id, _ in mutant.kills}
    tasks = [
        Task(f"clean {stem}", lambda s=stem, i=ids: _clean(clean, i, directory, s))
        for stem, ids in _by_file(named).items()
    ]
    tasks += [
        Task(m.name, lambda m=m: _one(m, builder, directory, also)) for m in mutants
    ]
    bad = []
    for task, (told, problems) in _all(tasks, jobs, directory / "out"):
        word = "alive " if problems else "killed"
        if task.name.startswith("clean "):
            word = "failed" if problems else "passed"
        seconds = time.monotonic() - task.start
        print(f"{word} {task.name} ({seconds:.1f} s)")
        for line in problems + told:
            print(f"       {line}")
        sys.stdout.flush()
        if problems:
            bad.append(task.name)
    seconds, now = time.monotonic() - start, os.times()
    survived = sum(not name.startswith("clean ") for name in bad)
    cpu = now.children_user + now.children_system + now.user + now.system
    cpu -= spent.children_user + spent.children_system + spent.user + spent.system
    print(
        f"{len(mutants) - survived} of {len(mutants)} mutants killed;"
        f" {seconds:.1f} s, {cpu:.1f} s of processors"
    )
    if bad:
        print(f"not as it has to be: {', '.join(bad)}")
    return 1 if bad else 0


def _prepare() -> None:
    """What each process would import or make for itself."""
    import hypothesis  # noqa: F401

    from . import cmd_server, plugin, runner  # noqa: F401

    for make in (pki.directory, syncs.library):
        try:
            make()
        except CannotDo:
            continue


def _all(tasks: list[Task], jobs: int, out: Path):
    """Each task with its result, as they end."""
    out.mkdir(parents=True, exist_ok=True)
    waiting, running = list(reversed(tasks)), {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                task = waiting.pop()
                task.start = time.monotonic()
                running[_fork(task, out)] = task
            pid, status = os.wait()
            if pid in running:
                yield running[pid], _result(running.pop(pid), status, out)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)


def _fork(task: Task, out: Path) -> int:
    """The servers of the process end with it."""
    path = _path(task, out)
    path.unlink(missing_ok=True)
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    signal.alarm(LIMIT)
    status = 1
    with path.with_suffix(".log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        try:
            result = task.work()
        except KitError as error:
            result = ([], [str(error)])
        path.write_text(json.dumps(result))
        status = 0
    finally:  # whatever happened, this is no second runner
        if status:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _path(task: Task, out: Path) -> Path:
    return out / f"{task.name.replace(' ', '.')}.result"


def _result(task: Task, status: int, out: Path) -> tuple[list[str], list[str]]:
    path = _path(task, out)
    if status or not path.exists():
        log = path.with_suffix(".log").read_text("utf-8", "replace").strip()
        return [], [f"its process ended with status {status}: {log[-300:]}"]
    told, problems = json.loads(path.read_text())
    return told, problems


def _by_file(ids: set[str]) -> dict[str, list[str]]:
    """The cases of each file, which run together."""
    table: dict[str, list[str]] = defaultdict(list)
    cases = load_all()
    for id in sorted(ids):
        path = Path(cases[id.partition("[")[0]][0].file)
        table[f"{path.parent.name}.{path.stem}"].append(id)
    return table


def _clean(
    program: Path, ids: list[str], directory: Path, stem: str
) -> tuple[list[str], list[str]]:
    """On the server as it is, each of the cases has to run, and to pass."""
    found = _cases(program, ids, directory / "out" / f"clean.{stem}.json")
    problems = []
    for id in ids:
        verdict, message = found.get(id, ("N/A", "was not run"))
        if verdict == "N/A" and id in found and _wants_less(id):
            continue
        if verdict in ("FAIL", "WARN", "STALE", "N/A"):
            problems.append(f"{id}: {verdict} {message.splitlines()[:1]}")
    return [], problems


def _wants_less(id: str) -> bool:
    """The case is for servers that lack something, as only the mutant does."""
    entries = load_all()[id.partition("[")[0]]
    return any(need.word.startswith("no-") for entry in entries for need in entry.needs)


def _one(
    mutant: Mutant, builder: Builder, directory: Path, also: list[str]
) -> tuple[list[str], list[str]]:
    try:
        program = builder.build(mutant)
        out = directory / "out" / f"{mutant.name}.json"
        named = [id for id, _ in mutant.kills]
        found = _cases(program, named + also, out)
        told = _noticed(set(named), found) if also else []
        return told, _survived(mutant, found)
    finally:
        builder.done(mutant)


def _survived(mutant: Mutant, found: Found) -> list[str]:
    problems = []
    for id, words in mutant.kills:
        verdict, message = found.get(id, ("N/A", "was not run"))
        if verdict not in ("FAIL", "WARN"):
            problems.append(f"{id}: {verdict}, has to fail")
        elif not any(some in message for some in words.split(" | ")):
            told = " / ".join(message.splitlines()[:4])
            problems.append(f"{id}: failed without the words {words!r}: {told}")
    return problems


def _noticed(named: set[str], found: Found) -> list[str]:
    """The other cases that failed, and what they say."""
    return [
        f"{id}: {verdict} {' / '.join(message.splitlines()[:4])}"
        for id, (verdict, message) in found.items()
        if verdict in ("FAIL", "WARN") and id not in named and not id.endswith("]")
    ]


def _cases(program: Path, ids: list[str], out: Path) -> Found:
    """Case or case[variant] -> its verdict and all that it says."""
    from . import cli

    out.unlink(missing_ok=True)
    argv = ["server", "--target", "nbdspecd", "--json", str(out), "--known", "none"]
    argv += ["--record", "none", "--jobs", "1", "--slow", "-q"]
    argv += ["--replay-dir", str(out.with_suffix(""))]
    for id in ids:
        argv += ["--case", id]
    os.environ["NBDSPECD"] = str(program)
    os.environ["NBDSPEC_CASES"] = os.pathsep.join(_files(ids))
    os.environ["NBDSPEC_CASES_ONLY"] = "1"
    status = cli.main(argv)
    shutil.rmtree(out.with_suffix(""), ignore_errors=True)
    if not out.exists() or not out.read_text():
        raise KitError(f"no result; status {status}")
    found: Found = {}
    for case in json.loads(out.read_text())["cases"]:
        runs = case["variants"]
        words = "\n".join(run["message"] for run in runs)
        found[case["id"]] = (case["verdict"], words)
        for run in runs:
            name = f"{case['id']}[{run['variant']}]"
            found[name] = (run["verdict"], run["message"])
    # A server that ends badly for what the cases did to it was found out as well.
    end = found.get(ENDS_IN_ORDER)
    if end is not None:
        for name, (verdict, words) in list(found.items()):
            if verdict == "PASS":
                found[name] = end
    return found


def _files(globs: list[str]) -> list[str]:
    """Where the cases are: pytest reads no other files."""
    return sorted(
        {
            entry.file
            for id, entries in load_all().items()
            for entry in entries
            if any(known.glob(id, name.partition("[")[0]) for name in globs)
        }
    )


if __name__ == "__main__":
    sys.exit(main())
