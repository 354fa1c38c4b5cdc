# SPDX-License-Identifier: BSD-3-Clause
"""1 MiB requests: what moving the data costs."""

from __future__ import annotations

from nbdspec.bench.clients import fio
from nbdspec.bench.disks import COLUMNS, RATIOS, disk_server
from nbdspec.bench.model import Column, Options, Results, Row, Sample
from nbdspec.bench.server import Server, ServerSpec


class Scenario:
    title = "bulk: 1 MiB requests, depth 8"
    question = (
        "How many bytes a second, through the same plugin file (pyplugins/memory.py, "
        "parallel and serial) and through the memory back ends in C, with fio's nbd "
        "engine over a Unix socket, in sequence? The limit is a C program that does "
        "no more than receive, copy and send."
    )
    columns = COLUMNS
    ratios = RATIOS

    def rows(self, options: Options) -> list[Row]:
        return [Row(rw, "MiB/s", {"rw": rw}) for rw in ("read", "write")]

    def server(self, row: Row, column: Column) -> ServerSpec:
        return disk_server(column)

    def sample(
        self, row: Row, column: Column, server: Server, options: Options
    ) -> Sample:
        sample = fio(server, options.seconds, bs="1m", iodepth=8, **row.params)
        sample.value = sample.extra.pop("mib_per_s")
        return sample

    def notes(self, results: Results) -> list[str]:
        return []
