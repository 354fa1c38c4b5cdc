# SPDX-License-Identifier: BSD-3-Clause
"""Takes writes and gets rid of them, in the ways that plugins do.

    SINK_API=2 nbdspecd python sink.py to=pwrite file=/tmp/x size=1G

to=zero, null: a device, by write; copy: a bytearray of the buffer, to /dev/zero;
slice: in two halves, to /dev/zero; file: seek and write; pwrite: os.pwrite;
socket: sendall, to a reader that throws it away. SINK_API, 1 or 2, is the API that
pwrite is written for, and an environment variable because it is read at once.
"""

import builtins
import os
import socket
import threading
from typing import Any, Callable, Optional

import nbdkit

API_VERSION = int(os.environ.get("SINK_API", "1"))
WAYS = ("zero", "null", "copy", "slice", "file", "pwrite", "socket")

settings = {"to": "zero", "file": "", "size": "1G"}


def config(key: str, value: str) -> None:
    if key not in settings:
        raise ValueError(f"unknown parameter {key!r}: expected {', '.join(settings)}")
    if key == "to" and value not in WAYS:
        raise ValueError(f"to={value}: expected {', '.join(WAYS)}")
    settings[key] = os.path.realpath(value) if key == "file" else value


def config_complete() -> None:
    if (settings["to"] in ("file", "pwrite")) != bool(settings["file"]):
        raise ValueError("file=PATH goes with to=file and to=pwrite, and with no other")


def drain(sock: socket.socket) -> None:
    buffer = bytearray(1 << 20)
    while sock.recv_into(buffer):
        pass


class Sink:
    """The write of one connection; where it ends."""

    def __init__(self, to: str) -> None:
        self.close: Callable[[], None]
        if to == "socket":
            ours, theirs = socket.socketpair()
            threading.Thread(target=drain, args=(theirs,), daemon=True).start()
            self.write: Callable[[Any, int], object] = lambda b, _: ours.sendall(b)
            self.close = ours.close
            return
        path = settings["file"] or ("/dev/null" if to == "null" else "/dev/zero")
        f = builtins.open(path, "r+b", buffering=0)
        self.close = f.close
        if to == "pwrite":
            self.write = lambda b, offset: os.pwrite(f.fileno(), b, offset)
        elif to == "file":
            self.write = lambda b, offset: (f.seek(offset), f.write(b))
        elif to == "copy":
            self.write = lambda b, _: f.write(bytearray(b))
        elif to == "slice":
            self.write = lambda b, _: (
                f.write(b[: len(b) // 2]),
                f.write(b[len(b) // 2 :]),
            )
        else:
            self.write = lambda b, _: f.write(b)


def open(readonly: bool) -> Sink:
    return Sink(settings["to"])


def get_size(h: Sink) -> int:
    return nbdkit.parse_size(settings["size"])


def pread(h: Sink, *args: Any) -> Optional[bytes]:
    raise NotImplementedError("sink.py is for writing only")


def pwrite(h: Sink, buf: Any, offset: int, flags: int = 0) -> None:
    h.write(buf, offset)


def close(h: Sink) -> None:
    h.close()
