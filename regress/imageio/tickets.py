# SPDX-License-Identifier: BSD-3-Clause
"""Tickets: who may do what to which image, until when."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from .protocol import HTTPError

OPERATIONS = ("read", "write")
REQUIRED = {"uuid": str, "size": int, "ops": list, "timeout": int, "url": str}
OPTIONAL = {
    "transfer_id": str,
    "filename": str,
    "sparse": bool,
    "dirty": bool,
    "inactivity_timeout": int,
}


def _checked(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise HTTPError(400, "Invalid ticket: expected a JSON object")
    for key, kind in (REQUIRED | OPTIONAL).items():
        if key not in values:
            if key in REQUIRED:
                raise HTTPError(400, f"Invalid ticket: {key} is missing")
            continue
        value = values[key]
        # for Python a bool is an int
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            words = f"Invalid ticket: {key}={value!r}, expected {kind.__name__}"
            raise HTTPError(400, words)
        if kind is int and value < 0:
            raise HTTPError(400, f"Invalid ticket: {key}={value}, expected 0 or more")
    for op in values["ops"]:
        if op not in OPERATIONS:
            raise HTTPError(400, f"Invalid ticket: op {op!r}, expected read or write")
    return dict(values)


class Ticket:
    def __init__(self, values: Any) -> None:
        values = _checked(values)
        self.uuid: str = values["uuid"]
        self.size: int = values["size"]
        self.ops: list[str] = values["ops"]
        self.timeout: int = values["timeout"]
        self.url: str = values["url"]
        parts = urlsplit(self.url)
        if parts.scheme != "file" or not parts.path:
            words = f"url={self.url!r}, expected file:///PATH"
            raise HTTPError(400, f"Invalid ticket: {words}")
        self.path = unquote(parts.path)
        self.sparse: bool = values.get("sparse", False)
        self.dirty: bool = values.get("dirty", False)
        self.inactivity_timeout: int = values.get("inactivity_timeout", 60)
        self.canceled = False
        self.running = 0  # operations
        self.connections = 0
        self.transferred = 0  # bytes of the operations that succeeded
        self.touch()

    def touch(self) -> None:
        self.used = time.monotonic()
        self.expires = self.used + self.timeout

    @property
    def may_write(self) -> bool:
        return "write" in self.ops

    def check(self, op: str | None) -> None:
        if self.canceled:
            raise HTTPError(403, f"Ticket {self.uuid} was canceled", close=True)
        if time.monotonic() >= self.expires:
            raise HTTPError(403, f"Ticket {self.uuid} expired", close=True)
        # writing includes reading
        if op is not None and not (op in self.ops or self.may_write):
            words = f"Ticket {self.uuid} does not allow to {op}"
            raise HTTPError(403, words, close=True)

    def check_range(self, offset: int, length: int) -> None:
        if offset > self.size or length > self.size - offset:
            raise HTTPError(
                416,
                f"Requested range {offset}+{length} is out of the ticket's "
                f"{self.size} bytes",
                headers={"Content-Range": f"bytes */{self.size}"},
            )

    def status(self) -> dict[str, Any]:
        answer = {
            "uuid": self.uuid,
            "size": self.size,
            "ops": self.ops,
            "url": self.url,
            "timeout": self.timeout,
            "expires": int(self.expires),  # by the monotonic clock
            "idle_time": 0 if self.running else round(time.monotonic() - self.used),
            "active": self.running > 0,
            "canceled": self.canceled,
            "connections": self.connections,
            "sparse": self.sparse,
            "dirty": self.dirty,
            "inactivity_timeout": self.inactivity_timeout,
        }
        if len(self.ops) == 1:
            answer["transferred"] = self.transferred
        return answer


class Tickets:
    """All of them. What changes one, and the counts in them, is under one lock."""

    def __init__(self, remove_timeout: float) -> None:
        self._remove_timeout = remove_timeout
        self._tickets: dict[str, Ticket] = {}
        self._changed = threading.Condition()

    def add(self, values: Any) -> Ticket:
        ticket = Ticket(values)
        with self._changed:
            self._tickets[ticket.uuid] = ticket
        return ticket

    def find(self, uuid: str, status: int = 403) -> Ticket:
        with self._changed:
            ticket = self._tickets.get(uuid)
        if ticket is None:
            raise HTTPError(status, f"No such ticket {uuid!r}", close=status == 403)
        return ticket

    def extend(self, uuid: str, values: Any) -> None:
        timeout = values.get("timeout") if isinstance(values, dict) else None
        if type(timeout) is not int or timeout < 0:
            raise HTTPError(400, f"Invalid timeout: {timeout!r}, expected seconds")
        ticket = self.find(uuid, status=404)
        ticket.timeout = timeout
        ticket.touch()

    def remove(self, uuid: str) -> None:
        """Cancels it, and waits for what runs under it."""
        with self._changed:
            gone = [uuid] if uuid else list(self._tickets)
            tickets = [self._tickets[u] for u in gone if u in self._tickets]
            for ticket in tickets:
                ticket.canceled = True
            idle = self._changed.wait_for(
                lambda: not any(ticket.running for ticket in tickets),
                self._remove_timeout,
            )
            if not idle:
                raise HTTPError(409, f"Ticket {uuid} is still in use")
            for ticket in tickets:
                self._tickets.pop(ticket.uuid, None)

    @contextmanager
    def operation(self, ticket: Ticket, op: str | None) -> Iterator[None]:
        """Something runs under the ticket: it is checked before and renewed after."""
        with self._changed:
            ticket.check(op)
            ticket.running += 1
        try:
            yield
        finally:
            with self._changed:
                ticket.running -= 1
                ticket.touch()
                self._changed.notify_all()

    def count(self, ticket: Ticket, size: int) -> None:
        with self._changed:
            ticket.transferred += size

    def connected(self, ticket: Ticket, change: int) -> None:
        with self._changed:
            ticket.connections += change
