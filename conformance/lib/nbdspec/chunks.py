# SPDX-License-Identifier: BSD-3-Clause
"""Replies in transmission: what each chunk has to look like, and their sum."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from . import nbd
from .verdict import MUST, SHOULD, Breach, Finding, Level


@dataclass
class Request:
    """A command that was sent and waits for its reply."""

    command: int
    offset: int
    length: int
    flags: int
    cookie: int

    def __str__(self) -> str:
        words = f"{nbd.command_name(self.command)} {self.length} at {self.offset:#x}"
        if self.flags:
            words += f" {nbd.command_flag_names(self.flags)}"
        return words


@dataclass
class Chunk:
    flags: int
    type: int
    cookie: int
    payload: bytes
    #: the request's offset, which extended headers repeat
    offset: int | None = None

    def __str__(self) -> str:
        done = " DONE" if self.flags & nbd.DONE else ""
        words = f"chunk {nbd.chunk_name(self.type)}{done}"
        if self.type in (nbd.CHUNK_ERROR, nbd.CHUNK_ERROR_OFFSET):
            return words + _error_words(self.payload)
        if self.type == nbd.CHUNK_DATA and len(self.payload) >= 8:
            (offset,) = struct.unpack(">Q", self.payload[:8])
            return words + f" {len(self.payload) - 8} bytes at {offset:#x}"
        if self.type == nbd.CHUNK_HOLE and len(self.payload) == 12:
            return words + " at %#x, %d bytes" % struct.unpack(">QI", self.payload)
        return words + (f" with {len(self.payload)} bytes" if self.payload else "")


def _error_words(payload: bytes) -> str:
    if len(payload) < 6:
        return f" with {len(payload)} bytes"
    error, length = struct.unpack(">IH", payload[:6])
    message = payload[6 : 6 + length].decode("utf-8", "backslashreplace")
    return f" {nbd.error_name(error)}" + (f' "{message}"' if message else "")


@dataclass
class Reply:
    """The whole answer to one request."""

    request: Request
    simple: bool
    error: int = 0
    chunks: list[Chunk] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    extents: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    #: what parts of a READ are there: (start, end, "data" | "hole"), in file order
    covered: list[tuple[int, int, str]] = field(default_factory=list)
    error_offsets: list[int] = field(default_factory=list)
    message: str = ""

    def __str__(self) -> str:
        kind = "simple reply" if self.simple else "structured reply"
        if not self.error and self.data:
            return f"{kind} with {len(self.data)} bytes of data"
        return f"{kind} {nbd.error_name(self.error)}"


class Assembler:
    """Takes the chunks of one structured reply and holds them against the rules."""

    def __init__(self, request: Request, contexts: dict[int, str]) -> None:
        self.reply = Reply(request, simple=False)
        self.findings: list[Finding] = []
        self._contexts = contexts
        self._request = request

    def add(self, chunk: Chunk) -> bool:
        """Takes a chunk; True when the reply is complete."""
        self.reply.chunks.append(chunk)
        if chunk.offset not in (None, self._request.offset):
            raise Breach(
                f"offset {self._request.offset:#x} in the header of each chunk",
                f"{chunk.offset:#x}",
                row="XH-07",
            )
        if chunk.flags & ~nbd.DONE:
            raise Breach("no flag but DONE", f"{chunk.flags:#x}", row="SR-15")
        handler = {
            nbd.CHUNK_NONE: self._none,
            nbd.CHUNK_DATA: self._data,
            nbd.CHUNK_HOLE: self._hole,
            nbd.CHUNK_STATUS: self._status,
            nbd.CHUNK_STATUS_EXT: self._status_ext,
            nbd.CHUNK_ERROR: self._error,
            nbd.CHUNK_ERROR_OFFSET: self._error_offset,
        }.get(chunk.type)
        if handler is None:
            raise Breach(f"a chunk that belongs to {self._request}", str(chunk))
        handler(chunk)
        if chunk.flags & nbd.DONE:
            self._complete()
            return True
        return False

    def _note(self, level: Level, text: str, row: str) -> None:
        self.findings.append(Finding(level, text, row))

    def _none(self, chunk: Chunk) -> None:
        if chunk.payload:
            raise Breach("a NONE chunk of length 0", str(chunk), row="SR-19")
        if not chunk.flags & nbd.DONE:
            raise Breach("DONE on a NONE chunk", str(chunk), row="SR-14")

    def _data(self, chunk: Chunk) -> None:
        if len(chunk.payload) < 9:
            raise Breach("offset and at least a byte", str(chunk), row="SR-20")
        (offset,) = struct.unpack(">Q", chunk.payload[:8])
        length = len(chunk.payload) - 8
        self._cover(offset, length, "data", "SR-21", "SR-22")
        at = offset - self._request.offset
        self.reply.data[at : at + length] = chunk.payload[8:]

    def _hole(self, chunk: Chunk) -> None:
        if len(chunk.payload) != 12:
            raise Breach("OFFSET_HOLE of 12 bytes", str(chunk), row="SR-24")
        offset, length = struct.unpack(">QI", chunk.payload)
        if length == 0:
            raise Breach("a hole of at least a byte", str(chunk), row="SR-28")
        self._cover(offset, length, "hole", "SR-25", "SR-26")

    def _cover(self, offset: int, length: int, kind: str, range_: str, lap: str) -> None:
        request = self._request
        if request.command != nbd.READ:
            raise Breach(f"no content in a reply to {request}", f"a {kind} chunk")
        end = offset + length
        if offset < request.offset or end > request.offset + request.length:
            where = f"{kind} at {offset:#x}, {length} bytes"
            raise Breach(f"content within {request}", where, row=range_)
        for start, stop, _ in self.reply.covered:
            if offset < stop and start < end:
                both = f"[{offset:#x}, {end:#x}) over [{start:#x}, {stop:#x})"
                raise Breach("content without overlap", both, row=lap)
        if any(offset <= bad < end for bad in self.reply.error_offsets):
            raise Breach("content ahead of its error chunk", kind, row="TX-READ-30")
        if request.flags & nbd.DF and self.reply.covered:
            raise Breach("one content chunk with DF", "a second", row="TX-READ-35")
        if not self.reply.data:  # not earlier: a refused length may be gigabytes
            self.reply.data = bytearray(request.length)
        self.reply.covered.append((offset, end, kind))

    def _status(self, chunk: Chunk) -> None:
        if chunk.offset is not None:
            raise Breach("BLOCK_STATUS_EXT", str(chunk), row="XH-21")
        count, rest = divmod(len(chunk.payload) - 4, 8)
        if count < 1 or rest:
            raise Breach("4 + 8n bytes, n at least 1", str(chunk), row="SR-29")
        (ident,) = struct.unpack(">I", chunk.payload[:4])
        flat = struct.unpack(f">{2 * count}I", chunk.payload[4:])
        self._take_status(chunk, ident, list(zip(flat[::2], flat[1::2])))

    def _status_ext(self, chunk: Chunk) -> None:
        if chunk.offset is None:
            raise Breach("BLOCK_STATUS", str(chunk), row="XH-21")
        count, rest = divmod(len(chunk.payload) - 8, 16)
        if count < 1 or rest:
            raise Breach("8 + 16n bytes, n at least 1", str(chunk), row="XH-22")
        ident, said = struct.unpack(">II", chunk.payload[:8])
        if said != count:
            raise Breach(f"the number of extents, {count}", f"{said}", row="XH-22")
        flat = struct.unpack(f">{2 * count}Q", chunk.payload[8:])
        if any(status >> 32 for status in flat[1::2]):
            raise Breach("status of 32 bits", str(chunk), row="XH-24")
        self._take_status(chunk, ident, list(zip(flat[::2], flat[1::2])))

    def _take_status(
        self, chunk: Chunk, ident: int, extents: list[tuple[int, int]]
    ) -> None:
        request = self._request
        if request.command != nbd.BLOCK_STATUS:
            raise Breach(f"no BLOCK_STATUS chunk for {request}", str(chunk))
        if ident not in self._contexts:
            raise Breach("an id from SET", f"id {ident}", row="TX-BLOCKSTATUS-18")
        if ident in self.reply.extents:
            raise Breach("one chunk a context", f"{ident} twice", row="META-02")
        check_extents(request, extents, self._note)
        self.reply.extents[ident] = extents

    def _error(self, chunk: Chunk) -> None:
        self._take_error(chunk, trailer=0, row="SR-37", zero="SR-41")
        if sum(c.type == nbd.CHUNK_ERROR for c in self.reply.chunks) > 1:
            self._note(SHOULD, "more than one ERROR chunk in a reply", "SR-39")

    def _error_offset(self, chunk: Chunk) -> None:
        self._take_error(chunk, trailer=8, row="SR-43", zero="SR-48")
        (offset,) = struct.unpack(">Q", chunk.payload[-8:])
        request = self._request
        if not request.offset <= offset < request.offset + max(request.length, 1):
            raise Breach(f"an offset within {request}", f"{offset:#x}", row="SR-44")
        if offset in self.reply.error_offsets:
            self._note(SHOULD, f"error offset {offset:#x} twice", "SR-46")
        self.reply.error_offsets.append(offset)

    def _take_error(self, chunk: Chunk, trailer: int, row: str, zero: str) -> None:
        need = 6 + trailer
        if len(chunk.payload) < need:
            raise Breach(f"an error chunk of at least {need}", str(chunk), row=row)
        error, length = struct.unpack(">IH", chunk.payload[:6])
        if error == 0:
            raise Breach("an error that is not 0", str(chunk), row=zero)
        if length > len(chunk.payload) - need:
            raise Breach("a message within its chunk", str(chunk), row="SR-42")
        if length > 4096:
            raise Breach("a message of at most 4096", str(length), row="SR-40")
        check_error(error)
        self.reply.message = _utf8(chunk.payload[6 : 6 + length])
        self.reply.error = self.reply.error or error

    def _complete(self) -> None:
        request, reply = self._request, self.reply
        if request.command == nbd.READ and not reply.error:
            seen = sum(end - start for start, end, _ in reply.covered)
            if seen != request.length:
                raise Breach(
                    f"content for all {request.length} bytes, or an error",
                    f"{seen} bytes",
                    row="TX-READ-19",
                )
        if request.command == nbd.BLOCK_STATUS and not reply.error:
            missing = set(self._contexts) - set(reply.extents)
            if missing:
                raise Breach(
                    "a chunk for each selected context",
                    "none for " + ", ".join(self._contexts[i] for i in missing),
                    row="META-02",
                )


def check_extents(request: Request, extents: list[tuple[int, int]], note) -> None:
    """The rules for the extents of one context."""
    if any(length == 0 for length, _ in extents):
        raise Breach("extents of at least a byte", str(extents[:8]), row="SR-30")
    if request.flags & nbd.REQ_ONE:
        if len(extents) != 1:
            raise Breach(
                "one extent with REQ_ONE", f"{len(extents)}", row="TX-BLOCKSTATUS-01"
            )
        if extents[0][0] > request.length:
            raise Breach(
                f"an extent of at most {request.length} with REQ_ONE",
                f"{extents[0][0]}",
                row="SR-32",
            )
    before_last = sum(length for length, _ in extents[:-1])
    if before_last >= request.length > 0:
        raise Breach(
            f"all extents but the last to sum up to less than {request.length}",
            f"{before_last}",
            row="SR-33",
        )
    if len(extents) > 1 << 20:
        note(SHOULD, f"{len(extents)} extents in a chunk", "SR-35")
    if any(a[1] == b[1] for a, b in zip(extents, extents[1:])):
        note(SHOULD, "neighbouring extents of equal status", "TX-BLOCKSTATUS-07")


def check_error(error: int) -> None:
    """Only eight error numbers may be sent."""
    if error not in nbd.ERRORS:
        raise Breach(
            "one of the protocol's error numbers",
            nbd.error_name(error),
            row="ERR-12",
            level=MUST,
        )


def _utf8(data: bytes) -> str:
    try:
        message = data.decode("utf-8")
    except UnicodeDecodeError:
        raise Breach("a message in UTF-8", data[:64].hex(" "), row="STR-04") from None
    if "\0" in message:
        raise Breach("a message without a NUL byte", repr(message), row="STR-01")
    return message
