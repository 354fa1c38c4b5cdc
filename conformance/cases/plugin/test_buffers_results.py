# SPDX-License-Identifier: BSD-3-Clause
"""What pread sends: what it leaves unfilled, and what version 1 may return."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.nbd import EIO
from nbdspec.payloads import pattern

SECTION = "plugin.buffers"

both = pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])

MIB = 1 << 20


@case("plugin.buffers.unfilled", req=["PY-BUF-15"])
@pytest.mark.parametrize("size", [512, 65536, MIB])
def test_unfilled(hosts, size):
    """A pread that fills nothing sends zeroes, not what was written before."""
    plugin = hosts.load(
        """
def pwrite(h, buf, offset, flags): pass
def pread(h, buf, offset, flags): pass
""",
        record=False,
    )
    client = plugin.client()
    for _ in range(3):
        client.pwrite(b"secret!!" * (size // 8), 0)
        assert client.pread(size, 0) == bytes(size), "earlier data was sent"


@case("plugin.buffers.partly-filled", req=["PY-BUF-16"])
@pytest.mark.parametrize("size", [512, 65536, MIB])
def test_partly_filled(hosts, size):
    """A pread that fills a part sends zeroes for the rest."""
    plugin = hosts.load(
        """
def pwrite(h, buf, offset, flags): pass
def pread(h, buf, offset, flags): buf[:100] = b"p" * 100
""",
        record=False,
    )
    client = plugin.client()
    client.pwrite(b"secret!!" * (size // 8), 0)
    data = client.pread(size, 0)
    assert data[:100] == b"p" * 100 and data[100:] == bytes(size - 100)


V1_GOOD = {
    "bytes": "pattern(offset, count)",
    "bytearray": "bytearray(pattern(offset, count))",
    "memoryview": "memoryview(pattern(offset, count))",
    "slice": "memoryview(pattern(offset - 8, count + 16))[8:-8]",
    "array": "array.array('I', pattern(offset, count))",
    "mmap": "mapped",
    "ctypes": "(ctypes.c_char * count).from_buffer_copy(pattern(offset, count))",
    "shaped": "memoryview(pattern(offset, count)).cast('B', [count // 16, 16])",
    "cast": "memoryview(pattern(offset, count)).cast('Q')",
    "subclass": "type('B', (bytes,), {})(pattern(offset, count))",
    "getbuffer": "io.BytesIO(pattern(offset, count)).getbuffer()",
}


@case("plugin.buffers.v1-results", req=["PY-BUF-17"])
@pytest.mark.parametrize("what", V1_GOOD)
def test_v1_results(hosts, what):
    """pread of version 1 may return anything that is a contiguous buffer."""
    plugin = hosts.load(
        f"""
import array, ctypes, io, mmap
mapped = mmap.mmap(-1, 4096)
mapped[:] = pattern(8, 4096)
def pread(h, count, offset): return {V1_GOOD[what]}
""",
        api=1,
    )
    client = plugin.client()
    assert client.pread(4096, 8) == pattern(8, 4096)


@case("plugin.buffers.v1-too-long", req=["PY-BUF-18"])
@pytest.mark.parametrize("more", [1, 4096, MIB])
def test_v1_too_long(hosts, more):
    """Of a result that is too long the first count bytes are sent."""
    plugin = hosts.load(
        f"def pread(h, count, offset): return pattern(offset, count + {more})", api=1
    )
    client = plugin.client()
    assert client.pread(4096, 8) == pattern(8, 4096)
    assert client.pread(7, 0) == pattern(0, 7)


V1_BAD = {
    "short": "bytes(count - 1)",
    "empty": "b''",
    "str": "'x' * count",
    "none": "None",
    "int": "count",
    "bool": "True",
    "list": "[0] * count",
    "strided": "memoryview(bytes(2 * count))[::2]",
    "object": "object()",
    "released": "released()",
}


@case(
    "plugin.buffers.v1-wrong-results",
    req=["PY-BUF-19", "PY-BUF-20", "PY-ERR-14", "PY-ERR-15"],
)
@pytest.mark.parametrize("what", V1_BAD)
def test_v1_wrong_results(hosts, what):
    """Too little, or no buffer: EIO, a line in the log, and the next read is served."""
    plugin = hosts.load(
        f"""
def released():
    view = memoryview(b"x")
    view.release()
    return view
def pread(h, count, offset):
    return bytes(count) if offset else {V1_BAD[what]}
""",
        api=1,
    )
    wire = plugin.go()
    wire.expect_errno(wire.request(nbd.READ, 0, 512), EIO)
    assert wire.read(512, 512) == bytes(512)
    plugin.wait_log("pread")
