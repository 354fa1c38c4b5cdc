# SPDX-License-Identifier: BSD-3-Clause
"""From samples to figures: medians, spread, paired ratios, what bounds them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import median

from .model import Ratio, Results, Row, Sample

BUSY = 0.9  # of a core: what counts as saturated


@dataclass(frozen=True)
class Figures:
    median: float
    minimum: float
    maximum: float

    @property
    def spread(self) -> float:
        """The range, as a share of the median."""
        return (self.maximum - self.minimum) / self.median if self.median else 0.0


def figures(values: Sequence[float]) -> Figures:
    return Figures(median(values), min(values), max(values))


def field(samples: Sequence[Sample], get: Callable[[Sample], float | None]) -> (
    float | None
):
    """The median of one field, where it was measured."""
    values = [value for sample in samples if (value := get(sample)) is not None]
    return median(values) if values else None


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """An interval that holds the true median with 95 %, from order statistics.

    With fewer than six values no such interval exists: then the whole range.
    """
    ordered, n = sorted(values), len(values)
    outside = 0.0  # the chance that fewer than k values lie on one side
    k = 0
    while True:
        outside += math.comb(n, k) / 2**n
        if outside > 0.025 or k + 1 > (n - 1) // 2:
            break
        k += 1
    k = max(k, 1)
    return ordered[k - 1], ordered[n - k]


@dataclass(frozen=True)
class RatioFigures:
    row: str
    over: str
    under: str
    of: str
    median: float
    low: float
    high: float


def ratio_figures(results: Results, ratios: Sequence[Ratio]) -> list[RatioFigures]:
    """Sample i over sample i: the two ran one after the other."""
    answer = []
    for row in results.rows:
        for ratio in ratios:
            over = results.cells.get((row.name, ratio.over))
            under = results.cells.get((row.name, ratio.under))
            if not fnmatchcase(row.name, ratio.rows) or not over or not under:
                continue
            values = [
                (getattr(a, ratio.of), getattr(b, ratio.of))
                for a, b in zip(over, under, strict=True)
            ]
            pairs = [a / b for a, b in values if a is not None and b]
            if pairs:
                low, high = median_interval(pairs)
                answer.append(
                    RatioFigures(
                        row=row.name,
                        over=ratio.over,
                        under=ratio.under,
                        of=ratio.of,
                        median=median(pairs),
                        low=low,
                        high=high,
                    )
                )
    return answer


def client_cpu(sample: Sample) -> float | None:
    if sample.client_user is None or sample.client_system is None:
        return None
    return sample.client_user + sample.client_system


def client_cores(sample: Sample) -> float | None:
    cpu = client_cpu(sample)
    return cpu / sample.real if cpu is not None and sample.real else None


def server_cores(sample: Sample) -> float | None:
    if sample.server_cpu is None or not sample.real:
        return None
    return sample.server_cpu / sample.real


def helper_cores(sample: Sample) -> float | None:
    if sample.helper_cpu is None or not sample.real:
        return None
    return sample.helper_cpu / sample.real


def server_us_per_request(sample: Sample) -> float | None:
    if sample.server_cpu is None or not sample.requests:
        return None
    return sample.server_cpu / sample.requests * 1e6


def bound(client: float, server: float, foreign: float, helper: float = 0.0) -> str:
    """What keeps a cell from being faster, told from the cores in use."""
    cores = len(os.sched_getaffinity(0))
    if foreign >= 1 - BUSY and client + server + foreign >= BUSY * cores:
        return f"other processes: they used {foreign:.2f} cores meanwhile"
    if client >= BUSY and server >= BUSY:
        if cores > 2 or client + server < BUSY * cores:
            return "client and server, each at the limit of a core"
        return f"client and server together: all {cores} cores are in use"
    if client >= BUSY:
        return "the client: it keeps a core busy"
    if server >= BUSY:
        return "the server: it keeps a core busy"
    if client + server + helper >= BUSY * cores:
        return f"the machine: all {cores} cores are in use"
    if helper >= BUSY:
        return "the daemon behind the server: it keeps a core busy"
    return "waiting: neither side keeps a core busy (wake-ups, sleeps or the disk)"


def bounds(results: Results) -> list[tuple[Row, str, float, float, str]]:
    """(row, column, client's cores, server's cores, what bounds it)."""
    answer = []
    for row in results.rows:
        for column in results.columns:
            samples = results.cells.get((row.name, column.name), [])
            client = field(samples, client_cores)
            server = field(samples, server_cores)
            if client is not None and server is not None:
                foreign = field(samples, lambda s: s.foreign) or 0.0
                helper = field(samples, helper_cores) or 0.0
                words = bound(client, server, foreign, helper)
                answer.append((row, column.name, client, server, words))
    return answer
