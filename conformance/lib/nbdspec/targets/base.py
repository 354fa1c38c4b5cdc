# SPDX-License-Identifier: BSD-3-Clause
"""What a target is: a way to get a running server in a given mode."""

from __future__ import annotations

import abc
import os
import shutil
import socket
import ssl
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from .. import pki
from ..clock import Clock
from ..conn import Chop, Conn
from ..errors import KitError
from ..mode import Mode
from ..process import START_LIMIT, Process
from ..transcript import Transcript
from ..verdict import Hang

if TYPE_CHECKING:
    from ..syncs import Counter


class CannotDo(Exception):
    """The target has no way to run a server in that mode: the reason for N/A."""


class NotInstalled(KitError):
    """The server's program is not there."""


@dataclass
class Options:
    """What the command line said about the target."""

    target: str = "nbdspecd"
    cmd: str = ""
    uri: str = ""
    write: bool = False
    hostile: bool = False
    profile: str = ""
    chop: str = "no"
    seed: int = 0
    args: list[str] = field(default_factory=list)


class Server:
    """A running server, and how to get at it."""

    def __init__(
        self,
        mode: Mode,
        process: Process | None,
        *,
        unix: Path | None = None,
        tcp: tuple[str, int] | None = None,
        export: str = "",
    ) -> None:
        self.mode = mode
        self.process = process
        self.unix = unix
        self.tcp = tcp
        self.export = export
        #: somebody's data is not written to unless its owner agrees
        self.may_write = True
        self.clock = Clock()
        #: what a client needs for TLS, where the server offers it
        self.tls: ssl.SSLContext | None = None
        #: the keys of those who have TLS without certificates: NAME:HEX, one a line
        self.psk: Path | None = None
        #: TLS that every connection is to have
        self.always_tls: ssl.SSLContext | None = None
        #: each connection has a process of its own, which nothing else suffers from
        self.forks = False
        #: the signal that a case ended it by
        self.ended_by: int | None = None
        #: where the syncs of a server are counted
        self.syncs: Counter | None = None
        #: where the data of the export can be looked at behind the server's back
        self.image: Path | None = None

    def socket(self) -> socket.socket:
        """A new connection, with nothing said on it."""
        if self.unix is not None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                # With a time limit of Python's own a full backlog is an error at
                # once, not something to wait for.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO,
                                _timeval(self.clock.limit))
                sock.connect(str(self.unix))
                sock.settimeout(self.clock.limit)
            except BlockingIOError:
                sock.close()
                raise Hang("to be let in", "nobody accepts") from None
            except BaseException:
                sock.close()
                raise
            return sock
        assert self.tcp is not None
        return socket.create_connection(self.tcp, timeout=self.clock.limit)

    def connect(self, transcript: Transcript, chop: Chop | None = None) -> Conn:
        return Conn(self.socket(), transcript, self.clock, chop or Chop())

    @property
    def uri(self) -> str:
        scheme = "nbd" if self.always_tls is None else "nbds"
        export = quote(self.export)
        query = {}
        if self.unix is not None:
            query["socket"] = str(self.unix)
            place = f"{scheme}+unix:///{export}"
        else:
            assert self.tcp is not None
            host, port = self.tcp
            host = f"[{host}]" if ":" in host else host
            place = f"{scheme}://{host}:{port}/{export}"
        if self.always_tls is not None and not self.always_tls.verify_mode:
            query["tls-verify-peer"] = "0"
        words = "&".join(f"{key}={quote(value)}" for key, value in query.items())
        return place + (f"?{words}" if words else "")

    def let_in(self) -> None:
        """Sets what its clients need for the TLS that the mode asks for."""
        if self.mode.tls == "psk":
            self.psk = pki.keys()
        elif self.mode.tls:
            self.tls = pki.client_context()

    def listens(self) -> bool:
        """Whether a connection can be made now."""
        try:
            self.socket().close()
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True

    def greets(self) -> bool:
        """Whether it answers, which may be a while after a connection can be made."""
        try:
            with self.socket() as sock:
                sock.settimeout(START_LIMIT)
                return bool(sock.recv(18))
        except OSError:
            return False

    def end(self, number: int) -> None:
        """Tells it to end, as a case may: that it does is no trouble then."""
        assert self.process is not None
        self.ended_by = number
        self.process.send(number)

    def stop(self) -> str | None:
        """Ends it; what was wrong with its end, in words."""
        if self.process is None:
            return None
        trouble = self.process.stop()
        self.process.forget()
        return trouble


class Target(abc.ABC):
    """A kind of server. Cases never start one themselves, they ask a target."""

    name = ""
    backends: tuple[str, ...] = ()

    def __init__(self, options: Options) -> None:
        self.options = options
        self.backend = options.target.partition(":")[2]

    @abc.abstractmethod
    def version(self) -> str:
        """What the program calls its version."""

    @abc.abstractmethod
    def start(self, mode: Mode) -> Server:
        """A server in that mode; CannotDo when there is no way."""

    @property
    def label(self) -> str:
        return self.options.target

    #: False when what it serves belongs to somebody
    disposable = True

    @property
    def stores(self) -> bool:
        """False for a back end that forgets what is written, as it should."""
        return self.backend != "null"


def _timeval(seconds: float) -> bytes:
    whole = int(seconds)
    return struct.pack("ll", whole, int((seconds - whole) * 1e6))


def program(name: str, variable: str) -> str:
    """Where a server's program is: an environment variable, or PATH."""
    named = os.environ.get(variable)
    if named:
        # The path survives the change of directory that a start implies.
        found = shutil.which(named)
        if found is None:
            raise NotInstalled(f"{variable}={named}: no such program")
        return os.path.abspath(found)
    found = shutil.which(name)
    if found is None:
        found = shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")
    if found is None:
        raise NotInstalled(f"{name} is not installed (or say {variable}=/path/to/it)")
    return found


def no_odd_ways(mode: Mode, name: str) -> None:
    """For servers with one way to greet, and back ends that do as they like."""
    odd = mode.oldstyle or mode.block_size or mode.bad or mode.errnos
    odd = odd or mode.content == "striped" or mode.without
    if mode.handshake != 3 or odd:
        raise CannotDo(f"{name} cannot be started so: {mode.describe()}")


def free_port() -> int:
    """A TCP port nobody listened on a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def fill(path: Path, mode: Mode) -> None:
    """Makes an image with the content that a mode asks for."""
    from ..payloads import pattern

    with path.open("wb") as file:
        if mode.content == "pattern":
            step = 1 << 20
            for offset in range(0, mode.size, step):
                file.write(pattern(offset, min(step, mode.size - offset)))
        elif mode.content == "sparse":
            for offset in range(0, min(mode.size, 64 << 20), 2 << 20):
                file.seek(offset)
                file.write(pattern(offset, min(1 << 20, mode.size - offset)))
        file.truncate(mode.size)
