# SPDX-License-Identifier: BSD-3-Clause
"""Bytes of the protocol, as plain functions: nothing is checked, anything goes."""

from __future__ import annotations

import struct
from typing import Iterable

from . import nbd


def text(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def string(value: str | bytes) -> bytes:
    """A 32-bit length and the bytes."""
    data = text(value)
    return struct.pack(">I", len(data)) + data


def option(
    number: int,
    data: bytes = b"",
    *,
    length: int | None = None,
    magic: int = nbd.IHAVEOPT,
) -> bytes:
    announced = len(data) if length is None else length
    return struct.pack(">QII", magic, number, announced) + data


def go_payload(name: str | bytes = "", infos: Iterable[int] = ()) -> bytes:
    """What INFO and GO carry: the name, then the kinds of information asked for."""
    wanted = list(infos)
    return (
        string(name)
        + struct.pack(">H", len(wanted))
        + b"".join(struct.pack(">H", info) for info in wanted)
    )


def meta_payload(name: str | bytes = "", queries: Iterable[str | bytes] = ()) -> bytes:
    """What LIST_META_CONTEXT and SET_META_CONTEXT carry."""
    wanted = list(queries)
    return (
        string(name)
        + struct.pack(">I", len(wanted))
        + b"".join(string(query) for query in wanted)
    )


def request(
    command: int,
    offset: int = 0,
    length: int = 0,
    *,
    flags: int = 0,
    cookie: int = 0,
    magic: int = nbd.REQUEST_MAGIC,
) -> bytes:
    return struct.pack(">IHHQQI", magic, flags, command, cookie, offset, length)


def extended_request(
    command: int,
    offset: int = 0,
    length: int = 0,
    *,
    flags: int = 0,
    cookie: int = 0,
    magic: int = nbd.EXTENDED_REQUEST_MAGIC,
) -> bytes:
    """A request with an extended header: 32 bytes, the length has 64 bits."""
    return struct.pack(">IHHQQQ", magic, flags, command, cookie, offset, length)


def status_payload(length: int, contexts: Iterable[int]) -> bytes:
    """What BLOCK_STATUS carries with PAYLOAD_LEN: its range's length, and ids."""
    wanted = list(contexts)
    return struct.pack(f">Q{len(wanted)}I", length, *wanted)


_BLOCK = 1 << 16
#: The pattern of the first block, whose offsets fill the two last bytes of eight.
_FIRST_BLOCK = struct.pack(f">{_BLOCK // 8}Q", *range(0, _BLOCK, 8))


def _pattern_block(start: int) -> bytes:
    """64 KiB of the pattern: the high bytes of all its offsets are those of START."""
    block = bytearray(_FIRST_BLOCK)
    for place, byte in enumerate(start.to_bytes(8, "big")):
        if byte:
            block[place::8] = bytes((byte,)) * (_BLOCK // 8)
    return bytes(block)


def pattern(offset: int, length: int) -> bytes:
    """Bytes of which each aligned eight hold their own offset, big-endian."""
    first = offset // _BLOCK * _BLOCK
    whole = b"".join(map(_pattern_block, range(first, offset + length, _BLOCK)))
    return whole[offset - first :][:length]
