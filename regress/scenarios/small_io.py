# SPDX-License-Identifier: BSD-3-Clause
"""4 KiB requests at several depths: what a request costs beside its data."""

from __future__ import annotations

from nbdspec.bench.clients import fio
from nbdspec.bench.disks import COLUMNS, RATIOS, disk_server
from nbdspec.bench.model import Column, Options, Results, Row, Sample
from nbdspec.bench.server import Server, ServerSpec


class Scenario:
    title = "small-io: 4 KiB requests"
    question = (
        "How many small requests a second, through the same plugin file "
        "(pyplugins/memory.py, parallel and serial) and through the memory back ends "
        "in C, with fio's nbd engine over a Unix socket? The limit is a C program "
        "that does no more than receive, copy and send."
    )
    columns = COLUMNS
    ratios = RATIOS

    def rows(self, options: Options) -> list[Row]:
        cells = [("randread", depth, 1) for depth in (1, 16, 64)]
        cells += [("randwrite", depth, 1) for depth in (16, 64)]
        cells += [("randread", 16, 2)]
        return [
            Row(
                f"{rw}, depth {depth}" + ", 2 connections" * (jobs == 2),
                "requests/s",
                {"rw": rw, "iodepth": depth, "numjobs": jobs},
            )
            for rw, depth, jobs in cells
        ]

    def server(self, row: Row, column: Column) -> ServerSpec:
        return disk_server(column)

    def sample(
        self, row: Row, column: Column, server: Server, options: Options
    ) -> Sample:
        return fio(server, options.seconds, bs="4k", **row.params)

    def notes(self, results: Results) -> list[str]:
        return []
