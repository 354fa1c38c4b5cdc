# SPDX-License-Identifier: BSD-3-Clause
"""A plain client of the daemon, which says exactly what a test wants said."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIMIT = 30.0  # seconds; a guard against hanging
SIZE = 4 << 20

#: Where the stand-in is stricter than the daemon, or does less, or more.
differs = pytest.mark.skipif("IMAGEIO" in os.environ, reason="unlike the daemon")


def until(condition: Callable[[], object]) -> None:
    """Asks again and again; what it asks is a round trip, so no time is lost."""
    limit = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < limit, "this never came to be"


class Local(http.client.HTTPConnection):
    """Over a Unix socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.host)


class Answer:
    def __init__(self, reply: http.client.HTTPResponse) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self.body = reply.read()
        self.closes = reply.will_close

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    def __init__(self, daemon: Any) -> None:
        self.daemon = daemon
        host = daemon.url.partition("://")[2]
        self.remote = http.client.HTTPConnection(host, timeout=LIMIT)
        self.local = Local(daemon.unix_socket, timeout=LIMIT)
        self.control = Local(daemon.control, timeout=LIMIT)

    def ask(
        self,
        method: str,
        path: str = "/images/image",
        body: Any = None,
        on: http.client.HTTPConnection | None = None,
        **headers: str,
    ) -> Answer:
        """headers: Content_Range="..." and so on; a dict as body becomes JSON."""
        connection = on or self.remote
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        return Answer(connection.getresponse())

    def put(self, data: bytes, offset: int = 0, query: str = "", **more: Any) -> Answer:
        span = f"bytes {offset}-{offset + len(data) - 1}/*"
        path = "/images/image" + query
        return self.ask("PUT", path, data, Content_Range=span, **more)

    def ticket(self, uuid: str, **values: Any) -> Answer:
        ticket = {"uuid": uuid, "size": SIZE, "ops": ["write"], "timeout": 300}
        ticket |= {"url": "file:///nowhere"} | values
        return self.ask("PUT", f"/tickets/{uuid}", ticket, on=self.control)

    def close(self) -> None:
        for connection in (self.remote, self.local, self.control):
            connection.close()
