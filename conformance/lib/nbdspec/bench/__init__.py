# SPDX-License-Identifier: BSD-3-Clause
"""nbdspec bench: servers measured side by side, as regress/scenarios describes."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path

from . import chart, runner, write
from .model import SCENARIOS, BenchError, Options, Scenario
from .server import ServerError, program

HOSTS = ("nbdspecd", "nbdkit", "limit")
NOTHING_SELECTED = 3
CANNOT_RUN = 2


def names() -> list[str]:
    """The benches there are, by the files of regress/scenarios."""
    return sorted(path.stem.replace("_", "-") for path in SCENARIOS.glob("*.py"))


def load(name: str) -> Scenario:
    path = SCENARIOS / (name.replace("-", "_") + ".py")
    spec = importlib.util.spec_from_file_location(f"scenario_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    scenario: Scenario = module.Scenario()
    return scenario


def hosts(text: str) -> list[str]:
    words = ["nbdspecd", "nbdkit"] if text == "both" else text.split(",")
    for word in words:
        if word not in HOSTS:
            raise argparse.ArgumentTypeError(
                f"no host {word!r}: expected {', '.join(HOSTS)} or both"
            )
    return words


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 0 to 3600")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    known = names()
    parser.add_argument(
        "name",
        nargs="+",
        metavar="NAME",
        choices=[*known, "all"],
        help=f"one or more of {', '.join(known)}, or all",
    )
    parser.add_argument(
        "--host",
        type=hosts,
        default=list(HOSTS),
        metavar="NAME[,NAME...]",
        help="servers to compare: nbdspecd, nbdkit, limit (an upper bound in C), "
        "both (nbdspecd,nbdkit); all of them unless given",
    )
    parser.add_argument("--row", default="*", metavar="GLOB", help="rows to measure")
    parser.add_argument("--full", action="store_true", help="longer runs, and more")
    parser.add_argument("--seconds", type=positive, help="length of a timed run")
    parser.add_argument("--repeat", type=int, help="runs of each cell")
    parser.add_argument(
        "--strace", action="store_true", help="count system calls in one run more"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/bench"),
        metavar="DIR",
        help="where NAME.json, NAME.md and NAME.svg go (build/bench)",
    )


def command(name: str, args: argparse.Namespace) -> str:
    words = ["nbdspec", "bench", name]
    if args.host != list(HOSTS):
        words += ["--host", ",".join(args.host)]
    words += ["--row", args.row] if args.row != "*" else []
    words += ["--full"] if args.full else []
    words += ["--seconds", f"{args.seconds:g}"] if args.seconds else []
    words += ["--repeat", str(args.repeat)] if args.repeat else []
    words += ["--strace"] if args.strace else []
    return shlex.join(words)


def run_one(name: str, args: argparse.Namespace) -> bool:
    """Runs, writes and prints one bench; whether any row was selected."""
    scenario = load(name)
    columns = [column for column in scenario.columns if column.host in args.host]
    for host in dict.fromkeys(column.host for column in columns):
        program(host)
    repeat = args.repeat or getattr(scenario, "repeat", (3, 5))[args.full]
    with tempfile.TemporaryDirectory(prefix="nbdbench-") as directory:
        options = Options(
            seconds=args.seconds or (2.0 if args.full else 1.0),
            repeat=repeat,
            full=args.full,
            directory=Path(directory),
        )
        rows = [r for r in scenario.rows(options) if fnmatchcase(r.name, args.row)]
        if not rows or not columns:
            return False
        results = runner.run(scenario, name, rows, columns, options, args.strace)
    said = command(name, args)
    text = write.markdown(scenario, results, said, repeat, name)
    args.out.mkdir(parents=True, exist_ok=True)
    document = write.document(scenario, results, said, name)
    (args.out / f"{name}.json").write_text(write.to_json(document))
    (args.out / f"{name}.md").write_text(text)
    (args.out / f"{name}.svg").write_text(chart.svg(scenario.title, results))
    print(text, end="", flush=True)
    return True


def run(args: argparse.Namespace) -> int:
    wanted = names() if "all" in args.name else list(dict.fromkeys(args.name))
    if args.repeat is not None and args.repeat < 1:
        print("nbdspec bench: --repeat: expected 1 or more", file=sys.stderr)
        return CANNOT_RUN
    try:
        selected = [run_one(name, args) for name in wanted]
    except (BenchError, ServerError, OSError) as error:
        print(f"nbdspec bench: {error}", file=sys.stderr)
        return CANNOT_RUN
    if not any(selected):
        print("nbdspec bench: no row or no server was selected", file=sys.stderr)
        return NOTHING_SELECTED
    return 0
