# SPDX-License-Identifier: BSD-3-Clause
"""What a case needs from a server: "trim", "size>=1024", "meta:base:allocation"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Iterable

from .errors import KitError

if TYPE_CHECKING:
    from .profile import Profile

#: word -> (what a reader is told, how a profile answers)
_FLAG_WORDS = {
    "flush": "FLUSH",
    "fua": "FUA",
    "trim": "TRIM",
    "write-zeroes": "WRITE_ZEROES",
    "df": "DF",
    "multi-conn": "CAN_MULTI_CONN",
    "cache": "CACHE",
    "fast-zero": "FAST_ZERO",
}
_WORDS = {
    "writable": "a writable export",
    "readonly": "a read-only export",
    "stores": "an export that keeps what is written",
    "structured": "structured replies",
    "extended": "extended headers",
    "no-extended": "a server without extended headers",
    "list": "LIST",
    "info": "INFO and GO",
    "tls": "TLS",
    "no-tls": "a server without TLS",
    "no-write-zeroes": "an export without WRITE_ZEROES",
    "no-fast-zero": "an export without FAST_ZERO",
    "no-fua": "an export without FUA",
    "no-trim": "an export without TRIM",
    "no-cache": "an export without CACHE",
    "block-size": "block sizes",
    "default-sizes": "the default block sizes, which need no asking for",
    "parallel": "requests that run side by side",
} | {word: name for word, name in _FLAG_WORDS.items()}
_COMPARE = re.compile(r"(size|minimum|maximum)(>=|<=|>|<|=)(\d+)([KMG]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Need:
    word: str

    @property
    def of_the_program(self) -> bool:
        """Whether each server that one program becomes has it, or none."""
        return self.word in ("structured", "extended", "list", "info")

    def missing(self, profile: "Profile") -> str | None:
        """None when the profile has it, else the reason for N/A."""
        if self.word.startswith("meta:"):
            context = self.word[5:]
            have = context in profile.contexts
            return None if have else f"the server does not offer {context}"
        if found := _COMPARE.fullmatch(self.word):
            return _compare(found, profile)
        if profile.has(self.word):
            return None
        return f"the server does not offer {_WORDS[self.word]}"


def _compare(found: re.Match[str], profile: "Profile") -> str | None:
    key, operator, number, unit = found.groups()
    limit = int(number) * _UNITS[unit]
    value = getattr(profile, key)
    holds = {
        ">=": value >= limit,
        "<=": value <= limit,
        ">": value > limit,
        "<": value < limit,
        "=": value == limit,
    }[operator]
    return None if holds else f"{key} is {value}, the case needs {found.group()}"


def parse_needs(needs: str | Iterable[str], where: str) -> tuple[Need, ...]:
    words = needs.split() if isinstance(needs, str) else list(needs)
    for word in words:
        if word in _WORDS or word.startswith("meta:") or _COMPARE.fullmatch(word):
            continue
        known = ", ".join(sorted(_WORDS))
        raise KitError(f"{where}: unknown need {word!r}; expected one of {known}")
    return tuple(Need(word) for word in words)
