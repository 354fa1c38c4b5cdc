# SPDX-License-Identifier: BSD-3-Clause
"""nbdspecd as a process, for the tests of everything around the protocol.

Nothing here waits by sleeping: a server says by its pid file, which is a pipe,
that it is ready; a process that ends is seen through its pidfd; a callback that
is to be caught inside itself blocks on a FIFO.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "conformance/lib"))

from nbdspec.bench.server import sanitizer as built_with  # noqa: E402
from nbdspec.watch import Directory, wait_for  # noqa: E402

NBDSPECD = os.environ.get("NBDSPECD", str(ROOT / "build/nbdspecd"))

#: A guard against hanging, many times what anything takes.
GUARD = 60.0

MAGIC = 0x4E42444D41474943
IHAVEOPT = 0x49484156454F5054
OPTION_REPLY = 0x3E889045565A9
EXPORT_NAME, ABORT, LIST, STARTTLS, INFO, GO, STRUCTURED_REPLY = 1, 2, 3, 5, 6, 7, 8
ACK, SERVER = 1, 2
ERR_POLICY, ERR_INVALID, ERR_TLS_REQD = 2**31 + 2, 2**31 + 3, 2**31 + 5
READ, WRITE, DISC = 0, 1, 2

#: A plugin of few words.
PLUGIN = """
def open(readonly): return 1
def get_size(h): return 1 << 20
def pread(h, count, offset): return b"p" * count
"""


def has_python() -> bool:
    """Does this build of the server have the bridge?"""
    r = subprocess.run([NBDSPECD, "--dump-plugin", "python"], capture_output=True)
    return r.returncode == 0


def sanitizer() -> str:
    """What the server was built with: "asan", "tsan" or nothing."""
    return built_with(NBDSPECD)


needs_python = pytest.mark.skipif(not has_python(), reason="built without Python")


def refused(*args: str, **kwargs) -> str:
    """A start that must fail: status 1, nothing on stdout, one line on stderr."""
    r = subprocess.run(
        [NBDSPECD, *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=GUARD,
        **kwargs,
    )
    assert r.returncode == 1, (r.returncode, r.stderr)
    assert r.stdout == ""
    assert r.stderr.count("\n") == 1 and r.stderr.endswith("\n"), r.stderr
    return r.stderr.rstrip("\n")


def wait_gone(pid: int) -> None:
    """Until the process, which need not be a child of ours, has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([fd], [], [], GUARD)[0], f"process {pid} does not end"
    finally:
        os.close(fd)


def wait_for_file(path: Path) -> None:
    """Until PATH exists, or something of that name."""
    with Directory(path.parent) as changes:
        while not os.path.lexists(path):
            assert wait_for([changes.fd], GUARD), f"{path} does not appear"
            os.read(changes.fd, 4096)


def read_line(fd: int) -> str:
    """One line of a pipe; what there is of it when the other end is closed."""
    got = b""
    while not got.endswith(b"\n"):
        assert select.select([fd], [], [], GUARD)[0], "nothing comes"
        byte = os.read(fd, 1)
        if not byte:
            break
        got += byte
    return got.decode()


class Server:
    """A server in the foreground; a context manager that ends it.

    Unless told otherwise it listens on a Unix socket in PLACE.
    """

    def __init__(
        self,
        place: Path,
        *args: str,
        listen: tuple[str, ...] | None = None,
        env: dict[str, str] | None = None,
        ready: bool = True,
        **kwargs,
    ) -> None:
        self.place = place
        self.socket = str(place / "sock")
        self.log_path = place / "log"
        self._ready, told = os.pipe()
        if listen is None:
            listen = ("-U", self.socket)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [NBDSPECD, "-f", "-P", f"/dev/fd/{told}", *listen, *args],
                stdin=kwargs.pop("stdin", subprocess.DEVNULL),
                stdout=kwargs.pop("stdout", log),
                stderr=kwargs.pop("stderr", log),
                env={**os.environ, **(env or {})},
                pass_fds=(told, *kwargs.pop("pass_fds", ())),
                **kwargs,
            )
        os.close(told)
        self.pid = 0
        if ready:
            self.wait_ready()

    def wait_ready(self) -> None:
        line = read_line(self._ready)
        assert line, f"the server did not start: {self.log()}"
        self.pid = int(line)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_for_log(self, words: str) -> None:
        with Directory(self.place) as changes:
            while words not in self.log():
                assert wait_for([changes.fd], GUARD), f"not in the log: {words}"
                os.read(changes.fd, 4096)

    def wait(self) -> int:
        return self.process.wait(GUARD)

    def stop(self, sig: int = signal.SIGTERM) -> int:
        self.process.send_signal(sig)
        return self.wait()

    def status(self, key: str) -> int:
        """A number out of /proc/PID/status."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1])
        raise KeyError(key)

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu_ticks(self) -> int:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(") ")[1].split()
        return int(fields[11]) + int(fields[12])

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._ready)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Client:
    """The few words of the protocol that these tests need."""

    def __init__(self, address: str | tuple[str, int] | socket.socket) -> None:
        if isinstance(address, socket.socket):
            self.sock = address
        elif isinstance(address, str):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(GUARD)
            self.sock.connect(address)
        else:
            self.sock = socket.create_connection(address, timeout=GUARD)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def recv(self, n: int) -> bytes:
        """Exactly N bytes, or fewer at the end of the stream."""
        got = b""
        while len(got) < n:
            try:
                piece = self.sock.recv(n - len(got))
            except ConnectionResetError:
                break
            if not piece:
                break
            got += piece
        return got

    def at_end(self) -> bool:
        return self.recv(1) == b""

    def greet(self, flags: int = 3) -> None:
        assert self.recv(18) == struct.pack(">QQH", MAGIC, IHAVEOPT, 3)
        self.send(struct.pack(">I", flags))

    def option(self, number: int, data: bytes = b"") -> None:
        self.send(struct.pack(">QII", IHAVEOPT, number, len(data)) + data)

    def reply(self) -> tuple[int, int, bytes]:
        """Option, type, data."""
        head = self.recv(20)
        assert len(head) == 20, f"the server left: {head!r}"
        magic, option, kind, length = struct.unpack(">QIII", head)
        assert magic == OPTION_REPLY
        return option, kind, self.recv(length)

    def go(self, name: bytes = b"") -> int:
        """Into transmission; returns the size."""
        size = -1
        self.option(GO, struct.pack(">I", len(name)) + name + b"\0\0")
        while True:
            option, kind, data = self.reply()
            assert option == GO
            if kind == ACK:
                return size
            assert kind == 3, f"refused: {kind:#x} {data!r}"
            if data[:2] == b"\0\0":
                size = struct.unpack(">Q", data[2:10])[0]

    def request(
        self, kind: int, offset: int = 0, length: int = 0, payload: bytes = b""
    ) -> None:
        head = struct.pack(">IHHQQI", 0x25609513, 0, kind, 7, offset, length)
        self.send(head + payload)

    def simple_reply(self, length: int = 0) -> tuple[int, bytes]:
        """Error, data."""
        head = self.recv(16)
        assert len(head) == 16, f"the server left: {head!r}"
        magic, error, cookie = struct.unpack(">IIQ", head)
        assert (magic, cookie) == (0x67446698, 7)
        return error, self.recv(length if error == 0 else 0)

    def read(self, offset: int, length: int) -> bytes:
        self.request(READ, offset, length)
        error, data = self.simple_reply(length)
        assert error == 0 and len(data) == length
        return data


def connected(server: Server) -> Client:
    """A client in transmission."""
    c = Client(server.socket)
    c.greet()
    c.go()
    return c


def size_of(address: str | tuple[str, int]) -> int:
    with Client(address) as c:
        c.greet()
        return c.go()
