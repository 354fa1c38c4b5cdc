# SPDX-License-Identifier: BSD-3-Clause
"""Plugin sources that several files of cases start from, and writes at a gate."""

from __future__ import annotations

from . import nbd

#: What a plugin must have.
REQUIRED = """import nbdkit
def open(readonly): pass
def get_size(h): return 4096
def pread(h, *args): pass
"""

#: The data callbacks that a plugin may do without, but for extents.
DATA = "".join(
    f"def {name}(h, *args): pass\n" for name in "pwrite flush trim zero cache".split()
)
WITH_EXTENTS = (
    DATA + "def extents(h, count, offset, flags): return [(offset, count, 0)]\n"
)

#: For the recorder: every other callback of a connection, able to do everything.
EVERY = (
    """
def preconnect(readonly): pass
def list_exports(readonly, is_tls): return ["one"]
def default_export(readonly, is_tls): return "one"
def export_description(h): return "d"
def block_size(h): return (1, 4096, 65536)
def can_write(h): return True
def can_flush(h): return True
def can_trim(h): return True
def can_zero(h): return True
def can_fast_zero(h): return True
def can_extents(h): return True
def can_multi_conn(h): return True
def is_rotational(h): return True
def can_fua(h): return nbdkit.FUA_NATIVE
def can_cache(h): return nbdkit.CACHE_NATIVE
"""
    + WITH_EXTENTS
)

#: Each WRITE waits in the gate; reads and flushes do not.
GATED = """
def pwrite(h, buf, offset, flags): hold()
def flush(h, flags): pass
"""


def threads(count: int | None) -> tuple[str, ...]:
    """The option for so many; none for None."""
    return () if count is None else ("-t", str(count))


def write(wire, count: int) -> list:
    """Sends so many writes; a wire that holds back sends them in one go."""
    cookies = [wire.request(nbd.WRITE, 512 * i, data=b"w") for i in range(count)]
    wire.conn.flush()
    return [(wire, cookie) for cookie in cookies]
