# SPDX-License-Identifier: BSD-3-Clause
"""Stands between libnbd and the server: records, and knows when a server hangs."""

from __future__ import annotations

import select
import socket
import threading
import time

from .decode import Decoder
from .transcript import Transcript

_CHUNK = 1 << 18


class Relay(threading.Thread):
    """Copies both ways until either side closes, or the server owes an answer too long.

    libnbd has no time limits of its own; when the relay gives up it closes both sides,
    and libnbd's call ends with an error.
    """

    def __init__(self, server: socket.socket, limit: float) -> None:
        super().__init__(daemon=True)
        self.client, self._near = socket.socketpair()
        self._far = server
        #: how long an answer may take; changed for a request before that is sent
        self.limit = limit
        self._log: list[tuple[bool, bytes]] = []
        self._lock = threading.Lock()
        self.hung = False
        #: since when a call of libnbd's waits for the server; None: none does
        self.owed: float | None = time.monotonic()  # a greeting
        for sock in (self._near, self._far):
            sock.setblocking(False)

    def run(self) -> None:
        to_far, to_near = bytearray(), bytearray()
        waiting, heard = False, time.monotonic()
        reading = [self._near, self._far]
        while reading:
            writing = [self._far] if to_far else []
            writing += [self._near] if to_near else []
            owed = self.owed
            limit = None
            if waiting or owed is not None:
                since = max(heard, owed or heard)
                limit = max(0.0, since + self.limit - time.monotonic())
            ready = select.select(reading, writing, [], limit)
            if not any(ready):
                if not waiting and owed != self.owed:
                    continue  # that call has come back meanwhile
                self.hung = True
                break
            heard = time.monotonic()
            if self._near in ready[0]:
                data = _receive(self._near)
                if not data:
                    break
                self._record(True, data)
                to_far += data
                waiting = True
            if self._far in ready[0]:
                data = _receive(self._far)
                if not data:
                    break
                self._record(False, data)
                to_near += data
                waiting = False
            if not (_put(self._far, to_far) and _put(self._near, to_near)):
                break
        self._near.close()
        self._far.close()

    def _record(self, sent: bool, data: bytes) -> None:
        with self._lock:
            self._log.append((sent, data))

    def tell(self, transcript: Transcript, conn: int) -> None:
        """Decodes what passed so far into a transcript; nothing is told twice."""
        with self._lock:
            log, self._log = self._log, []
        decoder = Decoder(transcript, conn)
        for sent, data in log:
            (decoder.sent if sent else decoder.received)(data)
        decoder.finish()


def _receive(sock: socket.socket) -> bytes:
    try:
        return sock.recv(_CHUNK)
    except OSError:
        return b""


def _put(sock: socket.socket, data: bytearray) -> bool:
    """Sends what goes; False when the other side has gone."""
    if data:
        try:
            del data[: sock.send(data)]
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True
