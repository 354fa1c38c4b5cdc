# SPDX-License-Identifier: BSD-3-Clause
"""Serves a file, straight into and out of the server's buffers.

    nbdspecd python file.py file=disk.img

Lessons: os.preadv and os.pwritev work on any buffer, copy nothing in Python, let
go of the interpreter's lock while the kernel works and take the offset as an
argument, so the plugin is PARALLEL without a lock; both may do less than asked;
a relative path is resolved before the server changes its directory; OSError
carries its errno to the client.
"""

import errno
import os

import nbdkit

API_VERSION = 2

path = ""


def config(key: str, value: str) -> None:
    global path
    if key != "file":
        raise ValueError(f"unknown parameter {key!r}: file.py takes file=PATH")
    path = os.path.realpath(value)


def config_complete() -> None:
    if not path:
        raise ValueError("parameter file=PATH is missing")
    if not os.path.isfile(path):
        raise ValueError(f"file={path}: there is no such regular file")


def thread_model() -> int:
    return nbdkit.THREAD_MODEL_PARALLEL


def open(readonly: bool) -> int:
    return os.open(path, (os.O_RDONLY if readonly else os.O_RDWR) | os.O_CLOEXEC)


def close(fd: int) -> None:
    os.close(fd)


def get_size(fd: int) -> int:
    return os.fstat(fd).st_size


def can_multi_conn(fd: int) -> bool:
    return True  # the kernel's page cache is one for all descriptors


def can_fua(fd: int) -> int:
    return nbdkit.FUA_NATIVE


def pread(fd: int, buf: memoryview, offset: int, flags: int) -> None:
    while buf:
        done = os.preadv(fd, [buf], offset)
        if done == 0:
            raise OSError(errno.EIO, f"{path} ends at {offset}: it has shrunk")
        buf, offset = buf[done:], offset + done


def pwrite(fd: int, buf: memoryview, offset: int, flags: int) -> None:
    sync = os.RWF_DSYNC if flags & nbdkit.FLAG_FUA else 0
    while buf:
        done = os.pwritev(fd, [buf], offset, sync)
        buf, offset = buf[done:], offset + done


def flush(fd: int, flags: int) -> None:
    os.fdatasync(fd)
