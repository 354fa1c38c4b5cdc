# SPDX-License-Identifier: BSD-3-Clause
"""make mutants: builds each mutant and demands that its cases notice.

A mutant is the bundled server with one patch; only what the patch touches is compiled.
Builds and runs of several mutants overlap. Every case that a patch names has to fail,
with the patch's words in its message; all of them have to pass on the clean server.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from . import HOME, known, ledger
from .collect import load_all
from .errors import BadFile, KitError
from .mutants import Mutant, load
from .patching import apply, parse

TREE = HOME.parent
#: What the server's build reads.
SOURCES = ("Makefile", "server", "ci", "conformance/lib/nbdspec/version.py")
#: A mutant may hang its cases; each of them has its own limit long before.
LIMIT = 300


@dataclass
class Verdict:
    mutant: str
    problems: list[str]
    seconds: float


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a glob; else all")
    parser.add_argument("--check", action="store_true", help="only that they apply")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="a sample: each Nth by name"
    )
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args(argv)
    try:
        wanted = _select(arguments.names)[:: max(arguments.every, 1)]
        problems = check(wanted)
        if problems or arguments.check:
            for problem in problems:
                print(problem)
            print(f"{len(wanted)} mutants, {len(problems)} problems")
            return 1 if problems else 0
        return _run(wanted, arguments.jobs)
    except BadFile as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 1
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


def patched(mutant: Mutant) -> dict[str, str]:
    """File -> its text with the patch applied."""
    where = mutant.path.name
    texts = {}
    for name, hunks in parse(mutant.diff, where).items():
        path = TREE / name
        if not path.exists():
            raise BadFile(f"{where}: {name} is not there any more")
        texts[name] = apply(path.read_text("utf-8"), hunks, f"{where}: {name}")
    return texts


# Building


class Builder:
    """A built copy of the tree, which each mutant starts from."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._base = directory / "base"

    def build_base(self) -> Path:
        """Brings the copy up to date; what did not change is not compiled again."""
        self._base.mkdir(parents=True, exist_ok=True)
        for name in SOURCES:
            _copy_newer(TREE / name, self._base / name)
        return self._make(self._base)

    def build(self, mutant: Mutant) -> Path:
        place = self._directory / "work" / mutant.name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self._base, place, symlinks=True)
        for name, text in patched(mutant).items():
            (place / name).write_text(text)
        return self._make(place)

    def done(self, mutant: Mutant) -> None:
        shutil.rmtree(self._directory / "work" / mutant.name, ignore_errors=True)

    def _make(self, place: Path) -> Path:
        env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
        target = "build/nbdspecd"
        done = subprocess.run(
            ["make", "-s", "SETUP=no", target],
            cwd=place,
            env=env,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if "error" in line]
            raise KitError("does not compile: " + (lines or [done.stderr[-300:]])[0])
        return place / target


def _copy_newer(source: Path, target: Path) -> None:
    """Copies what is newer or gone, keeping times, so that make sees what changed."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        names = {entry.name for entry in source.iterdir()}
        for entry in target.iterdir():
            if entry.name not in names:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        for name in names - {"__pycache__"}:
            _copy_newer(source / name, target / name)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists() or target.stat().st_mtime_ns != source.stat().st_mtime_ns:
        shutil.copy2(source, target)


# Running


def _run(mutants: list[Mutant], jobs: int) -> int:
    directory = TREE / "build" / "mutants"
    builder = Builder(directory)
    start = time.monotonic()
    clean = builder.build_base()
    named = sorted({id for mutant in mutants for id, _ in mutant.kills})
    problems = _clean(clean, named, directory)
    for problem in problems:
        print(f"clean server: {problem}")
    survived = 0
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        for verdict in pool.map(lambda m: _one(m, builder, directory), mutants):
            word = "alive " if verdict.problems else "killed"
            survived += bool(verdict.problems)
            print(f"{word} {verdict.mutant} ({verdict.seconds:.1f} s)", flush=True)
            for problem in verdict.problems:
                print(f"       {problem}", flush=True)
    seconds = time.monotonic() - start
    killed = len(mutants) - survived
    print(f"{killed} of {len(mutants)} mutants killed; {seconds:.1f} s")
    return 1 if survived or problems else 0


def _clean(program: Path, named: list[str], directory: Path) -> list[str]:
    """On the server as it is, each of the cases has to run, and to pass."""
    found = _cases(program, named, directory / "clean.json")
    problems = []
    for id in named:
        verdict, message = found.get(id, ("N/A", "was not run"))
        if verdict in ("FAIL", "WARN", "STALE", "N/A"):
            problems.append(f"{id}: {verdict} {message.splitlines()[:1]}")
    return problems


def _one(mutant: Mutant, builder: Builder, directory: Path) -> Verdict:
    start = time.monotonic()
    try:
        program = builder.build(mutant)
        out = directory / "out" / f"{mutant.name}.json"
        found = _cases(program, [id for id, _ in mutant.kills], out)
        problems = _survived(mutant, found)
    except KitError as error:
        problems = [str(error)]
    finally:
        builder.done(mutant)
    return Verdict(mutant.name, problems, time.monotonic() - start)


def _survived(mutant: Mutant, found: dict[str, tuple[str, str]]) -> list[str]:
    problems = []
    for id, words in mutant.kills:
        verdict, message = found.get(id, ("N/A", "was not run"))
        if verdict not in ("FAIL", "WARN"):
            problems.append(f"{id}: {verdict}, has to fail")
        elif words not in message:
            told = " / ".join(message.splitlines()[:4])
            problems.append(f"{id}: failed without the words {words!r}: {told}")
    return problems


def _cases(program: Path, ids: list[str], out: Path) -> dict[str, tuple[str, str]]:
    """Case or case[variant] -> its verdict and all that it says."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "nbdspec", "server", "--target", "nbdspecd"]
    argv += ["--json", str(out), "--known", "none", "--record", "none", "--jobs", "1"]
    argv += ["--slow", "--replay-dir", str(out.with_suffix("")), "-q"]
    for id in ids:
        argv += ["--case", id]
    env = dict(os.environ, NBDSPECD=str(program))
    done = subprocess.run(
        argv, env=env, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    shutil.rmtree(out.with_suffix(""), ignore_errors=True)
    if not out.exists() or not out.read_text():
        raise KitError(f"no result: {done.stderr.strip()[-300:]}")
    found: dict[str, tuple[str, str]] = {}
    for case in json.loads(out.read_text())["cases"]:
        runs = case["variants"]
        words = "\n".join(run["message"] for run in runs)
        found[case["id"]] = (case["verdict"], words)
        for run in runs:
            name = f"{case['id']}[{run['variant']}]"
            found[name] = (run["verdict"], run["message"])
    # A server that ends badly for what the cases did to it was found out as well.
    end = found.get("server.ends-in-order")
    if end is not None:
        for name, (verdict, words) in list(found.items()):
            if verdict == "PASS":
                found[name] = end
    return found


if __name__ == "__main__":
    sys.exit(main())
