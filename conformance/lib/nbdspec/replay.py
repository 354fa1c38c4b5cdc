# SPDX-License-Identifier: BSD-3-Clause
"""Sends a recorded conversation again, and says whether it goes as it has to.

Needs neither pytest nor libnbd: a replay file and this module can go with a report.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from . import nbd
from .clock import Clock
from .conn import Conn
from .errors import BadFile
from .targets.base import Server
from .transcript import Transcript, decode
from .verdict import Breach

DIRECTIONS = ("send", "recv", "expect", "close", "tls")
#: No step has more bytes, or more repetitions of eight.
_LARGEST = 1 << 27
_PATTERN = re.compile(r"[0-9a-fA-F. ]*")


@dataclass
class Replay:
    head: dict
    steps: list[dict]


def read(path: Path) -> Replay:
    try:
        lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from None
    parsed = [_object(f"{path}:{number}", line) for number, line in enumerate(lines, 1)]
    if parsed[0].get("nbdspec-replay") != 1:
        raise BadFile(f'{path}:1: expected {{"nbdspec-replay": 1, ...}}')
    if not isinstance(parsed[0].get("mode", {}), dict):
        raise BadFile(f"{path}:1: key mode: expected an object")
    for number, step in enumerate(parsed[1:], 2):
        _check(f"{path}:{number}", step)
    return Replay(parsed[0], parsed[1:])


def _object(where: str, line: bytes) -> dict:
    try:
        found = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{where}: {error}; expected a JSON object") from None
    if not isinstance(found, dict):
        raise BadFile(f"{where}: expected a JSON object, not {line[:40].decode()}")
    return found


def _check(where: str, step: dict) -> None:
    if step.get("dir") not in DIRECTIONS:
        raise BadFile(f"{where}: key dir: expected one of {', '.join(DIRECTIONS)}")
    if not _number(step.get("conn")):
        raise BadFile(f"{where}: key conn: expected a number")
    for key in ("length", "times"):
        if key in step and not (_number(step[key]) and step[key] <= _LARGEST):
            raise BadFile(f"{where}: key {key}: expected a number up to {_LARGEST}")
    if "then" in step and "times" not in step:
        raise BadFile(f"{where}: key times is missing")
    step.setdefault("text", "")
    step.setdefault("hex", "")
    if step["dir"] == "expect":
        patterns = [step["hex"], *_list(step.get("or", []))]
        if not all(isinstance(p, str) and _PATTERN.fullmatch(p) for p in patterns):
            raise BadFile(f"{where}: key hex or or: expected hex digits and dots")
        return
    try:
        decode(step)
    except ValueError as error:
        raise BadFile(f"{where}: key hex: {error}") from None


def _number(value: object) -> bool:
    return type(value) is int and value >= 0


def _list(value: object) -> list:
    return value if isinstance(value, list) else [value]


class Player:
    """Plays the client's part; reads what the server says message by message."""

    def __init__(self, server: Server, tell: Callable[[str], None]) -> None:
        self._server = server
        self._tell = tell
        self._clock = Clock()
        self._conns: dict[int, Conn] = {}
        self._want: dict[int, list[str]] = {}
        #: connections on which the end of the stream was due
        self._ended: set[int] = set()
        self.misses = 0

    def play(self, replay: Replay) -> int:
        """How many expectations were not met."""
        for step in replay.steps:
            number = step["conn"]
            try:
                if number not in self._conns:
                    self._conns[number] = self._server.connect(Transcript())
                getattr(self, "_" + step["dir"])(number, self._conns[number], step)
            except (OSError, Breach) as error:
                came = error.came if isinstance(error, Breach) else error
                self._tell(f"{number} MISSED  the server is gone: {came}")
                self.misses += 1
                break
        for conn in self._conns.values():
            conn.close()
        return self.misses

    def _send(self, number: int, conn: Conn, step: dict) -> None:
        data = decode(step)
        self._tell(f"{number} send    {step['text']}")
        if data:
            conn.send(data, str(step["text"]))

    def _expect(self, number: int, conn: Conn, step: dict) -> None:
        if str(step["text"]).startswith("end of stream"):
            self._tell(f"{number} expect  {step['text']}")
            self._expect_end(number, conn)
            return
        patterns = [step["hex"], *step.get("or", [])]
        self._want[number] = [p for p in patterns if p]
        self._tell(f"{number} expect  {step['text']}")

    def _expect_end(self, number: int, conn: Conn) -> None:
        try:
            rest = conn.drain(all=False)
        except Breach as breach:
            came = breach.came
        else:
            came = f"{len(rest)} bytes: {rest[:40].hex(' ')}" if rest else ""
        self._tell(f"{number} came    {came or 'end of stream'}")
        self.misses += bool(came)
        self._ended.add(number)

    def _recv(self, number: int, conn: Conn, step: dict) -> None:
        if number in self._ended:
            return
        came, data = self._message(conn, step)
        wanted = self._want.pop(number, None)
        then = str(step["text"])
        self._tell(f"{number} came    {came}")
        if came != then:
            self._tell(f"{number} before  {then}")
        if wanted and not any(matches(p, data) for p in wanted):
            self.misses += 1
            self._tell(f"{number} MISSED  {data[:40].hex(' ') or came}")

    def _close(self, number: int, conn: Conn, step: dict) -> None:
        self._tell(f"{number} close   {step['text']}")
        if "shuts" in str(step["text"]):
            conn.shut()
        else:
            conn.close()

    def _tls(self, number: int, conn: Conn, step: dict) -> None:
        raise BadFile("a conversation over TLS cannot be sent again")

    def _message(self, conn: Conn, step: dict) -> tuple[str, bytes]:
        """One message of the server, in words and bytes."""
        unit = str(step.get("unit", "bytes"))
        conn.allow(int(step.get("length", 0)))
        try:
            if unit == "eof":
                rest = conn.drain()
                return (f"{len(rest)} bytes more" if rest else "end of stream"), rest
            return _READERS.get(unit, _bytes)(conn, step)
        except Breach as breach:
            return breach.came, b""


def _bytes(conn: Conn, step: dict) -> tuple[str, bytes]:
    count = step.get("length", len(str(step.get("hex", ""))) // 2)
    data = conn.read(count, "bytes as before")
    before = bytes.fromhex(str(step.get("hex", "")))
    same = data[: len(before)] == before
    return (str(step["text"]) if same else f"other bytes: {data[:32].hex(' ')}"), data


def _greeting(conn: Conn, _step: dict) -> tuple[str, bytes]:
    data = conn.read(18, "the greeting")
    flags = int.from_bytes(data[16:], "big")
    return f"greeting, handshake flags {flags:#x}", data


def _option_reply(conn: Conn, _step: dict) -> tuple[str, bytes]:
    from .handshake import OptionReply

    head = conn.read(20, "an option reply")
    magic, number, kind, length = struct.unpack(">QIII", head)
    if magic != nbd.REPLY_MAGIC or length > 1 << 20:
        return f"no option reply: {head.hex(' ')}", head
    data = conn.read(length, "its data") if length else b""
    return str(OptionReply(number, kind, data)), head + data


def _reply(conn: Conn, step: dict) -> tuple[str, bytes]:
    """A simple reply or a chunk, whichever comes."""
    magic = conn.read(4, "a reply")
    if int.from_bytes(magic, "big") == nbd.CHUNK_MAGIC:
        return _chunk_after(conn, magic)
    if int.from_bytes(magic, "big") == nbd.EXTENDED_CHUNK_MAGIC:
        return _extended_chunk_after(conn, magic)
    head = magic + conn.read(12, "a reply")
    error = int.from_bytes(head[4:8], "big")
    before = bytes.fromhex(str(step.get("hex", "")))
    length = int(step.get("length", len(before))) - 16
    had_error = before[4:8] not in (b"", bytes(4))
    data = b""
    if error == 0 and length > 0 and not had_error:
        data = conn.read(length, "its data")
    if head + data == before:
        return str(step["text"]), head + data
    return f"simple reply {nbd.error_name(error)}, {len(data)} bytes", head + data


def _chunk_after(conn: Conn, magic: bytes) -> tuple[str, bytes]:
    from .chunks import Chunk

    head = magic + conn.read(16, "a chunk")
    _, flags, kind, cookie, length = struct.unpack(">IHHQI", head)
    payload = conn.read(length, "its payload") if length else b""
    return str(Chunk(flags, kind, cookie, payload)), head + payload


def _extended_chunk_after(conn: Conn, magic: bytes) -> tuple[str, bytes]:
    from .chunks import Chunk

    head = magic + conn.read(28, "a chunk")
    _, flags, kind, cookie, offset, length = struct.unpack(">IHHQQQ", head)
    payload = conn.read(length, "its payload") if length else b""
    return str(Chunk(flags, kind, cookie, payload, offset)), head + payload


_READERS: dict[str, Callable[[Conn, dict], tuple[str, bytes]]] = {
    "greeting": _greeting,
    "option-reply": _option_reply,
    "reply": _reply,
    "chunk": _reply,
    "export": _bytes,
    "bytes": _bytes,
    "incomplete": _bytes,
}


def matches(pattern: str, data: bytes) -> bool:
    """Whether bytes begin as a pattern says: hex, any blanks, a dot for any digit."""
    digits = pattern.replace(" ", "")
    return re.match(digits, data[: len(digits) // 2 + 1].hex()) is not None
