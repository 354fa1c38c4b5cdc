# SPDX-License-Identifier: BSD-3-Clause
"""Lengths and counts that cannot be meant; each time the next client is served."""

from __future__ import annotations

import random
import struct

import pytest

from nbdspec import nbd
from nbdspec.case import Mode, case
from nbdspec.fixtures import both_kinds_of_reply
from nbdspec.nbd import GO, INFO, LIST_META_CONTEXT, SET_META_CONTEXT

SECTION = "hostile"

HUGE = [0xFFFFFFFF, 0xFFFFFFFE, 0x80000000, 0x7FFFFFFF, 0x40000001]


def in_haggling(wire, dial):
    """The same connection, or another where a GO that nobody could mean was taken."""
    if wire.phase == "transmission":
        wire.in_step()
        wire.leave()
        wire = dial()
    return wire


def served(dial) -> None:
    other = dial()
    other.in_step()
    other.transmit().in_step()


@case("hostile.option-length", req=["TERM-11", "HS-20", "TERM-10"], hostile=True)
@pytest.mark.parametrize("number", [1, 3, 5, 6, 7, 8, 9, 10, 99], ids=nbd.option_name)
def test_option_length(dial, number):
    """An option that announces gigabytes is not waited for with memory in hand."""
    for length in HUGE:
        wire = dial()
        wire.option(number, b"x" * 64, length=length)
        wire.conn.shut()
        rest = wire.conn.drain()
        kind = int.from_bytes(rest[12:16], "big")
        assert not rest or kind & nbd.ERR_BIT, f"{nbd.reply_name(kind)}"
        wire.conn.close()
    served(dial)


@case("hostile.name-length", req=["OPT-INFO-03", "OPT-META-04", "STR-03"], hostile=True)
@pytest.mark.parametrize(
    "number", [INFO, GO, LIST_META_CONTEXT, SET_META_CONTEXT], ids=nbd.option_name
)
def test_name_length(dial, number):
    """A name that is said to be longer than its option is refused, in step
    (CVE-2022-26495, CVE-2022-26496)."""
    wire = dial()
    for length in (*HUGE, 65, 100, 4096, 4097, 1025, 65536):
        wire = in_haggling(wire, dial)
        wire.option(number, struct.pack(">I", length) + b"n" * 64)
        if number in (INFO, GO):
            wire.best_refused(number, "OPT-INFO-03")
        else:
            last = wire.final(number)[1]
            assert last.is_error, str(last)
    wire.in_step()


@case("hostile.counts", req=["OPT-INFO-03", "OPT-META-04"], hostile=True)
def test_counts(dial):
    """Counts that the data does not bear out are refused, in step."""
    wire = dial()
    name = struct.pack(">I", 0)
    for count in (2, 100, 0x7FFF, 0x8000, 0xFFFF):
        for number in (INFO, GO):
            wire.option(number, name + struct.pack(">HH", count, 3))
            wire.best_refused(number, "OPT-INFO-03")
            wire = in_haggling(wire, dial)
    for count in (2, 0xFFFF, 0x40000000, 0x80000000, 0xFFFFFFFF):
        for number in (LIST_META_CONTEXT, SET_META_CONTEXT):
            query = struct.pack(">I", 15) + b"base:allocation"
            wire.option(number, name + struct.pack(">I", count) + query)
            found, last = wire.final(number)
            assert last.is_error or found, str(last)
    wire.in_step()


@case("hostile.query-length", req=["OPT-META-04", "META-08"], hostile=True)
@pytest.mark.parametrize("number", [LIST_META_CONTEXT, SET_META_CONTEXT],
                         ids=nbd.option_name)
def test_query_length(wire, number):
    """A query that is said to be longer than its option is refused, in step."""
    wire.negotiate_structured()
    for length in (*HUGE, 16, 100):
        data = struct.pack(">III", 0, 1, length) + b"base:allocation"
        wire.option(number, data)
        last = wire.final(number)[1]
        assert last.is_error, f"{last} to a query of {length} bytes in 15"
    wire.in_step()


@case("hostile.garbage", req=["TX-08", "HS-14", "TERM-03"], hostile=True)
@pytest.mark.parametrize("seed", range(6))
def test_garbage(connect, dial, seed):
    """Noise in place of flags, options or requests does no harm to the next client."""
    noise = random.Random(seed)
    for _ in range(10):
        wire = connect()
        wire.greeting()
        where = noise.randrange(3)
        if where:
            wire.client_flags(wire.handshake_flags & 3)
        if where == 2:
            wire.transmit()
        wire.conn.send(noise.randbytes(noise.choice((1, 28, 100, 5000))), "noise")
        wire.conn.shut()
        wire.conn.drain()
        wire.conn.close()
    served(dial)


@case("hostile.request-lengths", req=["SIZE-35", "SIZE-24", "TXTERM-10", "SR-03"],
      mode=Mode(size=1 << 20), hostile=True)
@both_kinds_of_reply
def test_request_lengths(wire, structured):
    """Lengths that no export has are refused by every command without payload."""
    wire.transmit(structured=structured)
    for length in HUGE:
        for command in (nbd.READ, nbd.TRIM, nbd.CACHE, nbd.WRITE_ZEROES,
                        nbd.BLOCK_STATUS, 99):
            for offset in (0, 512, wire.export.size - 1, (1 << 64) - 512):
                reply = wire.wait(wire.request(command, offset, length))
                assert reply.error, f"{reply} to {reply.request}"
    wire.in_step()
