# SPDX-License-Identifier: BSD-3-Clause
"""qemu-img convert through the upload plugin into an imageio daemon."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any
from urllib.parse import urlsplit

from nbdspec.bench import places
from nbdspec.bench.clients import run, sample_of
from nbdspec.bench.model import (
    PYPLUGINS,
    ROOT,
    SCENARIOS,
    BenchError,
    Column,
    Options,
    Ratio,
    Results,
    Row,
    Sample,
)
from nbdspec.bench.server import Server, ServerSpec

sys.path.insert(0, str(ROOT / "regress"))
from imageio.client import Client, Refused  # noqa: E402
from imageio.disk import Disk  # noqa: E402
from imageio.process import CannotStart, Daemon, Phase, phases  # noqa: E402

sys.path.insert(0, str(SCENARIOS / "reports"))
import uploads  # noqa: E402

DISKS = {
    False: Disk(1 << 30, 200 << 20, 64 << 20),
    True: Disk(6 << 30, 1331 << 20, 256 << 20),  # the mail's
}
THREADS = {False: (1, 4, 16), True: (1, 2, 4, 8, 16)}
MOST = 16  # connections that the stand-in allows
POOL = 4  # the series'
WAIT_LIMIT = 30.0  # seconds; a guard against hanging
HOSTS = ("nbdspecd", "nbdkit")


def grid(kind: str, threads: int, coroutines: int) -> Row:
    """As many connections as threads: what the coroutines leave of them shows."""
    return make_row(
        f"{kind}: -t {threads}, -m {coroutines}",
        kind,
        threads=threads,
        coroutines=coroutines,
        connections=threads,
    )


def steps(kind: str) -> list[Row]:
    """The four of the series, each with what the one before had."""
    serial = {"connections": 1, "serial": True, "in_order": True}
    pool = {"connections": POOL}
    return [
        make_row(f"{kind}: step 1, one connection", kind, **serial),
        make_row(f"{kind}: step 2, pool of {POOL}", kind, in_order=True, **pool),
        make_row(f"{kind}: step 3, with -W", kind, **pool),
        make_row(f"{kind}: step 4, with -t 8", kind, threads=8, **pool),
    ]


def make_row(name: str, kind: str, **params: object) -> Row:
    settings = {"threads": 16, "coroutines": 8, "serial": False, "in_order": False}
    settings |= {"delayed": kind != uploads.FREE, "warm_up": False}
    if settings["delayed"]:
        settings["repeat"] = 2  # what is mostly sleep varies little
    settings |= params
    return Row(name, "s", settings, less_is_better=True)


def parallelism(row: Row) -> int:
    """How many PUTs can be under way at a time."""
    p = row.params
    if p["in_order"]:
        return 1
    return min(p["threads"], p["connections"], p["coroutines"])


class Scenario:
    title = "thread-count: an upload to imageio"
    question = (
        "How many threads does a server need for a plugin whose requests wait for "
        "HTTP replies? A sparse image goes through pyplugins/upload.py by `qemu-img "
        "convert -n` into an imageio daemon, in each cell with fresh servers and a "
        "fresh image; the client's coroutines (-m), the server's threads (-t) and the "
        "plugin's connections each limit how many requests are under way. Times are "
        "the client's. Where each PUT takes 20 ms, the image is the small one also "
        "with `--full`."
    )
    repeat = (3, 3)
    columns = tuple(Column(host, host) for host in HOSTS)
    ratios = (Ratio(*HOSTS), Ratio(*HOSTS, of="server_cpu"))

    def __init__(self) -> None:
        self._daemons: dict[bool, Daemon] = {}
        self._memory: tempfile.TemporaryDirectory[str] | None = None
        self._compared: set[tuple[str, str]] = set()

    def rows(self, options: Options) -> list[Row]:
        self.options, self._disks = options, dict(DISKS)
        if options.data:
            disk = Disk(5 * options.data, options.data, options.data // 4)
            self._disks = dict.fromkeys(DISKS, disk)
        if options.imageio:
            self._there, needed = self._size_there(), self._disk(delayed=False).size
            if self._there < needed:
                raise BenchError(
                    f"--imageio: its image has {self._there} bytes, {needed} are needed"
                )
        kinds = [uploads.FREE] if options.imageio else [uploads.FREE, uploads.DELAYED]
        return [
            row
            for kind in kinds
            for row in [
                *steps(kind),
                *(grid(kind, t, m) for t in THREADS[options.full] for m in (8, 16)),
            ]
        ]

    def _disk(self, delayed: bool) -> Disk:
        """What is uploaded.  Where each PUT sleeps, the small one tells as much."""
        return self._disks[self.options.full and not delayed]

    def _size(self, delayed: bool) -> int:
        """What the plugin is told."""
        return self._there if self.options.imageio else self._disk(delayed).size

    # The daemon

    def _size_there(self) -> int:
        """What Content-Range tells of the image's size; also: can it be had at all."""
        try:
            return Client(
                self.options.imageio, 1, 30.0, cafile=self.options.cafile or None
            ).size()
        except (Refused, OSError) as error:
            raise BenchError(f"--imageio {self.options.imageio}: {error}") from None

    def _daemon(self, delayed: bool) -> Daemon:
        if delayed not in self._daemons:
            directory = self.options.directory / ("delayed" if delayed else "free")
            directory.mkdir()
            words = ["--image", str(self._image), "--size", str(self._size(delayed))]
            words += ["--ops", "read,write"]
            words += ["--max-readers", str(MOST), "--max-writers", str(MOST)]
            words += ["--put-latency", str(uploads.LATENCY)] if delayed else []
            try:
                self._daemons[delayed] = Daemon(directory, *words)
            except CannotStart as error:
                raise BenchError(f"imageiod: {error}") from None
        return self._daemons[delayed]

    @property
    def _image(self) -> Path:
        if self._memory is None:
            disk = self._disk(delayed=False)
            self._memory = places.in_memory(disk.data + disk.zeroes)
        return Path(self._memory.name) / "image"

    def finish(self) -> None:
        for daemon in self._daemons.values():
            daemon.stop()
        self._daemons.clear()
        if self._memory:
            self._memory.cleanup()

    # The server

    def server(self, row: Row, column: Column) -> ServerSpec:
        p = row.params
        url = self.options.imageio or self._daemon(p["delayed"]).image
        words = [f"url={url}", f"size={self._size(p['delayed'])}"]
        words.append(f"connections={p['connections']}")
        words.append(f"local={self._local()}")
        if self.options.cafile:
            words.append(f"cafile={self.options.cafile}")
        environment = [
            ("COUNTED_PLUGIN", str(PYPLUGINS / "upload.py")),
            ("COUNTED_RESULT", str(self._counted)),
        ]
        if p["serial"]:
            environment.append(("COUNTED_MODEL", "SERIALIZE_ALL_REQUESTS"))
        return ServerSpec(
            column.host,
            ("python", str(SCENARIOS / "plugins" / "counting.py"), *words),
            environment=tuple(environment),
            threads=p["threads"],
            fresh=True,
        )

    def _local(self) -> str:
        """Only who is on the daemon's own host can use the socket that it names."""
        host = urlsplit(self.options.imageio or "http://localhost").hostname
        return "yes" if host in ("localhost", "127.0.0.1", "::1") else "no"

    @property
    def _counted(self) -> Path:
        return self.options.directory / "counted.json"

    # The client

    def _source(self, delayed: bool) -> Path:
        disk = self._disk(delayed)
        path = self.options.directory / f"disk-{disk.size}.img"
        if not path.exists():
            places.need(path.parent, disk.data + disk.zeroes)
            disk.make(path)
        return path

    def _convert(self, row: Row, source: str, uri: str) -> list[str]:
        order = [] if row.params["in_order"] else ["-W"]
        words = ["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", *order]
        return [*words, "-m", str(row.params["coroutines"]), source, uri]

    def sample(
        self, row: Row, column: Column, server: Server, options: Options
    ) -> Sample:
        delayed = row.params["delayed"]
        command = self._convert(row, str(self._source(delayed)), server.uri)
        daemon = None if options.imageio else self._daemon(delayed)
        if daemon:
            os.truncate(self._image, 0)
            os.truncate(self._image, self._size(delayed))
            self._logged = len(daemon.log())
        self._counted.unlink(missing_ok=True)
        daemon_before, before = cpu(daemon), server.usage()
        try:
            cost = run(command)
        except BenchError as error:
            raise BenchError(f"{error}; {server.first_error()}") from None
        counted = self._in_flight(server)
        used = server.usage().since(before)
        if not daemon:
            self._compare(row, column, server.uri)
        return sample_of(
            cost,
            used,
            value=cost.real,
            requests=counted["requests"],
            helper_cpu=cpu(daemon) - daemon_before if daemon else None,
            extra={
                "mib_per_s": self._disk(delayed).data / cost.real / 2**20,
                "plugin_in_flight_mean": counted["mean"],
                "plugin_in_flight_most": counted["most"],
            },
        )

    def _in_flight(self, server: Server) -> dict[str, Any]:
        """What the plugin counted; it says so when the client has left it."""
        limit = time.monotonic() + WAIT_LIMIT
        while not self._counted.exists():
            if time.monotonic() > limit or server.process.poll() is not None:
                raise BenchError(f"counting.py said nothing: {server.last_words()}")
            time.sleep(0.002)
        answer: dict[str, Any] = json.loads(self._counted.read_text())
        return answer

    def _compare(self, row: Row, column: Column, copy: str) -> None:
        """Once for each cell: is the copy one?"""
        if (row.name, column.name) not in self._compared:
            words = ["qemu-img", "compare", "-f", "raw", "-F", "raw"]
            run([*words, str(self._source(row.params["delayed"])), copy])
            self._compared.add((row.name, column.name))

    def ended(self, row: Row, column: Column, sample: Sample) -> None:
        """The plugin has closed its connections: the daemon tells of them."""
        if self.options.imageio:
            return
        self._compare(row, column, str(self._image))
        connections = self._statistics(self._daemon(row.params["delayed"]))
        totals = [{p.name: p for p in c} for c in connections]
        sample.extra["connection_s"] = mean(t["connection"].seconds for t in totals)
        sample.extra["daemon_in_flight_mean"] = (
            sum(t["dispatch"].seconds for t in totals) / sample.extra["connection_s"]
        )
        for name in ("write", "zero", "flush"):
            sample.extra[f"{name}_ops"] = sum(
                t[name].operations for t in totals if name in t
            )
        if "step" in row.name:
            sample.said = "\n\n".join(
                "\n".join(str(phase) for phase in c if "." not in phase.name)
                for c in connections
            )

    def _statistics(self, daemon: Daemon) -> list[list[Phase]]:
        """Those of the connections that uploaded something, this time."""
        limit = time.monotonic() + WAIT_LIMIT
        while True:
            log = daemon.log()[self._logged :]
            opened, closed = (
                set(re.findall(rf"^{word} connection=(\d+) .*\n", log, re.MULTILINE))
                for word in ("OPEN", "CLOSE")
            )
            # that of OPTIONS, before, may only be closed now
            if opened <= closed:
                return [
                    c for c in phases(log) if {p.name for p in c} & {"write", "zero"}
                ]
            if time.monotonic() > limit:
                raise BenchError("imageiod: a connection is still open")
            time.sleep(0.002)

    def notes(self, results: Results) -> list[str]:
        text = uploads.table(results, parallelism)
        text += uploads.claims(results)
        text += uploads.statistics(results)
        return text + self._commands(results)

    def _commands(self, results: Results) -> list[str]:
        """What to type to do the same by hand."""
        text, size = ["", "## The commands", "", "```"], self._size(delayed=False)
        if not self.options.imageio:
            words = "regress/imageio/imageiod --dir DIR --image DIR/image"
            text += [f"{words} --size {size} --max-writers {MOST} \\"]
            text += [f"    --max-readers {MOST} [--put-latency {uploads.LATENCY}]"]
        for row in results.rows:
            if row.params["delayed"]:
                continue
            p = row.params
            server = f"nbdspecd -f -U SOCKET -t {p['threads']} python upload.py "
            text += [
                f"# {row.name.partition(': ')[2]}"
                + ", under SERIALIZE_ALL_REQUESTS" * p["serial"],
                f"{server}url=URL size={size} connections={p['connections']} "
                f"local={self._local()}",
                shlex.join(self._convert(row, "disk.img", "URI")),
            ]
        return [*text, "```"]


def cpu(daemon: Daemon | None) -> float:
    """Seconds, see clock_getcpuclockid(3)."""
    return time.clock_gettime((~daemon.pid << 3) | 2) if daemon else 0.0
