# SPDX-License-Identifier: BSD-3-Clause
"""READ over a sector that cannot be read: what the error looks like on the wire.

Offsets, order and sizes of error chunks are held against the rules by the client
(chunks.py) whenever they come; here they are made to come.
"""

from __future__ import annotations

import pytest

from nbdspec.case import MAY, SHOULD, Mode, case
from nbdspec.nbd import (
    CHUNK_ERROR,
    CHUNK_ERROR_OFFSET,
    DF,
    EINVAL,
    EIO,
    READ,
)
from nbdspec.verdict import Closed

SECTION = "read"

BAD = Mode(size=1 << 20, bad=(65536, 262144))
#: (offset, length): the bad sector is the first, in the middle, the last
PLACES = {
    "first": (65536, 4096),
    "middle": (61440, 65536),
    "last": (0, 66048),
    "both": (0, 1 << 20),
}


@case(
    "read.bad-sector-chunks",
    req=["TX-READ-25", "SR-39", "SR-43", "SR-44", "SR-46", "SR-47", "SR-48",
         "TX-READ-27", "TX-READ-30", "TX-READ-31", "SR-07"],
    mode=BAD,
    needs="structured",
)
@pytest.mark.parametrize("flags", [0, DF], ids=["plain", "df"])
@pytest.mark.parametrize(("offset", "length"), PLACES.values(), ids=PLACES)
def test_bad_sector_chunks(wire, offset, length, flags):
    """A READ over a bad sector ends with error chunks that follow the rules."""
    wire.transmit(structured=True)
    reply = wire.expect_errno(
        wire.request(READ, offset, length, flags=flags), EIO, also={EINVAL: SHOULD}
    )
    kinds = [chunk.type for chunk in reply.chunks if chunk.type & 0x8000]
    if kinds.count(CHUNK_ERROR) and kinds.count(CHUNK_ERROR_OFFSET):
        wire.finding(SHOULD, "ERROR and ERROR_OFFSET in one reply", "TX-READ-31")
    if len(kinds) > 1 and CHUNK_ERROR in kinds:
        wire.finding(SHOULD, f"{len(kinds)} error chunks with an ERROR", "TX-READ-27")
    for start, end, _ in reply.covered:
        inside = [bad for bad in reply.error_offsets if start <= bad < end]
        if len(inside) > 1:
            wire.finding(SHOULD, "several offsets in one content chunk", "SR-47")
    wire.in_step()


@case("read.bad-sector-simple", req=["TX-READ-06", "TX-READ-08", "TX-10"], mode=BAD)
@pytest.mark.parametrize(("offset", "length"), PLACES.values(), ids=PLACES)
def test_bad_sector_simple(wire, offset, length):
    """With simple replies the error comes without data, or the connection ends."""
    wire.transmit()
    try:
        wire.expect_errno(wire.request(READ, offset, length), EIO)
    except Closed:
        wire.finding(MAY, "the connection was closed", "TX-READ-07")
        return
    wire.in_step()
    assert len(wire.read(65536, 0)) == 65536, "what is not bad cannot be read"


@case("read.bad-sector-neighbours", req=["TX-READ-19", "TX-READ-25"], mode=BAD)
def test_bad_sector_neighbours(wire, lease):
    """What lies right before and right behind a bad sector can be read."""
    wire.transmit(structured=lease.profile.structured)
    for offset, length in ((65535, 1), (66048, 1), (0, 65536), (66048, 4096)):
        wire.read(length, offset)
    wire.in_step()
