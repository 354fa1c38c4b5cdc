# SPDX-License-Identifier: BSD-3-Clause
"""A plugin that does what a case programs it to do, and keeps a journal of it.

The program is Python in the file $NBDSPEC_PROGRAM; it runs in this module, so that
what it defines are callbacks, and what is defined here is there to be used:

    note(name, **fields)    adds a line to the journal
    gate(name)              waits until the case opens the gate
    inside()                with inside(): counts how many are in there at once
    disk                    a bytearray that pread and pwrite work on

An API_VERSION is the program's business. Runs under nbdkit as well.
"""

import contextlib
import json
import os
import socket
import threading

import nbdkit

disk = bytearray(1 << 20)

_journal = os.open(os.environ["NBDSPEC_JOURNAL"], os.O_WRONLY | os.O_APPEND)
_lock = threading.Lock()
_inside = {"now": 0, "most": 0}


def note(what, **fields):
    """One line, written at once: it is there before the request is answered."""
    line = json.dumps({"what": what, "thread": threading.get_native_id(), **fields})
    os.write(_journal, line.encode() + b"\n")


def gate(name):
    """Tells the case that this callback is here, and waits to be let through."""
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(os.environ["NBDSPEC_CONTROL"])
        control.sendall(name.encode())
        return control.recv(64)


@contextlib.contextmanager
def inside():
    with _lock:
        _inside["now"] += 1
        _inside["most"] = max(_inside.values())
    try:
        yield
    finally:
        with _lock:
            note("inside", now=_inside["now"], most=_inside["most"])
            _inside["now"] -= 1


def describe(buf):
    """What a buffer is, in words for the journal."""
    view = memoryview(buf)
    return {
        "type": type(buf).__name__,
        "readonly": view.readonly,
        "format": view.format,
        "ndim": view.ndim,
        "itemsize": view.itemsize,
        "contiguous": view.contiguous,
        "length": view.nbytes,
    }


def config(key, value):
    note("config", key=key, value=value)


def open(readonly):
    return {}


def get_size(h):
    return len(disk)


def pread(*args):
    """By version 1 (h, count, offset), by version 2 (h, buf, offset, flags)."""
    if globals().get("API_VERSION", 1) == 1:
        _, count, offset = args
        return disk[offset : offset + count]
    _, buf, offset, _ = args
    buf[:] = memoryview(disk)[offset : offset + len(buf)]
    return None


with __builtins__.open(os.environ["NBDSPEC_PROGRAM"]) as _program:
    exec(compile(_program.read(), _program.name, "exec"), globals())
