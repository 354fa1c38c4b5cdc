# SPDX-License-Identifier: BSD-3-Clause
"""The transmission phase on the raw wire."""

from __future__ import annotations

import struct
from typing import Mapping

from . import nbd
from .chunks import Assembler, Chunk, Reply, Request, check_error
from .clock import weight
from .conn import Conn
from .handshake import Handshake
from .payloads import extended_request
from .payloads import request as request_bytes
from .verdict import Breach, Finding, Level, may_write

#: No chunk of a server that has 64 MiB as its longest request can be longer.
_SANE = (64 << 20) + 4096
_CHUNK_MAGICS = (f"{nbd.CHUNK_MAGIC:08x}", f"{nbd.EXTENDED_CHUNK_MAGIC:08x}")
_FIRST_COOKIE = 0xC00C1E0000000001


class Transmission(Handshake):
    """Requests out, replies in, in whatever order they come."""

    def __init__(self, conn: Conn, findings: list[Finding], name: str = "") -> None:
        super().__init__(conn, findings, name)
        self.pending: dict[int, Request] = {}
        self._building: dict[int, Assembler] = {}
        self._finished: dict[int, Reply] = {}
        self._next_cookie = _FIRST_COOKIE
        #: what all pending requests weigh
        self._due = 0

    # Requests

    def request(
        self,
        command: int,
        offset: int = 0,
        length: int = 0,
        *,
        flags: int = 0,
        data: bytes = b"",
        cookie: int | None = None,
        magic: int | None = None,
        effect: int | None = None,
    ) -> int:
        """Sends a request, and returns its cookie. A WRITE's length is its data's.

        With extended headers a WRITE gets PAYLOAD_LEN; ``effect`` is the length that
        the reply is about, where that is not the header's (BLOCK_STATUS).
        """
        if command in nbd.WRITING:
            may_write(self.may_write)
        if command == nbd.WRITE and not length:
            length = len(data)
        if command == nbd.WRITE and self.extended and data:
            flags |= nbd.PAYLOAD_LEN
        if cookie is None:
            cookie = self._next_cookie
            self._next_cookie += 1
        about = length if effect is None else effect
        asked = Request(command, offset, about, flags, cookie)
        build = extended_request if self.extended else request_bytes
        usual = (
            nbd.EXTENDED_REQUEST_MAGIC if self.extended else nbd.REQUEST_MAGIC
        )
        head = build(
            command,
            offset,
            length,
            flags=flags,
            cookie=cookie,
            magic=usual if magic is None else magic,
        )
        words = str(asked)
        if magic is not None:
            words += f", magic {magic:#x}"
        if data:
            words += f", {len(data)} bytes of payload"
        if command != nbd.DISC:
            self.pending[cookie] = asked
            self._due += weight(command, about)
        self.conn.allow(self._due)
        self.conn.send(head + data, words)
        return cookie

    # Replies

    def wait(self, cookie: int) -> Reply:
        """The reply to one request; those that overtake it are kept for later."""
        if cookie not in self._finished and cookie not in self.pending:
            raise KeyError(f"cookie {cookie:#x} was never sent")
        while cookie not in self._finished:
            self._take(f"the reply to {self.pending[cookie]}")
        return self._finished.pop(cookie)

    def wait_any(self) -> Reply:
        """The next reply to be complete."""
        while not self._finished:
            self._take("a reply")
        return self._finished.pop(next(iter(self._finished)))

    def _take(self, expected: str) -> None:
        """Reads one reply or chunk."""
        self.conn.allow(self._due)
        (magic,) = struct.unpack(">I", self.conn.read(4, expected))
        if magic == nbd.SIMPLE_MAGIC:
            self._simple(expected)
        elif magic == nbd.EXTENDED_CHUNK_MAGIC and self.extended:
            self._extended_chunk(expected)
        elif magic == nbd.CHUNK_MAGIC:
            self._chunk(expected)
        else:
            self.conn.done("no reply", "bytes")
            row = "MAGIC-01" if magic in nbd.RESERVED_MAGICS else "TX-10"
            raise Breach(expected, f"magic {magic:#010x}", row=row)

    def _simple(self, expected: str) -> None:
        error, cookie = struct.unpack(">IQ", self.conn.read(12, expected))
        asked = self._asked(cookie, expected)
        reply = Reply(asked, simple=True, error=error)
        if self.extended:
            self.conn.done(f"{reply} to {asked}", "reply")
            raise Breach(f"chunks for {asked}", str(reply), row="XH-06")
        if error == 0 and asked.command == nbd.READ and not self.structured:
            reply.data = bytearray(self.conn.read(asked.length, expected))
        self.conn.done(f"{reply} to {asked}", "reply")
        if self.structured and asked.command == nbd.READ:
            raise Breach(f"chunks for {asked}", str(reply), row="SR-03")
        if asked.command == nbd.BLOCK_STATUS and not error:
            raise Breach(f"chunks for {asked}", str(reply), row="META-04")
        if error:
            check_error(error)
        self._finish(reply)

    def _chunk(self, expected: str) -> None:
        head = self.conn.read(16, expected)
        flags, kind, cookie, length = struct.unpack(">HHQI", head)
        if length > _SANE:
            self.conn.done("chunk of absurd length", "bytes")
            raise Breach(expected, f"a chunk of {length} bytes", row="SR-18")
        payload = self.conn.read(length, expected) if length else b""
        chunk = Chunk(flags, kind, cookie, payload)
        self.conn.done(str(chunk), "chunk")
        if not self.structured:
            raise Breach("simple replies only", str(chunk), row="SR-01")
        if self.extended:
            raise Breach("extended headers", str(chunk), row="OPT-XH-10")
        self._take_chunk(chunk, expected)

    def _extended_chunk(self, expected: str) -> None:
        head = self.conn.read(28, expected)
        flags, kind, cookie, offset, length = struct.unpack(">HHQQQ", head)
        if length > _SANE:
            self.conn.done("chunk of absurd length", "bytes")
            raise Breach(expected, f"a chunk of {length} bytes", row="SR-18")
        payload = self.conn.read(length, expected) if length else b""
        chunk = Chunk(flags, kind, cookie, payload, offset)
        self.conn.done(str(chunk), "chunk")
        self._take_chunk(chunk, expected)

    def _take_chunk(self, chunk: Chunk, expected: str) -> None:
        cookie = chunk.cookie
        asked = self._asked(cookie, expected)
        building = self._building.get(cookie)
        if building is None:
            building = self._building[cookie] = Assembler(asked, self.contexts)
        if building.add(chunk):
            del self._building[cookie]
            for found in building.findings:
                self.finding(found.level, found.text, found.row)
            self._finish(building.reply)

    def _asked(self, cookie: int, expected: str) -> Request:
        if cookie not in self.pending:
            self.conn.done("reply with an unknown cookie", "bytes")
            raise Breach(
                expected,
                f"a reply to cookie {cookie:#x}, which waits for none",
                row="TX-04",
            )
        return self.pending[cookie]

    def _finish(self, reply: Reply) -> None:
        asked = self.pending.pop(reply.request.cookie)
        self._due -= weight(asked.command, asked.length)
        self.conn.allow(self._due)
        self._finished[reply.request.cookie] = reply

    # Expectations

    def expect_ok(self, cookie: int, *, row: str | None = None) -> Reply:
        asked = self._expected(cookie)
        what = f"success for {asked}"
        self.conn.expect(what, f"67446698 00000000 {cookie:016x}", *_chunks(cookie))
        reply = self.wait(cookie)
        if reply.error:
            raise Breach(what, _words(reply), row=row)
        return reply

    def expect_data(
        self, cookie: int, data: bytes | None = None, *, row: str | None = None
    ) -> bytes:
        """Success of a READ; with data: these bytes."""
        reply = self.expect_ok(cookie, row=row)
        got = bytes(reply.data)
        if data is not None and got != data:
            raise Breach(
                f"{len(data)} bytes as they have to be",
                difference(data, got, reply.request.offset),
                row=row,
            )
        return got

    def expect_errno(
        self,
        cookie: int,
        error: int,
        *,
        also: Mapping[int, Level] | None = None,
        row: str | None = None,
    ) -> Reply:
        """An error reply. `also`: other errors, and what they would break.

        0 in `also` stands for success.
        """
        asked = self._expected(cookie)
        others = dict(also or {})
        names = [nbd.error_name(number) for number in (error, *others)]
        what = f"{' or '.join(names)} for {asked}"
        self.conn.expect(what, *_errors(cookie, (error, *others)))
        reply = self.wait(cookie)
        if reply.error in others:
            if others[reply.error] is not Level.MUST:
                self.finding(
                    others[reply.error],
                    f"{asked}: {nbd.error_name(reply.error)} came where "
                    f"{nbd.error_name(error)} is the fitting error",
                    row,
                )
        elif reply.error != error:
            raise Breach(what, _words(reply), row=row)
        return reply

    def expect_refused(self, cookie: int, error: int, *, row: str) -> Reply:
        """An error, whatever it is: another than this one breaks a row, a SHOULD."""
        asked = self._expected(cookie)
        best = nbd.error_name(error)
        what = f"{best}, or another error, for {asked}"
        self.conn.expect(what, *_errors(cookie, tuple(nbd.ERRORS)))
        reply = self.wait(cookie)
        if not reply.error:
            raise Breach(what, _words(reply))
        if reply.error != error:
            came = nbd.error_name(reply.error)
            words = f"{asked}: {came} came where {best} is the fitting error"
            self.finding(Level.SHOULD, words, row)
        return reply

    def _expected(self, cookie: int) -> Request:
        if cookie in self._finished:
            return self._finished[cookie].request
        return self.pending[cookie]

    # Whole exchanges

    def read(self, length: int, offset: int, *, flags: int = 0) -> bytes:
        cookie = self.request(nbd.READ, offset, length, flags=flags)
        return self.expect_data(cookie)

    def write(self, data: bytes, offset: int, *, flags: int = 0) -> None:
        self.expect_ok(self.request(nbd.WRITE, offset, data=data, flags=flags))

    def command(self, command: int, offset: int = 0, length: int = 0, *, flags: int = 0):
        """A command without payload that has to succeed."""
        return self.expect_ok(self.request(command, offset, length, flags=flags))

    def block_status(
        self, length: int, offset: int, *, flags: int = 0
    ) -> dict[str, list[tuple[int, int]]]:
        cookie = self.request(nbd.BLOCK_STATUS, offset, length, flags=flags)
        reply = self.expect_ok(cookie)
        return {self.contexts[i]: list(e) for i, e in reply.extents.items()}

    def disc(self) -> None:
        """DISC, and the end of the stream that has to follow it."""
        self.request(nbd.DISC)
        self.conn.expect_closed("DISC ends the session without a reply")


def same(got: bytes, want: bytes, offset: int = 0, what: str = "the same bytes") -> None:
    """For large buffers, of which an assertion would show the whole."""
    if got != want:
        raise Breach(what, difference(bytes(want), bytes(got), offset))


def difference(want: bytes, got: bytes, offset: int = 0) -> str:
    """Where two buffers differ first, and how, in words."""
    if len(want) != len(got):
        return f"{len(got)} bytes in place of {len(want)}"
    at = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), None)
    if at is None:
        return "the same bytes"
    count = sum(a != b for a, b in zip(want, got))
    return (
        f"{count} bytes that differ, first at {offset + at:#x}: "
        f"{got[at : at + 8].hex(' ')} in place of {want[at : at + 8].hex(' ')}"
    )


def _words(reply: Reply) -> str:
    return str(reply) + (f' "{reply.message}"' if reply.message else "")


def _chunks(cookie: int) -> list[str]:
    """What the reply to a request may begin with, in either kind of chunk."""
    return [f"{magic} .... 0... {cookie:016x}" for magic in _CHUNK_MAGICS]


def _errors(cookie: int, numbers: tuple[int, ...]) -> list[str]:
    found = []
    for number in numbers:
        found.append(f"67446698 {number:08x} {cookie:016x}")
        if number:
            for magic, rest in zip(_CHUNK_MAGICS, (8, 32)):
                dots = "." * rest
                found.append(f"{magic} .... 8... {cookie:016x} {dots} {number:08x}")
        else:
            found += _chunks(cookie)
    return found
