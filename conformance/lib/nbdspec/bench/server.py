# SPDX-License-Identifier: BSD-3-Clause
"""Starts a server, knows when it is ready, reads what it has used, ends it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
TICK = os.sysconf("SC_CLK_TCK")
START_LIMIT = 30.0  # seconds; a guard against hanging, never a measurement


class ServerError(Exception):
    """A server cannot be had; the text is one line that says why."""


def program(host: str) -> str:
    """The path of a host's program."""
    if host == "nbdkit":
        candidates = ["nbdkit"]
    else:
        # limit and connect are built beside nbdspecd, and installed with it
        place = "bin" if host == "nbdspecd" else "libexec/nbdspec"
        installed = str(ROOT.parent.parent / place / host)
        given = os.environ.get("NBDSPECD", "") if host == "nbdspecd" else ""
        built = str(ROOT / "build" / host)
        candidates = [given] if given else [built, installed, host]
    for candidate in candidates:
        if path := shutil.which(candidate):
            return path
    raise ServerError(f"{host}: {' or '.join(candidates)} is not there or cannot run")


def sanitizer(path: str) -> str:
    """What the program was built with: "asan", "tsan" or nothing."""
    libraries = subprocess.check_output(["ldd", path], text=True)
    return next((x for x in ("asan", "tsan") if f"lib{x}" in libraries), "")


@dataclass(frozen=True)
class ServerSpec:
    host: str
    arguments: tuple[str, ...] = ()  # the back end and its parameters
    options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    threads: int = 16
    prefill: int = 0  # bytes to write before anything is measured
    fresh: bool = False  # a new process for each sample
    tcp: bool = False  # on 127.0.0.1 instead of a Unix socket

    def command(self, directory: Path, port: int) -> list[str]:
        words = [program(self.host)]
        if self.host == "limit":
            return [*words, *self.options, str(directory / "s")]
        listen = ["-i", "127.0.0.1", "-p", str(port)]
        words += ["-f", *(listen if self.tcp else ["-U", str(directory / "s")])]
        words += ["-P", str(directory / "pid")]
        words += ["-t", str(self.threads), *self.options]
        if self.host == "nbdspecd":
            words += ["--stats", str(directory / "stats")]
        return words + list(self.arguments)


@dataclass(frozen=True)
class Usage:
    """What a process has used so far."""

    cpu: float  # user + system, to the nanosecond
    user: float  # by the clock tick
    system: float
    faults: int  # minor ones

    def since(self, before: Usage) -> Usage:
        return Usage(
            self.cpu - before.cpu,
            self.user - before.user,
            self.system - before.system,
            self.faults - before.faults,
        )


def free_port() -> int:
    """One that nobody listens on: nbdkit cannot be asked to choose."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        port: int = s.getsockname()[1]
        return port


class Server:
    """A running server."""

    def __init__(self, spec: ServerSpec, parent: Path) -> None:
        self.spec = spec
        # a short path: a socket's has 107 bytes at most
        self.directory = Path(tempfile.mkdtemp(prefix="s", dir=parent))
        self.socket = self.directory / "s"
        self.log = self.directory / "log"
        self.port = free_port() if spec.tcp else 0
        environment = os.environ | dict(spec.environment)
        environment.pop("PYTHONUNBUFFERED", None)
        # Python inside nbdkit takes its library from beside the first python3 on
        # PATH; it is the system's Python that nbdkit was built with.
        environment["PATH"] = "/usr/bin:" + environment.get("PATH", "")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                spec.command(self.directory, self.port),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._wait_until(self._ready, "was not ready")
        except ServerError:
            self.process.kill()
            self.process.wait()
            raise

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def uri(self) -> str:
        if self.spec.tcp:
            return f"nbd://127.0.0.1:{self.port}"
        return f"nbd+unix:///?socket={self.socket}"

    def export_uri(self, name: str) -> str:
        return f"nbd+unix:///{name}?socket={self.socket}"

    def _ready(self) -> bool:
        if self.spec.host != "limit":
            path = self.directory / "pid"
            return path.exists() and path.read_text().endswith("\n")
        with socket.socket(socket.AF_UNIX) as s:
            return s.connect_ex(str(self.socket)) == 0

    def _wait_until(self, condition: Callable[[], bool], failure: str) -> None:
        limit = time.monotonic() + START_LIMIT
        while not condition():
            if self.process.poll() is not None:
                raise ServerError(
                    f"{' '.join(self.process.args)}: "  # type: ignore[arg-type]
                    f"ended with status {self.process.returncode}: {self.last_words()}"
                )
            if time.monotonic() > limit:
                raise ServerError(
                    f"{self.spec.host}: {failure} within {START_LIMIT:.0f} seconds"
                )
            time.sleep(0.005)

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "-")

    def first_error(self) -> str:
        """The first that it logged; of a traceback the line with the exception."""
        last = ""
        for line in self.log.read_text(errors="replace").split("\n"):
            starts = line.startswith(f"{self.spec.host}: ") and "error: " in line
            if starts and last:
                break
            if starts or (last and re.match(r" ?[\w.]+: ", line)):
                last = line.strip()
        return last or "the server logged no error"

    def usage(self) -> Usage:
        # The process's CPU clock, see clock_getcpuclockid(3): exact, and with
        # the threads that have ended, unlike the ticks of /proc.
        cpu = time.clock_gettime((~self.pid << 3) | 2)
        with open(f"/proc/{self.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        user, system = int(fields[11]) / TICK, int(fields[12]) / TICK
        return Usage(cpu, user, system, int(fields[7]))

    def status(self, key: str) -> int:
        """A number of /proc/PID/status: VmRSS and VmHWM (KiB), Threads."""
        with open(f"/proc/{self.pid}/status") as status:
            for line in status:
                name, _, value = line.partition(":")
                if name == key:
                    return int(value.split()[0])
        raise ServerError(f"/proc/{self.pid}/status: there is no {key}")

    def stop(self) -> dict[str, float]:
        """Ends it. Its statistics (nbdspecd's --stats), or nothing."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=START_LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise ServerError(
                f"{self.spec.host}: did not end within {START_LIMIT:.0f} seconds "
                "of SIGTERM"
            ) from None
        stats = self.directory / "stats"
        answer = json.loads(stats.read_text()) if stats.exists() else {}
        shutil.rmtree(self.directory)
        return {k: v for k, v in answer.items() if isinstance(v, (int, float))}
