# SPDX-License-Identifier: BSD-3-Clause
"""How sessions end: ABORT while haggling, DISC in transmission."""

from __future__ import annotations

import struct

import pytest

from nbdspec import nbd
from nbdspec.case import SHOULD, Mode, case
from nbdspec.nbd import ABORT, ACK

SECTION = "termination"


@case("abort.ack-then-close", req=["OPT-ABORT-01", "OPT-ABORT-06"])
def test_ack_then_close(wire):
    """ABORT gets an ACK, and then the server closes."""
    wire.option(ABORT)
    wire.expect_reply(ABORT, ACK)
    wire.conn.expect_closed("ABORT ends the session")


@case("abort.data-ignored", req=["OPT-ABORT-03"], level=SHOULD)
@pytest.mark.parametrize("length", [1, 4096])
def test_data_ignored(wire, length):
    """Data that comes with ABORT is ignored, not refused."""
    wire.option(ABORT, bytes(length))
    wire.expect_reply(ABORT, ACK)
    wire.conn.expect_closed("ABORT ends the session")


@case("disc.closes-without-reply", req=["TX-DISC-01", "TX-DISC-04", "TXTERM-01"])
def test_closes_without_reply(wire):
    """DISC has no reply: the connection is closed."""
    wire.transmit()
    wire.disc()


@case("disc.odd-arguments", req=["TX-DISC-05", "TX-DISC-04"])
@pytest.mark.parametrize(
    ("offset", "length", "flags"),
    [(512, 0, 0), (0, 512, 0), (0, 0, nbd.FUA), (0, 0, 1 << 15)],
    ids=["offset", "length", "fua", "flag-15"],
)
def test_odd_arguments(wire, offset, length, flags):
    """DISC has no reply even when it says more than it should.

    ERR-08 and ERR-09 want EINVAL for a flag that has no place there: as good.
    """
    wire.transmit()
    cookie = wire.request(nbd.DISC, offset, length, flags=flags)
    wire.conn.shut()
    if not flags:
        wire.conn.expect_closed("DISC ends the session without a reply")
        return
    wire.conn.expect("end of stream, or EINVAL ahead of it")
    refusal = struct.pack(">IIQ", nbd.SIMPLE_MAGIC, nbd.EINVAL, cookie)
    rest = wire.conn.drain()
    assert rest in (b"", refusal), f"{len(rest)} bytes in reply to DISC: {rest.hex(' ')}"


@case("disc.slow-in-flight", req=["TX-DISC-01", "TX-05"], mode=Mode(delay=0.1))
def test_slow_in_flight(wire):
    """Requests that the back end is busy with are answered ahead of the end."""
    wire.transmit()
    asked = [wire.request(nbd.READ, 4096 * i, 512) for i in range(4)]
    wire.request(nbd.DISC)
    answered_ahead_of_the_end(wire, asked)


@case("disc.in-flight-first", req=["TX-DISC-01"])
@pytest.mark.parametrize("count", [1, 20])
def test_in_flight_first(wire, count):
    """What was asked ahead of DISC is answered before the connection closes."""
    wire.transmit()
    asked = [wire.request(nbd.READ, 0, wire.export.block) for _ in range(count)]
    wire.request(nbd.DISC)
    answered_ahead_of_the_end(wire, asked)


def answered_ahead_of_the_end(wire, asked: list[int]) -> None:
    for cookie in asked:
        # An answer, if not the one that was hoped for.
        reply = wire.wait(cookie)
        if reply.error == nbd.ESHUTDOWN:
            wire.finding(SHOULD, "given up because of DISC", "TX-DISC-01")
        else:
            assert not reply.error, str(reply)
    wire.conn.expect_closed("DISC ends the session without a reply")
