# SPDX-License-Identifier: BSD-3-Clause
"""A client of the daemon: a bounded pool of HTTP connections to one image.

Threads borrow a connection for each request. Data is sent and received in the
caller's own buffer. Python 3.9 or newer, for plugins use it.
"""

from __future__ import annotations

import http.client
import json
import queue
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

Connection = http.client.HTTPConnection
Reply = http.client.HTTPResponse


class Refused(Exception):
    """The daemon answered with an error; its own text is in this one's."""


class UnixConnection(Connection):
    """To a path, or after a NUL to a name of the abstract kind."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._socket_path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._socket_path)


class Client:
    def __init__(
        self,
        url: str,
        connections: int,
        timeout: float,
        cafile: str | None = None,
        insecure: bool = False,
        local: bool = False,
    ) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path
        self._timeout = timeout
        self._tls = None
        if parts.scheme == "https":
            self._tls = ssl.create_default_context(cafile=cafile)
            if insecure:
                self._tls.check_hostname = False
                self._tls.verify_mode = ssl.CERT_NONE
        self._unix_socket: str | None = None
        if parts.scheme == "http+unix":  # the usual way to write it: %2F for /
            self._unix_socket = unquote(parts.netloc)
        #: what the daemon last said before a connection ended, if it did
        self._refusals: dict[Connection, str] = {}
        answer = self._options()
        self.features: list[str] = answer.get("features", [])
        if local:
            self._unix_socket = answer.get("unix_socket", self._unix_socket)
        # a daemon that does not say how many it allows allows one
        most = (answer.get(f"max_{who}", 1) for who in ("readers", "writers"))
        self.connections = min(connections, *most)
        # first in, first out: all connections get work
        self._idle: queue.Queue[Connection] = queue.Queue()
        for _ in range(self.connections):
            self._idle.put(self._connection())
        self._taking_all = threading.Lock()  # or two flushes would deadlock

    def _connection(self) -> Connection:
        """One that connects when it is first used."""
        if self._unix_socket is not None:
            return UnixConnection(self._unix_socket, self._timeout)
        if self._tls is None:
            return Connection(self._host or "", self._port, timeout=self._timeout)
        return http.client.HTTPSConnection(
            self._host or "", self._port, timeout=self._timeout, context=self._tls
        )

    def _options(self) -> dict[str, Any]:
        conn = self._connection()
        try:
            # 204 and 405 are what daemons say that know no OPTIONS
            reply = self._ask(conn, "OPTIONS", want=(200, 204, 405))
            text = reply.read()
            return json.loads(text) if reply.status == 200 else {}
        finally:
            conn.close()

    def _ask(
        self,
        conn: Connection,
        method: str,
        query: str = "",
        body: bytes | memoryview | None = None,
        headers: Mapping[str, str] | None = None,
        want: tuple[int, ...] = (200,),
    ) -> Reply:
        target = self._path + query
        try:
            try:
                conn.request(method, target, body, headers or {})
            except (BrokenPipeError, ConnectionResetError):
                pass  # the daemon stopped reading: its answer, if any, says why
            # Once connected, never again: no later flush would be sure to cover
            # what was written through the connection that is gone.
            conn.auto_open = 0
            reply = conn.getresponse()
            if reply.status in want:
                return reply
            text = reply.read().decode(errors="replace").strip()
        except http.client.NotConnected:
            conn.close()
            text = f"{method} {target}: the connection was lost before"
            if before := self._refusals.get(conn):
                text += f", by {before}"
            raise Refused(text) from None
        except (OSError, http.client.HTTPException) as error:
            conn.close()
            self._refusals[conn] = f"{method} {target}: {type(error).__name__}: {error}"
            raise Refused(self._refusals[conn]) from error
        said = f"{reply.status} {reply.reason}: {text[:200]}"
        self._refusals[conn] = f"{method} {target}: {said}"
        raise Refused(self._refusals[conn])

    @contextmanager
    def _borrowed(self) -> Iterator[Connection]:
        conn = self._idle.get()
        try:
            yield conn
        finally:
            self._idle.put(conn)

    @contextmanager
    def _all(self) -> Iterator[list[Connection]]:
        """Every connection, also those busy now: by number, not by who is idle."""
        with self._taking_all:
            taken = [self._idle.get() for _ in range(self.connections)]
        try:
            yield taken
        finally:
            for conn in taken:
                self._idle.put(conn)

    def close(self) -> None:
        with self._all() as taken:
            for conn in taken:
                conn.close()

    def size(self) -> int:
        """The image's, which Content-Range tells."""
        with self._borrowed() as conn:
            reply = self._ask(conn, "GET", headers={"Range": "bytes=0-0"}, want=(206,))
            reply.read()
        total = (reply.getheader("Content-Range") or "").rpartition("/")[2]
        if not total.isdigit():
            raise Refused(f"GET: Content-Range ends with {total!r}, not with a size")
        return int(total)

    def read(self, buf: memoryview, offset: int) -> None:
        headers = {"Range": f"bytes={offset}-{offset + len(buf) - 1}"}
        with self._borrowed() as conn:
            reply = self._ask(conn, "GET", headers=headers, want=(206,))
            if reply.length != len(buf):
                conn.close()  # what comes is not what was asked for
                raise Refused(f"GET: {reply.length} bytes instead of {len(buf)}")
            while buf:
                done = reply.readinto(buf)
                if done == 0:
                    conn.close()
                    raise Refused(f"GET: ended {len(buf)} bytes too early")
                buf = buf[done:]
            reply.read()

    def write(self, buf: memoryview, offset: int, flush: bool) -> None:
        headers = {"Content-Range": f"bytes {offset}-{offset + len(buf) - 1}/*"}
        query = f"?flush={'y' if flush else 'n'}"
        with self._borrowed() as conn:
            # reading an empty answer to its end frees the connection
            self._ask(conn, "PUT", query, buf, headers).read()

    def _patch(self, conn: Connection, job: dict[str, Any]) -> None:
        self._ask(conn, "PATCH", body=json.dumps(job).encode()).read()

    def zero(self, count: int, offset: int, flush: bool) -> None:
        job = {"op": "zero", "offset": offset, "size": count, "flush": flush}
        with self._borrowed() as conn:
            self._patch(conn, job)

    def flush(self) -> None:
        """On each connection, and with nothing else in flight."""
        with self._all() as taken:
            for conn in taken:
                self._patch(conn, {"op": "flush"})
