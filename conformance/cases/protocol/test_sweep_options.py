# SPDX-License-Identifier: BSD-3-Clause
"""Sweeps over haggling: every option at every length, and in every order."""

from __future__ import annotations

import itertools
import socket
import struct

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.chunks import Request
from nbdspec.nbd import (
    ABORT,
    ACK,
    BLOCK_STATUS,
    EINVAL,
    EXPORT_NAME,
    GO,
    INFO,
    LIST,
    LIST_META_CONTEXT,
    READ,
    SET_META_CONTEXT,
    STARTTLS,
    STRUCTURED_REPLY,
)
from nbdspec.payloads import go_payload, meta_payload, option, request

SECTION = "sweeps"

ALLOCATION = "base:allocation"
NUMBERS = [n for n in range(13) if n not in (EXPORT_NAME, ABORT)]
LENGTHS = [*range(30), 255, 256, 1023, 1024, 1025, 4095, 4096, 4097, 65535, 65536]
#: So many on a connection: a server may have enough of a client that goes on.
ATONCE = 20


@case("sweep.option-lengths", req=["HS-20", "TERM-06", "HS-15", "OPT-INFO-03"])
@pytest.mark.parametrize("number", NUMBERS, ids=nbd.option_name)
@pytest.mark.parametrize("byte", [0, 0xFF], ids=hex)
def test_option_lengths(dial, lease, number, byte):
    """Every option takes exactly the bytes that it announces, at any length."""
    wire = dial()
    for place, length in enumerate(LENGTHS):
        if place % ATONCE == ATONCE - 1:
            wire.in_step()
            wire.leave()
            wire = dial()
        if number == STARTTLS and length == 0 and lease.profile.tls != "none":
            continue
        wire.option(number, bytes([byte]) * length)
        last = wire.final(number)[1]
        if number == GO and last.type == ACK:
            wire.phase = "transmission"
            wire.in_step()
            wire.leave()
            wire = dial()
    wire.in_step()


# Each step says one thing, and keeps the client's idea of what was agreed on.


def _list(wire) -> None:
    wire.option(LIST)
    wire.final(LIST)


def _info(wire) -> None:
    wire.info(None, [nbd.INFO_BLOCK_SIZE])


def _info_refused(wire) -> None:
    wire.option(INFO, b"\0\0\0\7unknown\0\1")  # malformed: refused by all
    wire.final(INFO)


def _structured(wire) -> None:
    had = wire.structured
    wire.negotiate_structured()
    wire.structured = wire.structured or had


def _list_meta(wire) -> None:
    wire.option(LIST_META_CONTEXT, meta_payload(wire.name, [ALLOCATION]))
    wire.final(LIST_META_CONTEXT)


def _set_meta(wire) -> None:
    """Also where it has to fail: then nothing is selected."""
    wire.contexts = {}
    wire.option(SET_META_CONTEXT, meta_payload(wire.name, [ALLOCATION]))
    found, last = wire.final(SET_META_CONTEXT)
    if last.type == ACK:
        assert wire.structured or not found, "contexts without structured replies"
        wire.contexts = dict(wire.parse_context(answer) for answer in found)


def _set_nothing(wire) -> None:
    wire.contexts = {}
    wire.option(SET_META_CONTEXT, meta_payload(wire.name))
    wire.final(SET_META_CONTEXT)


def _go_unknown(wire) -> None:
    wire.option(GO, b"\0\0\0\7unknown\0\1")  # malformed: refused by all
    wire.final(GO)


STEPS = [
    _list, _info, _info_refused, _structured, _list_meta, _set_meta, _set_nothing,
    _go_unknown,
]


@case("sweep.orders-of-options", req=["OPT-GO-03", "OPT-SR-03", "OPT-META-28", "TX-01",
                                      "META-03", "TF-10", "OPT-INFO-24"], quick=False)
@pytest.mark.parametrize("first", STEPS, ids=lambda step: step.__name__.strip("_"))
def test_orders_of_options(dial, first):
    """After options in any order, up to three, transmission is as was agreed on."""
    for more in itertools.chain(
        [()], itertools.product(STEPS, repeat=1), itertools.product(STEPS, repeat=2)
    ):
        wire = dial()
        for step in (first, *more):
            step(wire)
        export = wire.transmit().export
        assert wire.structured or not export.flags & nbd.SEND_DF
        read = wire.request(READ, 0, export.block)
        status = wire.request(BLOCK_STATUS, 0, export.block)
        assert wire.expect_ok(read).simple is not wire.structured
        if wire.contexts:
            wire.expect_ok(status)
        else:
            wire.expect_errno(status, EINVAL)
        wire.leave()


@case("sweep.byte-by-byte", req=["HS-20", "TX-12", "TX-08"])
@pytest.mark.parametrize("step", [1, 3, 7])
def test_byte_by_byte(raw, step):
    """A session that comes in the smallest pieces is the same session."""
    raw.greeting()
    whole = b"".join([
        (raw.handshake_flags & 3).to_bytes(4, "big"),
        option(LIST),
        option(0x4242, bytes(50)),
        option(INFO, go_payload(raw.name, [0, 3])),
        option(GO, go_payload(raw.name, [3])),
    ])
    for at in range(0, len(whole), step):
        raw.conn.send(whole[at : at + step], "the next bytes of the handshake")
    for number in (LIST, 0x4242, INFO):
        raw.final(number)
    raw.export = raw.expect_export(GO)
    raw.phase = "transmission"
    block = raw.export.block
    for cookie in range(3):
        head = request(READ, block * cookie, block, cookie=cookie)
        raw.pending[cookie] = Request(READ, block * cookie, block, 0, cookie)
        for at in range(0, len(head), step):
            raw.conn.send(head[at : at + step], "the next bytes of a READ")
    for cookie in range(3):
        raw.expect_ok(cookie)
    raw.in_step()


@case("sweep.disconnect-at-each-byte", req=["TERM-08", "OPT-ABORT-05", "TXTERM-10"],
      quick=False)
@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
def test_disconnect_at_each_byte(connect, dial, reset):
    """A client that is gone after any byte of a session does no harm to the next."""
    wire = connect()
    start = opening(wire)
    wire.conn.close()
    rest = request(READ, 0, 4096, cookie=1) + request(nbd.FLUSH, cookie=2)
    whole = start + rest + request(nbd.DISC, cookie=3)
    cut_at_each(connect, dial, reset, whole, 0)


@case("sweep.disconnect-in-a-write", req=["TERM-08", "TXTERM-10", "TX-12"],
      needs="writable", quick=False)
@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
def test_disconnect_in_a_write(connect, dial, reset):
    """Nor does one that is gone after any byte of a WRITE."""
    wire = connect()
    start = opening(wire)
    wire.conn.close()
    write = request(nbd.WRITE, 0, 64, cookie=1) + bytes(64)
    cut_at_each(connect, dial, reset, start + write, len(start))


def opening(wire) -> bytes:
    """What a client sends up to transmission."""
    return b"".join([
        (wire.greeting() & 3).to_bytes(4, "big"),
        option(LIST),
        option(STRUCTURED_REPLY),
        option(SET_META_CONTEXT, meta_payload(wire.name, [ALLOCATION])),
        option(GO, go_payload(wire.name, [3])),
    ])


def cut_at_each(connect, dial, reset: bool, whole: bytes, first: int) -> None:
    for length in range(first, len(whole) + 1):
        wire = connect()
        wire.greeting()
        wire.conn.send(whole[:length], f"the first {length} bytes of a session")
        if reset:
            linger = struct.pack("ii", 1, 0)
            wire.conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        wire.conn.close()
    other = dial()
    other.in_step()
    other.transmit().in_step()
