# SPDX-License-Identifier: BSD-3-Clause
"""Listens, and serves each connection on a thread of its own.

Threads are enough: what takes time (receiving, writing, hashing) runs without the
interpreter's lock, and one process moves more than a client on the same machine
can send; see docs/reproducing.md for the figures.
"""

from __future__ import annotations

import os
import socket
import ssl
import sys
import threading
import time

from .clock import Clock
from .handlers import find
from .protocol import Disconnected, HTTPError, Request, reply_error
from .session import Session, Shared

BACKLOG = 40
LINGER = 2.0  # seconds in which the rest of a refused body is thrown away


class Server:
    """All listeners and connections."""

    def __init__(self, shared: Shared, tls: ssl.SSLContext | None = None) -> None:
        self.shared, self._tls = shared, tls
        self._lock = threading.Lock()
        self._listeners: list[socket.socket] = []
        self._open: dict[socket.socket, threading.Thread] = {}
        self._count = 0

    def listen(self, listener: socket.socket, name: str) -> None:
        """Takes over a bound socket; name: remote, local or control."""
        listener.listen(BACKLOG)
        self._listeners.append(listener)
        thread = threading.Thread(target=self._accept, args=(listener, name))
        thread.daemon = True
        thread.start()

    def _accept(self, listener: socket.socket, name: str) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                if self.shared.stopping.is_set():
                    return
                time.sleep(0.1)  # out of descriptors: others will close theirs
                continue
            with self._lock:
                if self.shared.stopping.is_set():
                    sock.close()
                    return
                self._count += 1
                thread = threading.Thread(
                    target=self._serve, args=(sock, name, self._count), daemon=True
                )
                self._open[sock] = thread
                thread.start()

    def _serve(self, sock: socket.socket, name: str, number: int) -> None:
        clock = Clock()
        session = Session(self.shared, clock)
        end = "closed by the client"
        log(f"OPEN connection={number} listener={name}")
        try:
            with clock.phase("connection"):
                if name == "remote":
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    if self._tls:
                        sock.settimeout(session.timeout)
                        sock = self._secured(sock)
                end = self._requests(sock, session, number, name == "control")
        except Disconnected as error:
            end = str(error)
        except TimeoutError:
            end = f"idle for {session.timeout:g} s"
        except OSError as error:
            end = str(error)
        finally:
            session.close()
            sock.close()
            log(f"CLOSE connection={number} listener={name} end={end!r} {clock}")
            with self._lock:
                self._open.pop(sock, None)  # last: stop waits for those in there

    def _secured(self, sock: socket.socket) -> socket.socket:
        assert self._tls is not None, "only called when there is TLS"
        secured = self._tls.wrap_socket(sock, server_side=True)
        with self._lock:
            self._open[secured] = self._open.pop(sock)
        return secured

    def _requests(
        self, sock: socket.socket, session: Session, number: int, control: bool
    ) -> str:
        """Answers one request after another; what ended the connection."""
        with sock.makefile("rb", buffering=8192) as reader:
            while not self.shared.stopping.is_set():
                sock.settimeout(session.timeout)
                request = Request(reader, sock)  # type: ignore[arg-type]
                try:
                    if not request.parse():
                        return "closed by the client"
                    handler, uuid = find(request, control)
                    with session.clock.phase("dispatch"):
                        handler(session, request, uuid)
                except HTTPError as error:
                    log(
                        f"ERROR connection={number} {request.method} {request.path}: "
                        f"{error.status} {error.text}"
                    )
                    reply_error(request, error)
                if request.close:
                    hang_up(sock, request.unread)
                    return "closed by the daemon"
        return "the daemon ended"

    def stop(self) -> None:
        """Nobody is accepted any more; what runs is cut short and waited for."""
        self.shared.stopping.set()
        for listener in self._listeners:
            try:
                listener.shutdown(socket.SHUT_RDWR)  # wakes accept
            except OSError:
                pass  # not every kind of socket can be
            listener.close()
        with self._lock:
            left = dict(self._open)
        for sock, thread in left.items():
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has gone by itself
            thread.join()


def hang_up(sock: socket.socket, unread: int) -> None:
    """Closes so that the answer arrives, although the client is still sending.

    Closing with unread bytes would reset the connection and take the answer along.
    """
    try:
        if unread:
            sock.settimeout(LINGER)
            if not isinstance(sock, ssl.SSLSocket):
                sock.shutdown(socket.SHUT_WR)
            end = time.monotonic() + LINGER
            while sock.recv(1 << 16) and time.monotonic() < end:
                pass
    except OSError:
        pass  # the client was quicker


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def bind_unix(path: str) -> socket.socket:
    """A path, or after @ or NUL a name of the abstract kind."""
    sock = socket.socket(socket.AF_UNIX)
    if path.startswith("@"):
        path = "\0" + path[1:]
    sock.bind(path)
    return sock


def remove_socket(path: str) -> None:
    if not path.startswith(("@", "\0")):
        os.unlink(path)
