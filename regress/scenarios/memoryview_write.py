# SPDX-License-Identifier: BSD-3-Clause
"""qemu-img convert of 1 GiB into a Python plugin, by the type of its buffer."""

from __future__ import annotations

from pathlib import Path

from nbdspec.bench.clients import run
from nbdspec.bench.model import (
    PYPLUGINS,
    Column,
    Options,
    Ratio,
    Results,
    Row,
    Sample,
)
from nbdspec.bench.server import Server, ServerSpec
from nbdspec.bench.summary import field

SIZE = 1 << 30
VIEW, ARRAY, BYTES = (f"nbdspecd {t}" for t in ("memoryview", "bytearray", "bytes"))
NBDKIT, NULL, LIMIT = "nbdkit", "nbdspecd null", "limit, receives only"


def image(directory: Path) -> Path:
    """1 GiB of the letter U, as a file that the page cache holds."""
    path = directory / "disk.img"
    if not path.exists():
        with open(path, "wb") as f:
            for _ in range(SIZE >> 20):
                f.write(b"U" * (1 << 20))
    return path


class Scenario:
    title = "memoryview-write: 1 GiB into a Python plugin"
    question = (
        "What does the type of the buffer cost that pwrite is handed? A 1 GiB image "
        "full of `U` goes to pyplugins/zero.py by `qemu-img convert -p -f raw -O raw "
        "-n`, to a server started for each run; the back end `null` is the least that "
        "nbdspecd can do, and the limit a C program that only receives. Times are "
        "those of the client, as `time` prints them."
    )
    repeat = (5, 15)
    columns = (
        Column(VIEW, "nbdspecd"),
        Column(ARRAY, "nbdspecd"),
        Column(BYTES, "nbdspecd"),
        Column(NBDKIT, "nbdkit"),
        Column(NULL, "nbdspecd"),
        Column(LIMIT, "limit"),
    )
    ratios = (
        Ratio(VIEW, NULL),
        Ratio(VIEW, NBDKIT),
        Ratio(VIEW, LIMIT),
        Ratio(ARRAY, VIEW),
        Ratio(BYTES, VIEW),
        *(Ratio(VIEW, other, of="server_cpu") for other in (NULL, NBDKIT, LIMIT)),
    )

    def rows(self, options: Options) -> list[Row]:
        return [Row("convert", "s", less_is_better=True)]

    def server(self, row: Row, column: Column) -> ServerSpec:
        python = ("python", str(PYPLUGINS / "zero.py"))
        if column.name == LIMIT:
            return ServerSpec("limit", options=("--discard",), fresh=True)
        if column.name == NULL:
            return ServerSpec("nbdspecd", ("null", "1G"), fresh=True)
        kind = () if column.host == "nbdkit" else (
            f"--python-buffer={column.name.split()[1]}",
        )
        return ServerSpec(column.host, python, kind, fresh=True)

    def sample(
        self, row: Row, column: Column, server: Server, options: Options
    ) -> Sample:
        source = image(options.directory)
        before = server.usage()
        cost = run(
            ["qemu-img", "convert", "-p", "-f", "raw", "-O", "raw", "-n"]
            + [str(source), server.uri]
        )
        used = server.usage().since(before)
        return Sample(
            value=cost.real,
            requests=SIZE >> 21,  # qemu-img writes 2 MiB at once
            real=cost.real,
            client_user=cost.user,
            client_system=cost.system,
            server_cpu=used.cpu,
            server_user=used.user,
            server_system=used.system,
            server_faults=used.faults,
        )

    def notes(self, results: Results) -> list[str]:
        text = ["", "## As `time` prints them (medians)", "", "```"]
        for column in results.columns:
            if cell := results.cells.get(("convert", column.name)):
                text.append(column.name)
                for label, get in (
                    ("real", lambda s: s.real),
                    ("user", lambda s: s.client_user),
                    ("sys", lambda s: s.client_system),
                ):
                    seconds = field(cell, get) or 0.0
                    text.append(f"    {label}\t{seconds // 60:.0f}m{seconds % 60:.3f}s")
        return [*text, "```"]
