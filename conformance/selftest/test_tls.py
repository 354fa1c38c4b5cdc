# SPDX-License-Identifier: BSD-3-Clause
"""TLS: what the command line wants, STARTTLS, and who is let in."""

from __future__ import annotations

import os
import re
import socket
import ssl
import struct
import subprocess
from pathlib import Path

import pytest
from server_process import (
    ABORT,
    ACK,
    ERR_INVALID,
    ERR_POLICY,
    ERR_TLS_REQD,
    EXPORT_NAME,
    GO,
    GUARD,
    INFO,
    LIST,
    NBDSPECD,
    STARTTLS,
    STRUCTURED_REPLY,
    Client,
    Server,
    needs_python,
    refused,
)
from server_tls import context, needs_tls, pki, secure, secured, start_tls

__all__ = ["pki", "secure"]

pytestmark = needs_tls


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
        assert "nbdspecd: warning: --tls=on: no certificates found" in s.log()
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
