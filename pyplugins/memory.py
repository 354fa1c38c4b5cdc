# SPDX-License-Identifier: BSD-3-Clause
"""A disk in memory, the same for all connections, gone when the server ends.

    nbdspecd python memory.py size=1G

Lessons: API version 2, where pread fills a buffer that the server gives; one
slice assignment moves the data, and because it runs under the interpreter's lock
it needs no other, so the plugin can be PARALLEL; nothing is cached, so flush and
FUA have nothing to do and are said to be native.
"""

import nbdkit

API_VERSION = 2

disk = bytearray()
view = memoryview(disk)  # its slices are no copies, and it cannot change in size
zeroes = bytes(1 << 20)  # a request may ask for gigabytes of them


def config(key: str, value: str) -> None:
    global disk, view
    if key != "size":
        raise ValueError(f"unknown parameter {key!r}: memory.py takes size=SIZE")
    size = nbdkit.parse_size(value)
    if size == 0:
        raise ValueError("size=0: a disk has at least one byte")
    try:
        disk = bytearray(size)
    except (MemoryError, OverflowError):
        raise ValueError(f"size={value}: more memory than there is") from None
    view = memoryview(disk)


def config_complete() -> None:
    if not disk:
        raise ValueError("parameter size=SIZE is missing, as in size=1G")


def thread_model() -> int:
    return nbdkit.THREAD_MODEL_PARALLEL


def open(readonly: bool) -> None:
    return None  # all state is global; None is as good a handle as any


def get_size(h: None) -> int:
    return len(view)


def can_multi_conn(h: None) -> bool:
    return True


def can_fua(h: None) -> int:
    return nbdkit.FUA_NATIVE


def pread(h: None, buf: memoryview, offset: int, flags: int) -> None:
    buf[:] = view[offset : offset + len(buf)]


def pwrite(h: None, buf: memoryview, offset: int, flags: int) -> None:
    view[offset : offset + len(buf)] = buf


def flush(h: None, flags: int) -> None:
    pass


def zero(h: None, count: int, offset: int, flags: int) -> None:
    while count > 0:
        step = min(count, len(zeroes))
        view[offset : offset + step] = zeroes[:step]
        offset, count = offset + step, count - step


def trim(h: None, count: int, offset: int, flags: int) -> None:
    zero(h, count, offset, flags)  # a trimmed range may read as anything
