# SPDX-License-Identifier: BSD-3-Clause
"""What a server says it can do."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from . import nbd

_FLAG = {
    "flush": nbd.SEND_FLUSH,
    "fua": nbd.SEND_FUA,
    "trim": nbd.SEND_TRIM,
    "write-zeroes": nbd.SEND_WRITE_ZEROES,
    "df": nbd.SEND_DF,
    "multi-conn": nbd.CAN_MULTI_CONN,
    "cache": nbd.SEND_CACHE,
    "fast-zero": nbd.SEND_FAST_ZERO,
}


@dataclass
class Profile:
    """The answers of one server in one mode, for its default export."""

    handshake_flags: int = 0
    size: int = 0
    flags: int = 0
    minimum: int = 1
    preferred: int = 4096
    maximum: int = nbd.DEFAULT_MAXIMUM
    block_size: bool = False
    structured: bool = False
    extended: bool = False
    contexts: list[str] = field(default_factory=list)
    exports: list[str] = field(default_factory=list)
    list: bool = False
    info: bool = False
    tls: str = "none"

    def has(self, word: str) -> bool:
        if word.startswith("no-"):
            return not self.has(word[3:])
        if word in _FLAG:
            return bool(self.flags & _FLAG[word])
        return {
            "writable": not self.flags & nbd.READ_ONLY,
            "readonly": bool(self.flags & nbd.READ_ONLY),
            "structured": self.structured,
            "extended": self.extended,
            "list": self.list,
            "info": self.info,
            "tls": self.tls != "none",
            "block-size": self.block_size,
            "parallel": True,
        }[word]

    def to_json(self) -> dict[str, object]:
        data = asdict(self)
        data["flag_names"] = nbd.flag_names(self.flags)
        return data
