# SPDX-License-Identifier: BSD-3-Clause
"""Requests at and across the edges of an export: the size section of the text."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from nbdspec import nbd
from nbdspec.case import MUST, SHOULD, Mode, case
from nbdspec.nbd import EINVAL, ENOSPC
from nbdspec.verdict import MAY

SECTION = "size-constraints"

TINY = Mode(size=4096, content="pattern")
ODD = Mode(size=1000, content="pattern")
#: 64-bit sums that wrap: (offset, length)
WRAPPING = {
    "2^63-512": ((1 << 63) - 512, 1024),
    "2^63": (1 << 63, 512),
    "2^64-512": ((1 << 64) - 512, 512),
    "2^64-512+1024": ((1 << 64) - 512, 1024),
    "2^64-1": ((1 << 64) - 1, 1),
    "2^64-1+2": ((1 << 64) - 1, 2),
}
#: How far beyond the end: (bytes before the end, length)
BEYOND = {
    "one-over": (511, 512),
    "half-over": (256, 512),
    "at-end": (0, 1),
    "far": (-(1 << 20), 512),
}
#: Where the text contradicts itself about writes beyond the end, both will do.
EITHER = {EINVAL: MUST}

beyond = pytest.mark.parametrize(("before", "length"), BEYOND.values(), ids=BEYOND)


@contextlib.contextmanager
def last_block_stays(client) -> Iterator[int]:
    """Gives the end of the export; the block before it must stay as it is."""
    end, data = client.size, b"a" * client.block
    client.pwrite(data, end - len(data))
    yield end
    assert client.pread(len(data), end - len(data)) == data, "what was refused was done"


@case("edge.read-last-byte", req=["SIZE-34", "TX-READ-05"],
      mode=TINY, needs="size>=512 minimum<=4096")
def test_read_last_byte(client):
    """The last block of an export can be read, and reads as what it holds."""
    data = client.pread(client.block, client.size - client.block)
    want = b"".join(n.to_bytes(8, "big") for n in range(4096 - len(data), 4096, 8))
    assert data == want, f"{data[:16].hex(' ')} in place of {want[:16].hex(' ')}"


@case("edge.odd-size", req=["SIZE-16", "SIZE-07"], level=SHOULD, mode=ODD)
def test_odd_size(client):
    """An export of 1000 bytes has a size that its own minimum block divides."""
    assert client.size % client.minimum == 0, (
        f"size {client.size}, minimum block {client.minimum}"
    )
    tail = client.size % 512 or 512
    if client.minimum == 1:
        assert len(client.pread(tail, client.size - tail)) == tail


@case("edge.read-beyond", req=["ERR-03", "SIZE-35"], level=SHOULD, mode=TINY)
@beyond
def test_read_beyond(client, before, length):
    """A READ that passes the end is refused with EINVAL, and brings no data."""
    with client.refuses(EINVAL):
        client.pread(length, client.size - before)
    client.in_step()


@case(
    "edge.write-beyond",
    req=["ERR-01", "SIZE-35"],
    level=SHOULD,
    mode=TINY.but(content="any"),
    needs="stores writable minimum<=4096",
)
@beyond
def test_write_beyond(client, before, length):
    """A WRITE that passes the end is refused, and its payload is skipped."""
    with last_block_stays(client) as end, client.refuses(ENOSPC, also=EITHER):
        client.pwrite(b"b" * length, end - before)


@case(
    "edge.trim-beyond",
    req=["ERR-03", "SIZE-35"],
    level=SHOULD,
    mode=TINY.but(content="any"),
    needs="stores writable trim minimum<=4096",
)
@beyond
def test_trim_beyond(client, before, length):
    """A TRIM that passes the end is refused with EINVAL, and trims nothing."""
    with last_block_stays(client) as end, client.refuses(EINVAL, also={ENOSPC: MAY}):
        client.trim(length, end - before)


@case(
    "edge.zero-beyond",
    req=["TX-ZERO-22", "SIZE-35"],
    level=SHOULD,
    mode=TINY.but(content="any"),
    needs="stores writable write-zeroes minimum<=4096",
)
@beyond
def test_zero_beyond(client, before, length):
    """A WRITE_ZEROES that passes the end is refused, and zeroes nothing."""
    with last_block_stays(client) as end, client.refuses(ENOSPC, also=EITHER):
        client.zero(length, end - before)


@case("edge.wrap", req=["SIZE-35", "TX-12"], level=MUST, hostile=True, needs="writable")
@pytest.mark.parametrize(("offset", "length"), WRAPPING.values(), ids=WRAPPING)
@pytest.mark.parametrize(
    "command",
    [nbd.READ, nbd.WRITE, nbd.TRIM, nbd.WRITE_ZEROES, nbd.CACHE],
    ids=nbd.command_name,
)
def test_wrap(wire, command, offset, length):
    """An offset that wraps with its length is refused by every command."""
    wire.transmit()
    data = b"w" * length if command == nbd.WRITE else b""
    cookie = wire.request(command, offset, length, data=data)
    others = {ENOSPC: MUST, nbd.EOVERFLOW: SHOULD, nbd.EPERM: MUST}
    wire.expect_errno(cookie, EINVAL, also=others)
    wire.in_step()


@case("edge.empty-export", req=["SIZE-35"], mode=Mode(size=0), level=SHOULD)
def test_empty_export(wire):
    """An export of no bytes can be opened; reading from it is refused."""
    wire.transmit()
    assert wire.export.size == 0
    wire.expect_errno(wire.request(nbd.READ, 0, 1), EINVAL)
    wire.in_step()
