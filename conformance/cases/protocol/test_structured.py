# SPDX-License-Identifier: BSD-3-Clause
"""Structured replies. What holds for every chunk is checked by the client itself."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import SHOULD, Mode, case
from nbdspec.payloads import pattern
from nbdspec.verdict import SHOULD as WARN

SECTION = "structured"
MIB = 1 << 20
COMMANDS = [nbd.READ, nbd.WRITE, nbd.TRIM, nbd.WRITE_ZEROES, nbd.FLUSH, nbd.CACHE, 99]
CHUNKS = ["SR-07", "SR-11", "SR-12", "SR-13", "SR-15", "SR-21", "SR-22"]
HOLES = ["SR-24", "SR-25", "SR-26", "SR-28", "TX-READ-12", "TX-READ-14", "TX-READ-19"]


@case("structured.option-with-data", req=["OPT-SR-02"],
      level=SHOULD, needs="structured")
def test_option_with_data(wire):
    """STRUCTURED_REPLY with data is refused, and nothing is agreed on."""
    wire.option(nbd.STRUCTURED_REPLY, b"data")
    wire.expect_error(nbd.STRUCTURED_REPLY, nbd.ERR_INVALID)
    wire.transmit().read(wire.export.block, 0)


@case("structured.asked-twice", req=["HS-15"], needs="structured")
def test_asked_twice(wire):
    """Asked a second time the server says yes or no, and what was agreed on stays."""
    wire.negotiate_structured()
    wire.option(nbd.STRUCTURED_REPLY)
    last = wire.final(nbd.STRUCTURED_REPLY)[1]
    assert last.type in (nbd.ACK, nbd.ERR_INVALID), str(last)
    wire.transmit()
    wire.in_step()


@case("structured.sparse-reads", req=[*CHUNKS, *HOLES], needs="structured",
      mode=Mode(content="sparse"))
@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, 4 * MIB), (MIB, MIB), (MIB - 5000, 10000), (2 * MIB - 512, 1024),
     (MIB + 1536, 32768), (0, MIB)],
    ids=["four", "hole", "data-hole", "hole-data", "small-hole", "data"],
)
def test_sparse_reads(wire, offset, length):
    """Data and holes together are what is there, whatever chunks they come in."""
    wire.transmit(structured=True)
    if offset % wire.export.minimum or length % wire.export.minimum:
        pytest.skip(f"the minimum block is {wire.export.minimum}")
    want = bytearray(length)
    for block in range(offset // MIB, (offset + length - 1) // MIB + 1):
        if block % 2 == 0:
            start = max(offset, block * MIB)
            end = min(offset + length, (block + 1) * MIB)
            want[start - offset : end - offset] = pattern(start, end - start)
    assert wire.read(length, offset) == bytes(want)
    assert wire.read(length, offset, flags=nbd.DF) == bytes(want)


@case("structured.chunk-borders", req=["TX-READ-13"], level=SHOULD, needs="structured",
      mode=Mode(content="sparse"))
def test_chunk_borders(wire):
    """Chunks begin and end at multiples of 512, the request's own ends aside."""
    wire.transmit(structured=True)
    minimum = wire.export.minimum
    for offset, length in ((0, 4 * MIB), (MIB - 1000, 100000), (3, 2 * MIB)):
        if offset % minimum or length % minimum:
            continue
        reply = wire.expect_ok(wire.request(nbd.READ, offset, length))
        for start, end, kind in reply.covered:
            for border in (start, end):
                inner = border not in (offset, offset + length)
                assert not (inner and border % 512), f"{kind} border at {border}"


@case("structured.few-chunks", req=["SR-08"], level=SHOULD, needs="structured size>=4M")
def test_few_chunks(wire):
    """A read of 4 MiB does not come in crumbs."""
    wire.transmit(structured=True)
    reply = wire.expect_ok(wire.request(nbd.READ, 0, 4 * MIB))
    count = len(reply.chunks)
    assert count <= 1024, f"{count} chunks"


@case("structured.errors-as-chunks", level=SHOULD, needs="structured",
      req=["SR-04", "SR-37", "SR-40", "SR-41", "SR-42", "ERR-12", "TX-READ-30"])
@pytest.mark.parametrize("command", COMMANDS, ids=nbd.command_name)
def test_errors_as_chunks(wire, command):
    """Errors of all commands come as chunks once structured replies are agreed on."""
    wire.transmit(structured=True)
    data = bytes(512) if command == nbd.WRITE else b""
    cookie = wire.request(command, wire.export.size, 512, data=data)
    reply = wire.wait(cookie)
    if command != nbd.FLUSH:  # which may take no notice of a range
        assert reply.error, "a request beyond the end succeeded"
    if reply.error and reply.simple:
        wire.finding(WARN, f"{reply.request}: an error as a simple reply", "SR-04")
    wire.in_step()


@case("structured.no-payload-no-chunk-data", req=["TX-11", "SR-02", "SR-14", "SR-19"],
      needs="structured writable")
def test_no_payload_no_chunk_data(wire):
    """Success of a command without payload: a simple reply, or one NONE chunk."""
    wire.transmit(structured=True)
    block = wire.export.block
    cookies = [wire.request(nbd.WRITE, 0, data=b"x" * block)]
    if wire.export.flags & nbd.SEND_FLUSH:
        cookies.append(wire.request(nbd.FLUSH))
    if wire.export.flags & nbd.SEND_TRIM:
        cookies.append(wire.request(nbd.TRIM, 0, block))
    for cookie in cookies:
        reply = wire.expect_ok(cookie)
        assert reply.simple or [c.type for c in reply.chunks] == [nbd.CHUNK_NONE]


@case("structured.df-needs-them", req=["ERR-09"], level=SHOULD)
def test_df_needs_them(wire):
    """DF without structured replies is a flag out of place."""
    wire.transmit()
    wire.expect_errno(wire.request(nbd.READ, 0, 512, flags=nbd.DF), nbd.EINVAL)
    wire.in_step()


@case("structured.flag-by-agreement", req=["TF-09", "TF-10"], needs="structured")
def test_flag_by_agreement(wire):
    """SEND_DF shows up with structured replies, and not before."""
    before = wire.info(None, [nbd.INFO_BLOCK_SIZE]).flags
    wire.negotiate_structured()
    after = wire.info(None, [nbd.INFO_BLOCK_SIZE]).flags
    assert not before & nbd.SEND_DF
    assert before | nbd.SEND_DF == after | nbd.SEND_DF
    if not after & nbd.SEND_DF:
        wire.transmit()
        reply = wire.wait(wire.request(nbd.READ, 0, 512, flags=nbd.DF))
        assert reply.error, "DF is taken, though SEND_DF is not set"
