# SPDX-License-Identifier: BSD-3-Clause
"""What a connection costs: to make, to keep idle, and with large requests."""

from __future__ import annotations

import resource

import nbd

from nbdspec.bench.clients import fio, run, sample_of
from nbdspec.bench.disks import PYTHON
from nbdspec.bench.model import (
    PYPLUGINS,
    SCENARIOS,
    BenchError,
    Column,
    Options,
    Ratio,
    Results,
    Row,
    Sample,
)
from nbdspec.bench.server import Server, ServerSpec, program

IDLE = 1000
THREADS = 16
DISK = 64 << 20
MEMORY = "memory"
#: What comes before and after the doubled load, so that drift does not show.
ONCE_TWICE = (1, 2, 1)


def growth(costs: list[float]) -> Sample:
    """How many times as much the doubled load cost."""
    before, doubled, after = costs
    return Sample(2 * doubled / (before + after))


class Scenario:
    title = "connections: their rate and their memory"
    question = (
        "How many clients a second connect, negotiate, read 512 bytes and disconnect "
        f"(two at a time)? What do {IDLE} idle connections add to resident memory and "
        f"to the number of threads? How much memory is resident after {THREADS} "
        "threads have each had reads and writes of 2 MiB (of a plugin that stores "
        "nothing)? And does the server's CPU time grow in proportion: twice the "
        "connections, requests or bytes at twice the cost?"
    )
    columns = tuple(
        Column(f"{host} {kind}", host)
        for host in ("nbdspecd", "nbdkit")
        for kind in (PYTHON, MEMORY)
    )
    ratios = tuple(
        Ratio(f"nbdspecd {kind}", f"nbdkit {kind}", rows=rows)
        for kind in (PYTHON, MEMORY)
        for rows in ("connect, *", "an idle connection", "2 MiB requests, *")
    )

    def rows(self, options: Options) -> list[Row]:
        less = {"less_is_better": True}
        return [
            Row("connect, read, disconnect", "connections/s", {"do": self.rate}),
            Row("an idle connection", "KiB", {"do": self.idle}, **less),
            Row("2 MiB requests, resident", "MiB", {"do": self.large}, **less),
            *(
                Row(f"twice the {what}", "times the CPU", {"do": do}, **less)
                for what, do in (
                    ("connections", self.twice_clients),
                    ("requests", self.twice_requests),
                    ("bytes", self.twice_bytes),
                )
            ),
        ]

    def server(self, row: Row, column: Column) -> ServerSpec | None:
        fresh = row.params["do"] in (self.idle, self.large)
        if not column.name.endswith(PYTHON):
            # its disk would be all that "resident" shows
            if row.params["do"] == self.large:
                return None
            words = (MEMORY, "64M")
            return ServerSpec(column.host, words, prefill=DISK, fresh=fresh)
        script, parameter, prefill = PYPLUGINS / "memory.py", "size=64M", DISK
        if row.params["do"] == self.large:
            script, parameter = SCENARIOS / "plugins" / "sleeper.py", "sleep=0.002"
            prefill = 0
        return ServerSpec(
            column.host,
            ("python", str(script), parameter),
            threads=THREADS,
            prefill=prefill,
            fresh=fresh,
        )

    def sample(
        self, row: Row, column: Column, server: Server, options: Options
    ) -> Sample:
        sample: Sample = row.params["do"](row, server, options)
        return sample

    def connect(self, server: Server, connections: int) -> Sample:
        before = server.usage()
        cost = run([program("connect"), str(server.socket), str(connections), "2"])
        used = server.usage().since(before)
        return sample_of(
            cost,
            used,
            value=connections / cost.real,
            requests=connections,
        )

    def rate(self, row: Row, server: Server, options: Options) -> Sample:
        guess = self.connect(server, 200).value
        return self.connect(server, max(200, int(guess * options.seconds)))

    def idle(self, row: Row, server: Server, options: Options) -> Sample:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < IDLE + 100:
            raise BenchError(f"at most {hard} files may be open: {IDLE} are needed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, IDLE + 100), hard))
        before = server.status("VmRSS"), server.status("Threads")
        handles = []
        for _ in range(IDLE):
            handle = nbd.NBD()
            handle.connect_unix(str(server.socket))
            handle.pread(512, 0)
            handles.append(handle)
        after = server.status("VmRSS"), server.status("Threads")
        for handle in handles:
            handle.shutdown()
        memory, threads = ((a - b) / IDLE for a, b in zip(after, before))
        return Sample(memory, extra={"threads_of_an_idle_connection": threads})

    def large(self, row: Row, server: Server, options: Options) -> Sample:
        for rw in ("write", "read"):
            fio(server, options.seconds / 2, bs="2m", iodepth=2 * THREADS, rw=rw)
        return Sample(server.status("VmHWM") / 1024)

    def twice_clients(self, row: Row, server: Server, options: Options) -> Sample:
        costs = [self.connect(server, k * 500).server_cpu or 0.0 for k in ONCE_TWICE]
        return growth(costs)

    def twice(self, server: Server, bs: str, total: int) -> Sample:
        """fio's cost for some bytes, and for twice as many."""
        settings = {"rw": "randread", "bs": bs, "size": DISK, "iodepth": 16}
        costs = [
            fio(server, 0, io_size=k * total, **settings).server_cpu or 0.0
            for k in ONCE_TWICE
        ]
        return growth(costs)

    def twice_requests(self, row: Row, server: Server, options: Options) -> Sample:
        return self.twice(server, "4k", 80 << 20)

    def twice_bytes(self, row: Row, server: Server, options: Options) -> Sample:
        return self.twice(server, "1m", 512 << 20)

    def notes(self, results: Results) -> list[str]:
        return []
