# SPDX-License-Identifier: BSD-3-Clause
"""What thread-count reports beside its figures: the thread's claims, and the noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nbdspec.bench.model import Results, Row, Sample
from nbdspec.bench.summary import Figures, field, figures
from nbdspec.bench.write import number, table as as_table

FREE, DELAYED = "free-running", "20 ms a PUT"
LATENCY = 0.020
FEWEST_RUNS = 3


@dataclass(frozen=True)
class Claim:
    """The time of `over` against that of `under`."""

    text: str
    over: str  # the beginning of a row's name
    under: str
    thread: float  # the ratio in the mails


CLAIMS = (
    Claim("the pool alone is slower than one connection", "step 2", "step 1", 1.32),
    Claim("-W, writing out of order, is what helps", "step 3", "step 2", 0.54),
    Claim("16 threads or 8: 8 is better", "step 4", "step 3", 0.94),
    Claim("in all: from one connection to step 4", "step 4", "step 1", 0.66),
)


def times(results: Results, kind: str, step: str, host: str) -> Figures | None:
    for row in results.rows:
        if row.name.startswith(f"{kind}: {step}"):
            if cell := results.cells.get((row.name, host)):
                return figures([sample.value for sample in cell])
    return None


def runs(results: Results) -> int:
    return min(len(cell) for cell in results.cells.values())


def verdict(claim: Claim, over: Figures, under: Figures, runs: int) -> str:
    """Whether it holds here, by more than the noise."""
    if runs < FEWEST_RUNS:
        return f"not with {runs} runs"
    ratio = over.median / under.median
    noise = max(over.spread, under.spread)
    apart = over.minimum > under.maximum or over.maximum < under.minimum
    if not apart or abs(ratio - 1) < noise:
        return "cannot be told from the noise"
    return "holds" if (ratio > 1) == (claim.thread > 1) else "the opposite holds"


def claims(results: Results) -> list[str]:
    lines = []
    for claim in CLAIMS:
        for column in results.columns:
            over = times(results, FREE, claim.over, column.name)
            under = times(results, FREE, claim.under, column.name)
            if over and under:
                lines.append(
                    [
                        claim.text,
                        column.name,
                        f"{claim.thread:.2f}",
                        f"{over.median / under.median:.2f}",
                        f"{over.minimum / under.maximum:.2f} to "
                        f"{over.maximum / under.minimum:.2f}",
                        f"{max(over.spread, under.spread):.0%}",
                        verdict(claim, over, under, runs(results)),
                    ]
                )
    if not lines:
        return []
    head = ["claim", "server", "thread", "here", "range", "noise", "verdict"]
    return [
        "",
        "## The thread's claims",
        "",
        "Ratios of wall time, free-running; below 1 is faster. The range sets the best "
        "run against the worst; the noise is the larger spread of the two. The step "
        "from 16 to 8 threads is 6 % in the mail, which calls its own figure unstable: "
        "a machine with two cores, and this many runs, cannot show it.",
        "",
        *as_table(head, lines),
    ]


def ratio(results: Results, cell: list[Sample], other: str, host: str) -> str:
    """The time against another row's; nothing where that was not measured."""
    base = results.cells.get((other, host))
    if not base:
        return ""
    medians = [figures([s.value for s in c]).median for c in (cell, base)]
    return f"{medians[0] / medians[1]:.2f}"


def waiting(row: Row, puts: float | None, at_once: int) -> str:
    """What the PUTs' latency comes to, when so many of them wait together."""
    if not row.params["delayed"] or puts is None:
        return ""
    return f"{puts * LATENCY / at_once:.2f}"


def table(results: Results, parallelism: Callable[[Row], int]) -> list[str]:
    lines = []
    for row in results.rows:
        kind = row.name.partition(": ")[0]
        single = f"{kind}: step 1, one connection"
        sixteen = f"{kind}: -t 16, -m {row.params['coroutines']}"
        for column in results.columns:
            cell = results.cells.get((row.name, column.name))
            if not cell:
                continue
            wall = figures([s.value for s in cell])
            extra = {
                key: field(cell, lambda s, key=key: s.extra.get(key))
                for key in cell[0].extra
            }
            lines.append(
                [
                    row.name,
                    column.name,
                    number(wall.median),
                    f"{wall.spread:.0%}",
                    number(extra["mib_per_s"]),
                    f"{extra['plugin_in_flight_mean']:.1f}, "
                    f"{extra['plugin_in_flight_most']:.0f}",
                    number(extra.get("daemon_in_flight_mean")),
                    str(parallelism(row)),
                    waiting(row, extra.get("write_ops"), parallelism(row)),
                    ratio(results, cell, sixteen, column.name),
                    ratio(results, cell, single, column.name),
                ]
            )
    head = ["what", "server", "wall s", "spread", "data MiB/s"]
    head += ["requests in the plugin: mean, most", "at the daemon: mean"]
    head += ["PUTs at once, at most", "their 20 ms: s", "time to -t 16's"]
    head += ["to one connection's"]
    return [
        "",
        "## In flight",
        "",
        "At most min(threads, connections, coroutines) PUTs are under way, and one "
        "without -W. Where each takes 20 ms more, the time shows just that.",
        "",
        *as_table(head, lines),
    ]


def statistics(results: Results) -> list[str]:
    """The daemon's, of the last step, as the mails show them."""
    text: list[str] = []
    for row in results.rows:
        for column in results.columns:
            cell = results.cells.get((row.name, column.name))
            if cell and cell[0].said and row.name.startswith(f"{FREE}: step 4"):
                middle = median_sample(cell)
                text += [f"{column.name}, {middle.value:.2f} s:", "", "```"]
                text += [*middle.said.split("\n"), "```", ""]
    if not text:
        return []
    return ["", "## The daemon's statistics, connection by connection (step 4)", ""] + (
        text
    )


def median_sample(cell: Sequence[Sample]) -> Sample:
    return sorted(cell, key=lambda sample: sample.value)[len(cell) // 2]
