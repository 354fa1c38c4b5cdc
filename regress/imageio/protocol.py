# SPDX-License-Identifier: BSD-3-Clause
"""HTTP/1.1 as far as the daemon speaks it: requests in, replies out.

No chunked bodies; a body is as long as Content-Length says. What of a body has not
been read is known, so that an error can be answered and the connection then closed.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit

LONGEST_LINE = 4096  # the daemon's own limit, of the request line
LONGEST_HEADER = 65536
MOST_HEADERS = 100
LONGEST_JSON = 1 << 20


class HTTPError(Exception):
    """A request is refused: one line says why, to the client and in the log."""

    def __init__(
        self,
        status: int,
        text: str,
        close: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(text)
        self.status, self.text, self.close = status, text, close
        self.headers = dict(headers or {})


class Disconnected(Exception):
    """The client has gone, or is to be left without an answer."""


class Request:
    """One request, its headers read and its body not yet."""

    def __init__(self, reader: BinaryIO, sock: socket.socket) -> None:
        self.reader, self.sock = reader, sock
        self.method = self.path = ""
        self.query: dict[str, list[str]] = {}
        self.headers: dict[str, str] = {}
        self.length: int | None = None
        self.unread = 0
        self.close = False  # the connection, after the answer

    def parse(self) -> bool:
        """Reads the head; False when the client has closed in between."""
        line = self.reader.readline(LONGEST_LINE + 1)
        if not line:
            return False
        if len(line) > LONGEST_LINE:
            raise HTTPError(414, f"Request line over {LONGEST_LINE} bytes", close=True)
        words = line.decode("latin-1").split()
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise HTTPError(400, f"Bad request line: {line!r}", close=True)
        self.method, target, version = words
        parts = urlsplit(target)
        self.path = unquote(parts.path)
        self.query = parse_qs(parts.query, keep_blank_values=True)
        self._parse_headers()
        self.close = (
            version == "HTTP/1.0"
            or self.headers.get("connection", "").lower() == "close"
            or self.query.get("close") == ["y"]
        )
        length = self.headers.get("content-length")
        if length is not None:
            if not (length.isascii() and length.isdigit() and len(length) < 20):
                raise HTTPError(400, f"Invalid Content-Length: {length!r}", close=True)
            self.length = self.unread = int(length)
        if self.headers.get("expect", "").lower() == "100-continue":
            # before anything is looked at, as the daemon does
            self.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def _parse_headers(self) -> None:
        for _ in range(MOST_HEADERS + 1):
            line = self.reader.readline(LONGEST_HEADER + 1)
            if len(line) > LONGEST_HEADER:
                raise HTTPError(431, "Header too long", close=True)
            if line in (b"\r\n", b"\n"):
                return
            if not line.endswith(b"\n"):
                raise Disconnected("in the headers")
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon:
                raise HTTPError(400, f"Bad header: {line!r}", close=True)
            self.headers[name.strip().lower()] = value.strip()
        raise HTTPError(431, "Too many headers", close=True)

    def read_into(self, buffer: memoryview) -> int:
        """Fills the buffer, or as much as the body has; at its end 0."""
        buffer = buffer[: self.unread]
        if not buffer:
            return 0
        done: int = self.reader.readinto(buffer)  # type: ignore[attr-defined]
        if done < len(buffer):
            raise Disconnected(f"{self.unread - done} bytes before the body's end")
        self.unread -= done
        return done

    def json(self) -> Any:
        if not self.length:
            raise HTTPError(400, "A JSON body is required")
        if self.length > LONGEST_JSON:
            raise HTTPError(400, f"JSON over {LONGEST_JSON} bytes")
        body = bytearray(self.length)
        self.read_into(memoryview(body))
        try:
            return json.loads(body)
        except ValueError as error:
            raise HTTPError(400, f"Invalid JSON: {error}") from None

    def flag(self, name: str, default: bool) -> bool:
        """A parameter of the query that is y or n."""
        value = self.query.get(name, ["y" if default else "n"])[-1]
        if value not in ("y", "n"):
            raise HTTPError(400, f"Invalid {name}: {value!r}, expected y or n")
        return value == "y"


def head(status: int, length: int, close: bool, headers: Mapping[str, str]) -> bytes:
    reason = HTTPStatus(status).phrase
    lines = [f"HTTP/1.1 {status} {reason}", f"Content-Length: {length}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += ["Connection: close"] if close else []
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def reply(
    request: Request,
    status: int = 200,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> None:
    message = head(status, len(body), request.close, headers or {}) + body
    request.sock.sendall(message)


def reply_json(request: Request, value: Any, headers: Mapping[str, str]) -> None:
    kind = {"Content-Type": "application/json"}
    reply(request, 200, json.dumps(value).encode() + b"\n", {**headers, **kind})


def reply_error(request: Request, error: HTTPError) -> None:
    headers = {"Content-Type": "text/plain; charset=UTF-8", **error.headers}
    # what has not been read of the body cannot be told from the next request
    request.close = request.close or error.close or request.unread > 0
    reply(request, error.status, f"{error.text}\n".encode(), headers)
