# SPDX-License-Identifier: BSD-3-Clause
"""A host of Python plugins: its command line, its process, its record and log."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from . import HOME
from .clock import time_factor
from .mode import Mode
from .process import Process
from .targets.base import CannotDo, Server, Target, free_port
from .targets.command import CommandTarget
from .targets.nbdkit import NbdkitTarget
from .verdict import Breach, Hang
from .watch import Deadline, Directory, wait_for

PLUGINS = HOME / "plugins"
#: What a server that answers at all does within this time, even a sanitized one.
LIMIT = 10.0 * time_factor()
#: What was logged for a reply that is there already.
LOG_LIMIT = LIMIT / 2


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


class Calls(list[Call]):
    """What was recorded; to look at a call that was not made ends the case."""

    def __getitem__(self, place):
        try:
            return super().__getitem__(place)
        except IndexError:
            came = ", ".join(str(call) for call in self) or "none"
            raise Breach(f"a call at place {place} of the record", came) from None


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
    """--cmd: what the kit adds comes first, as that command line allows."""
    words = target.words
    if "{script}" not in words:
        raise CannotDo("--cmd has no {script}")
    pairs = dict(zip(listen[::2], listen[1::2]))
    values = {"{socket}": pairs.get("-U"), "{port}": pairs.get("-p")}
    argv = [words[0], "-P", pairs["-P"], *setup.options]
    for word in words[1:]:
        if word == "{script}":
            argv.append(script)
        elif word == "{args}":
            argv += setup.params
        else:
            for place, value in values.items():
                if place in word and value is None:
                    raise CannotDo(f"--cmd has {place}, the case needs another socket")
                word = word.replace(place, value or "")
            argv.append(word)
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

    def calls(self, *names: str) -> Calls:
        """What was recorded since the plugin was loaded; only those names."""
        with self.record.open("rb") as file:
            file.seek(self._since)
            lines = file.read().split(b"\n")[:-1]
        found = Calls()
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


def program_words(target: Target) -> list[str]:
    if isinstance(target, NbdkitTarget):
        return [target.program, *target.options.args]
    if isinstance(target, CommandTarget):
        return [target.words[0]]
    raise CannotDo(f"{target.label} runs no Python plugins")
