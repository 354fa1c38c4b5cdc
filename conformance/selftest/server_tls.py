# SPDX-License-Identifier: BSD-3-Clause
"""nbdspecd with TLS, and clients that speak it."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_process import ACK, GUARD, NBDSPECD, ROOT, STARTTLS, Client, Server

needs_tls = pytest.mark.skipif(
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
