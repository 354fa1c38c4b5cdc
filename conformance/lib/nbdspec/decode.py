# SPDX-License-Identifier: BSD-3-Clause
"""Turns a recorded stream into messages with words: for what libnbd sent and got."""

from __future__ import annotations

import struct

from . import nbd
from .chunks import Chunk, Request
from .handshake import OptionReply, option_words
from .transcript import Transcript


class Decoder:
    """Both directions of one connection, fed in the order in which bytes passed.

    A client speaks first of what the server answers, so its state is the server's.
    What does not parse goes into the transcript as plain bytes.
    """

    def __init__(self, transcript: Transcript, conn: int) -> None:
        self._transcript = transcript
        self._conn = conn
        self._out = bytearray()
        self._in = bytearray()
        self._sent_flags = False
        self._greeted = False
        self._zeroes = True
        self._option = 0
        self._transmission = False
        self._extended = False
        self._reads: dict[int, int] = {}
        self._structured = False

    def sent(self, data: bytes) -> None:
        self._out += data
        while self._take_sent():
            pass

    def received(self, data: bytes) -> None:
        self._in += data
        while self._take_received():
            pass

    def finish(self) -> None:
        """What is left over is no whole message."""
        if self._out:
            self._send(len(self._out), "incomplete")
        if self._in:
            self._recv(len(self._in), "incomplete", "incomplete")

    def _send(self, count: int, words: str) -> bool:
        data = bytes(self._out[:count])
        del self._out[:count]
        self._transcript.sent(self._conn, data, words)
        return True

    def _recv(self, count: int, words: str, unit: str) -> bool:
        data = bytes(self._in[:count])
        del self._in[:count]
        self._transcript.received(self._conn, data, words, unit)
        return True

    # What the client says

    def _take_sent(self) -> bool:
        out = self._out
        if not self._sent_flags:
            if len(out) < 4:
                return False
            (flags,) = struct.unpack(">I", out[:4])
            self._sent_flags = True
            self._zeroes = not flags & nbd.NO_ZEROES
            return self._send(4, f"client flags {flags:#x}")
        if self._transmission:
            return self._take_request()
        if len(out) < 16:
            return False
        magic, number, length = struct.unpack(">QII", out[:16])
        if magic != nbd.IHAVEOPT or len(out) < 16 + length:
            return False
        self._option = number
        data = bytes(out[16 : 16 + length])
        words = f"option {nbd.option_name(number)}{option_words(number, data)}"
        return self._send(16 + length, words)

    def _take_request(self) -> bool:
        out = self._out
        size = 32 if self._extended else 28
        if len(out) < size:
            return False
        form = ">IHHQQQ" if self._extended else ">IHHQQI"
        magic, flags, command, cookie, offset, length = struct.unpack(form, out[:size])
        wanted = nbd.EXTENDED_REQUEST_MAGIC if self._extended else nbd.REQUEST_MAGIC
        if magic != wanted:
            return False
        payload = length if command == nbd.WRITE else 0
        if self._extended and not flags & nbd.PAYLOAD_LEN:
            payload = 0
        if len(out) < size + payload:
            return False
        if command == nbd.READ:
            self._reads[cookie] = length
        words = str(Request(command, offset, length, flags, cookie))
        if payload:
            words += f", {payload} bytes of payload"
        return self._send(size + payload, words)

    # What the server says

    def _take_received(self) -> bool:
        if not self._greeted:
            if len(self._in) < 18:
                return False
            self._greeted = True
            (flags,) = struct.unpack(">H", self._in[16:18])
            return self._recv(18, f"greeting, handshake flags {flags:#x}", "greeting")
        if self._transmission:
            return self._take_reply()
        if self._option == nbd.EXPORT_NAME:
            return self._take_export()
        return self._take_option_reply()

    def _take_export(self) -> bool:
        count = 10 + (124 if self._zeroes else 0)
        if len(self._in) < count:
            return False
        size, flags = struct.unpack(">QH", self._in[:10])
        self._transmission = True
        words = f"size {size}, flags {nbd.flag_names(flags)}"
        return self._recv(count, words, "export")

    def _take_option_reply(self) -> bool:
        if len(self._in) < 20:
            return False
        magic, number, kind, length = struct.unpack(">QIII", self._in[:20])
        if magic != nbd.REPLY_MAGIC or len(self._in) < 20 + length:
            return False
        answer = OptionReply(number, kind, bytes(self._in[20 : 20 + length]))
        if kind == nbd.ACK:
            self._transmission = number == nbd.GO
            self._extended = self._extended or number == nbd.EXTENDED_HEADERS
            self._structured = self._structured or number == nbd.STRUCTURED_REPLY
        return self._recv(20 + length, str(answer), "option-reply")

    def _take_reply(self) -> bool:
        if len(self._in) < 4:
            return False
        (magic,) = struct.unpack(">I", self._in[:4])
        if magic == nbd.SIMPLE_MAGIC:
            return self._take_simple()
        if magic == nbd.CHUNK_MAGIC:
            return self._take_chunk(">IHHQI", 20)
        if magic == nbd.EXTENDED_CHUNK_MAGIC:
            return self._take_chunk(">IHHQQQ", 32)
        return False

    def _take_simple(self) -> bool:
        if len(self._in) < 16:
            return False
        error, cookie = struct.unpack(">IQ", self._in[4:16])
        length = self._reads.pop(cookie, 0) if not error else 0
        if len(self._in) < 16 + length:
            if not error:
                self._reads[cookie] = length
            return False
        words = f"simple reply {nbd.error_name(error)}"
        if length:
            words += f" with {length} bytes of data"
        return self._recv(16 + length, words, "reply")

    def _take_chunk(self, form: str, size: int) -> bool:
        if len(self._in) < size:
            return False
        fields = struct.unpack(form, self._in[:size])
        length = fields[-1]
        if len(self._in) < size + length:
            return False
        payload = bytes(self._in[size : size + length])
        words = str(Chunk(fields[1], fields[2], fields[3], payload))
        return self._recv(size + length, words, "chunk")
