# SPDX-License-Identifier: BSD-3-Clause
"""Every callback, each good, or failing in the way that `fail` says."""

import gc
import sys

import nbdkit

API_VERSION = 1 if "api=1" in sys.argv else 2

fail = ""
DISK = 1 << 20


def config(key, value):
    pass


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def generator(*items):
    yield from items
    if fail == "late":
        raise ValueError("after the last one")


def perhaps_fail(h=None):
    local = bytearray(1000)  # what a forgotten traceback would keep
    if fail == "raise":
        raise ValueError("as told", len(local))
    if fail == "chain":
        try:
            raise KeyError("inner")
        except KeyError as e:
            raise OSError(28, "No space left on device") from e
    if fail == "set_error":
        nbdkit.set_error(95)
        raise RuntimeError("after set_error")
    if fail == "text":
        nbdkit.error("words for the client")
        raise RuntimeError("after error")
    if fail == "str":
        raise Unprintable
    if fail == "surrogate":
        raise RuntimeError("\udc80 \0")
    if fail == "exit":
        sys.exit(1)
    if fail == "result":
        return object()
    return None


def preconnect(readonly):
    return perhaps_fail()


def list_exports(readonly, is_tls):
    return perhaps_fail() or generator("a", ("b", "c"), "d")


def default_export(readonly, is_tls):
    return perhaps_fail() or "name"


def open(readonly):
    perhaps_fail()
    return {"a": ["handle"]}


def close(h):
    return perhaps_fail(h)


def export_description(h):
    return perhaps_fail(h) or b"words"


def get_size(h):
    return perhaps_fail(h) or DISK


def block_size(h):
    return perhaps_fail(h) or (512, 4096, 65536)


def can_write(h):
    return perhaps_fail(h) or 1


can_zero = can_trim = can_flush = can_extents = can_fast_zero = can_write
can_fua = can_cache = is_rotational = can_multi_conn = can_write


def pread(h, a, b, c=None):
    result = perhaps_fail(h)
    if API_VERSION == 1:
        return result or bytes(a)
    a[:] = bytes(len(a))
    return result


def pwrite(h, buf, offset, flags=0):
    inner = buf[1:]
    return perhaps_fail(inner)


def flush(h, flags=0):
    return perhaps_fail(h)


def trim(h, count, offset, flags=0):
    return perhaps_fail(h)


zero = trim
cache = trim


def extents(h, count, offset, flags):
    return perhaps_fail(h) or generator((0, 4096, 0), (4096, DISK, 3))


def measure():
    """What would grow if anything were left behind."""
    gc.collect()
    if hasattr(sys, "gettotalrefcount"):
        return sys.gettotalrefcount()
    return sys.getallocatedblocks()
