# SPDX-License-Identifier: BSD-3-Clause
"""nbdspec bench: servers measured side by side, as regress/scenarios describes."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import os
import shlex
import signal
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from . import chart, runner, write
from .journal import Journal
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


def mebibytes(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1 << 20):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of MiB from 1")
    return int(text) << 20


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
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write NAME.md there as well"
    )
    parser.add_argument(
        "--data",
        type=mebibytes,
        default=0,
        metavar="MIB",
        help="thread-count, memoryview-write: data to transfer, in MiB",
    )
    parser.add_argument(
        "--imageio",
        default="",
        metavar="URL",
        help="thread-count: upload to this image, https://HOST:54322/images/TICKET or "
        "http+unix://%%2FPATH/images/TICKET, instead of to a stand-in daemon",
    )
    parser.add_argument(
        "--cafile", default="", metavar="FILE", help="thread-count: whom to trust there"
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
    words += ["--data", str(args.data >> 20)] if args.data else []
    words += ["--imageio", args.imageio] if args.imageio else []
    return shlex.join(words)


def measured(name: str, args: argparse.Namespace, options: Options) -> dict[str, Any]:
    """What makes measurements comparable with those of an interrupted run."""
    built = {}
    for host in HOSTS:
        with contextlib.suppress(ServerError):
            status = os.stat(program(host))
            built[host] = [status.st_mtime_ns, status.st_size]
    source = SCENARIOS / (name.replace("-", "_") + ".py")
    return {
        "nbdspec-bench-journal": 1,
        "name": name,
        "scenario": hashlib.sha256(source.read_bytes()).hexdigest(),
        "programs": built,
        "seconds": options.seconds,
        "full": options.full,
        "data": options.data,
        "imageio": options.imageio,
    }


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
            data=args.data,
            imageio=args.imageio,
            cafile=args.cafile,
        )
        rows = [r for r in scenario.rows(options) if fnmatchcase(r.name, args.row)]
        if not rows or not columns:
            return False
        head = measured(name, args, options)
        journal = Journal(args.out / f"{name}.partial", head)
        if len(journal):
            say(f"{name}: going on after {len(journal)} measurements")
        try:
            results = runner.run(
                scenario, name, rows, columns, options, args.strace, journal
            )
        except KeyboardInterrupt:
            say(
                f"{name}: interrupted; {len(journal)} measurements are kept in "
                f"{journal.path}, the same command goes on from there"
            )
            raise
        finally:
            if hasattr(scenario, "finish"):
                scenario.finish()
    said = command(name, args)
    text = write.markdown(scenario, results, said, repeat, name)
    args.out.mkdir(parents=True, exist_ok=True)
    document = write.document(scenario, results, said, name)
    (args.out / f"{name}.json").write_text(write.to_json(document))
    (args.out / f"{name}.md").write_text(text)
    (args.out / f"{name}.svg").write_text(chart.svg(scenario.title, results))
    if args.report:
        args.report.write_text(text)
    print(text, end="", flush=True)
    journal.remove()
    return True


def say(text: str) -> None:
    print(f"nbdspec bench: {text}", file=sys.stderr, flush=True)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def run(args: argparse.Namespace) -> int:
    wanted = names() if "all" in args.name else list(dict.fromkeys(args.name))
    if args.repeat is not None and args.repeat < 1:
        print("nbdspec bench: --repeat: expected 1 or more", file=sys.stderr)
        return CANNOT_RUN
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        selected = [run_one(name, args) for name in wanted]
    except KeyboardInterrupt:
        return CANNOT_RUN
    except (BenchError, ServerError, OSError) as error:
        say(str(error))
        return CANNOT_RUN
    finally:
        signal.signal(signal.SIGTERM, before)
    if not any(selected):
        print("nbdspec bench: no row or no server was selected", file=sys.stderr)
        return NOTHING_SELECTED
    return 0
