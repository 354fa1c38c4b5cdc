# SPDX-License-Identifier: BSD-3-Clause
"""The conversation of a case, step by step: what the replay file holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Iterable

from . import __version__

#: How much of what a server sent is kept of one step.
KEEP_RECEIVED = 4096
#: Bytes of a payload that are shown before it is looked at for repetition.
_PLAIN = 1024


def encode(data: bytes) -> dict[str, object]:
    """Bytes as JSON: hex, and for long uniform payloads hex repeated."""
    if len(data) > _PLAIN:
        for head in (0, 16, 28):
            unit = data[head : head + 8]
            body = len(data) - head
            if body % 8 == 0 and data[head:] == unit * (body // 8):
                return {
                    "hex": data[:head].hex(),
                    "then": unit.hex(),
                    "times": body // 8,
                }
    return {"hex": data.hex()}


def decode(step: dict[str, object]) -> bytes:
    """The bytes that `encode` was given."""
    data = bytes.fromhex(str(step.get("hex", "")))
    if "then" in step:
        data += bytes.fromhex(str(step["then"])) * int(str(step["times"]))
    return data


class Transcript:
    """Steps in the order in which they happened, over all connections of a case."""

    def __init__(self) -> None:
        self.steps: list[dict[str, object]] = []
        self._conns = 0

    def connection(self) -> int:
        number = self._conns
        self._conns += 1
        return number

    def sent(self, conn: int, data: bytes, text: str) -> None:
        self._add(conn, "send", text, **encode(data))

    def received(self, conn: int, data: bytes, text: str, unit: str) -> None:
        extra: dict[str, object] = {"unit": unit}
        if len(data) > KEEP_RECEIVED:
            extra["length"] = len(data)
            data = data[:KEEP_RECEIVED]
        self._add(conn, "recv", text, hex=data.hex(), **extra)

    def expected(self, conn: int, text: str, patterns: Iterable[str] = ()) -> None:
        """What has to come next; patterns are hex, with .. for any byte."""
        first, *rest = list(patterns) or [""]
        extra: dict[str, object] = {"or": rest} if rest else {}
        self._add(conn, "expect", text, hex=first, **extra)

    def closed(self, conn: int, text: str) -> None:
        self._add(conn, "close", text)

    def tls(self, conn: int, text: str) -> None:
        self._add(conn, "tls", text)

    def _add(self, conn: int, direction: str, text: str, **more: object) -> None:
        self.steps.append({"conn": conn, "dir": direction, **more, "text": text})

    def last_sent(self) -> str:
        """What was sent last, in words: the head of every failure message."""
        texts = [str(s["text"]) for s in self.steps if s["dir"] == "send"]
        return texts[-1] if texts else "nothing"

    def write(self, path: Path, head: dict[str, object]) -> None:
        lines = [{"nbdspec-replay": 1, "kit": __version__, **head}, *self.steps]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            for line in lines:
                file.write(json.dumps(line) + "\n")
