# SPDX-License-Identifier: BSD-3-Clause
"""Hosts of Python plugins: started with the recorder, or with a script of a case."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from . import HOME
from .client import WireClient
from .client_libnbd import connect as libnbd_connect
from .client_libnbd import handle as libnbd_handle
from .clock import Clock
from .conn import Chop, Conn
from .mode import Mode
from .process import CannotStart, Process, scratch
from .targets.base import CannotDo, Server, Target, free_port
from .targets.command import CommandTarget
from .targets.nbdkit import NbdkitTarget
from .verdict import Breach, Hang
from .watch import Deadline, Directory, wait_for
from .wire import Wire

PLUGINS = HOME / "plugins"
#: What a server that answers at all does within this time, even a sanitized one.
LIMIT = 10.0 * float(os.environ.get("NBDSPEC_TIME_FACTOR", "1"))
#: What was logged for a reply that is there already.
LOG_LIMIT = LIMIT / 2
#: Recorders that stay up at once in one process.
KEEP = 5


@dataclass(frozen=True)
class Setup:
    """How a host is started."""

    #: of the recorder
    api: int = 2
    #: the recorder's thread model; None: it says nothing
    model: int | None = None
    #: options of the host
    options: tuple[str, ...] = ()
    #: "unix" or "tcp"
    transport: str = "unix"
    #: for the script; the recorder takes none
    params: tuple[str, ...] = ()


@dataclass
class Call:
    """One entry of the record; arguments as recording.describe tells them."""

    name: str
    args: list
    thread: int
    main: bool

    def __str__(self) -> str:
        return f"{self.name}({', '.join(_short(arg) for arg in self.args)})"


def _short(arg) -> str:
    return arg if isinstance(arg, str) else f"<{arg['type']}>"


def command_line(
    target: Target, script: str, setup: Setup, listen: list[str]
) -> list[str]:
    """The host's command line; nbdkit's, whatever the host."""
    if isinstance(target, NbdkitTarget):
        words = [target.program, "-f", *target.options.args, *listen]
        return [*words, *setup.options, "python", script, *setup.params]
    if isinstance(target, CommandTarget):
        return _stranger(target, script, setup, listen)
    raise CannotDo(f"{target.label} runs no Python plugins")


def _stranger(
    target: CommandTarget, script: str, setup: Setup, listen: list[str]
) -> list[str]:
    """--cmd: options come first, as every program with that command line has them."""
    words = target.words
    if "{script}" not in words:
        raise CannotDo("--cmd has no {script}")
    place = {"-U": "{socket}", "-p": "{port}"}
    argv = [words[0], *setup.options]
    for word in words[1:]:
        if word == "{script}":
            argv.append(script)
        elif word == "{args}":
            argv += setup.params
        else:
            for option, value in zip(listen[::2], listen[1::2]):
                word = word.replace(place.get(option, option), value)
            argv.append(word)
    if any("{socket}" in word or "{port}" in word for word in argv):
        raise CannotDo("--cmd has no place for that kind of socket")
    return argv


def await_change(
    directory: Path,
    what: str,
    ready: Callable[[], object],
    limit: float = LIMIT,
    process: Process | None = None,
):
    """What ready() returns, once that is true; asked at each change of a file."""
    deadline = Deadline(limit)
    with Directory(directory) as changes:
        while True:
            found = ready()
            if found:
                return found
            if process is not None and process.status is not None:
                raise Breach(what, process.end_in_words())
            if deadline.passed:
                raise Hang(what, f"nothing of the kind in {limit:g} s")
            if wait_for([changes.fd], min(deadline.left, 0.5)):
                os.read(changes.fd, 65536)


class Host:
    """One running host, and what the plugin in it recorded."""

    def __init__(
        self, target: Target, script: str, setup: Setup, directory: Path, ready: bool
    ) -> None:
        self.setup = setup
        self.directory = directory
        self.record = directory / "record"
        self.record.touch()
        self.control = directory / "control"
        self._since = 0
        self._log_since = 0
        unix, tcp, listen = None, None, []
        if setup.transport == "tcp":
            tcp = ("127.0.0.1", free_port())
            listen = ["-i", tcp[0], "-p", str(tcp[1])]
        elif setup.transport == "unix":
            unix = directory / "s"
            listen = ["-U", str(unix)]
        listen += ["-P", str(directory / "pid")]
        argv = command_line(target, script, setup, listen)
        env = environment(self.record, self.control, setup)
        self.process = Process(argv, directory, env=env)
        self.server = Server(Mode(), self.process, unix=unix, tcp=tcp)
        self._stream = None
        #: when the case itself ends it
        self.expected_status = 0
        if ready:
            # A connection to see whether it listens would be a call of preconnect.
            self.process.wait_until(self._has_pid, "process id")

    def _has_pid(self) -> bool:
        path = self.directory / "pid"
        return path.exists() and path.read_bytes().endswith(b"\n")

    # Waiting

    def wait(self, what: str, ready: Callable[[], object], limit: float = LIMIT):
        """What ready() returns, once that is true; asked at each change of a file."""
        return await_change(self.directory, what, ready, limit, self.process)

    # The record

    def calls(self, *names: str) -> list[Call]:
        """What was recorded since the plugin was loaded; only those names."""
        with self.record.open("rb") as file:
            file.seek(self._since)
            lines = file.read().split(b"\n")[:-1]
        found = []
        for line in lines:
            entry = json.loads(line)
            call = Call(entry["call"], entry["args"], entry["thread"], entry["main"])
            if not names or call.name in names:
                found.append(call)
        return found

    def names(self, *names: str) -> list[str]:
        return [call.name for call in self.calls(*names)]

    def wait_calls(self, name: str, count: int = 1) -> list[Call]:
        def enough():
            found = self.calls(name)
            return found if len(found) >= count else None

        return self.wait(f"{count} calls of {name}", enough)

    # The log

    def log(self) -> str:
        with self.process.log_path.open("rb") as file:
            file.seek(self._log_since)
            return file.read().decode("utf-8", "replace")

    def wait_log(self, text: str) -> str:
        """The log, once it has the text."""
        self.wait(f"{text!r} in the log", lambda: text in self.log(), LOG_LIMIT)
        return self.log()

    def settle_log(self, text: str, count: int) -> None:
        """Waits until the log has the text so many times."""
        what = f"{text!r} {count} times in the log"
        self.wait(what, lambda: self.log().count(text) >= count, LOG_LIMIT)

    def wait_stats(self) -> dict:
        """What the host wrote to the file `stats` after a connection."""

        def complete():
            path = self.directory / "stats"
            try:
                return json.loads(path.read_text())
            except (FileNotFoundError, ValueError):
                return None

        return self.wait("the host's statistics", complete)

    # The recorder's control socket

    def order(self, *words):
        if self._stream is None:
            self.wait("the recorder's socket", self.control.exists)
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(1.5 * LIMIT)
            sock.connect(str(self.control))
            self._stream = sock.makefile("rw", encoding="utf-8")
            sock.close()
        try:
            self._stream.write(json.dumps(words) + "\n")
            self._stream.flush()
            answer = json.loads(self._stream.readline())
        except (OSError, ValueError) as error:
            if self.process.wait(1.0) is not None:
                raise Breach("the plugin to run", self.process.end_in_words()) from None
            raise Hang("the plugin's thread to answer", str(error)) from None
        if "error" in answer:
            reason = answer["error"].strip().splitlines()
            raise Breach("what the case sent to run in the plugin", reason[-1])
        return answer["result"]

    def load(self, source: str, record: bool) -> None:
        """Makes the recorder another plugin."""
        left = self.order("settle", LIMIT)
        if left:
            raise Hang("close for every open", f"{left} handles that are still open")
        self.order("load", source, record)
        self._since = self.record.stat().st_size
        self._log_since = self.process.log_path.stat().st_size

    def settle(self) -> None:
        """Waits until every handle was closed."""
        left = self.order("settle", LIMIT)
        if left:
            raise Breach("close for every open", f"{left} handles that are still open")

    def eval(self, source: str):
        return self.order("eval", source)

    def exec(self, source: str) -> None:
        self.order("exec", source)

    def inside(self, count: int, gate: str = "gate") -> dict[str, int]:
        """Waits until so many callbacks wait in the gate; its numbers."""
        return self._gate("inside", count, gate)

    def entered(self, count: int, gate: str = "gate") -> dict[str, int]:
        """Waits until so many have come to the gate in all."""
        return self._gate("entered", count, gate)

    def _gate(self, key: str, count: int, gate: str) -> dict[str, int]:
        numbers = self.order("wait", gate, key, count, LIMIT)
        if numbers[key] < count:
            raise Hang(
                f"{count} callbacks {key} the gate {gate!r}", f"{numbers[key]}"
            )
        return numbers

    def numbers(self, gate: str = "gate") -> dict[str, int]:
        return self.order("numbers", gate)

    def release(self, count: int = 1, gate: str = "gate") -> None:
        self.order("release", gate, count)

    def open_gate(self, gate: str = "gate") -> None:
        self.order("open", gate)

    # The end

    def close_control(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def stop(self, number: int | None = None) -> str | None:
        """Ends it; what was wrong with its end."""
        self.close_control()
        trouble = self.process.stop(*[] if number is None else [number])
        self.process.forget()
        return trouble

    def kill(self) -> None:
        self.close_control()
        self.process.kill()
        self.process.forget()


def environment(record: Path, control: Path, setup: Setup) -> dict[str, str]:
    env = {
        "NBDSPEC_RECORD": str(record),
        "NBDSPEC_CONTROL": str(control),
        "NBDSPEC_API": str(setup.api),
        "NBDSPEC_MODEL": "" if setup.model is None else str(setup.model),
        "PYTHONPATH": str(PLUGINS),
        # nbdkit takes its library from the python3 that it finds first.
        "PATH": os.pathsep.join(["/usr/bin", "/bin", os.environ.get("PATH", "")]),
    }
    return env


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
        cwd: Path | None = None,
        files: dict[str, str | bytes] | None = None,
    ) -> "Ended":
        """Runs the host's program to its end, in a directory with these files.

        The words follow the options; "-f" and a socket are not added.
        """
        directory = cwd or self.directory(files)
        argv = [*program_words(self.pool.target), *options, *words]
        more = environment(directory / "record", directory / "control", Setup())
        variables = {**os.environ, **more, **(env or {})}
        for name in ("PYTHONUNBUFFERED", "LISTEN_FDS", "LISTEN_PID"):
            if name not in (env or {}):
                variables.pop(name, None)
        self.run.transcript.sent(0, b"", " ".join(argv))
        try:
            done = subprocess.run(
                argv,
                input=stdin,
                capture_output=True,
                env=variables,
                cwd=directory,
                timeout=LIMIT,
            )
        except subprocess.TimeoutExpired as error:
            raise Hang("the host to end", f"no end; stderr: {error.stderr}") from None
        return Ended(
            done.returncode,
            done.stdout.decode("utf-8", "replace"),
            done.stderr.decode("utf-8", "replace"),
            directory,
        )

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


def program_words(target: Target) -> list[str]:
    if isinstance(target, NbdkitTarget):
        return [target.program, *target.options.args]
    if isinstance(target, CommandTarget):
        return [target.words[0]]
    raise CannotDo(f"{target.label} runs no Python plugins")
