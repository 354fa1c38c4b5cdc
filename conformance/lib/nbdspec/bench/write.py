# SPDX-License-Identifier: BSD-3-Clause
"""A bench's results as JSON and Markdown."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from ..version import VERSION
from . import summary
from .model import Results, Row, Sample, Scenario


def environment() -> dict[str, Any]:
    """The machine and the programs, as far as they explain the figures."""
    cpu = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    versions = {}
    for name in ("nbdkit", "fio", "qemu-img"):
        if shutil.which(name):
            text = subprocess.run(
                [name, "--version"], capture_output=True, text=True, check=False
            ).stdout
            versions[name] = text.split("(")[0].split("\n")[0].strip()
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "nbdspec": VERSION,
        "versions": versions,
    }


def number(value: float | None) -> str:
    """Three or four significant digits, as people write them."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    for unit, size, least in (("G", 1e9, 1e9), ("M", 1e6, 1e6), ("k", 1e3, 1e4)):
        if abs(value) >= least:
            return f"{value / size:.1f} {unit}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}"


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *lines)] + [""]


def details_line(row: Row, column: str, samples: Sequence[Sample]) -> list[str]:
    f = summary.figures([sample.value for sample in samples])
    best = f.minimum if row.less_is_better else f.maximum
    columns = (
        lambda s: s.real,
        lambda s: s.client_user,
        lambda s: s.client_system,
        lambda s: s.server_user,
        lambda s: s.server_system,
        lambda s: s.server_cpu,
        summary.server_us_per_request,
        lambda s: s.server_faults,
    )
    return [
        row.name,
        column,
        number(f.median),
        number(best),
        f"{f.spread:.0%}",
        *(number(summary.field(samples, get)) for get in columns),
    ]


DETAILS = (
    ["what", "server", "median", "best", "spread"]
    + ["real s", "client user s", "client sys s"]
    + ["server user s", "server sys s", "server CPU s"]
    + ["server us/request", "minor faults"]
)


def extra_lines(results: Results) -> list[str]:
    keys: dict[str, None] = {}
    for samples in results.cells.values():
        for sample in samples:
            keys |= dict.fromkeys(sample.extra)
    lines = []
    for (row, column), samples in results.cells.items():
        values = [
            number(summary.field(samples, lambda s, key=key: s.extra.get(key)))
            for key in keys
        ]
        lines.append([row, column, *values])
    if not keys:
        return []
    return ["## Further figures (medians)", ""] + table(
        ["what", "server", *(key.replace("_", " ") for key in keys)], lines
    )


def call_lines(results: Results) -> list[str]:
    if not results.calls:
        return []
    lines = []
    for (row, column), calls in results.calls.items():
        by_count = sorted(calls.items(), key=lambda item: -item[1])
        text = ", ".join(f"{name} {count:.2f}" for name, count in by_count[:6])
        lines.append([row, column, f"{sum(calls.values()):.2f}", text])
    return ["## System calls of the server for each request (strace)", ""] + table(
        ["what", "server", "all", "the most frequent"], lines
    )


def markdown(
    scenario: Scenario, results: Results, command: str, repeat: int, name: str
) -> str:
    env = environment()
    names = [column.name for column in results.columns]
    versions = ", ".join(v for v in env["versions"].values())
    text = [
        f"# {scenario.title}",
        "",
        scenario.question,
        "",
        f"Made by `{command}`: medians of {repeat} interleaved runs after a warm-up, "
        f"on {env['cores']} cores of {env['cpu']}, Linux {env['kernel']}; nbdspec "
        f"{env['nbdspec']}, {versions}.",
        "",
        f"![{scenario.title}]({name}.svg)",
        "",
    ]
    foreign = [s.foreign or 0.0 for cell in results.cells.values() for s in cell]
    text += [
        f"Other processes used {median(foreign):.2f} cores meanwhile (median; at most "
        f"{max(foreign):.2f}).",
        "",
    ]
    lines = []
    for row in results.rows:
        cells = [results.cells.get((row.name, name)) for name in names]
        medians = [
            number(summary.figures([s.value for s in cell]).median) if cell else ""
            for cell in cells
        ]
        lines.append([f"{row.name} ({row.unit})", *medians])
    text += table(["", *names], lines)
    ratios = summary.ratio_figures(results, scenario.ratios)
    units = {"value": "result", "server_cpu": "server CPU"}
    if ratios:
        text += ["## Paired ratios", ""]
        text += [
            "Run by run, each beside its neighbour: the median, and the interval that "
            "holds it with 95 % (with fewer than six runs: the whole range).",
            "",
        ]
        text += table(
            ["what", "of", "server", "against", "ratio", "from", "to"],
            [
                [r.row, units.get(r.of, r.of.replace("_", " ")), r.over, r.under]
                + [f"{x:.3f}" for x in (r.median, r.low, r.high)]
                for r in ratios
            ],
        )
    text += ["## All figures", ""]
    text += table(
        DETAILS,
        [
            details_line(row, name, results.cells[row.name, name])
            for row in results.rows
            for name in names
            if (row.name, name) in results.cells
        ],
    )
    text += extra_lines(results) + call_lines(results)
    text += ["## What bounds the result", ""]
    text += table(
        ["what", "server", "client's cores", "server's cores", "bound by"],
        [
            [row.name, name, f"{client:.2f}", f"{server:.2f}", words]
            for row, name, client, server, words in summary.bounds(results)
        ],
    )
    text += scenario.notes(results)
    return "\n".join(text).rstrip() + "\n"


def document(
    scenario: Scenario, results: Results, command: str, name: str
) -> dict[str, Any]:
    samples = [
        {"row": row, "column": column, "repeat": i, **dataclasses.asdict(sample)}
        for (row, column), cell in results.cells.items()
        for i, sample in enumerate(cell)
    ]
    medians: dict[str, dict[str, Any]] = {}
    for (row, column), cell in results.cells.items():
        f = summary.figures([sample.value for sample in cell])
        medians.setdefault(row, {})[column] = dataclasses.asdict(f)
    return {
        "nbdspec-bench": 1,
        "name": name,
        "title": scenario.title,
        "command": command,
        "environment": environment(),
        "rows": [{"name": row.name, "unit": row.unit} for row in results.rows],
        "columns": [column.name for column in results.columns],
        "figures": medians,
        "ratios": [
            dataclasses.asdict(ratio)
            for ratio in summary.ratio_figures(results, scenario.ratios)
        ],
        "calls": [
            {"row": row, "column": column, "per_request": calls}
            for (row, column), calls in results.calls.items()
        ],
        "samples": samples,
    }


def to_json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=1) + "\n"
