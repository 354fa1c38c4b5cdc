# SPDX-License-Identifier: BSD-3-Clause
"""Block sizes: what is told, and what happens to requests that do not keep to it."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import SHOULD, Mode, case
from nbdspec.fixtures import both_kinds_of_reply
from nbdspec.nbd import BLOCK_STATUS, CACHE, EINVAL, READ, TRIM, WRITE, WRITE_ZEROES

SECTION = "block-size"
KIB = 1 << 10
LIMITED = Mode(size=1 << 20, block_size=(512, 4096, 65536))
ENFORCED = "block-size minimum>=512 maximum<=64K"
COMMANDS = [READ, WRITE, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS]


@case("block-size.told-to-all-who-ask", req=["SIZE-04", "INFO-BS-01", "OPT-INFO-19"],
      needs="block-size", mode=LIMITED)
@both_kinds_of_reply
def test_told_to_all_who_ask(wire, structured):
    """INFO and GO tell the sizes of the export, and never demand to be asked."""
    if structured:
        wire.negotiate_structured()
    sizes = wire.info(None, [nbd.INFO_BLOCK_SIZE]).block_size
    assert wire.go(None, [nbd.INFO_BLOCK_SIZE]).block_size == sizes
    assert sizes is not None and sizes[0] == 512


@case("block-size.unaligned", req=["SIZE-35", "ERR-03"], level=SHOULD, needs=ENFORCED,
      mode=LIMITED)
@pytest.mark.parametrize("command", COMMANDS, ids=nbd.command_name)
@pytest.mark.parametrize(("offset", "length"), [(1, 512), (0, 511), (512, 1)])
def test_unaligned(wire, command, offset, length):
    """A client that was told of a minimum has to keep to it."""
    wire.transmit(contexts=("base:allocation",))
    data = bytes(length) if command == WRITE else b""
    wire.expect_errno(wire.request(command, offset, length, data=data), EINVAL)
    wire.in_step()


@case("block-size.above-maximum", req=["SIZE-25", "SIZE-28"], level=SHOULD,
      needs=ENFORCED, mode=LIMITED)
@pytest.mark.parametrize("command", [READ, WRITE], ids=nbd.command_name)
def test_above_maximum(wire, command):
    """More than the maximum is refused, or served, and does not end the session."""
    wire.transmit()
    data = bytes(128 * KIB) if command == WRITE else b""
    wire.wait(wire.request(command, 0, 128 * KIB, data=data))
    wire.in_step()


@case("block-size.no-payload-no-limit", req=["SIZE-30"], level=SHOULD, needs=ENFORCED,
      mode=LIMITED)
@pytest.mark.parametrize("command", [TRIM, CACHE, WRITE_ZEROES], ids=nbd.command_name)
def test_no_payload_no_limit(wire, command):
    """The maximum is about payloads: commands without one do not end the session."""
    wire.transmit()
    wire.wait(wire.request(command, 0, 1 << 20))
    wire.in_step()


@case("block-size.at-the-limits", req=["SIZE-28", "TX-READ-05"],
      needs="block-size writable",
      mode=LIMITED)
def test_at_the_limits(wire):
    """One minimum block and one maximum payload are served."""
    wire.transmit()
    export = wire.export
    for length in (export.minimum, min(export.maximum, export.size)):
        data = bytes([length % 251]) * length
        wire.write(data, 0)
        assert wire.read(length, 0) == data
        last = export.size - length
        wire.read(length, last // export.minimum * export.minimum)


@case("block-size.chunks-within-maximum", req=["SR-18"], needs="block-size structured",
      mode=LIMITED)
def test_chunks_within_maximum(wire):
    """No chunk carries more than the maximum and the fixed part of its payload."""
    wire.transmit(contexts=("base:allocation",))
    length = min(wire.export.maximum, wire.export.size)
    for command in (READ, BLOCK_STATUS):
        reply = wire.expect_ok(wire.request(command, 0, length))
        longest = max(len(chunk.payload) for chunk in reply.chunks)
        assert longest <= wire.export.maximum + 8


@case("block-size.not-asked", req=["SIZE-11", "COMPAT-07"], needs="block-size writable",
      mode=LIMITED)
@pytest.mark.parametrize(("offset", "length"), [(0, 512), (1, 3), (511, 2)])
def test_not_asked(wire, offset, length):
    """A client that did not ask is served, or refused cleanly: never wrong data."""
    wire.go()  # without a word of block sizes
    wire.write(b"a" * 8192, 0)
    reply = wire.wait(wire.request(WRITE, offset, data=b"b" * length))
    want = bytearray(b"a" * 8192)
    if not reply.error:
        want[offset : offset + length] = b"b" * length
    assert wire.read(8192, 0) == bytes(want)
