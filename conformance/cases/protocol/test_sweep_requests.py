# SPDX-License-Identifier: BSD-3-Clause
"""Sweeps over transmission: commands after one another, lengths, many at once, and
clients beside each other."""

from __future__ import annotations

import random

import pytest

from nbdspec import nbd
from nbdspec.case import MUST, SHOULD, Mode, case
from nbdspec.fixtures import both_kinds_of_reply
from nbdspec.nbd import (
    BLOCK_STATUS,
    CACHE,
    EINVAL,
    EPERM,
    FLUSH,
    FUA,
    NO_HOLE,
    READ,
    TRIM,
    WRITE,
    WRITE_ZEROES,
)
from nbdspec.payloads import pattern
from nbdspec.payloads import request as request_bytes
from nbdspec.transmission import same

SECTION = "sweeps"

MIB = 1 << 20
COMMANDS = {
    READ: None,
    WRITE: "writable",
    FLUSH: "flush",
    TRIM: "trim",
    CACHE: "cache",
    WRITE_ZEROES: "write-zeroes",
    BLOCK_STATUS: None,
    99: None,
}
#: and the row that asks for EINVAL, which is a SHOULD
REFUSED = {BLOCK_STATUS: "META-03", 99: "ERR-07"}
HARMLESS = [READ, FLUSH, CACHE, BLOCK_STATUS, 99]


def send(wire, command: int, place: int) -> int:
    length = max(4096, wire.export.minimum)
    data = b"s" * length if command == WRITE else b""
    offset = place * length
    if command == FLUSH:
        offset = length = 0
    return wire.request(command, offset, length, data=data)


@case("sweep.pairs-of-commands", req=["TX-12", "TX-10", "TX-04", "TXTERM-10"])
@both_kinds_of_reply
@pytest.mark.parametrize("glued", [False, True], ids=["one-by-one", "glued"])
def test_pairs_of_commands(wire, lease, structured, glued):
    """Each command that writes nothing is answered right behind each other one,
    refused or not."""
    wire.transmit(structured=structured)
    pairs(wire, lease.profile, HARMLESS, glued)


@case("sweep.pairs-with-writes", req=["TX-12", "TX-10", "TX-04", "TXTERM-10"],
      needs="writable")
@both_kinds_of_reply
@pytest.mark.parametrize("glued", [False, True], ids=["one-by-one", "glued"])
def test_pairs_with_writes(wire, lease, structured, glued):
    """The same with those that write."""
    wire.transmit(structured=structured)
    pairs(wire, lease.profile, list(COMMANDS), glued)


def pairs(wire, profile, commands: list[int], glued: bool) -> None:
    known = [c for c in commands if not (word := COMMANDS[c]) or profile.has(word)]
    for first in known:
        for second in known:
            asked = [send(wire, first, 0)]
            if not glued:
                wire.wait(asked.pop())
            asked.append(send(wire, second, 2))
            for cookie in asked:
                reply = wire.wait(cookie)
                command = reply.request.command
                words = f"{reply} to {reply.request}"
                if command in REFUSED:
                    if reply.error != EINVAL:
                        wire.finding(SHOULD, words, REFUSED[command])
                elif command == CACHE:  # may do nothing but fail: TX-CACHE-05
                    assert reply.error in (0, EINVAL), words
                else:
                    assert not reply.error, words
    wire.in_step()


@case("sweep.lengths", req=["TX-READ-05", "TX-READ-19", "TX-WRITE-04", "TX-12"],
      needs="writable stores size>=8M minimum=1")
@both_kinds_of_reply
def test_lengths(wire, structured):
    """Lengths and offsets on both sides of powers of two are read as written."""
    wire.transmit(structured=structured)
    seed = random.Random(1)
    for power in (0, 3, 9, 12, 14, 15, 16, 17, 18, 20, 22):
        for length in (2**power - 1, 2**power, 2**power + 1):
            if not length:
                continue
            offset = seed.choice((0, 1, 511, 512, 4095, 4097, 65535))
            data = pattern(seed.randrange(1 << 30), length)
            around = wire.read(2, offset + length)
            wire.write(data, offset)
            same(wire.read(length, offset), data, offset)
            assert wire.read(2, offset + length) == around, "bytes behind it changed"


@case("sweep.64-in-flight", req=["TX-WRITE-04", "TX-04", "TX-READ-19"],
      needs="writable stores size>=8M minimum=1", quick=False)
@pytest.mark.parametrize("seed", range(3))
def test_64_in_flight(wire, lease, seed):
    """Of 64 overlapping writes in flight each byte is one writer's, and it stays."""
    wire.transmit(structured=lease.profile.structured)
    chance = random.Random(seed)
    span = 48 << 10
    wire.write(bytes(span), 0)
    writes = []
    for mark in range(1, 65):
        length = chance.choice((1, 100, 4096, 5000, 16384))
        offset = chance.randrange(span - length)
        flags = FUA if wire.export.flags & nbd.SEND_FUA and chance.random() < 0.2 else 0
        cookie = wire.request(WRITE, offset, data=bytes([mark]) * length, flags=flags)
        writes.append((cookie, mark, offset, offset + length))
    for cookie, *_ in writes:
        wire.expect_ok(cookie)
    first = wire.read(span, 0)
    allowed: list[set[int]] = [set() for _ in range(span)]
    for _, mark, start, end in writes:
        for at in range(start, end):
            allowed[at].add(mark)
    for at, value in enumerate(first):
        assert value in (allowed[at] or {0}), f"{value} at {at:#x}: {allowed[at]}"
    same(wire.read(span, 0), first, what="no change after all writes were answered")


@case("sweep.mixed-in-flight", req=["TX-04", "TX-12", "TX-READ-19", "TX-ZERO-07"],
      needs="writable stores size>=32M minimum=1", quick=False)
@both_kinds_of_reply
def test_mixed_in_flight(wire, lease, structured):
    """Commands of all kinds in flight, each in an area of its own, do not mix."""
    wire.transmit(structured=structured)
    chance = random.Random(2)
    want: dict[int, bytes] = {}
    for area in range(32):
        wire.write(pattern(area * 7, 65536), area * MIB // 2)
        want[area] = pattern(area * 7, 65536)
    for _ in range(3):
        asked = []
        for area in range(32):
            at = area * MIB // 2
            start = chance.randrange(60000)
            length = chance.randrange(1, 5000)
            what = chance.choice(("read", "write", "zero", "bad"))
            before = want[area]
            if what == "read":
                cookie = wire.request(READ, at + start, length)
                asked.append((cookie, before[start : start + length]))
            elif what == "write":
                data = bytes([area]) * length
                asked.append((wire.request(WRITE, at + start, data=data), None))
                want[area] = before[:start] + data + before[start + length :]
            elif what == "zero" and lease.profile.has("write-zeroes"):
                flags = chance.choice((0, NO_HOLE))
                cookie = wire.request(WRITE_ZEROES, at + start, length, flags=flags)
                asked.append((cookie, None))
                want[area] = before[:start] + bytes(length) + before[start + length :]
            else:
                cookie = wire.request(WRITE, wire.export.size, data=b"!" * length)
                asked.append((cookie, b"refused"))
        chance.shuffle(asked)
        for cookie, data in asked:
            if data == b"refused":
                assert wire.wait(cookie).error, "a WRITE beyond the end succeeded"
            elif data is None:
                wire.expect_ok(cookie)
            else:
                wire.expect_data(cookie, data)
    for area, data in want.items():
        same(wire.read(65536, area * MIB // 2), data, area * MIB // 2)


@case("sweep.same-cookie", req=["TX-04"], needs="size>=1M")
def test_same_cookie(wire):
    """A cookie can be used again as soon as its request was answered."""
    wire.transmit()
    block = wire.export.block
    for length in (block, 8 * block, wire.export.minimum, block):
        reply = wire.expect_ok(wire.request(READ, 0, length, cookie=7))
        assert len(reply.data) == length
    wire.in_step()


@case("clients.one-stalls", req=["TXTERM-10", "TERM-06"], needs="writable")
@pytest.mark.parametrize("where", ["greeting", "option", "header", "payload", "reading"])
def test_one_stalls(connect, where):
    """A client that stops in the middle of anything does not hold up another."""
    slow = connect()
    slow.greeting()
    if where != "greeting":
        slow.client_flags(slow.handshake_flags & 3)
    if where == "option":
        slow.option(nbd.LIST, b"", length=100)
    if where in ("header", "payload", "reading"):
        slow.transmit()
        head = request_bytes(WRITE, 0, 65536, cookie=1)
        if where == "header":
            slow.conn.send(head[:20], "a part of a header")
        elif where == "payload":
            slow.conn.send(head + bytes(1000), "a part of a payload")
        else:
            for _ in range(20):  # replies that nobody reads fill the pipe
                slow.request(READ, 0, 1 << 20)
    for _ in range(2):
        other = connect()
        other.greet()
        other.in_step()
        other.transmit()
        for _ in range(5):
            other.in_step()
    slow.conn.close()


@case("clients.own-replies", req=["TX-04", "MC-01"], mode=Mode(delay=0.05), quick=False)
def test_own_replies(dial):
    """Requests in flight when a client goes do not answer the one that comes next."""
    for _ in range(3):
        first = dial()
        first.transmit()
        for i in range(8):
            first.request(READ, 4096 * i, 512, cookie=0xDEAD0000 + i)
        first.conn.close()
        second = dial()
        second.transmit()
        asked = [second.request(READ, 4096 * i, 1024) for i in range(8)]
        for cookie in asked:
            assert len(second.expect_ok(cookie).data) == 1024
        second.leave()


@case("clients.read-only-unharmed", req=["TF-06", "TX-12"], mode=Mode(readonly=True),
      needs="readonly")
def test_read_only_unharmed(wire):
    """Nothing that is written to a read-only export gets there or upsets it."""
    wire.transmit()
    before = wire.read(65536, 0)
    for command in (WRITE, TRIM, WRITE_ZEROES):
        for flags in (0, FUA, NO_HOLE):
            data = b"!" * 4096 if command == WRITE else b""
            cookie = wire.request(command, 0, 4096, data=data, flags=flags)
            wire.expect_errno(cookie, EPERM, also={EINVAL: MUST, nbd.EIO: MUST,
                                                   nbd.ENOSPC: MUST})
    same(wire.read(65536, 0), before, what="a read-only export to stay as it is")
