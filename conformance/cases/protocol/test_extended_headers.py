# SPDX-License-Identifier: BSD-3-Clause
"""Extended headers: 64-bit lengths, BLOCK_STATUS_EXT, payloads of BLOCK_STATUS."""

from __future__ import annotations

import pytest

from nbdspec.case import MAY, MUST, SHOULD, Mode, case
from nbdspec.chunks import Request
from nbdspec.mode import GIB
from nbdspec.nbd import (
    ACK,
    BLOCK_STATUS,
    BLOCK_STATUS_PAYLOAD,
    CACHE,
    CHUNK_NONE,
    DF,
    EINVAL,
    ENOSPC,
    ERR_EXT_HEADER_REQD,
    ERR_INVALID,
    ERR_UNSUP,
    EXTENDED_HEADERS,
    FLUSH,
    INFO_BLOCK_SIZE,
    LIST_META_CONTEXT,
    PAYLOAD_LEN,
    READ,
    REQ_ONE,
    SEND_DF,
    SET_META_CONTEXT,
    STRUCTURED_REPLY,
    TRIM,
    WRITE,
    WRITE_ZEROES,
)
from nbdspec.payloads import extended_request, meta_payload, pattern, status_payload
from nbdspec.verdict import NotApplicable

SECTION = "extended-headers"
ALLOCATION = "base:allocation"
HUGE = Mode(size=8 * GIB)


@pytest.fixture
def xh(wire):
    """In transmission with extended headers and base:allocation."""
    return wire.transmit(extended=True, contexts=(ALLOCATION,))


@case("xh.unsupported-in-step", req=["OPT-XH-18", "COMPAT-03"], needs="no-extended")
def test_unsupported_in_step(wire):
    """A server without the extension answers ERR_UNSUP and goes on."""
    wire.option(EXTENDED_HEADERS)
    wire.expect_error(EXTENDED_HEADERS, ERR_UNSUP)
    wire.in_step()


@case("xh.option-with-data", req=["OPT-XH-02"], level=SHOULD, needs="extended")
def test_option_with_data(wire):
    """The option with data is refused, and nothing is agreed on."""
    wire.option(EXTENDED_HEADERS, b"data")
    wire.expect_error(EXTENDED_HEADERS, ERR_INVALID)
    wire.in_step()
    wire.transmit().read(wire.export.block, 0)


@case("xh.go-after-ack", req=["OPT-XH-03", "OPT-XH-05", "OPT-XH-10"], needs="extended")
def test_go_after_ack(wire):
    """Extended headers come first and alone; GO then begins transmission."""
    wire.transmit(extended=True)
    wire.in_step()


@case("xh.structured-after-extended", req=["OPT-XH-15"], needs="extended")
def test_structured_after_extended(wire):
    """Structured replies cannot be asked for any more: extended ones are better."""
    wire.negotiate_extended()
    wire.option(STRUCTURED_REPLY)
    wire.expect_error(STRUCTURED_REPLY, ERR_EXT_HEADER_REQD)
    wire.in_step()


@case("xh.extended-after-structured", req=["OPT-XH-10"], needs="extended structured")
def test_extended_after_structured(wire):
    """A client that has structured replies may go on to extended headers."""
    wire.negotiate_structured()
    wire.transmit(extended=True)
    wire.in_step()


@case("xh.flags-without", req=["XH-10", "XH-13", "OPT-XH-07", "TF-17"])
def test_flags_without(wire):
    """Without extended headers there is no BLOCK_STATUS_PAYLOAD, nor SEND_DF."""
    flags = wire.info(None, [INFO_BLOCK_SIZE]).flags
    assert not flags & BLOCK_STATUS_PAYLOAD
    assert not flags & SEND_DF


@case("xh.payload-flag-needs-context", req=["XH-11"], level=SHOULD, needs="extended")
def test_payload_flag_needs_context(wire):
    """BLOCK_STATUS_PAYLOAD is not set where no context was selected."""
    wire.transmit(extended=True)
    assert not wire.export.flags & BLOCK_STATUS_PAYLOAD


@case("xh.set-meta-first", req=["XH-14", "XH-16", "OPT-META-20"], level=SHOULD)
def test_set_meta_first(wire):
    """SET_META_CONTEXT before structured replies and extended headers is refused."""
    wire.option(SET_META_CONTEXT, meta_payload(wire.name, [ALLOCATION]))
    wire.expect_error(
        SET_META_CONTEXT,
        ERR_INVALID,
        also={ERR_UNSUP: MUST, ERR_EXT_HEADER_REQD: MUST},
        row="XH-16",
    )
    wire.in_step()


@case("xh.base-needs-no-extension", req=["XH-19"], needs=f"meta:{ALLOCATION}")
def test_base_needs_no_extension(wire):
    """Contexts of base: never ask for extended headers."""
    wire.negotiate_structured()
    for number in (LIST_META_CONTEXT, SET_META_CONTEXT):
        wire.option(number, meta_payload(wire.name, [ALLOCATION]))
        last = wire.final(number)[1]
        assert last.type == ACK, str(last)


@case(
    "xh.every-reply-extended",
    req=["OPT-XH-10", "XH-06", "XH-07", "XH-08", "XH-31", "TX-04"],
    needs="stores extended writable size>=1M minimum=1",
)
def test_every_reply_extended(wire):
    """Success and failure of each command come with 32-byte headers of the request's
    cookie and offset."""
    wire.transmit(extended=True)
    data = pattern(1000, 5000)
    wire.write(data, 1000)
    assert wire.read(5000, 1000) == data
    cookie = wire.request(READ, wire.export.size, 512)
    wire.expect_refused(cookie, EINVAL, row="ERR-03")
    cookie = wire.request(WRITE, wire.export.size, data=b"x")
    wire.expect_errno(cookie, ENOSPC, also={EINVAL: MUST})
    reply = wire.wait(wire.request(FLUSH))
    if not reply.error:
        assert [chunk.type for chunk in reply.chunks] == [CHUNK_NONE]
    wire.in_step()


@case("xh.read-with-holes", req=["XH-31", "XH-07"],
      needs="stores extended writable size>=1M minimum<=4096")
def test_read_with_holes(wire):
    """Data in mid-buffer: each chunk repeats the offset of the request."""
    wire.transmit(extended=True)
    wire.command(WRITE_ZEROES, 0, 1 << 20)
    wire.write(b"x" * 4096, 400 << 10)
    want = bytes(400 << 10) + b"x" * 4096 + bytes(620 << 10)
    assert wire.read(1 << 20, 0) == want
    assert wire.read(1 << 20, 0, flags=DF) == want


@case("xh.write-without-payload-len", req=["XH-04"], level=MAY,
      needs="extended writable")
def test_write_without_payload_len(xh):
    """WRITE without PAYLOAD_LEN, as QEMU's client sends it, is understood."""
    data = b"q" * xh.export.block
    head = extended_request(WRITE, 0, len(data), cookie=1)
    xh.pending[1] = Request(WRITE, 0, len(data), 0, 1)
    xh.conn.send(head + data, f"WRITE {len(data)} at 0x0 without PAYLOAD_LEN")
    xh.expect_ok(1)
    assert xh.read(len(data), 0) == data


@case("xh.payload-len-drained", req=["XH-04", "XH-05"], needs="extended")
@pytest.mark.parametrize("command", [READ, FLUSH, TRIM, CACHE, WRITE_ZEROES, 99])
def test_payload_len_drained(xh, command):
    """A payload where there should be none is skipped, and the request fails."""
    cookie = xh.request(command, 0, 100, flags=PAYLOAD_LEN, data=bytes(100))
    xh.expect_errno(cookie, EINVAL)
    xh.in_step()


@case("xh.payload-len-absurd", req=["XH-03"], level=SHOULD, needs="extended writable",
      hostile=True)
def test_payload_len_absurd(xh):
    """A payload of 8 GiB is not waited for."""
    xh.request(WRITE, 0, 1 << 33, flags=PAYLOAD_LEN)
    xh.conn.expect_closed("the payload is far above any maximum")


@case("xh.beyond-4g", req=["XH-32"], needs="extended writable trim size>=8G", mode=HUGE)
@pytest.mark.parametrize("command", [WRITE_ZEROES, TRIM])
def test_beyond_4g(wire, command):
    """Commands without payload take more than 4 GiB in one request."""
    wire.transmit(extended=True)
    for offset in (0, 5 * GIB, wire.export.size - 4096):
        wire.write(b"x" * 4096, offset)
    wire.command(command, 0, wire.export.size)
    if command == WRITE_ZEROES:
        for offset in (0, 5 * GIB, wire.export.size - 4096):
            assert wire.read(4096, offset) == bytes(4096)
    wire.in_step()


@case("xh.status-beyond-4g", req=["XH-21", "XH-22", "XH-23", "XH-24", "XH-25"],
      needs=f"extended meta:{ALLOCATION} size>=8G", mode=HUGE)
def test_status_beyond_4g(xh):
    """BLOCK_STATUS over the whole of a large export, in extents of 64 bits."""
    extents = xh.block_status(xh.export.size, 0)[ALLOCATION]
    assert 0 < sum(length for length, _ in extents) <= xh.export.size
    one = xh.block_status(xh.export.size, 0, flags=REQ_ONE)[ALLOCATION]
    assert len(one) == 1


@case("xh.status-wraps", req=["XH-29"],
      level=SHOULD, needs=f"extended meta:{ALLOCATION}")
@pytest.mark.parametrize("length", [1 << 63, (1 << 64) - 1, (1 << 64) - 512])
def test_status_wraps(xh, length):
    """Offset and length that wrap around are beyond the end."""
    cookie = xh.request(BLOCK_STATUS, 512, length)
    xh.expect_errno(cookie, EINVAL)
    xh.in_step()


@case("xh.status-payload", req=["XH-25", "XH-28"], needs=f"extended meta:{ALLOCATION}")
def test_status_payload(xh):
    """BLOCK_STATUS that names the context it is about, and takes its length from
    the payload."""
    if not xh.export.flags & BLOCK_STATUS_PAYLOAD:
        raise NotApplicable("BLOCK_STATUS_PAYLOAD is not offered")
    payload = status_payload(65536, xh.contexts)
    cookie = xh.request(
        BLOCK_STATUS, 0, len(payload), flags=PAYLOAD_LEN, data=payload, effect=65536
    )
    assert set(xh.expect_ok(cookie).extents) == set(xh.contexts)
    xh.in_step()


@case("xh.status-payload-bad", req=["XH-26", "XH-29", "XH-04"],
      needs=f"extended meta:{ALLOCATION}")
@pytest.mark.parametrize(
    "make",
    [
        lambda ids, size: status_payload(512, [*ids, *ids]),
        lambda ids, size: status_payload(512, [0xFFFF]),
        lambda ids, size: status_payload(size + 1, ids),
        lambda ids, size: status_payload(0, ids),
        lambda ids, size: status_payload(512, ids)[:9],
        lambda ids, size: status_payload(512, ids) + bytes(100),
        lambda ids, size: b"x",
    ],
    ids=["doubled", "unknown", "beyond", "empty", "short", "long", "one-byte"],
)
def test_status_payload_bad(xh, make):
    """Payloads that say nothing sensible: EINVAL, and the stream is in step."""
    payload = make(list(xh.contexts), xh.export.size)
    cookie = xh.request(
        BLOCK_STATUS, 0, len(payload), flags=PAYLOAD_LEN, data=payload, effect=0
    )
    xh.expect_errno(cookie, EINVAL)
    xh.in_step()


@case("xh.compact-magic", req=["MAGIC-02", "TX-08"], needs="extended", hostile=True)
def test_compact_magic(xh):
    """A compact header is no request any more."""
    xh.request(READ, 0, 512, magic=0x25609513)
    xh.conn.expect_closed("the magic number is that of a compact header")
