# SPDX-License-Identifier: BSD-3-Clause
"""BLOCK_STATUS and base:allocation. What holds for every reply is checked by the
client itself: sums, empty extents, REQ_ONE, ids, one chunk a context."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import SHOULD, Mode, case
from nbdspec.nbd import BLOCK_STATUS, EINVAL, REQ_ONE, STATE_HOLE, STATE_ZERO
from nbdspec.verdict import MAY, Finding, counts_as
from nbdspec.verdict import SHOULD as WARN

SECTION = "block-status"
ALLOCATION = "base:allocation"
HAS = f"meta:{ALLOCATION}"
SPARSE = Mode(content="sparse")
MIB = 1 << 20
RULES = ["META-02", "META-04", "SR-29", "SR-30", "SR-33", "TX-BLOCKSTATUS-06"]
FLAGS = pytest.mark.parametrize("flags", [0, REQ_ONE], ids=["all", "one"])


def walk(client, start: int, end: int, flags: int = 0) -> list[tuple[int, int, int]]:
    """(offset, length, status) from start to end, in as many requests as it takes."""
    found, at = [], start
    while at < end:
        for length, status in client.block_status(end - at, at, flags)[ALLOCATION]:
            found.append((at, length, status))
            at += length
    return found


@case("status.covers", req=["TX-BLOCKSTATUS-07", *RULES, "TX-BLOCKSTATUS-18", "SR-31"], needs=HAS)
@FLAGS
def test_covers(client, flags):
    """Asked again from where the answer ends, the whole export is covered."""
    extents = walk(client, 0, client.size, flags)
    assert extents[0][0] == 0
    assert sum(length for _, length, _ in extents) >= client.size


@case("status.places", req=[*RULES, "SR-32", "TX-BLOCKSTATUS-01"],
      needs=f"{HAS} size>=4M")
@pytest.mark.parametrize("length", [1, 511, 512, 4096, 65537, MIB, 3 * MIB])
@pytest.mark.parametrize("place", ["start", "middle", "end"])
@FLAGS
def test_places(wire, lease, flags, place, length):
    """Any place and length is answered by the rules."""
    if length % lease.profile.minimum:
        length += lease.profile.minimum - length % lease.profile.minimum
    wire.transmit(contexts=(ALLOCATION,))
    size, block = wire.export.size, wire.export.block
    middle = size // 2 // block * block
    offset = {"start": 0, "middle": middle, "end": size - length}[place]
    assert wire.block_status(length, offset, flags=flags)[ALLOCATION]


@case("status.zero-reads-as-zero", req=["META-BASE-12"], needs=HAS, mode=SPARSE)
def test_zero_reads_as_zero(client):
    """What is said to be zero reads as zeroes."""
    for offset, length, status in walk(client, 0, client.size):
        if status & STATE_ZERO:
            length = min(length, client.size - offset, 4 * MIB)
            assert client.pread(length, offset) == bytes(length), hex(offset)


@case("status.data-not-zero", req=["META-BASE-12", "TX-BLOCKSTATUS-12"], needs=HAS,
      mode=SPARSE)
def test_data_not_zero(client):
    """Places with data are never said to be zero."""
    for offset, length, status in walk(client, 0, 8 * MIB):
        if status & STATE_ZERO:
            first, last = offset // MIB, (offset + length - 1) // MIB
            data = [m for m in range(first, min(last, 7) + 1) if m % 2 == 0]
            assert not data, f"data in MiB {data} within a zero extent at {offset:#x}"


@case("status.known-bits", req=["META-BASE-10"], level=SHOULD, needs=HAS, mode=SPARSE)
def test_known_bits(client):
    """Only the bits HOLE and ZERO are used."""
    for _, _, status in walk(client, 0, client.size):
        assert not status & ~(STATE_HOLE | STATE_ZERO), f"status {status:#x}"


@case("status.without-context", req=["META-03"], level=SHOULD, needs="structured")
def test_without_context(wire):
    """Without a context there is no status."""
    wire.transmit(structured=True)
    wire.expect_errno(wire.request(BLOCK_STATUS, 0, 512), EINVAL)
    wire.in_step()


@case("status.without-structured", req=["META-04", "META-05", "TX-01"])
def test_without_structured(wire):
    """Without structured replies there is none either, and the reply is simple."""
    wire.transmit()
    wire.expect_refused(wire.request(BLOCK_STATUS, 0, 512), EINVAL, row="META-03")
    wire.in_step()


@case("status.beyond-end", req=["TX-BLOCKSTATUS-17", "TX-BLOCKSTATUS-13"], level=SHOULD,
      needs=HAS)
@pytest.mark.parametrize(
    ("before", "length"), [(0, 512), (512, 1024), (0, 0xFFFFFE00)],
    ids=["at-end", "across", "huge"],
)
def test_beyond_end(wire, before, length):
    """A range that passes the end is refused with an error chunk."""
    wire.transmit(contexts=(ALLOCATION,))
    cookie = wire.request(BLOCK_STATUS, wire.export.size - before, length)
    reply = wire.expect_errno(cookie, EINVAL)
    if reply.simple:
        wire.finding(WARN, "an error as a simple reply", "SR-04")
    wire.in_step()


@case("status.length-0", req=["TX-BLOCKSTATUS-03"], level=SHOULD, needs=HAS)
def test_length_0(wire):
    """A request of no bytes is answered, whatever the answer; the connection stays."""
    wire.transmit(contexts=(ALLOCATION,))
    with counts_as(SHOULD, "TX-BLOCKSTATUS-03"):
        wire.wait(wire.request(BLOCK_STATUS, 0, 0))
        wire.in_step()


@case("status.huge", req=["SR-33", "SR-34"], needs=f"{HAS} size>=5G",
      mode=Mode(size=5 << 30))
@pytest.mark.parametrize("length", [(1 << 32) - 1, (1 << 32) - 512, 1 << 31])
@FLAGS
def test_huge(wire, length, flags):
    """The largest lengths of a compact header, on an export that is larger."""
    wire.transmit(contexts=(ALLOCATION,))
    length -= length % wire.export.minimum
    assert wire.block_status(length, 0, flags=flags)[ALLOCATION]
    wire.in_step()


@case("status.after-zero", req=["META-BASE-12", "TX-ZERO-11"],
      needs=f"{HAS} writable write-zeroes size>=2M")
@pytest.mark.parametrize("flags", [0, nbd.NO_HOLE], ids=["hole", "no-hole"])
def test_after_zero(client, run, flags):
    """A zeroed range reads as zeroes whatever is said about it, with NO_HOLE too."""
    client.pwrite(b"x" * MIB, 0)
    client.zero(MIB, 0, flags)
    for offset, length, status in walk(client, 0, MIB):
        if status & STATE_HOLE and not status & STATE_ZERO:
            words = f"a hole of unknown content is reported at {offset:#x}"
            run.findings.append(Finding(MAY, words, "META-BASE-09"))
            break
    assert client.pread(MIB, 0) == bytes(MIB)


@case("status.allocated-can-be-written", req=["META-BASE-05"],
      needs=f"{HAS} writable", mode=SPARSE)
def test_allocated_can_be_written(client):
    """A write where no hole is reported does not fail with ENOSPC."""
    for offset, length, status in walk(client, 0, min(client.size, 16 * MIB)):
        if not status & STATE_HOLE:
            length = min(length, client.size - offset, 65536)
            client.pwrite(client.pread(length, offset), offset)


@case("status.no-hole-is-allocated", req=["TX-ZERO-13"],
      needs=f"{HAS} stores writable write-zeroes size>=2M")
def test_no_hole_is_allocated(client, run):
    """A range zeroed with NO_HOLE is provisioned, and not reported as a hole.

    Not a failure, for a file system may say so of space that it has set aside.
    """
    client.zero(MIB, 0, nbd.NO_HOLE)
    assert client.pread(MIB, 0) == bytes(MIB)
    holes = [at for at, _, status in walk(client, 0, MIB) if status & STATE_HOLE]
    if holes:
        words = "NO_HOLE, and yet a hole is reported"
        run.findings.append(Finding(WARN, words, "TX-ZERO-13"))


@case("status.million-extents", req=["SR-35", "SIZE-28", "SR-33"], level=SHOULD,
      needs=HAS, mode=Mode(size=513 * MIB, content="striped"), quick=False)
def test_million_extents(wire):
    """Where there are more than 2^20 extents one chunk does not hold them all."""
    wire.transmit(contexts=(ALLOCATION,))
    extents = wire.block_status(wire.export.size, 0)[ALLOCATION]
    assert 0 < len(extents) <= 1 << 20, f"{len(extents)} extents in one chunk"
    wire.in_step()


@case("status.follows-writes", req=["META-BASE-12", "TX-BLOCKSTATUS-12", "TX-WRITE-04"],
      needs=f"{HAS} stores writable size>=8M minimum<=4096")
def test_follows_writes(client, run):
    """What was just written is data in the map, whatever it was before."""
    if client.flags & nbd.SEND_WRITE_ZEROES:
        client.zero(4 * MIB, 0)
    holes = []
    for at in (0, 65536, MIB, 3 * MIB - 4096):
        client.pwrite(b"d" * 8192, at)
        for start, length, status in walk(client, at, at + 8192):
            assert not status & STATE_ZERO, f"data at {start:#x} is said to be zero"
            if status & STATE_HOLE:
                holes.append(f"data at {start:#x} is said to be a hole")
    if holes:
        run.findings.append(Finding(WARN, holes[0], "TX-BLOCKSTATUS-12"))
    for start, length, status in walk(client, 0, 4 * MIB):
        end = min(start + length, 4 * MIB)
        if status & STATE_ZERO:
            assert not any(client.pread(end - start, start)), f"no zeroes at {start:#x}"
