# SPDX-License-Identifier: BSD-3-Clause
"""Runs a scenario: columns in turn, so that what disturbs hits all alike."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from .clients import fill
from .journal import Journal
from .model import BenchError, Column, Options, Results, Row, Sample, Scenario
from .server import TICK, Server, ServerSpec

STATISTICS = ("bytes_copied", "views_kept")  # of nbdspecd: what a report shows


class Progress:
    """A line that is rewritten on a terminal; nothing anywhere else."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.done = name, total, 0
        self.shown = sys.stderr.isatty()

    def step(self, text: str) -> None:
        self.done += 1
        if self.shown:
            line = f"{self.name} {self.done}/{self.total} {text}"
            print(f"\r\033[K{line[:78]}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


class Pool:
    """The servers that run. One serves all rows that ask for the same."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.running: dict[ServerSpec, Server] = {}

    def get(self, spec: ServerSpec) -> Server:
        if spec not in self.running:
            server = Server(spec, self.options.directory)
            self.running[spec] = server
            if spec.prefill:
                fill(server, spec.prefill)
        return self.running[spec]

    def stop(self, spec: ServerSpec) -> dict[str, float]:
        return self.running.pop(spec).stop()

    def keep_only(self, wanted: set[ServerSpec]) -> None:
        for spec in [spec for spec in self.running if spec not in wanted]:
            self.stop(spec)


def busy() -> tuple[float, float]:
    """(seconds of CPU of the whole machine, seconds of CPU of this side)."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _wait, *rest = map(int, stat.readline().split()[1:])
    machine = user + nice + system + sum(rest[:3])  # interrupts, and stolen time
    mine = os.times()
    return machine / TICK, sum(mine[:4])


def measure(
    scenario: Scenario, row: Row, column: Column, pool: Pool, options: Options
) -> Sample:
    spec = scenario.server(row, column)
    assert spec is not None, "the caller leaves out cells that do not apply"
    server = pool.get(spec)
    start, (machine, mine), used = time.monotonic(), busy(), server.usage().cpu
    sample = scenario.sample(row, column, server, options)
    real = time.monotonic() - start
    all_of_it, ours = (after - b for after, b in zip(busy(), (machine, mine)))
    server_cpu = server.usage().cpu - used
    known = ours + server_cpu + (sample.helper_cpu or 0.0)
    sample.foreign = max(0.0, all_of_it - known) / real
    if spec.fresh:
        stats = pool.stop(spec)
        sample.extra |= {key: stats[key] for key in STATISTICS if key in stats}
        if hasattr(scenario, "ended"):
            scenario.ended(row, column, sample)
    return sample


def system_calls(
    scenario: Scenario, row: Row, column: Column, pool: Pool, options: Options
) -> dict[str, float]:
    """One more run, of the server under strace: calls for each request."""
    spec = scenario.server(row, column)
    assert spec is not None, "the caller leaves out cells that do not apply"
    server = pool.get(spec)
    counts = options.directory / "strace"
    try:
        tracer = subprocess.Popen(
            ["strace", "-f", "-c", "-U", "name,calls", "-o", str(counts)]
            + ["-p", str(server.pid)],
            stderr=subprocess.PIPE,
            text=True,
        )
    except FileNotFoundError:
        raise BenchError("strace: not installed (see ci/setup bench)") from None
    assert tracer.stderr is not None
    attached = tracer.stderr.readline()
    if "attached" not in attached:
        tracer.wait()
        raise BenchError(f"strace: cannot trace the server: {attached.strip()}")
    sample = scenario.sample(row, column, server, options)
    tracer.send_signal(signal.SIGINT)
    tracer.communicate()
    if spec.fresh:
        pool.stop(spec)
    answer = {}
    for line in counts.read_text().splitlines():
        words = line.split()
        if len(words) == 2 and words[1].isdigit() and words[0] != "total":
            answer[words[0]] = int(words[1]) / (sample.requests or 1)
    return answer


def run(
    scenario: Scenario,
    name: str,
    rows: Sequence[Row],
    columns: Sequence[Column],
    options: Options,
    strace: bool,
    journal: Journal,
) -> Results:
    cells = [
        (row, column)
        for row in rows
        for column in columns
        if scenario.server(row, column) is not None
    ]
    results = Results(list(rows), list(columns), {}, {})
    progress = Progress(name, len(cells) * (options.repeat + 1 + strace))
    warm_up = replace(options, seconds=min(0.3, options.seconds))
    pool = Pool(options)
    try:
        for position, row in enumerate(rows):
            later = [scenario.server(r, c) for r in rows[position:] for c in columns]
            pool.keep_only({spec for spec in later if spec is not None})
            here = [column for r, column in cells if r is row]
            turns = min(options.repeat, row.params.get("repeat", options.repeat))
            missing = {
                (column, turn)
                for column in here
                for turn in range(turns)
                if journal.find(row.name, column.name, turn) is None
            }
            for column in here:
                progress.step(f"{row.name}: {column.name}, warming up")
                # one that serves since an earlier row is warm
                cold = scenario.server(row, column) not in pool.running
                if missing and cold and row.params.get("warm_up", True):
                    measure(scenario, row, column, pool, warm_up)
            for turn in range(turns):
                # another one goes first each time
                for column in here[turn % len(here) :] + here[: turn % len(here)]:
                    progress.step(f"{row.name}: {column.name}")
                    if (column, turn) in missing:
                        sample = measure(scenario, row, column, pool, options)
                        journal.add(row.name, column.name, turn, sample)
                    sample = journal.find(row.name, column.name, turn)
                    assert sample is not None, "it was missing, and measured"
                    results.cells.setdefault((row.name, column.name), []).append(sample)
            for column in here if strace else []:
                progress.step(f"{row.name}: {column.name}, system calls")
                calls = system_calls(scenario, row, column, pool, options)
                results.calls[row.name, column.name] = calls
    finally:
        progress.end()
        pool.keep_only(set())
    results.rows = [row for row in rows if any(r is row for r, _ in cells)]
    return results
