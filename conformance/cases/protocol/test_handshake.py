# SPDX-License-Identifier: BSD-3-Clause
"""Greeting, client flags, and the way options and their replies are framed."""

from __future__ import annotations

import pytest

from nbdspec.case import MAY, SHOULD, case
from nbdspec.nbd import (
    ACK,
    ERR_POLICY,
    ERR_UNSUP,
    FIXED_NEWSTYLE,
    LIST,
    NO_ZEROES,
)

SECTION = "handshake"


@case("handshake.greeting-unasked", req=["HS-07", "HSF-01", "STR-05"])
def test_greeting_unasked(raw):
    """The greeting comes before the client has sent a byte, and offers newstyle."""
    flags = raw.greeting()
    assert flags & FIXED_NEWSTYLE, "fixed newstyle is not offered"
    raw.client_flags(flags & 3)
    raw.in_step()


@case("handshake.only-known-flags", req=["HSF-03"])
def test_only_known_flags(raw):
    """The handshake flags have bits 0 and 1 only."""
    flags = raw.greeting()
    assert not flags & ~(FIXED_NEWSTYLE | NO_ZEROES), f"handshake flags {flags:#x}"
    raw.client_flags(flags & 3)
    raw.in_step()


@case("handshake.unknown-client-flag", req=["HS-09"])
@pytest.mark.parametrize("flags", [1 << 2, 1 << 15, 1 << 31], ids=lambda f: f"{f:#x}")
def test_unknown_client_flag(raw, flags):
    """A client that sets a flag the server does not know is dropped."""
    raw.greeting()
    raw.client_flags(flags | 3)
    raw.option(LIST)  # what a server that did not close would answer
    raw.conn.expect_closed(f"client flag {flags:#x} does not exist")


@case("handshake.option-unknown-in-step", req=["HS-15", "HS-20", "COMPAT-03"])
@pytest.mark.parametrize("length", [0, 1, 4096, 65536])
@pytest.mark.parametrize("number", [0, 12, 0x7FFFFFFF, 0xFFFFFFFF])
def test_option_unknown_in_step(wire, number, length):
    """An option that nobody knows gets ERR_UNSUP, and its data is skipped."""
    wire.option(number, bytes(length))
    wire.expect_error(number, ERR_UNSUP)
    wire.in_step()


@case("handshake.list-ends-with-ack", req=["OPT-LIST-01", "OPT-LIST-05", "OPT-LIST-08"])
def test_list_ends_with_ack(wire):
    """LIST brings one REP_SERVER an export, then an ACK without data."""
    wire.option(LIST)
    found, last = wire.final(LIST)
    if last.type == ERR_POLICY:
        wire.finding(MAY, "LIST is forbidden by policy")
    else:
        assert last.type == ACK, str(last)
    for answer in found:
        wire.parse_server(answer)
    wire.in_step()


@case("handshake.list-with-data", req=["OPT-LIST-04"], level=SHOULD)
def test_list_with_data(wire):
    """LIST with data is refused, and the data is skipped."""
    from nbdspec.nbd import ERR_INVALID

    wire.option(LIST, b"data")
    wire.expect_error(LIST, ERR_INVALID)
    wire.in_step()


@case("handshake.not-oldstyle", req=["HS-04", "HS-03"], level=SHOULD)
def test_not_oldstyle(raw):
    """The newstyle port does not greet in the old style, which has a port of its
    own where it exists at all."""
    flags = raw.greeting()  # which checks both magic numbers
    raw.client_flags(flags & 3)
    raw.in_step()


@case("handshake.every-unknown-flag", req=["HS-09"])
def test_every_unknown_flag(connect):
    """Each of the thirty flags that do not exist makes the server hang up."""
    for bit in range(2, 32):
        wire = connect()
        wire.greeting()
        wire.client_flags(1 << bit | 1)
        wire.option(LIST)
        wire.conn.expect_closed(f"client flag {1 << bit:#x} does not exist")
        wire.conn.close()


@case("handshake.plain-client-options", req=["HSF-07"], level=MAY)
def test_plain_client_options(raw, dial):
    """A client without the fixed newstyle flag is answered, or dropped."""
    raw.greet(0)
    raw.option(LIST)
    raw.conn.shut()
    rest = raw.conn.drain()
    if not rest:
        raw.finding(MAY, "it is dropped", "HSF-07")
    dial().in_step()
