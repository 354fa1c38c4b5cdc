# SPDX-License-Identifier: BSD-3-Clause
"""One connection: bytes out, bytes in, all of them recorded."""

from __future__ import annotations

import random
import socket
import ssl
import time

from .clock import Clock
from .transcript import Transcript
from .verdict import Breach, Closed, Hang

CHOPS = ("no", "bytes", "segment", "random", "slow-read")

#: One byte a segment is kept up for this many bytes, then the rest goes in segments.
_BYTEWISE = 4096
_SEGMENT = 1448


class Chop:
    """How a connection cuts what it sends, and how it reads."""

    def __init__(self, way: str = "no", seed: int = 0) -> None:
        self.way = way
        self._random = random.Random(seed)

    @property
    def holds_back(self) -> bool:
        """True when sends wait until something is read: all in one segment."""
        return self.way == "segment"

    def cut(self, data: bytes) -> list[bytes]:
        if self.way == "bytes":
            head = [data[i : i + 1] for i in range(min(len(data), _BYTEWISE))]
            tail = range(_BYTEWISE, len(data), _SEGMENT)
            return head + [data[i : i + _SEGMENT] for i in tail]
        if self.way == "random":
            return self._at_random(data)
        return [data]

    def _at_random(self, data: bytes) -> list[bytes]:
        parts, at = [], 0
        while at < len(data):
            step = self._random.choice((1, 2, 3, 7, 16, 29, 500, _SEGMENT, 65536))
            parts.append(data[at : at + step])
            at += step
        return parts

    def take(self, wanted: int) -> int:
        """How much one recv may return."""
        return min(wanted, 7) if self.way == "slow-read" else wanted


class Conn:
    """A stream socket that knows what was expected of it."""

    def __init__(
        self, sock: socket.socket, transcript: Transcript, clock: Clock, chop: Chop
    ) -> None:
        self.sock = sock
        self.transcript = transcript
        self.number = transcript.connection()
        self._clock = clock
        self._chop = chop
        self._held: list[bytes] = []
        self._unit = bytearray()
        self._open = True
        #: True when TLS ended without close_notify
        self.ragged = False
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.settimeout(clock.limit)

    def send(self, data: bytes, text: str) -> None:
        """Sends bytes; a server that has gone away is found out by the next read."""
        self.transcript.sent(self.number, data, text)
        if self._chop.holds_back:
            self._held.append(data)
            return
        self._put(self._chop.cut(data))

    def flush(self) -> None:
        """Lets go of what was held back to make one segment."""
        if self._held:
            held, self._held = self._held, []
            self._put([b"".join(held)])

    def _put(self, parts: list[bytes]) -> None:
        try:
            for part in parts:
                self.sock.sendall(part)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            return
        except TimeoutError:
            raise Hang("the server to take what it is sent", "no progress") from None

    def allow(self, size: int) -> None:
        """What comes next may take as long as so many bytes need."""
        self.sock.settimeout(self._clock.limit_for(size))

    def read(self, count: int, expected: str) -> bytes:
        """Exactly count bytes, which become part of the unit being read."""
        self.flush()
        data = bytearray()
        while len(data) < count:
            try:
                part = self.sock.recv(self._chop.take(count - len(data)))
            except TimeoutError:
                self._cut_short(data)
                limit = self.sock.gettimeout() or 0.0
                seen = self._seen(count, data)
                raise Hang(expected, f"{seen} within {limit:.1f} s") from None
            except (ConnectionResetError, BrokenPipeError, ssl.SSLError) as error:
                self._cut_short(data)
                seen = self._seen(count, data)
                raise Closed(expected, f"{seen}, then {_reason(error)}") from None
            if not part:
                self._cut_short(data)
                seen = self._seen(count, data)
                raise Closed(expected, f"{seen}, then end of stream")
            data += part
        self._unit += data
        return bytes(data)

    def _seen(self, count: int, data: bytes) -> str:
        have = len(self._unit) + len(data)
        if not have:
            return "nothing"
        got = bytes(self._unit[-32:]) + bytes(data[:32])
        return f"{have} of {len(self._unit) + count} bytes ({got.hex(' ')})"

    def _cut_short(self, data: bytes) -> None:
        self._unit += data
        if self._unit:
            self.done("incomplete", "bytes")

    def done(self, text: str, unit: str) -> None:
        """Ends a unit of what was received, and says what it is."""
        self.transcript.received(self.number, bytes(self._unit), text, unit)
        self._unit.clear()

    def expect(self, text: str, *patterns: str) -> None:
        self.transcript.expected(self.number, text, patterns)

    def expect_closed(self, why: str) -> None:
        """The server has to close the connection, and send nothing before that."""
        self.expect(f"end of stream: {why}")
        rest = self.drain(all=False)
        if rest:
            raise Breach(
                f"the connection to be closed without a byte ({why})",
                f"{len(rest)} bytes: {rest[:64].hex(' ')}",
            )

    def drain(self, *, all: bool = True) -> bytes:
        """Everything up to the end of the stream; not all: up to the first bytes."""
        self.flush()
        rest = bytearray()
        while True:
            try:
                part = self.sock.recv(65536)
            except TimeoutError:
                limit = self.sock.gettimeout() or 0.0
                raise Hang(
                    "the server to close the connection",
                    f"{len(rest)} bytes and no end within {limit:.1f} s",
                ) from None
            except (ConnectionResetError, BrokenPipeError, ssl.SSLError) as error:
                self.ragged = isinstance(error, ssl.SSLError)
                part = b""
            if not part:
                break
            rest += part
            if not all:
                break
        if rest:
            self._unit += rest
            self.done("unexpected bytes", "bytes")
            if not all:
                return bytes(rest)
        self.transcript.received(self.number, b"", "end of stream", "eof")
        return bytes(rest)

    def start_tls(self, context: ssl.SSLContext, hostname: str | None) -> None:
        self.flush()
        try:
            self.sock = context.wrap_socket(
                self.sock, server_hostname=hostname, suppress_ragged_eofs=False
            )
        except TimeoutError:
            self._open = False
            raise Hang("a TLS handshake", "no progress") from None
        except OSError as error:  # ssl.SSLError is one; the socket is gone
            self._open = False
            raise Breach("a TLS handshake", str(error), row="TLS-13") from None
        self.transcript.tls(self.number, f"TLS: {self.sock.version()}")

    def shut(self) -> None:
        """No more will be sent; what comes can still be read."""
        self.flush()
        try:
            # Past ssl's own shutdown, which would forget about TLS.
            socket.socket.shutdown(self.sock, socket.SHUT_WR)
        except OSError:
            return
        self.transcript.closed(self.number, "the client shuts its sending side")

    def close(self, text: str = "the client closes") -> None:
        if self._open:
            self._open = False
            self.flush()
            self.transcript.closed(self.number, text)
            self.sock.close()

    @property
    def is_open(self) -> bool:
        return self._open

    def timed(self) -> "Stopwatch":
        return Stopwatch(self._clock)


class Stopwatch:
    """Measures a round trip for the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __enter__(self) -> None:
        self._start = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._clock.measured(time.monotonic() - self._start)


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionResetError):
        return "a reset"
    return str(error)
