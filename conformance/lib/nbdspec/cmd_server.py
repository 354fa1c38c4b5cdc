# SPDX-License-Identifier: BSD-3-Clause
"""nbdspec server: the cases against a server."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from . import HOME, interrupt, junit, ledger
from .case import CLIENTS, GROUPS
from .clock import time_factor
from .collect import left_out, load_all
from .conn import CHOPS
from .errors import KitError, NothingSelected, UsageError
from .known import Known
from .known import read as read_known
from .options import RunOptions
from .profile import read_profile
from .result import Result
from .result import read as read_result
from .targets import NAMES, Options, make
from .targets.command import PLACES
from .terminal import Terminal
from .verdict import ENDS_IN_ORDER


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add_selection(parser)
    add_run(parser)
    add_output(parser)


def add_target(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("the server").add_mutually_exclusive_group()
    names = ", ".join(NAMES)
    what.add_argument(
        "--target", metavar="NAME", help=f"{names}; NAME:BACKEND where it has several"
    )
    places = " ".join("{%s}" % place for place in PLACES)
    what.add_argument("--cmd", metavar="COMMAND", help=f"any program, with {places}")
    what.add_argument("--uri", help="a server that is running already")
    more = parser.add_argument_group("how it is treated")
    more.add_argument("--write", action="store_true", help="may write to --uri")
    more.add_argument("--hostile", action="store_true", help="malformed input too")
    more.add_argument(
        "--arg", action="append", default=[], metavar="WORD", help="for the server"
    )


def add_selection(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which cases")
    group.add_argument(
        "--case", action="append", default=[], metavar="GLOB", help="by id, id[variant]"
    )
    group.add_argument(
        "--section",
        action="append",
        default=[],
        metavar="NAME",
        help="of one section; plugin: of all of the plugin contract's",
    )
    group.add_argument(
        "--row",
        action="append",
        default=[],
        metavar="ID",
        help="that check this row of the ledgers",
    )
    group.add_argument(
        "--level",
        choices=("must", "should", "may"),
        default="",
        help="of this level only",
    )
    group.add_argument(
        "--client",
        action="append",
        default=[],
        choices=CLIENTS,
        metavar="NAME",
        help=f"that {' or '.join(CLIENTS)} plays",
    )
    group.add_argument("--quick", action="store_true", help="ten seconds' worth")
    group.add_argument("--slow", action="store_true", help="those that take seconds")


def add_run(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how they are run")
    group.add_argument("--profile", type=Path, metavar="FILE", help="as probe prints")
    group.add_argument("--chop", choices=CHOPS, default="no", help="how bytes are cut")
    group.add_argument("--seed", type=int, default=0, help="of what is random")
    group.add_argument(
        "--repeat", type=int, default=1, metavar="N", help="each case N times"
    )
    group.add_argument(
        "--last-failed", action="store_true", help="what went wrong in the last run"
    )
    group.add_argument(
        "--jobs",
        type=int,
        default=0,
        metavar="N",
        help="so many at once; otherwise one a core, four at most",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what comes out")
    group.add_argument(
        "--fail-on",
        choices=("must", "should", "any"),
        default="must",
        help="what makes the exit status 1: FAIL, WARN too, INFO too",
    )
    group.add_argument(
        "--known",
        action="append",
        type=Path,
        metavar="FILE",
        help="known failures; without it those that come with the kit; none: no file",
    )
    group.add_argument("--json", metavar="FILE", type=Path, help="the result as JSON")
    group.add_argument("--junit", metavar="FILE", type=Path, help="as JUnit's XML")
    group.add_argument(
        "--record",
        choices=("failures", "all", "none"),
        default="failures",
        help="whose conversation is kept for replay",
    )
    group.add_argument(
        "--replay-dir",
        metavar="DIR",
        type=Path,
        help="where (build/replay in the source tree, else nbdspec-replay)",
    )
    group.add_argument(
        "-q", "--quiet", action="store_true", help="no line for a case that passed"
    )


def run(arguments: argparse.Namespace) -> int:
    from .runner import default_jobs, note, run_and_report

    interrupt.catch()
    time_factor()  # a wrong one is told before anything starts
    options = run_options(arguments)
    check_rows(options)
    target = make(options.target)
    for path in (arguments.json, arguments.junit):
        if path:
            check_writable(path)
    last = Path(options.replay_dir) / "last.json"
    if arguments.last_failed:
        options.only = failed_last(last)
    result = Result(target.label, target.version())
    known = known_failures(arguments.known, options, result.version)
    if arguments.known and known is not None and known.others and not known.entries:
        name = options.target.target or "cmd"
        note(
            f"--known: no entry is for server {name}, version {result.version}; "
            f"{known.others} for others"
        )
    terminal = Terminal(quiet=arguments.quiet)
    terminal.header(f"target {result.target}, version {result.version}")
    status, problems = run_and_report(
        options,
        result,
        terminal,
        jobs=arguments.jobs or default_jobs(options),
        known=known,
    )
    for problem in problems:
        note(problem)
    if result.cases:
        keep(result, last)
    if arguments.json:
        result.write(arguments.json)
    if arguments.junit:
        junit.write(result, arguments.junit, options.fail_on)
    return status


def target_options(arguments: argparse.Namespace) -> Options:
    other = arguments.cmd or arguments.uri
    return Options(
        target=arguments.target or ("" if other else "nbdspecd"),
        cmd=arguments.cmd or "",
        uri=arguments.uri or "",
        write=arguments.write,
        hostile=arguments.hostile,
        args=arguments.arg,
    )


def run_options(arguments: argparse.Namespace) -> RunOptions:
    target = target_options(arguments)
    target.chop, target.seed = arguments.chop, arguments.seed
    if arguments.profile:
        read_profile(arguments.profile)
        target.profile = str(arguments.profile.resolve())
    if arguments.repeat < 1:
        raise UsageError(f"--repeat {arguments.repeat}: expected 1 or more")
    directory = arguments.replay_dir or default_replay_dir()
    return RunOptions(
        target=target,
        cases=arguments.case,
        sections=arguments.section,
        rows=arguments.row,
        level=arguments.level,
        clients=arguments.client,
        quick=arguments.quick,
        slow=arguments.slow,
        record=arguments.record,
        repeat=arguments.repeat,
        seed=arguments.seed,
        replay_dir=str(Path(directory).resolve()),
        fail_on=arguments.fail_on,
    )


def known_failures(
    files: list[Path] | None, options: RunOptions, version: str
) -> Known | None:
    """The entries that apply: from the files named, or from the kit's own."""
    name = options.target.target.partition(":")[0]
    if files is None:
        own = HOME / "known" / f"{name}.toml"
        files = [own] if name and own.exists() else []
    files = [path for path in files if str(path) != "none"]
    if not files:
        return None
    ids = load_all() if not left_out(GROUPS) else None
    entries = [entry for path in files for entry in read_known(path, ids)]
    return Known(entries, options.target.target or "cmd", version)


def failed_last(path: Path) -> list[str]:
    """The runs that went wrong in the last run."""
    if not path.exists():
        raise UsageError(f"--last-failed: {path} is not there; nothing ran yet")
    bad = ("FAIL", "WARN", "STALE")
    found = []
    for case in read_result(path)["cases"]:
        if case["id"] == ENDS_IN_ORDER:  # of the servers of other cases
            continue
        for run_ in case.get("variants", []):
            if run_["verdict"] in bad:
                variant = run_["variant"]
                found.append(f"{case['id']}[{variant}]" if variant else case["id"])
    if not found:
        raise NothingSelected("--last-failed: nothing failed in the last run")
    return found


def keep(result: Result, path: Path) -> None:
    """For --last-failed; a place where nothing can be written is no reason to fail."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        result.write(path)
    except OSError:
        return


def default_replay_dir() -> Path:
    """In the source tree under build/, elsewhere where one stands."""
    tree = HOME.parent
    if (tree / "Makefile").exists() and os.access(tree, os.W_OK):
        return tree / "build" / "replay"
    return Path("nbdspec-replay")


def check_rows(options: RunOptions) -> None:
    known = ledger.load()
    for row in options.rows:
        if row not in known:
            raise UsageError(f"--row {row}: no such row in the ledgers")


def check_writable(path: Path) -> None:
    """Finds out before the run, not after it."""
    try:
        path.open("a").close()
    except OSError as error:
        raise KitError(f"{path}: {error.strerror}") from None


