# SPDX-License-Identifier: BSD-3-Clause
"""Plugins whose callbacks wait: sleeps, a file, and one that only computes."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from nbdspec.bench.clients import fio, fio_command
from nbdspec.bench.disks import PYTHON, SERIAL, python_server
from nbdspec.bench.model import (
    SCENARIOS,
    Column,
    Options,
    Ratio,
    Results,
    Row,
    Sample,
)
from nbdspec.bench.server import Server, ServerSpec

SLEEPER = SCENARIOS / "plugins" / "sleeper.py"
FILE_SIZE = 256 << 20
NBDSPECD, NBDKIT, NBDKIT_SERIAL = (
    f"nbdspecd {PYTHON}",
    f"nbdkit {PYTHON}",
    f"nbdkit {SERIAL}",
)


class Scenario:
    title = "blocking: plugins that wait"
    question = (
        "Does a callback that waits keep others from running? Reads that sleep, two in "
        "flight for each thread, ideally come to threads / latency; shown is the share "
        "of that. Reads by `os.preadv` (pyplugins/file.py) are of a file in the page "
        "cache. Last, what one connection's callbacks that compute for 100 ms in pure "
        "Python add to the latency of another's that sleep for 10 ms, four at a time."
    )
    columns = (
        Column(NBDSPECD, "nbdspecd"),
        Column(f"nbdspecd {SERIAL}", "nbdspecd"),
        Column(NBDKIT, "nbdkit"),
        Column(NBDKIT_SERIAL, "nbdkit"),
    )
    ratios = (Ratio(NBDSPECD, NBDKIT), Ratio(NBDSPECD, NBDKIT_SERIAL))

    def rows(self, options: Options) -> list[Row]:
        sleeps = [(10, n) for n in (1, 4, 16, 64)] + [(1, n) for n in (1, 4, 16)]
        rows = [
            Row(
                f"{ms} ms sleep, -t {threads}",
                "of threads / latency",
                {"sleep": ms / 1000, "threads": threads, "repeat": 3},
            )
            for ms, threads in sleeps
        ]
        file = str(self.file(options.directory))
        for bs, depth in (("4k", 16), ("64k", 16), ("1m", 8)):
            params = {"file": file, "bs": bs, "iodepth": depth}
            rows.append(Row(f"file, {bs} reads, depth {depth}", "MiB/s", params))
        for name, compute in (("alone", False), ("beside a computing one", True)):
            params = {"sleep": 0.010, "threads": 16, "compute": compute}
            unit = "ms a request"
            rows.append(Row(f"10 ms sleepers {name}", unit, params, True))
        return rows

    def file(self, directory: Path) -> Path:
        path = directory / "file.img"
        if not path.exists():
            block = bytes(range(256)) * 4096
            with open(path, "wb") as f:
                for _ in range(FILE_SIZE // len(block)):
                    f.write(block)
        return path

    def server(self, row: Row, column: Column) -> ServerSpec | None:
        if "file" in row.params:
            return python_server(column, "file.py", f"file={row.params['file']}")
        if column.name.endswith(SERIAL):
            return None
        words = ("python", str(SLEEPER), f"sleep={row.params['sleep']}")
        spec = ServerSpec(column.host, (*words, "compute=0.100"))
        return replace(spec, threads=row.params["threads"])

    def sample(
        self, row: Row, column: Column, server: Server, options: Options
    ) -> Sample:
        if "file" in row.params:
            settings = {k: row.params[k] for k in ("bs", "iodepth")}
            sample = fio(
                server, options.seconds, rw="randread", size=FILE_SIZE, **settings
            )
            sample.value = sample.extra.pop("mib_per_s")
        elif "compute" in row.params:
            sample = self.beside(row, server, options)
        else:
            threads = row.params["threads"]
            settings = {"rw": "randread", "bs": 512, "iodepth": 2 * threads}
            # sleeps vary little: half the time shows as much
            sample = fio(server, options.seconds / 2, **settings)
            sample.value *= row.params["sleep"] / threads
        return sample

    def beside(self, row: Row, server: Server, options: Options) -> Sample:
        """Sleepers, four at a time, while another connection computes or not."""
        other = None
        if row.params["compute"]:
            uri = server.export_uri("compute")
            settings = {"rw": "randread", "bs": 512, "time_based": 1, "runtime": 3600}
            words = fio_command(uri, **settings)
            other = subprocess.Popen(
                words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        try:
            sample = fio(server, options.seconds, rw="randread", bs=512, iodepth=4)
        finally:
            if other is not None:
                other.terminate()
                other.wait()
        sample.value = sample.extra["latency_mean_us"] / 1000
        return sample

    def notes(self, results: Results) -> list[str]:
        return []
