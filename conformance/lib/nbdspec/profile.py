# SPDX-License-Identifier: BSD-3-Clause
"""What a server says it can do."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from . import nbd
from .errors import BadFile

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
#: What a client divides by is not nothing.
_LEAST = {"minimum": 1, "preferred": 1, "maximum": 1}


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
    #: what is written can be read back
    stores: bool = True

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
            "default-sizes": self.minimum == 1 and self.maximum >= nbd.DEFAULT_MAXIMUM,
            "parallel": True,
            "stores": self.stores,
        }[word]

    def to_json(self) -> dict[str, object]:
        data = asdict(self)
        data["flag_names"] = nbd.flag_names(self.flags)
        return data

    def to_toml(self) -> str:
        """The form that --profile reads."""
        lines = []
        for key, value in asdict(self).items():
            if key in ("flags", "handshake_flags"):
                names = nbd.flag_names(value) if key == "flags" else ""
                lines.append(f"{key} = {value:#06x}" + (f"  # {names}" if names else ""))
            else:
                lines.append(f"{key} = {_toml(value)}")
        return "\n".join(lines) + "\n"

    def differences(self, other: "Profile") -> list[str]:
        """Where another set of answers differs, in words."""
        found = []
        for key, mine in asdict(self).items():
            theirs = getattr(other, key)
            if key in ("exports", "contexts"):
                mine, theirs = sorted(mine), sorted(theirs)
            if mine != theirs:
                found.append(f"{key} was {_toml(mine)} and is {_toml(theirs)}")
        return found


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + "".join(_escaped(c) for c in value) + '"'
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return str(value)


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else f"\\u{ord(char):04x}"


def read_profile(path: Path) -> Profile:
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFile(f"{path}: {error}; expected TOML from nbdspec probe") from None
    plain = asdict(Profile())
    known = {field.name for field in fields(Profile)}
    for key, value in data.items():
        if key not in known:
            allowed = ", ".join(sorted(known))
            raise BadFile(f"{path}: key {key!r} is unknown; expected one of {allowed}")
        if type(value) is not type(plain[key]):
            kind = type(plain[key]).__name__
            raise BadFile(f"{path}: key {key!r}: expected a value of type {kind}")
        if isinstance(value, list) and not all(isinstance(v, str) for v in value):
            raise BadFile(f"{path}: key {key!r}: expected strings")
        if type(value) is int and value < _LEAST.get(key, 0):
            least = _LEAST.get(key, 0)
            raise BadFile(f"{path}: key {key!r}: expected {least} or more")
    return Profile(**data)
