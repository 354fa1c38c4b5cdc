# SPDX-License-Identifier: BSD-3-Clause
"""TLS: modes, who is let in, what is encrypted how, and how sessions end."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_process import (
    ABORT,
    ACK,
    DISC,
    ERR_INVALID,
    ERR_POLICY,
    ERR_TLS_REQD,
    EXPORT_NAME,
    GO,
    GUARD,
    INFO,
    LIST,
    NBDSPECD,
    READ,
    ROOT,
    STARTTLS,
    STRUCTURED_REPLY,
    WRITE,
    Client,
    Server,
    needs_python,
    place,
    refused,
)

__all__ = ["place"]

pytestmark = pytest.mark.skipif(
    "tls=yes" not in subprocess.check_output([NBDSPECD, "--dump-config"], text=True),
    reason="built without GnuTLS",
)


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pki")
    subprocess.run([ROOT / "ci/make-pki", path], check=True, timeout=GUARD)
    return path


@pytest.fixture
def secure(place: Path, pki: Path) -> Iterator[Server]:
    """A server that talks over TLS only, with 8 MiB of memory."""
    args = ("--tls=require", "--tls-certificates", str(pki), "-v", "memory", "8M")
    with Server(place, *args) as s:
        yield s


def context(
    pki: Path, certificate: Path | None = None, version: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    c.load_verify_locations(pki / "ca-cert.pem")
    if certificate is not None:
        c.load_cert_chain(
            certificate / "client-cert.pem", certificate / "client-key.pem"
        )
    if version is not None:
        c.minimum_version = c.maximum_version = version
    return c


def start_tls(c: Client, using: ssl.SSLContext) -> ssl.SSLSocket:
    c.option(STARTTLS)
    assert c.reply() == (STARTTLS, ACK, b"")
    secured = using.wrap_socket(c.sock, server_hostname="localhost")
    c.sock = secured
    return secured


def secured(s: Server, using: ssl.SSLContext, transmit: bool = True) -> Client:
    c = Client(s.socket)
    c.greet()
    start_tls(c, using)
    if transmit:
        c.go()
    return c


# -- what the command line wants


def test_require_wants_credentials(place: Path) -> None:
    line = refused(
        "--tls=require", "-U", str(place / "s"), "null", "1M",
        env={**os.environ, "HOME": str(place)},
    )  # fmt: skip
    assert "--tls=require: no certificates found" in line


def test_named_credentials_must_be_there(place: Path, pki: Path) -> None:
    line = refused("--tls-certificates", str(place), "null", "1M")
    assert f"{place}/ca-cert.pem: No such file" in line
    line = refused("--tls-psk", str(place / "keys"), "null", "1M")
    assert f"--tls-psk: {place}/keys: No such file" in line
    for name in ("ca-cert.pem", "server-cert.pem", "server-key.pem"):
        (place / name).write_bytes((pki / name).read_bytes())
    (place / "server-key.pem").write_text("no key\n")
    line = refused("--tls-certificates", str(place), "null", "1M")
    assert f"{place}/server-cert.pem and server-key.pem: " in line


@pytest.mark.parametrize(
    "text, words",
    [
        ("alice\n", "line 1: expected USER:KEY"),
        ("alice:00\nbob:xyz\n", "line 2: expected USER:KEY"),
        ("alice:123\n", "line 1: expected USER:KEY"),
        ("\n", "there is no key in it"),
    ],
)
def test_key_file_is_looked_at(text: str, words: str, place: Path) -> None:
    (place / "keys").write_text(text)
    assert words in refused("--tls-psk", str(place / "keys"), "null", "1M")


def test_bad_priority(pki: Path) -> None:
    line = refused(
        "--tls-certificates", str(pki), "--tls-priority", "NORMAL:+NONSENSE",
        "null", "1M",
    )  # fmt: skip
    assert "--tls-priority: " in line and "NONSENSE" in line


def test_on_without_credentials_warns_and_goes_on(place: Path) -> None:
    home = {"HOME": str(place)}
    with Server(place, "--tls=on", "null", "1M", env=home) as s:
        assert "warning: --tls=on: no certificates found" in s.log()
        with Client(s.socket) as c:
            c.greet()
            c.option(STARTTLS)
            assert c.reply()[1] == ERR_POLICY
            assert c.go() == 1 << 20
        s.stop()
    with Server(place, "null", "1M", env=home) as s:
        assert s.log().count("warning") == 1  # the first server's


@pytest.mark.skipif(os.getuid() == 0, reason="root looks in /etc")
@pytest.mark.parametrize("folder", [".pki/nbdkit", ".config/pki/nbdkit"])
def test_certificates_are_searched_at_home(folder: str, place: Path, pki: Path) -> None:
    (place / folder).parent.mkdir(parents=True)
    (place / folder).symlink_to(pki)
    with Server(place, "null", "1M", env={"HOME": str(place)}) as s:
        with secured(s, context(pki)) as c:
            c.read(0, 512)


def test_off_has_no_tls(place: Path, pki: Path) -> None:
    args = ("--tls=off", "--tls-certificates", str(pki), "null", "1M")
    with Server(place, *args) as s, Client(s.socket) as c:
        c.greet()
        c.option(STARTTLS)
        assert c.reply()[1] == ERR_POLICY


def test_uri_says_that_tls_is_a_must(place: Path, pki: Path) -> None:
    args = ("--tls-certificates", str(pki), "null", "1M")
    with Server(place, "--tls=require", "--print-uri", *args) as s:
        assert s.log().startswith("nbds+unix://?socket=")
    for mode, words in (("require", "nbds 2"), ("on", "nbd 1"), ("off", "nbd ")):
        text = subprocess.check_output(
            [NBDSPECD, f"--tls={mode}", "--run", 'echo "${uri%%+*} $tls"', *args],
            text=True,
        )
        assert text == words + "\n"


# -- before and at STARTTLS


def test_before_tls_only_abort_and_starttls(secure: Server, pki: Path) -> None:
    with Client(secure.socket) as c:
        c.greet()
        for option in (LIST, INFO, GO, STRUCTURED_REPLY, 9, 10, 0x1234):
            c.option(option, b"payload")
            got, kind, _ = c.reply()
            assert (got, kind) == (option, ERR_TLS_REQD)
        start_tls(c, context(pki))  # the stream is in step
        assert c.go() == 8 << 20


def test_abort_before_tls(secure: Server) -> None:
    with Client(secure.socket) as c:
        c.greet()
        c.option(ABORT)
        assert c.reply() == (ABORT, ACK, b"")
        assert c.at_end()


def test_export_name_before_tls(secure: Server) -> None:
    with Client(secure.socket) as c:
        c.greet()
        c.option(EXPORT_NAME)
        assert c.at_end()


def test_starttls_with_data(secure: Server, pki: Path) -> None:
    with Client(secure.socket) as c:
        c.greet()
        c.option(STARTTLS, b"data")
        assert c.reply()[1] == ERR_INVALID
        start_tls(c, context(pki))
        c.option(STARTTLS)
        assert c.reply()[1] == ERR_INVALID
        assert c.go() == 8 << 20


def test_plain_text_behind_starttls_is_never_run(secure: Server, pki: Path) -> None:
    head = struct.pack(">Q", 0x49484156454F5054)
    both = head + struct.pack(">II", STARTTLS, 0) + head + struct.pack(">II", LIST, 0)
    with Client(secure.socket) as c:
        c.greet()
        c.send(both)
        assert c.at_end()
    assert "STARTTLS" in secure.log()


def test_plain_text_after_the_reply_ends_the_connection(secure: Server) -> None:
    with Client(secure.socket) as c:
        c.greet()
        c.option(STARTTLS)
        assert c.reply() == (STARTTLS, ACK, b"")
        c.option(LIST)
        got = c.recv(1000)  # an alert of TLS at most
        assert b"\0\3\xe8\x89\4\x55\x65\xa9" not in got
        assert c.at_end()
    assert "TLS: handshake: " in secure.log()


def test_state_from_before_is_forgotten(place: Path, pki: Path) -> None:
    args = ("--tls-certificates", str(pki), "memory", "1M")
    with Server(place, *args) as s, Client(s.socket) as c:
        c.greet()
        c.option(STRUCTURED_REPLY)
        assert c.reply()[1] == ACK
        start_tls(c, context(pki))
        c.go()
        c.read(0, 512)  # by a simple reply


def test_tls_handshake_has_the_time_limit(place: Path, pki: Path) -> None:
    args = ("--tls-certificates", str(pki), "--timeout", "500ms", "null", "1M")
    with Server(place, *args) as s, Client(s.socket) as c:
        c.greet()
        c.option(STARTTLS)
        assert c.reply()[1] == ACK
        c.send(b"\x16\x03\x01\x02\x00")  # the head of a hello that never comes
        c.recv(1000)
        assert c.at_end()
        assert "did not finish its handshake within 1 seconds" in s.log()


def test_time_limit_within_tls(place: Path, pki: Path) -> None:
    """Half a record is not a byte of an option."""
    args = ("--tls-certificates", str(pki), "--timeout", "1", "null", "1M")
    with Server(place, *args) as s, Client(s.socket) as c:
        c.greet()
        start_tls(c, context(pki))
        raw = socket.socket(fileno=os.dup(c.sock.fileno()))
        raw.settimeout(GUARD)
        raw.send(b"\x17\x03\x03\x01\x00half of it")
        while raw.recv(1000):
            pass
        raw.close()
        assert "did not finish its handshake" in s.log()


# -- who is let in


def test_client_with_the_wrong_authority_leaves(secure: Server, pki: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        secured(secure, context(pki / "stranger"))
    with secured(secure, context(pki)) as c:
        c.read(0, 512)


def test_verify_peer(place: Path, pki: Path) -> None:
    args = ("--tls-certificates", str(pki), "--tls-verify-peer", "null", "1M")
    with Server(place, *args) as s:
        with secured(s, context(pki, pki)) as c:
            c.read(0, 512)
        for certificate in (None, pki / "stranger"):
            with pytest.raises((ssl.SSLError, OSError, AssertionError)):
                secured(s, context(pki, certificate)).read(0, 512)
        assert s.log().count("TLS: handshake: ") == 2


@needs_python
@pytest.mark.parametrize("verify", [True, False])
def test_names_of_the_peer(verify: bool, place: Path, pki: Path) -> None:
    (place / "plugin.py").write_text(
        "import nbdkit\n"
        "def names(): return nbdkit.peer_tls_dn() + '|' + nbdkit.peer_tls_issuer_dn()\n"
        "def open(readonly): return names().encode().ljust(512, b'.')\n"
        "def get_size(h): return 512\n"
        "def pread(h, count, offset): return h\n"
    )
    args = ["--tls-certificates", str(pki), "python", str(place / "plugin.py")]
    if verify:
        args.insert(0, "--tls-verify-peer")
    with Server(place, *args) as s, secured(s, context(pki, pki)) as c:
        dn, issuer = c.read(0, 512).rstrip(b".").decode().split("|")
    if verify:
        assert dn == "CN=test client,O=nbdspec"
        assert issuer == "CN=nbdspec test authority"
    else:
        assert (dn, issuer) == ("", "")


LIBNBD = """
import nbd, sys
psk, user, path = sys.argv[1:]
h = nbd.NBD()
h.set_tls(nbd.TLS_REQUIRE)
h.set_tls_psk_file(psk)
h.set_tls_username(user)
h.connect_unix(path)
data = bytes(range(256)) * 4096
h.pwrite(data, 0)
assert h.pread(len(data), 0) == data
h.shutdown()
"""


def psk_client(s: Server, psk: Path, user: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/usr/bin/python3", "-c", LIBNBD, psk, user, s.socket],
        capture_output=True,
        text=True,
        timeout=GUARD,
    )


def test_pre_shared_keys(place: Path, pki: Path) -> None:
    args = ("--tls-psk", str(pki / "keys.psk"), "--tls=require", "-v", "memory", "8M")
    with Server(place, *args) as s:
        r = psk_client(s, pki / "keys.psk", "alice")
        assert r.returncode == 0, r.stderr
        assert re.search(r"TLS session: .*-\(AES-128-GCM\)", s.log())
        (place / "other.psk").write_text("alice:" + "00" * 32 + "\n")
        assert psk_client(s, place / "other.psk", "alice").returncode != 0
        assert "TLS: handshake: " in s.log()


def test_key_file_must_be_readable_for_the_new_user(place: Path, pki: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root changes its user")
    place.chmod(0o755)
    (place / "keys").write_bytes((pki / "keys.psk").read_bytes())
    (place / "keys").chmod(0o600)
    line = refused(
        "-u", "nobody", "--tls-psk", str(place / "keys"), "-U", "-", "null", "1M"
    )
    assert f"--tls-psk: {place}/keys: not readable for the user of -u" in line


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
