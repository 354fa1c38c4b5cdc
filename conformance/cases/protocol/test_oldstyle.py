# SPDX-License-Identifier: BSD-3-Clause
"""Servers that offer less: the oldstyle greeting, and newstyle without its flags."""

from __future__ import annotations

import struct

import pytest

from nbdspec import nbd
from nbdspec.case import SHOULD, Mode, case
from nbdspec.nbd import GO, LIST, NO_ZEROES
from nbdspec.payloads import go_payload
from nbdspec.verdict import MAY, Breach, Closed

SECTION = "oldstyle"
OLD = Mode(oldstyle=True)


@case("oldstyle.greeting", req=["HSF-05", "TF-04", "STR-05"], mode=OLD)
def test_greeting(raw):
    """152 bytes: two magic numbers, size, no handshake flags, transmission flags,
    124 zero bytes. Requests follow at once.
    """
    what = "the oldstyle greeting of 152 bytes"
    raw.conn.expect(what, "4e42444d41474943 0000420281861253")
    data = raw.conn.read(152, what)
    raw.conn.done("oldstyle greeting", "bytes")
    magic, old, size, handshake, flags = struct.unpack(">QQQHH", data[:28])
    if (magic, old) != (nbd.NBDMAGIC, nbd.OLDSTYLE_MAGIC):
        raise Breach(what, data[:16].hex(" "))
    assert handshake == 0, f"handshake flags {handshake:#x}"
    assert flags & nbd.HAS_FLAGS
    assert not any(data[28:])
    raw.export.size, raw.export.flags = size, flags
    raw.phase = "transmission"
    raw.read(512, 0)
    raw.in_step()


@case("oldstyle.flag-not-offered", req=["HS-10"], mode=Mode(handshake=1))
def test_flag_not_offered(raw):
    """A client that sets NO_ZEROES although it was not offered is dropped."""
    if raw.greeting() & NO_ZEROES:
        raise Breach("a greeting without NO_ZEROES", "NO_ZEROES")
    raw.client_flags(3)
    raw.option(LIST)
    raw.conn.expect_closed("NO_ZEROES was not offered")


@case("oldstyle.zeroes-without-flag", req=["HSF-06"], mode=Mode(handshake=1),
      needs="default-sizes")
def test_zeroes_without_flag(raw):
    """Where NO_ZEROES was not offered, EXPORT_NAME is answered with padding."""
    raw.greet()
    raw.export_name(zeroes=True)
    raw.in_step()


@case("oldstyle.no-padding-for-go", req=["OPT-GO-01"], mode=Mode(handshake=1))
def test_no_padding_for_go(raw):
    """GO is never padded, NO_ZEROES or not."""
    raw.greet()
    raw.transmit()
    raw.in_step()


@case("oldstyle.nothing-fixed", req=["OPT-EXPORT-04", "HSF-04"], level=SHOULD,
      mode=Mode(handshake=0))
@pytest.mark.parametrize("number", [LIST, GO])
def test_nothing_fixed(raw, number):
    """Without fixed newstyle on offer, options but EXPORT_NAME get no service."""
    raw.greet(0)
    raw.option(number, go_payload(raw.name) if number == GO else b"")
    try:
        last = raw.final(number)[1]
    except Closed:
        return
    if not last.is_error:
        raw.finding(MAY, f"{nbd.option_name(number)} works without fixed newstyle")
