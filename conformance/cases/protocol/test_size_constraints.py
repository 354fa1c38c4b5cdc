# SPDX-License-Identifier: BSD-3-Clause
"""Block sizes: advertised, kept to, and never a trap for who did not ask."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import MAY, SHOULD, Mode, case
from nbdspec.fixtures import both_kinds_of_reply
from nbdspec.nbd import (
    EINVAL,
    EOVERFLOW,
    ERR_BLOCK_SIZE_REQD,
    GO,
    INFO,
    INFO_BLOCK_SIZE,
    READ,
    WRITE,
)
from nbdspec.payloads import go_payload, pattern
from nbdspec.transmission import same
from nbdspec.verdict import Closed, NotApplicable, counts_as

SECTION = "size-constraints"

MIB = 1 << 20
#: minimum 4096, preferred 64 KiB, at most 1 MiB in one request
STRICT = Mode(size=16 * MIB, block_size=(4096, 65536, MIB))
HUGE = Mode(size=3 << 30)


def sizes_of(wire) -> tuple[int, int, int]:
    export = wire.info(None, [INFO_BLOCK_SIZE])
    if export.block_size is None:
        raise NotApplicable("the server sends no block sizes")
    return export.block_size


@case("block-size.told", req=["SIZE-03", "SIZE-04", "INFO-BS-01", "INFO-BS-02"],
      mode=STRICT)
def test_told(wire):
    """Sizes that will be insisted on are told to a client that asks."""
    for option in (INFO, GO):
        wire.option(option, go_payload(wire.name, [INFO_BLOCK_SIZE]))
        export = wire.expect_export(option)
        assert export.block_size == STRICT.block_size, str(export.block_size)


@case("block-size.told-unasked", req=["SIZE-03"], level=SHOULD, mode=STRICT)
def test_told_unasked(wire):
    """A client that does not ask is told, refused, or served as it comes."""
    wire.option(GO, go_payload(wire.name))
    found, last = wire.final(GO)
    kinds = [int.from_bytes(answer.data[:2], "big") for answer in found]
    if last.type == ERR_BLOCK_SIZE_REQD:
        wire.finding(MAY, "clients that do not ask are refused", "SIZE-09")
        assert INFO_BLOCK_SIZE in kinds, "the sizes are not told ahead of the refusal"
        return
    wire.export = wire.parse_export(found)
    wire.phase = "transmission"
    if INFO_BLOCK_SIZE not in kinds:
        reply = wire.wait(wire.request(READ, 1, 1))
        assert not reply.error, f"not told, and then {reply}"


@case("block-size.reqd-only-unasked", req=["OPT-INFO-19", "OPT-INFO-21", "SIZE-09"],
      mode=STRICT)
def test_reqd_only_unasked(wire):
    """ERR_BLOCK_SIZE_REQD is for clients that did not ask, and tells the sizes."""
    for option in (INFO, GO):
        wire.option(option, go_payload(wire.name))
        found, last = wire.final(option)
        if last.type == ERR_BLOCK_SIZE_REQD and not found:
            wire.finding(SHOULD, "refused without the sizes", "OPT-INFO-21")
        if last.type == nbd.ACK:
            wire.phase = "transmission" if option == GO else wire.phase
    if wire.phase != "transmission":
        wire.option(GO, go_payload(wire.name, [INFO_BLOCK_SIZE]))
        last = wire.final(GO)[1]
        assert last.type != ERR_BLOCK_SIZE_REQD, str(last)


@case("block-size.default-needs-no-asking", req=["OPT-INFO-20", "SIZE-10", "COMPAT-07"],
      level=SHOULD, needs="default-sizes")
def test_default_needs_no_asking(dial):
    """With default sizes GO without a request for them and EXPORT_NAME are served."""
    wire = dial()
    for option in (INFO, GO):
        wire.option(option, go_payload(wire.name))
        last = wire.final(option)[1]
        assert last.type != ERR_BLOCK_SIZE_REQD, str(last)
    wire.conn.close()
    other = dial()
    other.export_name(zeroes=not other.handshake_flags & nbd.NO_ZEROES)
    other.in_step()


@case("block-size.small-requests-served", req=["COMPAT-07", "SIZE-07", "OPT-INFO-12"],
      level=SHOULD, needs="writable stores default-sizes")
@pytest.mark.parametrize("how", ["go", "export-name"])
def test_small_requests_served(wire, how):
    """Who did not ask for sizes can read and write single bytes anywhere."""
    if how == "go":
        wire.go()
    else:
        wire.export_name(zeroes=not wire.handshake_flags & nbd.NO_ZEROES)
    wire.write(b"........", 4092)
    wire.write(b"x", 4095)
    assert wire.read(8, 4092) == b"...x...."
    assert wire.read(1, 4095) == b"x"


@case("block-size.unasked-is-safe", req=["SIZE-11", "OPT-INFO-12"], mode=STRICT,
      needs="writable")
@pytest.mark.parametrize("how", ["go", "export-name"])
def test_unasked_is_safe(wire, how):
    """An unaligned WRITE of a client that never asked is carried out or refused
    whole; its neighbours stay as they are."""
    if how == "go":
        wire.option(GO, go_payload(wire.name))
        found, last = wire.final(GO)
        if last.type == ERR_BLOCK_SIZE_REQD:
            raise NotApplicable("the server refuses clients that do not ask")
        wire.export = wire.parse_export(found)
        wire.phase = "transmission"
    else:
        try:
            wire.export_name(zeroes=not wire.handshake_flags & nbd.NO_ZEROES)
        except Closed:  # SIZE-09
            raise NotApplicable("the server refuses clients that do not ask") from None
    before = pattern(0, 16384)
    wire.write(before, 0)
    reply = wire.wait(wire.request(WRITE, 5000, data=b"u" * 100))
    after = before if reply.error else before[:5000] + b"u" * 100 + before[5100:]
    same(wire.read(16384, 0), after, what="no other byte to change")


@case("block-size.payload-above-maximum", req=["SIZE-25", "SR-18", "TXTERM-10", "TX-12"],
      mode=STRICT, needs="writable stores")
@both_kinds_of_reply
def test_payload_above_maximum(wire, structured):
    """Payloads above the maximum, up to 32 MiB, get an error, not a close."""
    if structured:
        wire.negotiate_structured()
    wire.go(None, [INFO_BLOCK_SIZE])
    wire.export.size = STRICT.size
    with counts_as(SHOULD, "SIZE-25"):
        for length in (MIB + 4096, 8 * MIB):
            reply = wire.wait(wire.request(READ, 0, length))
            for chunk in reply.chunks:
                assert len(chunk.payload) <= MIB + 8, f"{chunk} above the maximum"
            reply = wire.wait(wire.request(WRITE, 0, data=bytes(length)))
            assert reply.error in (0, EINVAL), str(reply)
        wire.in_step()


@case("block-size.32-mib", req=["SIZE-25", "SIZE-07", "ERR-10"], level=SHOULD,
      needs="writable size>=64M")
def test_32_mib(wire, lease):
    """32 MiB in one request are no denial of service, for data nor for memory."""
    wire.transmit()
    with counts_as(SHOULD, "SIZE-25"):
        data = pattern(0, 32 * MIB)
        written = wire.wait(wire.request(WRITE, 8, data=data))
        assert written.error != nbd.ENOMEM, str(written)
        reply = wire.wait(wire.request(READ, 8, 32 * MIB))
        assert reply.error != nbd.ENOMEM, str(reply)
    if lease.profile.stores and not written.error and not reply.error:
        same(reply.data, data, 8)
    wire.in_step()


@case("block-size.maximum-at-least-1-mib", req=["SIZE-22"], level=SHOULD,
      needs="size>=2M")
def test_maximum_at_least_1_mib(wire):
    """The maximum payload of a large export is 1 MiB at least."""
    assert sizes_of(wire)[2] >= MIB


@case("block-size.divides-size", req=["SIZE-16"], level=SHOULD,
      mode=Mode(size=65536 + 1000))
def test_divides_size(wire):
    """The size of an export is a multiple of its minimum block."""
    minimum = sizes_of(wire)[0]
    assert wire.info(None, [INFO_BLOCK_SIZE]).size % minimum == 0, f"minimum {minimum}"


@case("block-size.extents-aligned", req=["TX-BLOCKSTATUS-10", "TX-BLOCKSTATUS-09"],
      level=SHOULD, mode=STRICT, needs="writable meta:base:allocation")
def test_extents_aligned(wire):
    """Extents are multiples of the minimum block."""
    wire.negotiate_structured()
    wire.set_meta(["base:allocation"])
    wire.go(None, [INFO_BLOCK_SIZE])
    wire.command(nbd.WRITE_ZEROES, 0, MIB)
    wire.write(b"x" * 4096, 65536)
    offset = 0
    while offset < MIB:
        for length, _ in wire.block_status(MIB - offset, offset)["base:allocation"]:
            assert length % 4096 == 0, f"an extent of {length} at {offset:#x}"
            offset += length


@case("block-size.long-without-payload", req=["SIZE-30", "SIZE-31", "ERR-05"],
      level=SHOULD, mode=HUGE, needs="writable size>=3G")
@pytest.mark.parametrize(
    "command", [nbd.WRITE_ZEROES, nbd.TRIM, nbd.CACHE], ids=nbd.command_name
)
def test_long_without_payload(wire, lease, command):
    """Commands without payload may be longer than the maximum payload."""
    word = {nbd.WRITE_ZEROES: "write-zeroes", nbd.TRIM: "trim", nbd.CACHE: "cache"}
    if not lease.profile.has(word[command]):
        pytest.skip("the server does not offer the command")
    wire.transmit()
    with counts_as(SHOULD, "SIZE-30"):
        length = (2 << 30) + 4096 if command != nbd.CACHE else 256 * MIB
        reply = wire.wait(wire.request(command, 4096, length))
        if reply.error:
            wire.finding(MAY, f"{reply} to a long request", "SIZE-31")
        assert reply.error in (0, EINVAL, EOVERFLOW), str(reply)
        wire.in_step()


@case("block-size.absurd-payload", req=["SIZE-24", "SIZE-25"], level=MAY, hostile=True,
      needs="writable")
@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x80000000], ids=hex)
def test_absurd_payload(connect, length):
    """A payload of gigabytes may end the connection; the next client is served."""
    wire = connect()
    wire.greet()
    wire.transmit()
    wire.request(WRITE, 0, length)
    wire.conn.send(bytes(65536), "64 KiB of the payload")
    wire.conn.shut()
    rest = wire.conn.drain()
    success = bytes.fromhex("6744669800000000")
    assert not rest.startswith(success), "success for a payload that never came"
    other = connect()
    other.greet()
    other.transmit().in_step()
