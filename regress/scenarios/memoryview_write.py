# SPDX-License-Identifier: BSD-3-Clause
"""qemu-img convert of 1 GiB into a Python plugin, by the type of its buffer."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from nbdspec.bench import places
from nbdspec.bench.clients import run, sample_of
from nbdspec.bench.model import (
    PYPLUGINS,
    SCENARIOS,
    Column,
    Options,
    Ratio,
    Results,
    Row,
    Sample,
)
from nbdspec.bench.server import Server, ServerSpec

sys.path.insert(0, str(SCENARIOS / "reports"))
import buffers  # noqa: E402

SIZE = 1 << 30
VIEW, ARRAY, BYTES = (f"nbdspecd {t}" for t in ("memoryview", "bytearray", "bytes"))
NBDKIT, NULL, LIMIT = "nbdkit", "nbdspecd null", "limit, receives only"
COPIES = "nbdkit, a plugin that copies"
VARIANTS_REPEAT = (1, 3)  # as a rule, and with --full

# What nbdkit's wrapper in its build tree set in 2019: a malloc that checks. glibc
# 2.34 moved that into a library of its own.
CHECKED = (
    ("LD_PRELOAD", "libc_malloc_debug.so.0"),
    ("MALLOC_CHECK_", "1"),
    ("MALLOC_PERTURB_", "165"),
)


def variant(name: str, columns: tuple[str, ...] = (VIEW, ARRAY, NBDKIT), **params: (
    object
)) -> Row:
    """Beside the main thing: fewer servers, less data, and fewer times."""
    settings = {"columns": columns, "warm_up": False, "variant": True} | params
    return Row(name, "s", settings, less_is_better=True)


ROWS = (
    Row("convert", "s", {}, less_is_better=True),
    Row(
        "convert, malloc checked",
        "s",
        {
            "checked": True,
            "warm_up": False,
            "columns": (VIEW, ARRAY, BYTES, NBDKIT, COPIES),
        },
        less_is_better=True,
    ),
    variant("convert, server with -v", verbose=True, whole=True),
    variant("convert over TCP", tcp=True),
    variant("nbdcopy", client="nbdcopy"),
    variant("convert, all zeroes", image="zeroes"),
    variant("convert, random data", image="random"),
    *(
        variant(f"plugin: {to}, v{api}", to=to, api=api)
        for to in ("null", "file", "pwrite", "socket", "slice")
        for api in (1, 2)
    ),
)


class Scenario:
    title = "memoryview-write: 1 GiB into a Python plugin"
    question = (
        "What does the type of the buffer cost that pwrite is handed? A 1 GiB image "
        "full of `U` goes to pyplugins/zero.py by `qemu-img convert -p -f raw -O raw "
        "-n`, to a server started for each run; the back end `null` is the least that "
        "nbdspecd can do, and the limit a C program that only receives. Times are "
        "those of the client, as `time` prints them. Then the same under a malloc that "
        "checks, and what else the thread spoke of: -v, TCP, other clients, images and "
        "plugins; these with a quarter of the data, and once (with `--full` thrice)."
    )
    repeat = (3, 15)
    columns = (
        Column(VIEW, "nbdspecd"),
        Column(ARRAY, "nbdspecd"),
        Column(BYTES, "nbdspecd"),
        Column(NBDKIT, "nbdkit"),
        Column(COPIES, "nbdkit"),
        Column(NULL, "nbdspecd"),
        Column(LIMIT, "limit"),
    )
    ratios = (
        Ratio(VIEW, NULL),
        Ratio(VIEW, NBDKIT),
        Ratio(VIEW, LIMIT),
        Ratio(ARRAY, VIEW),
        Ratio(BYTES, VIEW),
        Ratio(COPIES, NBDKIT),
        *(Ratio(VIEW, other, of="server_cpu") for other in (NULL, NBDKIT, LIMIT)),
    )

    def __init__(self) -> None:
        self._memory: TemporaryDirectory[str] | None = None

    def rows(self, options: Options) -> list[Row]:
        self.options, self.size = options, options.data or SIZE
        return [self._shortened(row) for row in ROWS]

    def _shortened(self, row: Row) -> Row:
        if "variant" not in row.params:
            return row
        less: dict[str, object] = {"repeat": VARIANTS_REPEAT[self.options.full]}
        if not row.params.get("whole"):
            less["size"] = self.size // 4
        return replace(row, params=row.params | less)

    def finish(self) -> None:
        if self._memory:
            self._memory.cleanup()

    # The server

    def server(self, row: Row, column: Column) -> ServerSpec | None:
        if column.name not in row.params.get("columns", (column.name,)):
            return None
        if column.name == LIMIT:
            return ServerSpec("limit", options=("--discard",), fresh=True)
        options = ("-v",) if row.params.get("verbose") else ()
        if column.host == "nbdspecd" and column.name != NULL:
            options += (f"--python-buffer={column.name.split()[1]}",)
        return ServerSpec(
            column.host,
            self._back_end(row, column),
            options,
            environment=self._environment(row),
            fresh=True,
            tcp=row.params.get("tcp", False),
        )

    def _environment(self, row: Row) -> tuple[tuple[str, str], ...]:
        api = (("SINK_API", str(row.params.get("api", 1))),)
        return api + (CHECKED if row.params.get("checked") else ())

    def _back_end(self, row: Row, column: Column) -> tuple[str, ...]:
        if column.name == NULL:
            return ("null", str(self._size(row)))
        to = "copy" if column.name == COPIES else row.params.get("to")
        if to is None:
            return ("python", str(PYPLUGINS / "zero.py"))
        words = ("python", str(SCENARIOS / "plugins" / "sink.py"))
        words += (f"to={to}", f"size={self._size(row)}")
        if to in ("file", "pwrite"):
            words += (f"file={self._file(self._size(row))}",)
        return words

    def _size(self, row: Row) -> int:
        size: int = row.params.get("size", self.size)
        return size

    def _file(self, size: int) -> Path:
        """What a plugin writes to; its blocks are there before anything is measured."""
        if self._memory is None:
            self._memory = places.in_memory(size)
        path = Path(self._memory.name) / "file"
        if not path.exists():
            fill(path, size, b"F" * (1 << 20))
        return path

    # The client

    def _image(self, kind: str, size: int) -> Path:
        path = self.options.directory / f"{kind}-{size}.img"
        if not path.exists():
            places.need(path.parent, size)
            fill(path, size, PATTERNS[kind]())
        return path

    def sample(
        self, row: Row, column: Column, server: Server, options: Options
    ) -> Sample:
        size = self._size(row)
        source = str(self._image(row.params.get("image", "U"), size))
        command = ["qemu-img", "convert", "-p", "-f", "raw", "-O", "raw", "-n"]
        if row.params.get("client") == "nbdcopy":
            command = ["nbdcopy", "-p"]
        before = server.usage()
        cost = run([*command, source, server.uri])
        used = server.usage().since(before)
        return sample_of(
            cost,
            used,
            value=cost.real,
            requests=size >> 21,  # qemu-img writes 2 MiB at once
        )

    def notes(self, results: Results) -> list[str]:
        names = [(VIEW, ARRAY), (NBDKIT, COPIES)]
        return [
            *buffers.as_time(results),
            *buffers.environments(results, names, self.size),
        ]


PATTERNS = {
    "U": lambda: b"U" * (1 << 20),
    "zeroes": lambda: b"",
    "random": lambda: os.urandom(32 << 20),
}


def fill(path: Path, size: int, pattern: bytes) -> None:
    """The pattern again and again, or nothing but a hole."""
    with open(path, "wb") as f:
        while pattern and f.tell() < size:
            f.write(pattern[: size - f.tell()])
        f.truncate(size)
