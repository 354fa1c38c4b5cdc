# SPDX-License-Identifier: BSD-3-Clause
"""READ, with simple and with structured replies."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import SHOULD, Mode, case
from nbdspec.fixtures import both_kinds_of_reply
from nbdspec.nbd import EINVAL, EIO, EOVERFLOW
from nbdspec.payloads import pattern
from nbdspec.verdict import MAY, MUST, Breach, counts_as

SECTION = "read"

PATTERN = Mode(size=1 << 20, content="pattern")


@case("read.what-is-there", req=["TX-READ-05", "TX-READ-19", "STR-05"], mode=PATTERN)
@pytest.mark.parametrize("length", [1, 511, 512, 4096, 65537, 1 << 20])
def test_what_is_there(client, length):
    """A READ brings what the export holds: right bytes, right length, right order."""
    if client.minimum > 1 and length % client.minimum:
        pytest.skip(f"the minimum block is {client.minimum}")
    offset = 0 if length == 1 << 20 else client.minimum
    data = client.pread(length, offset)
    assert len(data) == length
    assert data == pattern(offset, length), "other bytes than the export holds"


@case("read.simple-without-negotiation", req=["TX-01", "SR-01", "TX-10"])
def test_simple_without_negotiation(wire):
    """Without structured replies READ gets a simple reply."""
    wire.transmit()
    reply = wire.expect_ok(wire.request(nbd.READ, 0, wire.export.block))
    assert reply.simple


@case(
    "read.structured-after-negotiation",
    req=["OPT-SR-03", "SR-02", "SR-03", "SR-07", "SR-13", "SR-20", "TX-READ-12"],
    needs="structured",
    mode=PATTERN,
)
def test_structured_after_negotiation(wire):
    """After structured replies were negotiated READ gets chunks, whole and in range."""
    wire.transmit(structured=True)
    offset, length = wire.export.block, max(8192, wire.export.block)
    reply = wire.expect_ok(wire.request(nbd.READ, offset, length))
    assert not reply.simple
    assert bytes(reply.data) == pattern(offset, length)


@case("read.structured-error", req=["SR-03", "SR-04", "SR-37"], needs="structured")
def test_structured_error(wire):
    """A READ that is refused early gets an error chunk, never a simple reply."""
    wire.transmit(structured=True)
    reply = wire.expect_errno(
        wire.request(nbd.READ, wire.export.size, 512), EINVAL, also={EIO: SHOULD}
    )
    assert not reply.simple
    wire.in_step()


@case("read.failed-has-no-payload", req=["TX-READ-08", "TX-READ-06"])
def test_failed_has_no_payload(wire):
    """The simple reply to a READ that failed is 16 bytes, with nothing behind it."""
    wire.transmit()
    cookie = wire.request(nbd.READ, wire.export.size, 65536)
    reply = wire.expect_refused(cookie, EINVAL, row="ERR-03")
    assert reply.simple
    wire.in_step()


@case("read.length-0", req=["TX-READ-04"], level=SHOULD)
@pytest.mark.parametrize("place", ["start", "middle", "end"])
@both_kinds_of_reply
def test_length_0(wire, place, structured):
    """A READ of no bytes gets success or EINVAL, and does not end the connection."""
    wire.transmit(structured=structured)
    size = wire.export.size
    offset = {"start": 0, "middle": size // 2, "end": size}[place]
    with counts_as(SHOULD, "TX-READ-04"):
        cookie = wire.request(nbd.READ, offset, 0)
        wire.expect_errno(cookie, EINVAL, also={0: MUST})
        wire.in_step()


@case("read.backend-fails", req=["TX-READ-06", "TX-READ-25"], mode=Mode(fail=("read",)))
@both_kinds_of_reply
def test_backend_fails(wire, structured):
    """A back end that fails makes an error without data; the stream stays in step."""
    wire.transmit(structured=structured)
    wire.expect_errno(wire.request(nbd.READ, 0, 4096), EIO)
    wire.in_step()


@case(
    "read.df-one-chunk",
    req=["TX-READ-02", "TX-READ-35", "TX-READ-37", "TX-READ-39", "TX-READ-38"],
    needs="structured df",
    mode=Mode(size=8 << 20, content="sparse"),
)
@pytest.mark.parametrize("length", [512, 65536, 4 << 20])
def test_df_one_chunk(wire, length):
    """With DF there is one content chunk, data and holes alike, up to 64 KiB at least."""
    wire.transmit(structured=True)
    offset = (1 << 20) - length // 2 if length <= 65536 else 0
    if offset % wire.export.minimum or length % wire.export.minimum:
        pytest.skip(f"the minimum block is {wire.export.minimum}")
    cookie = wire.request(nbd.READ, offset, length, flags=nbd.DF)
    also = {EOVERFLOW: MAY} if length > 65536 else None
    reply = wire.wait(cookie)
    if reply.error and not (also and reply.error in also):
        raise Breach("one chunk of content", str(reply))
    if reply.error:
        assert not reply.covered, "content beside the refusal"
        return
    assert len(reply.covered) == 1
    assert reply.covered[0][2] == "data"


@case("read.many-in-flight", req=["TX-04", "TX-READ-19"], mode=PATTERN,
      needs="minimum<=4096")
@pytest.mark.parametrize("count", [2, 16, 100])
def test_many_in_flight(wire, lease, count):
    """Each of many reads in flight gets its own answer, once."""
    wire.transmit(structured=lease.profile.structured)
    asked = {
        wire.request(nbd.READ, 4096 * (i % 200), 4096): 4096 * (i % 200)
        for i in range(count)
    }
    for cookie, offset in asked.items():
        wire.expect_data(cookie, pattern(offset, 4096))
    wire.in_step()


@case("read.cookie-opaque", req=["TX-04"])
@pytest.mark.parametrize("cookie", [0, 1, 1 << 63, (1 << 64) - 1, 0x0102030405060708])
def test_cookie_opaque(wire, cookie):
    """A cookie comes back as it was sent, whatever it is."""
    wire.transmit()
    wire.expect_ok(wire.request(nbd.READ, 0, wire.export.block, cookie=cookie))
    wire.in_step()
