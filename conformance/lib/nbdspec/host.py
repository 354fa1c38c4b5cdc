# SPDX-License-Identifier: BSD-3-Clause
"""A host of Python plugins, running what a case programs the recorder to do."""

from __future__ import annotations

import json
import select
import socket
import textwrap
from pathlib import Path

from . import HOME
from .caserun import CaseRun
from .conn import Chop
from .process import scratch
from .targets.base import Server, Target
from .verdict import Breach, Hang
from .wire import Wire

RECORDER = HOME / "plugins" / "recorder.py"


class Gate:
    """A callback that waits; opening the gate lets it go on."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.name = sock.recv(64).decode()

    def open(self, word: bytes = b"go") -> None:
        self._sock.sendall(word)
        self._sock.close()


class Host:
    """One running host with one plugin."""

    def __init__(self, target: Target, run: CaseRun, limit: float = 20.0) -> None:
        self._target = target
        self._run = run
        self._limit = limit
        self._wires: list[Wire] = []
        self._gates: list[Gate] = []
        self.directory = scratch()
        self._journal = self.directory / "journal"
        self._journal.touch()
        self._control = socket.socket(socket.AF_UNIX)
        self._control.bind(str(self.directory / "c"))
        self._control.listen(128)
        self.server: Server | None = None

    def start(
        self,
        program: str,
        *params: str,
        options: tuple[str, ...] = (),
        script: Path | None = None,
    ) -> "Host":
        """Starts the host with a program for the recorder, or with a script."""
        text = self.directory / "program.py"
        text.write_text(textwrap.dedent(program.strip("\n")) + "\n")
        env = {
            "NBDSPEC_PROGRAM": str(text),
            "NBDSPEC_JOURNAL": str(self._journal),
            "NBDSPEC_CONTROL": str(self.directory / "c"),
        }
        self.server = self._target.start_script(
            script or RECORDER, params, options, env
        )
        return self

    # Clients

    def wire(self, **how: object) -> Wire:
        """A new connection in transmission."""
        wire = self.raw()
        wire.greet()
        return wire.transmit(**how)  # type: ignore[arg-type]

    def raw(self) -> Wire:
        """A new connection on which nothing was said."""
        assert self.server is not None
        conn = self.server.connect(self._run.transcript, Chop())
        self._wires.append(Wire(conn, self._run.findings, self.server.export))
        return self._wires[-1]

    # What the plugin tells

    def notes(self, what: str | None = None) -> list[dict]:
        """The journal so far; a line is there before its request is answered."""
        lines = self._journal.read_text().splitlines()
        found = [json.loads(line) for line in lines]
        return [entry for entry in found if what is None or entry["what"] == what]

    def note(self, what: str) -> dict:
        """The only entry of that name."""
        found = self.notes(what)
        if len(found) != 1:
            raise Breach(f"one note {what!r} in the plugin's journal", f"{found}")
        return found[0]

    def arrive(self, count: int) -> list[Gate]:
        """Waits until so many callbacks stand at their gates."""
        gates: list[Gate] = []
        self._control.settimeout(self._limit)
        while len(gates) < count:
            try:
                gates.append(Gate(self._control.accept()[0]))
            except TimeoutError:
                raise Hang(
                    f"{count} callbacks to be in the plugin at once",
                    f"{len(gates)} within {self._limit:g} s",
                ) from None
        self._gates += gates
        return gates

    def nobody_else(self) -> None:
        """Nobody else stands at a gate now: to be asked after a round trip."""
        if select.select([self._control], [], [], 0)[0]:
            gate = Gate(self._control.accept()[0])
            self._gates.append(gate)
            raise Breach("no further callback", f"one more: {gate.name}")

    @property
    def log(self) -> str:
        assert self.server is not None and self.server.process is not None
        return self.server.process.log()

    @property
    def statistics(self) -> dict:
        """What nbdspecd wrote with --stats; only there once a connection ended."""
        return json.loads((self.directory / "stats").read_text())

    # The end

    def stop(self) -> str | None:
        """Ends the host; what was wrong with its end."""
        if self.server is None:
            return None
        server, self.server = self.server, None
        return server.stop()

    def close(self) -> None:
        for gate in self._gates:
            gate._sock.close()
        self._control.close()
        for wire in self._wires:
            if self._run.breach is None:
                wire.leave()
            wire.conn.close()
        process = self.server.process if self.server else None
        if process is not None and process.status is not None:
            self._run.trouble(process.end_in_words())
        trouble = self.stop()
        if trouble and self._run.breach is None and process is not None:
            self._run.trouble(trouble)
