# SPDX-License-Identifier: BSD-3-Clause
"""One connection's state, and the rules under which it touches an image."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .clock import Clock
from .protocol import Disconnected, HTTPError, Request
from .image import Image
from .knobs import Gauge, Knobs
from .tickets import Ticket, Tickets

FIRST_TIMEOUT = 60.0  # until a ticket says otherwise


class Shared:
    """What all connections have in common."""

    def __init__(self, knobs: Knobs, unix_socket: str) -> None:
        self.knobs, self.unix_socket = knobs, unix_socket
        self.tickets = Tickets(knobs.remove_timeout)
        self.gauge = Gauge()
        self.stopping = threading.Event()
        self._lock = threading.Lock()

    def fault(self, kind: str) -> str | None:
        with self._lock:
            due = [fault for fault in self.knobs.faults if fault.applies(kind)]
        return due[0].action if due else None


class Session:
    def __init__(self, shared: Shared, clock: Clock) -> None:
        self.shared, self.clock = shared, clock
        self.timeout = FIRST_TIMEOUT
        self._image: Image | None = None

    @contextmanager
    def operation(self, kind: str, request: Request, ticket: Ticket) -> Iterator[Image]:
        """One operation on the image: allowed, counted, spoilt if a fault is due."""
        op = "read" if kind in ("GET", "extents") else "write"
        with self.shared.tickets.operation(ticket, op):
            self.shared.gauge.change(kind, 1)
            try:
                self.spoil(kind, request)
                yield self._open(ticket)
            except (ConnectionError, TimeoutError):
                raise  # of the socket, not of the image
            except OSError as error:
                raise HTTPError(500, str(error)) from error
            finally:
                self.shared.gauge.change(kind, -1)

    def _open(self, ticket: Ticket) -> Image:
        if self._image is None or self._image.ticket is not ticket:
            self.close()
            self._image = Image(ticket, self.clock)
            self.shared.tickets.connected(ticket, 1)
            self.timeout = self.shared.knobs.idle_timeout or ticket.inactivity_timeout
        return self._image

    def close(self) -> None:
        if self._image is not None:
            self.shared.tickets.connected(self._image.ticket, -1)
            self._image.close()
            self._image = None

    def spoil(self, kind: str, request: Request) -> None:
        action = self.shared.fault(kind)
        if action is None:
            return
        if action == "hang":
            self.shared.stopping.wait()
            raise Disconnected("left hanging on purpose")
        if action == "close":
            request.read_into(memoryview(bytearray(request.unread // 2)))
            raise Disconnected("closed on purpose")
        if action == "full":
            raise HTTPError(500, "[Errno 28] No space left on device")
        raise HTTPError(int(action), f"Status {action} on purpose")
