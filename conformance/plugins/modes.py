# SPDX-License-Identifier: BSD-3-Clause
"""An export with the content, the names and the troubles that a case asks for.

    size=N          bytes, where there is no image
    image=FILE      what the exports hold
    exports=A,B     their names, the first is the default; no other can be opened
    fail=read,...   commands that fail with EIO
    bad=N,...       offsets of sectors that cannot be read
    errnos=1        what begins at 4096 * n fails with error number n, if n > 0
    without=A,B     what is not offered: fua, trim, cache, fast-zero
    striped=1       every second sector is said to be a hole
    delay=SECONDS   what each command takes
    block_size=A,B,C  minimum, preferred and maximum block size
"""

import ctypes
import errno
import io
import os
import time

import nbdkit

API_VERSION = 2

KINDS = ("read", "write", "flush", "trim", "zero", "cache", "extents")

size = 0
image = ""
names = []
failing = set()
bad = []
errnos = False
striped = False
without = set()
delay = 0.0
sizes = []
disks = {}
libc = ctypes.CDLL(None, use_errno=True)


def config(key, value):
    global size, image, names, failing, delay, sizes, bad, errnos, striped, without
    if key == "size":
        size = nbdkit.parse_size(value)
    elif key == "image":
        image = value
    elif key == "exports":
        names = value.split(",")
    elif key == "fail":
        failing = set(value.split(","))
        unknown = failing - set(KINDS)
        if unknown:
            raise ValueError(f"fail={unknown.pop()}: expected one of {KINDS}")
    elif key == "bad":
        bad = [int(part) for part in value.split(",")]
    elif key == "without":
        without = set(value.split(","))
    elif key == "striped":
        striped = value == "1"
    elif key == "errnos":
        errnos = value == "1"
    elif key == "delay":
        delay = float(value)
    elif key == "block_size":
        sizes = [int(part) for part in value.split(",")]
    else:
        raise ValueError(f"unknown parameter {key!r}")


class Disk:
    """One export: a file of its own, so that holes stay holes."""

    def __init__(self):
        self.fd = os.memfd_create("modes")
        length = size
        if image:
            with io.open(image, "rb") as source:  # open is a callback here
                length = os.fstat(source.fileno()).st_size
                copy_data(source.fileno(), self.fd, length)
        os.truncate(self.fd, length)
        self.size = length


def copy_data(source, target, length):
    for start, end, hole in walk(source, 0, length):
        while not hole and start < end:
            data = os.pread(source, min(1 << 20, end - start), start)
            os.pwrite(target, data, start)
            start += len(data)


def walk(fd, start, end):
    """(start, end, is a hole) for each part of a file."""
    while start < end:
        try:
            data = os.lseek(fd, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            data = end
        if data > start:
            yield start, min(data, end), True
            start = data
            continue
        hole = min(os.lseek(fd, start, os.SEEK_HOLE), end)
        yield start, hole, False
        start = hole


def config_complete():
    """All disks are there from the beginning: opening one leaves nothing behind."""
    disks.update({name: Disk() for name in names or [""]})


def thread_model():
    return nbdkit.THREAD_MODEL_PARALLEL


def list_exports(readonly, is_tls):
    return names or [""]


def default_export(readonly, is_tls):
    return names[0] if names else ""


def open(readonly):
    name = nbdkit.export_name() or default_export(readonly, False)
    if names and name not in names:
        nbdkit.set_error(errno.ENOENT)
        raise RuntimeError(f"no export {name!r}")
    return disks[name if names else ""]


def get_size(h):
    return h.size


def block_size(h):
    return tuple(sizes) if sizes else (1, 4096, 64 << 20)


def can_fua(h):
    return nbdkit.FUA_NONE if "fua" in without else nbdkit.FUA_NATIVE


def can_trim(h):
    return "trim" not in without


def can_multi_conn(h):
    return True


def can_cache(h):
    return nbdkit.CACHE_NONE if "cache" in without else nbdkit.CACHE_NATIVE


def can_fast_zero(h):
    return "fast-zero" not in without


def fail(number, text):
    nbdkit.set_error(number)
    raise RuntimeError(text)


def step(kind, offset=0):
    if errnos and 0 < offset // 4096 < 134:
        fail(offset // 4096, f"error number {offset // 4096}, as it was asked for")
    if delay:
        time.sleep(delay)
    if kind in failing:
        fail(errno.EIO, f"{kind} fails, as it was asked to")


def pread(h, buf, offset, flags):
    step("read", offset)
    for sector in bad:
        if offset < sector + 512 and sector < offset + len(buf):
            fail(errno.EIO, f"the sector at {sector} is bad")
    os.preadv(h.fd, [buf], offset)


def pwrite(h, buf, offset, flags):
    step("write", offset)
    os.pwrite(h.fd, buf, offset)


def flush(h, flags):
    step("flush")


def trim(h, count, offset, flags):
    step("trim", offset)
    punch(h.fd, count, offset)


def zero(h, count, offset, flags):
    step("zero", offset)
    if flags & nbdkit.FLAG_MAY_TRIM:
        punch(h.fd, count, offset)
        return
    while count:
        part = min(count, 1 << 20)
        os.pwrite(h.fd, bytes(part), offset)
        count -= part
        offset += part


def punch(fd, count, offset):
    """A hole: fallocate with FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE."""
    if libc.fallocate(fd, 3, ctypes.c_int64(offset), ctypes.c_int64(count)):
        number = ctypes.get_errno()
        fail(number, f"fallocate: {os.strerror(number)}")


def cache(h, count, offset, flags):
    step("cache")


def extents(h, count, offset, flags):
    step("extents")
    kind = nbdkit.EXTENT_HOLE | nbdkit.EXTENT_ZERO
    end = min(offset + count, h.size)
    if striped:
        first = offset // 512 * 512
        return [(at, 512, kind if at % 1024 else 0) for at in range(first, end, 512)]
    return [
        (start, stop - start, kind if hole else 0)
        for start, stop, hole in walk(h.fd, offset, end)
    ]
