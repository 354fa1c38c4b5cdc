# SPDX-License-Identifier: BSD-3-Clause
"""nbdspec server: the cases against a server."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from . import ledger
from .errors import KitError, UsageError
from .options import RunOptions
from .result import Result
from .targets import NAMES, Options, make
from .terminal import Terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("the server").add_mutually_exclusive_group()
    names = ", ".join(NAMES)
    what.add_argument(
        "--target", metavar="NAME", help=f"{names}; NAME:BACKEND where it has several"
    )
    what.add_argument("--cmd", metavar="COMMAND", help="any program with {socket}")
    what.add_argument("--uri", help="a server that is running already")
    more = parser.add_argument_group("how it is treated")
    more.add_argument("--write", action="store_true", help="may write to --uri")
    more.add_argument("--hostile", action="store_true", help="malformed input too")
    more.add_argument(
        "--arg", action="append", default=[], metavar="WORD", help="for the server"
    )
    add_selection(parser)
    add_output(parser)


def add_selection(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which cases")
    group.add_argument("--case", action="append", default=[], metavar="GLOB")
    group.add_argument("--section", action="append", default=[], metavar="NAME")
    group.add_argument("--row", action="append", default=[], metavar="ID")
    group.add_argument("--level", choices=("must", "should", "may"), default="")
    group.add_argument("--client", action="append", default=[], metavar="NAME")
    group.add_argument("--quick", action="store_true", help="ten seconds' worth")
    group.add_argument("--slow", action="store_true", help="those that take seconds")


def add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what comes out")
    group.add_argument("--fail-on", choices=("must", "should", "any"), default="must")
    group.add_argument("--json", metavar="FILE", type=Path)
    group.add_argument(
        "--record", choices=("failures", "all", "none"), default="failures"
    )
    group.add_argument("--replay-dir", metavar="DIR", type=Path)
    group.add_argument("--jobs", type=int, default=0, metavar="N")
    group.add_argument("-q", "--quiet", action="store_true")


def run(arguments: argparse.Namespace) -> int:
    from .runner import default_jobs, note, run_and_report

    options = run_options(arguments)
    check_rows(options)
    target = make(options.target)
    if arguments.json:
        check_writable(arguments.json)
    result = Result(target.label, target.version())
    terminal = Terminal(quiet=arguments.quiet)
    terminal.header(f"target {result.target}, version {result.version}")
    status, problems = run_and_report(
        options, result, terminal, jobs=arguments.jobs or default_jobs(options)
    )
    for problem in problems:
        note(problem)
    if arguments.json:
        result.write(arguments.json)
    return status


def run_options(arguments: argparse.Namespace) -> RunOptions:
    named = arguments.target or ("" if arguments.cmd or arguments.uri else "nbdspecd")
    target = Options(
        target=named,
        cmd=arguments.cmd or "",
        uri=arguments.uri or "",
        write=arguments.write,
        hostile=arguments.hostile,
        args=arguments.arg,
    )
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
        replay_dir=str(Path(directory).resolve()),
        fail_on=arguments.fail_on,
    )


def default_replay_dir() -> Path:
    """In the source tree under build/, elsewhere where one stands."""
    from . import HOME

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


