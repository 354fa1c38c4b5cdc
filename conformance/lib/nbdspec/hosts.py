# SPDX-License-Identifier: BSD-3-Clause
"""What cases ask hosts for: plugins in shared recorders, hosts of their own, runs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator

from . import leftovers
from .client import WireClient
from .client_libnbd import connect as libnbd_connect
from .client_libnbd import handle as libnbd_handle
from .clock import Clock
from .conn import Chop, Conn
from .host import (
    LIMIT,
    PLUGINS,
    Call,
    Host,
    Setup,
    await_change,
    environment,
    program_words,
)
from .leftovers import off_the_net
from .process import CannotStart, scratch
from .targets.base import Server, Target
from .verdict import Breach, Hang
from .wire import Wire

#: Recorders that stay up at once in one process.
KEEP = 5

#: Options by which a command line says where the host is to listen.
_PLACES = {"-U", "--unix", "-s", "--single"}


class Plugin:
    """A plugin in a host, on behalf of one case: its connections are closed with it."""

    def __init__(self, host: Host, hosts: "Hosts") -> None:
        self.host = host
        self._hosts = hosts
        self.calls = host.calls
        self.names = host.names
        self.wait_calls = host.wait_calls
        self.log = host.log
        self.wait_log = host.wait_log
        self.settle_log = host.settle_log
        self.wait_stats = host.wait_stats
        self.eval = host.eval
        self.exec = host.exec
        self.inside = host.inside
        self.entered = host.entered
        self.numbers = host.numbers
        self.release = host.release
        self.open_gate = host.open_gate
        self.settle = host.settle
        self.process = host.process
        self.server = host.server

    def connect(self, chop: str = "") -> Wire:
        """A connection on which nothing was said."""
        return self._hosts.connect(self.server, chop)

    def wire(self, chop: str = "") -> Wire:
        """A connection in the haggling phase."""
        wire = self.connect(chop)
        wire.greet()
        return wire

    def go(
        self,
        name: str = "",
        *,
        structured: bool = False,
        contexts: tuple[str, ...] = (),
        chop: str = "",
    ) -> Wire:
        """A connection in transmission. Only the export's size and flags are asked."""
        wire = self.wire(chop)
        if structured or contexts:
            wire.negotiate_structured()
        if contexts:
            wire.set_meta(contexts, name)
        wire.go(name)
        return wire

    def client(self, **how) -> WireClient:
        wire = self.go(**how)
        return WireClient(wire, self._hosts.run.findings)

    def libnbd(self, contexts: tuple[str, ...] = ()):
        """A libnbd handle, connected."""
        h = libnbd_handle(self.server, contexts)
        libnbd_connect(h, self.server)
        self._hosts.handles.append(h)
        return h


class HostPool:
    """Recorders that run, by how they were started."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._hosts: dict[Setup, Host] = {}

    def recorder(self, setup: Setup) -> Host:
        host = self._hosts.pop(setup, None)
        if host is not None and host.process.status is not None:
            host.stop()
            host = None
        if host is None:
            host = self._start(setup)
        self._hosts[setup] = host
        while len(self._hosts) > KEEP:
            self._hosts.pop(next(iter(self._hosts))).stop()
        return host

    def _start(self, setup: Setup) -> Host:
        script = str(PLUGINS / "recorder.py")
        try:
            return Host(self.target, script, setup, scratch(), ready=True)
        except CannotStart as error:
            if setup.options:
                # One that does not know an option can run other cases.
                raise Breach("the host to start", str(error)) from None
            raise

    def drop(self, host: Host) -> None:
        if self._hosts.get(host.setup) is host:
            del self._hosts[host.setup]
        host.kill()

    def close(self) -> None:
        while self._hosts:
            self._hosts.popitem()[1].stop()


class Hosts:
    """What a case asks for hosts: the fixture `hosts`."""

    #: where `recording` can be imported from
    plugins = PLUGINS

    def __init__(self, pool: HostPool, run, options) -> None:
        self.pool = pool
        self.run = run
        self._options = options
        self._wires: list[Wire] = []
        self.handles: list = []
        self._used: list[Host] = []
        self._private: list[Host] = []
        self.directories: list[Path] = []

    def connect(self, server: Server, way: str = "") -> Wire:
        chop = Chop(way or self._options.target.chop, self._options.seed)
        wire = Wire(server.connect(self.run.transcript, chop), self.run.findings)
        self._wires.append(wire)
        return wire

    def adopt(self, sock: socket.socket) -> Wire:
        """A connection that the case made itself."""
        sock.settimeout(LIMIT)
        conn = Conn(sock, self.run.transcript, Clock(), Chop())
        wire = Wire(conn, self.run.findings)
        self._wires.append(wire)
        return wire

    def load(self, source: str, *, record: bool = True, **how) -> Plugin:
        """A plugin of this source in a shared recorder; the last one's clients go."""
        self._disconnect()
        for host in [h for h in self._used if h.process.status is not None]:
            self._used.remove(host)
            self.run.trouble(host.process.end_in_words())
            self.pool.drop(host)
        host = self.pool.recorder(Setup(**how))
        if host not in self._used:
            self._used.append(host)
        host.load(source, record)
        return Plugin(host, self)

    def start(
        self, source: str | Path, *, ready: bool = True, **how
    ) -> Plugin:
        """A host of its own for a script; a Path is a script that exists."""
        directory = scratch()
        script = str(source)
        if isinstance(source, str):
            script = str(directory / "plugin.py")
            Path(script).write_text(source, "utf-8")
        try:
            host = Host(self.pool.target, script, Setup(**how), directory, ready)
        except CannotStart as error:
            raise Breach("the host to start", str(error)) from None
        finally:
            self.directories.append(directory)
        self._private.append(host)
        return Plugin(host, self)

    def command(
        self,
        words: list[str],
        *,
        stdin: bytes = b"",
        options: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
        files: dict[str, str | bytes] | None = None,
    ) -> "Ended":
        """Runs the host's program to its end, in a directory with these files.

        The words follow the options. Where they do not say where it is to listen,
        "-f" and a socket come first: a host that takes a word that it should refuse
        would serve the whole network.
        """
        directory = self.directory(files)
        where = () if _PLACES & {*options, *words} else ("-f", "-U", "s")
        argv = [*program_words(self.pool.target), *where, *options, *words]
        told = " ".join(argv).encode("utf-8", "backslashreplace").decode()
        self.run.transcript.sent(0, b"", told)
        streams = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
        with self.spawn(argv, directory, env=env, **streams) as process:
            try:
                out, err = process.communicate(stdin, LIMIT)
            except subprocess.TimeoutExpired as error:
                came = f"no end; stderr: {error.stderr}"
                raise Hang("the host to end", came) from None
        return Ended(
            process.returncode,
            out.decode("utf-8", "replace"),
            err.decode("utf-8", "replace"),
            directory,
        )

    @contextmanager
    def spawn(
        self,
        argv: list[str],
        directory: Path,
        *,
        env: dict[str, str] | None = None,
        **how,
    ) -> Iterator[subprocess.Popen]:
        """A process that is killed when the block ends, if it still runs.

        What it leaves behind, daemons too, ends with the case.
        """
        more = environment(directory / "record", directory / "control", Setup())
        variables = {**os.environ, **more, **(env or {})}
        for name in ("PYTHONUNBUFFERED", "LISTEN_FDS", "LISTEN_PID"):
            if name not in (env or {}):
                variables.pop(name, None)
        process = subprocess.Popen(
            argv,
            cwd=directory,
            env=variables,
            start_new_session=True,
            preexec_fn=off_the_net,
            **how,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def wait_for(self, directory: Path, what: str, ready: Callable[[], object]):
        """What ready() returns, once that is true."""
        return await_change(directory, what, ready)

    def directory(self, files: dict[str, str | bytes] | None = None) -> Path:
        """A directory with these files that goes with the case."""
        directory = scratch()
        self.directories.append(directory)
        for name, text in (files or {}).items():
            data = text.encode() if isinstance(text, str) else text
            (directory / name).write_bytes(data)
        return directory

    # The end of the case

    def _disconnect(self) -> None:
        for wire in self._wires:
            if self.run.breach is None:
                wire.leave()
            wire.conn.close()
        self._wires.clear()
        for h in self.handles:
            if h.aio_is_ready():
                h.shutdown()
        self.handles.clear()

    def finish(self) -> None:
        self._disconnect()
        for host in self._used:
            self._finish_shared(host)
        for host in self._private:
            self._finish_private(host)
        leftovers.end(self.directories)
        for directory in self.directories:
            subprocess.run(["rm", "-rf", str(directory)], check=False)

    def _finish_shared(self, host: Host) -> None:
        if host.process.status is not None:
            self.run.trouble(host.process.end_in_words())
            self.pool.drop(host)
        elif self.run.breach is not None or self.run.broken:
            self.pool.drop(host)

    def _finish_private(self, host: Host) -> None:
        if self.run.breach is not None or self.run.broken:
            if host.process.status not in (None, 0):
                self.run.trouble(host.process.end_in_words())
            host.kill()
            return
        # It was told to end, and did.
        expected = host.process.status == host.expected_status
        trouble = host.stop()
        if trouble and not expected:
            self.run.trouble(trouble)


@dataclass
class Ended:
    """A host that has run."""

    status: int
    out: str
    err: str
    directory: Path

    @property
    def words(self) -> str:
        ending = f"status {self.status}" if self.status >= 0 else (
            f"killed by signal {-self.status}"
        )
        return f"{ending}; stderr: {self.err.strip()[-2000:] or 'nothing'}"

    def calls(self, *names: str) -> list[Call]:
        found = []
        for line in (self.directory / "record").read_text().splitlines():
            entry = json.loads(line)
            call = Call(entry["call"], entry["args"], entry["thread"], entry["main"])
            if not names or call.name in names:
                found.append(call)
        return found

    def names(self, *names: str) -> list[str]:
        return [call.name for call in self.calls(*names)]
