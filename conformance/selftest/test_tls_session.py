# SPDX-License-Identifier: BSD-3-Clause
"""TLS sessions: versions and ciphers, data, and how they end."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import ssl
import struct
from pathlib import Path

import pytest
from server_process import (
    ACK,
    DISC,
    EXPORT_NAME,
    GUARD,
    READ,
    STARTTLS,
    WRITE,
    Client,
    Server,
)
from server_tls import context, needs_tls, pki, secure, secured

__all__ = ["pki", "secure"]

pytestmark = needs_tls


# -- versions and ciphers


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions(version: ssl.TLSVersion, secure: Server, pki: Path) -> None:
    with secured(secure, context(pki, version=version)) as c:
        assert c.sock.version() == version.name.replace("_", ".")
        assert "GCM" in c.sock.cipher()[0]
        c.read(0, 512)


def test_old_version_is_refused(secure: Server, pki: Path) -> None:
    old = context(pki)
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, OSError)):
        secured(secure, old)
    # GnuTLS speaks it if told to, so the server is what refuses
    assert "TLS: handshake: " in secure.log()


def test_gcm_is_preferred_by_the_server(secure: Server, pki: Path) -> None:
    client = context(pki, version=ssl.TLSVersion.TLSv1_2)
    client.set_ciphers("ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256")
    with secured(secure, client) as c:
        assert c.sock.cipher()[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"


def test_priority_of_the_command_line(place: Path, pki: Path) -> None:
    priority = "NORMAL:-VERS-ALL:+VERS-TLS1.2:-CIPHER-ALL:+CHACHA20-POLY1305"
    args = ("--tls-certificates", str(pki), "--tls-priority", priority, "null", "1M")
    with Server(place, *args) as s, secured(s, context(pki)) as c:
        assert c.sock.version() == "TLSv1.2"
        assert "CHACHA20" in c.sock.cipher()[0]


# -- data


def test_sizes_around_a_record(secure: Server, pki: Path) -> None:
    with secured(secure, context(pki)) as c:
        for size in (1, 511, 16383, 16384, 16385, 32768, 65536 + 7, 3 << 20):
            data = os.urandom(size)
            c.request(WRITE, 5, size, data)
            assert c.simple_reply() == (0, b"")
            assert c.read(5, size) == data


def test_refused_write_keeps_the_session(secure: Server, pki: Path) -> None:
    with secured(secure, context(pki)) as c:
        for size in (1, 4096, 100_000, 2 << 20):
            c.request(WRITE, (8 << 20) - 1 if size > 1 else 8 << 20, size, bytes(size))
            assert c.simple_reply()[0] == errno.ENOSPC
        c.read(0, 512)


def test_one_byte_at_a_time(secure: Server, pki: Path) -> None:
    """Each byte in a record of its own, and each record in pieces."""
    with secured(secure, context(pki)) as c:
        head = struct.pack(">IHHQQI", 0x25609513, 0, READ, 7, 0, 512)
        for i in range(len(head)):
            c.sock.send(head[i : i + 1])
        assert c.simple_reply(512) == (0, bytes(512))


def test_many_requests_both_ways(secure: Server, pki: Path) -> None:
    """Sending and receiving at once: the replies of reads meet later writes."""
    count, size = 64, 100_000
    data = [bytes([i]) * size for i in range(count)]
    with secured(secure, context(pki)) as c:
        for i in range(count):
            c.request(WRITE, i * size, size, data[i])
        for _ in range(count):
            assert c.simple_reply() == (0, b"")
        c.sock.setblocking(False)
        # Reads of the first half while the second half is written again.
        out = b"".join(
            struct.pack(">IHHQQI", 0x25609513, 0, READ, i, i * size, size)
            + struct.pack(
                ">IHHQQI", 0x25609513, 0, WRITE, 1000 + i, (i + 32) * size, size
            )
            + data[i + 32]
            for i in range(32)
        )
        got = exchange(c.sock, out, 32 * (16 + size) + 32 * 16)
    seen = set()
    at = 0
    while at < len(got):
        magic, error, cookie = struct.unpack_from(">IIQ", got, at)
        assert (magic, error) == (0x67446698, 0)
        at += 16
        seen.add(cookie)
        if cookie < 1000:
            assert got[at : at + size] == data[cookie]
            at += size
    assert seen == {*range(32), *range(1000, 1032)}


def exchange(sock: ssl.SSLSocket, out: bytes, expected: int) -> bytes:
    """Sends and receives, whichever goes."""
    import select

    view = memoryview(out)
    got = bytearray()
    while len(got) < expected:
        want_write = bool(view)
        r, w, _ = select.select([sock], [sock] if want_write else [], [], GUARD)
        assert r or w, f"{len(got)} of {expected} bytes came"
        if w:
            try:
                view = view[sock.send(view[:200_000]) :]
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
        try:
            while len(got) < expected:
                piece = sock.recv(1 << 20)
                assert piece, "the server left"
                got += piece
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
    return bytes(got)


# -- the end


def test_close_notify_after_disc(secure: Server, pki: Path) -> None:
    with secured(secure, context(pki)) as c:
        c.request(DISC)
        assert c.sock.recv(1) == b""  # without it: SSLEOFError


def test_close_notify_when_the_server_ends(secure: Server, pki: Path) -> None:
    with secured(secure, context(pki)) as c:
        secure.process.terminate()
        assert c.sock.recv(1) == b""
        assert secure.wait() == 0


def test_close_notify_after_a_refused_export_name(
    place: Path, pki: Path
) -> None:
    args = ("--tls-certificates", str(pki), "--mask-handshake=3", "memory", "1M")
    with Server(place, *args) as s, secured(s, context(pki), transmit=False) as c:
        c.option(EXPORT_NAME, b"\0 not a name")
        assert c.sock.recv(1) == b""


def test_client_that_just_leaves(secure: Server, pki: Path) -> None:
    """Without close_notify; the server's end of it closes, and costs nothing."""
    descriptors = secure.descriptors()
    c = secured(secure, context(pki))
    c.read(0, 512)
    raw = socket.socket(fileno=c.sock.detach())
    raw.shutdown(socket.SHUT_WR)
    raw.settimeout(GUARD)
    while raw.recv(1000):
        pass
    raw.close()
    with secured(secure, context(pki)) as c:  # it is alive
        c.read(0, 512)
        before = secure.cpu_ticks()
        for _ in range(20):
            c.read(0, 512)
        assert secure.cpu_ticks() - before < 50
        assert secure.descriptors() <= descriptors + 1
    assert "error" not in secure.log()


# -- GnuTLS' own client, for what Python's ssl cannot say


class GnuTLS:
    """A session by libgnutls over a connected, blocking socket."""

    def __init__(self, sock: socket.socket, priority: str) -> None:
        self.lib = ctypes.CDLL("libgnutls.so.30")
        for name in ("gnutls_record_send", "gnutls_record_recv"):
            function = getattr(self.lib, name)
            function.restype = ctypes.c_ssize_t
            function.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        self.session = ctypes.c_void_p()
        self.credentials = ctypes.c_void_p()
        allocate = "gnutls_certificate_allocate_credentials"
        self.check(allocate, self.credentials, ref=True)
        self.check("gnutls_init", self.session, 2, ref=True)
        self.check(
            "gnutls_priority_set_direct", self.session, priority.encode(), None
        )
        self.check("gnutls_credentials_set", self.session, 1, self.credentials)
        sock.settimeout(None)
        self.sock = sock
        self.lib.gnutls_transport_set_int2(self.session, sock.fileno(), sock.fileno())
        self.check("gnutls_handshake", self.session)

    def check(self, name: str, *args: object, ref: bool = False) -> None:
        if ref:
            args = (ctypes.byref(args[0]), *args[1:])  # type: ignore[arg-type]
        r = getattr(self.lib, name)(*args)
        assert r == 0, f"{name}: {r}"

    def sendall(self, data: bytes) -> None:
        while data:
            r = self.lib.gnutls_record_send(self.session, data, len(data))
            assert r > 0, f"gnutls_record_send: {r}"
            data = data[r:]

    def recv(self, n: int) -> bytes:
        buf = ctypes.create_string_buffer(n)
        r = -28  # "again", which also follows what was no data
        while r == -28:
            r = self.lib.gnutls_record_recv(self.session, buf, n)
        assert r >= 0, f"gnutls_record_recv: {r}"
        return buf.raw[:r]

    def key_update(self) -> None:
        """And the peer shall do the same."""
        self.check("gnutls_session_key_update", self.session, 1)

    def close(self) -> None:
        self.lib.gnutls_deinit(self.session)
        self.lib.gnutls_certificate_free_credentials(self.credentials)
        self.sock.close()


def gnutls_client(s: Server, priority: str = "NORMAL") -> Client:
    c = Client(s.socket)
    c.greet()
    c.option(STARTTLS)
    assert c.reply()[1] == ACK
    c.sock = GnuTLS(c.sock, priority)  # type: ignore[assignment]
    c.go()
    return c


def test_key_updates_in_the_middle(secure: Server) -> None:
    with gnutls_client(secure) as c:
        for i in range(3):  # GnuTLS takes no more than eight a second
            c.sock.key_update()  # type: ignore[attr-defined]
            data = bytes([i]) * 50_000
            c.request(WRITE, 0, len(data), data)
            c.request(READ, 0, len(data))
            assert c.simple_reply() == (0, b"")
            c.sock.key_update()  # type: ignore[attr-defined]
            assert c.simple_reply(len(data)) == (0, data)


def test_renegotiation_is_not_had(secure: Server) -> None:
    """TLS 1.2 has it; the session ends, the server goes on."""
    with gnutls_client(secure, "NORMAL:-VERS-ALL:+VERS-TLS1.2") as c:
        lib = c.sock.lib  # type: ignore[attr-defined]
        assert lib.gnutls_handshake(c.sock.session) != 0  # type: ignore[attr-defined]
    with gnutls_client(secure) as c:
        assert c.read(0, 4) == bytes(4)
