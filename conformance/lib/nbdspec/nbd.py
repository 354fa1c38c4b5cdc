# SPDX-License-Identifier: BSD-3-Clause
"""The protocol's numbers, and their names in both directions."""

from __future__ import annotations

import errno as _errno

NBDMAGIC = 0x4E42444D41474943
IHAVEOPT = 0x49484156454F5054
OLDSTYLE_MAGIC = 0x00420281861253
REPLY_MAGIC = 0x0003E889045565A9
REQUEST_MAGIC = 0x25609513
SIMPLE_MAGIC = 0x67446698
CHUNK_MAGIC = 0x668E33EF
EXTENDED_REQUEST_MAGIC = 0x21E41C71
EXTENDED_CHUNK_MAGIC = 0x6E8A278C
RESERVED_MAGICS = (
    0x12560953,
    0x96744668,
    0x25609514,
    EXTENDED_REQUEST_MAGIC,
    EXTENDED_CHUNK_MAGIC,
)

# Handshake and client flags
FIXED_NEWSTYLE = 1
NO_ZEROES = 2

# Options
EXPORT_NAME = 1
ABORT = 2
LIST = 3
PEEK_EXPORT = 4
STARTTLS = 5
INFO = 6
GO = 7
STRUCTURED_REPLY = 8
LIST_META_CONTEXT = 9
SET_META_CONTEXT = 10
EXTENDED_HEADERS = 11

OPTIONS = {
    EXPORT_NAME: "EXPORT_NAME",
    ABORT: "ABORT",
    LIST: "LIST",
    PEEK_EXPORT: "PEEK_EXPORT",
    STARTTLS: "STARTTLS",
    INFO: "INFO",
    GO: "GO",
    STRUCTURED_REPLY: "STRUCTURED_REPLY",
    LIST_META_CONTEXT: "LIST_META_CONTEXT",
    SET_META_CONTEXT: "SET_META_CONTEXT",
    EXTENDED_HEADERS: "EXTENDED_HEADERS",
}

# Option replies
ACK = 1
REP_SERVER = 2
REP_INFO = 3
REP_META_CONTEXT = 4
ERR_BIT = 1 << 31
ERR_UNSUP = ERR_BIT | 1
ERR_POLICY = ERR_BIT | 2
ERR_INVALID = ERR_BIT | 3
ERR_PLATFORM = ERR_BIT | 4
ERR_TLS_REQD = ERR_BIT | 5
ERR_UNKNOWN = ERR_BIT | 6
ERR_SHUTDOWN = ERR_BIT | 7
ERR_BLOCK_SIZE_REQD = ERR_BIT | 8
ERR_TOO_BIG = ERR_BIT | 9
ERR_EXT_HEADER_REQD = ERR_BIT | 10

REPLIES = {
    ACK: "ACK",
    REP_SERVER: "SERVER",
    REP_INFO: "INFO",
    REP_META_CONTEXT: "META_CONTEXT",
    ERR_UNSUP: "ERR_UNSUP",
    ERR_POLICY: "ERR_POLICY",
    ERR_INVALID: "ERR_INVALID",
    ERR_PLATFORM: "ERR_PLATFORM",
    ERR_TLS_REQD: "ERR_TLS_REQD",
    ERR_UNKNOWN: "ERR_UNKNOWN",
    ERR_SHUTDOWN: "ERR_SHUTDOWN",
    ERR_BLOCK_SIZE_REQD: "ERR_BLOCK_SIZE_REQD",
    ERR_TOO_BIG: "ERR_TOO_BIG",
    ERR_EXT_HEADER_REQD: "ERR_EXT_HEADER_REQD",
}

# Information types
INFO_EXPORT = 0
INFO_NAME = 1
INFO_DESCRIPTION = 2
INFO_BLOCK_SIZE = 3

INFOS = {
    INFO_EXPORT: "EXPORT",
    INFO_NAME: "NAME",
    INFO_DESCRIPTION: "DESCRIPTION",
    INFO_BLOCK_SIZE: "BLOCK_SIZE",
}

# Transmission flags
HAS_FLAGS = 1 << 0
READ_ONLY = 1 << 1
SEND_FLUSH = 1 << 2
SEND_FUA = 1 << 3
ROTATIONAL = 1 << 4
SEND_TRIM = 1 << 5
SEND_WRITE_ZEROES = 1 << 6
SEND_DF = 1 << 7
CAN_MULTI_CONN = 1 << 8
SEND_RESIZE = 1 << 9
SEND_CACHE = 1 << 10
SEND_FAST_ZERO = 1 << 11
BLOCK_STATUS_PAYLOAD = 1 << 12

FLAGS = {
    HAS_FLAGS: "HAS_FLAGS",
    READ_ONLY: "READ_ONLY",
    SEND_FLUSH: "SEND_FLUSH",
    SEND_FUA: "SEND_FUA",
    ROTATIONAL: "ROTATIONAL",
    SEND_TRIM: "SEND_TRIM",
    SEND_WRITE_ZEROES: "SEND_WRITE_ZEROES",
    SEND_DF: "SEND_DF",
    CAN_MULTI_CONN: "CAN_MULTI_CONN",
    SEND_RESIZE: "SEND_RESIZE",
    SEND_CACHE: "SEND_CACHE",
    SEND_FAST_ZERO: "SEND_FAST_ZERO",
    BLOCK_STATUS_PAYLOAD: "BLOCK_STATUS_PAYLOAD",
}

# Commands
READ = 0
WRITE = 1
DISC = 2
FLUSH = 3
TRIM = 4
CACHE = 5
WRITE_ZEROES = 6
BLOCK_STATUS = 7
RESIZE = 8

COMMANDS = {
    READ: "READ",
    WRITE: "WRITE",
    DISC: "DISC",
    FLUSH: "FLUSH",
    TRIM: "TRIM",
    CACHE: "CACHE",
    WRITE_ZEROES: "WRITE_ZEROES",
    BLOCK_STATUS: "BLOCK_STATUS",
    RESIZE: "RESIZE",
}

#: Those that change the data.
WRITING = (WRITE, TRIM, WRITE_ZEROES)

# Command flags
FUA = 1 << 0
NO_HOLE = 1 << 1
DF = 1 << 2
REQ_ONE = 1 << 3
FAST_ZERO = 1 << 4
PAYLOAD_LEN = 1 << 5

COMMAND_FLAGS = {
    FUA: "FUA",
    NO_HOLE: "NO_HOLE",
    DF: "DF",
    REQ_ONE: "REQ_ONE",
    FAST_ZERO: "FAST_ZERO",
    PAYLOAD_LEN: "PAYLOAD_LEN",
}

# Chunks
DONE = 1
CHUNK_NONE = 0
CHUNK_DATA = 1
CHUNK_HOLE = 2
CHUNK_STATUS = 5
CHUNK_STATUS_EXT = 6
CHUNK_ERROR = 0x8001
CHUNK_ERROR_OFFSET = 0x8002

CHUNKS = {
    CHUNK_NONE: "NONE",
    CHUNK_DATA: "OFFSET_DATA",
    CHUNK_HOLE: "OFFSET_HOLE",
    CHUNK_STATUS: "BLOCK_STATUS",
    CHUNK_STATUS_EXT: "BLOCK_STATUS_EXT",
    CHUNK_ERROR: "ERROR",
    CHUNK_ERROR_OFFSET: "ERROR_OFFSET",
}

# base:allocation
STATE_HOLE = 1
STATE_ZERO = 2

# Error numbers: the only ones that may cross the wire (ERR-12)
EPERM = 1
EIO = 5
ENOMEM = 12
EINVAL = 22
ENOSPC = 28
EOVERFLOW = 75
ENOTSUP = 95
ESHUTDOWN = 108

ERRORS = {
    EPERM: "EPERM",
    EIO: "EIO",
    ENOMEM: "ENOMEM",
    EINVAL: "EINVAL",
    ENOSPC: "ENOSPC",
    EOVERFLOW: "EOVERFLOW",
    ENOTSUP: "ENOTSUP",
    ESHUTDOWN: "ESHUTDOWN",
}

# What a server has to take when it has not said anything else (SIZE-07)
DEFAULT_MAXIMUM = 33554432


def _named(table: dict[int, str], kind: str, value: int) -> str:
    return table.get(value, f"{kind} {value:#x}" if value > 255 else f"{kind} {value}")


def option_name(value: int) -> str:
    return _named(OPTIONS, "option", value)


def reply_name(value: int) -> str:
    return _named(REPLIES, "reply type", value)


def info_name(value: int) -> str:
    return _named(INFOS, "info", value)


def command_name(value: int) -> str:
    return _named(COMMANDS, "command", value)


def chunk_name(value: int) -> str:
    return _named(CHUNKS, "chunk type", value)


def error_name(value: int) -> str:
    """The name of an error on the wire; one that is not allowed keeps its number."""
    if value == 0:
        return "success"
    if value in ERRORS:
        return ERRORS[value]
    guess = _errno.errorcode.get(value)
    return f"error {value}" + (f" ({guess} on this machine)" if guess else "")


def _bits(table: dict[int, str], value: int) -> str:
    names = [name for bit, name in table.items() if value & bit]
    rest = value & ~sum(table)
    if rest:
        names.append(f"{rest:#x}")
    return "|".join(names) or "0"


def flag_names(value: int) -> str:
    return _bits(FLAGS, value)


def command_flag_names(value: int) -> str:
    return _bits(COMMAND_FLAGS, value)
