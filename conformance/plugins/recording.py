# SPDX-License-Identifier: BSD-3-Clause
"""What the kit's plugins share: a record of what they are called with, and gates.

The record is a file of JSON lines (NBDSPEC_RECORD), written with one system call an
entry: it is complete even when the host crashes.  Numbers, strings and the like are
written by their repr, so that True and 1 can be told apart.
"""

import ctypes
import json
import os
import struct
import threading
import zlib

CALLBACKS = (
    "config config_complete thread_model get_ready after_fork cleanup unload "
    "dump_plugin preconnect list_exports default_export open close "
    "export_description get_size block_size can_write can_zero can_fast_zero "
    "can_trim can_fua can_flush is_rotational can_multi_conn can_cache can_extents "
    "pread pwrite flush trim zero cache extents "
    # names that mean nothing to a host
    "load name version longname description config_help prepare finalize"
).split()

_PLAIN = (bool, int, float, str, bytes, type(None))
_file = os.open(
    os.environ.get("NBDSPEC_RECORD", os.devnull),
    os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
    0o600,
)


def describe(value):
    """A value as JSON: the repr of what is plain, else what can be told of it."""
    if type(value) in _PLAIN:
        return repr(value)
    if isinstance(value, (memoryview, bytearray)):
        view = memoryview(value)
        found = {
            "type": type(value).__name__,
            "readonly": view.readonly,
            "format": view.format,
            "itemsize": view.itemsize,
            "ndim": view.ndim,
            "nbytes": view.nbytes,
            "len": len(value),
            "strides": list(view.strides),
            "contiguous": view.contiguous and view.c_contiguous,
            "head": view[:16].hex(),
            "crc": zlib.crc32(view),
        }
        view.release()
        return found
    return {"type": type(value).__name__, "id": id(value)}


def note(what, *values):
    """One entry of the record."""
    entry = {
        "call": what,
        "args": [describe(value) for value in values],
        "thread": threading.get_native_id(),
        "main": threading.get_native_id() == os.getpid(),
    }
    os.write(_file, json.dumps(entry).encode() + b"\n")


def recorded(name, function):
    """The function, with a note of each call; nothing of the call is kept."""

    def call(*args):
        note(name, *args)
        return function(*args)

    return call


def record(namespace):
    """From now on the calls of all callbacks in the namespace are noted."""
    for name in CALLBACKS:
        if callable(namespace.get(name)):
            namespace[name] = recorded(name, namespace[name])


class Gate:
    """A place where callbacks wait until the case lets them go."""

    #: Should the case be gone: nothing hangs for ever.
    LIMIT = 60

    def __init__(self):
        self.changed = threading.Condition()
        self.entered = self.inside = self.most = self.permits = 0
        self.open = False

    def hold(self):
        with self.changed:
            self.entered += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.open or self.permits, self.LIMIT)
            if not self.open and self.permits:
                self.permits -= 1
            self.inside -= 1
            self.changed.notify_all()

    def release(self, count):
        with self.changed:
            self.permits += count
            self.changed.notify_all()

    def open_up(self):
        with self.changed:
            self.open = True
            self.changed.notify_all()

    def numbers(self):
        with self.changed:
            return {"entered": self.entered, "inside": self.inside, "most": self.most}


_gates = {}
_gates_lock = threading.Lock()


def gate(name="gate"):
    with _gates_lock:
        return _gates.setdefault(name, Gate())


def hold(name="gate"):
    """In a callback: waits until the case says go."""
    gate(name).hold()


def forget_gates():
    """Lets all go, and begins anew."""
    with _gates_lock:
        for each in _gates.values():
            each.open_up()
        _gates.clear()


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


def address(buf):
    """Where the bytes of a buffer are, read-only or not."""
    found = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(
        ctypes.py_object(buf), ctypes.byref(found), ctypes.c_int(0)
    )
    where = found.buf
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(found))
    return where


def pattern(offset, length):
    """The kit's payload: each aligned eight bytes hold their own offset."""
    first = offset // 8 * 8
    count = -(-(offset + length - first) // 8)
    whole = struct.pack(f">{count}Q", *range(first, first + 8 * count, 8))
    return whole[offset - first :][:length]


def judge(checks, **names):
    """Notes for each expression whether it is true."""
    for text in checks:
        try:
            good = eval(text, {**globals(), **names}) is True
        except Exception as error:
            good = repr(error)
        note("check", text, good)


def raised(function, *args):
    """The name of the exception that a call raises, or None."""
    try:
        function(*args)
    except Exception as error:
        return type(error).__name__
    return None
