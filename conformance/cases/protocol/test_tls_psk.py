# SPDX-License-Identifier: BSD-3-Clause
"""TLS with pre-shared keys: who has a key gets in, and nobody else."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Callable, Iterator

import pytest

from nbdspec.case import Mode, case
from nbdspec.client_libnbd import LibnbdClient
from nbdspec.nbd import (
    ACK,
    ERR_TLS_REQD,
    EXPORT_NAME,
    GO,
    INFO,
    LIST,
    STARTTLS,
    STRUCTURED_REPLY,
)
from nbdspec.payloads import go_payload, pattern, text
from nbdspec.transmission import same
from nbdspec.verdict import Breach, Hang

SECTION = "tls"

FORCED = Mode(tls="psk", tls_mode="required", content="pattern")
ON = Mode(tls="psk", tls_mode="optional", content="pattern")

Enter = Callable[..., LibnbdClient]


@pytest.fixture
def enter(server, run) -> Iterator[Enter]:
    """Connects with a key, by libnbd: Python's TLS has no such keys."""
    clients: list[LibnbdClient] = []

    def client(name: str = "alice", keys: Path | None = None) -> LibnbdClient:
        key = (name, keys or server.psk)
        made = LibnbdClient(server, run.transcript, run.findings, key=key)
        clients.append(made)
        return made

    yield client
    for made in clients:
        made.close()


def reads(client: LibnbdClient) -> None:
    assert client.h.get_tls_negotiated(), "the session is in the clear"
    same(client.pread(100000, 4096), pattern(4096, 100000), 4096)


def nobody_in(attempt: Callable[[], object], enter: Enter) -> None:
    """The attempt fails the handshake, and does not hang; the next client is served."""
    try:
        attempt()
    except Hang:
        raise
    except Breach:
        reads(enter())
        return
    raise Breach("the TLS handshake to fail", "a session")


@case("tls.psk-session", req=["TLS-11", "TLS-13"], mode=FORCED, needs="tls",
      clients=("libnbd",))
@pytest.mark.parametrize("name", ["alice", "bob"])
def test_session(enter, name):
    """Who has a pre-shared key is let in, and reads what is there."""
    reads(enter(name))


@case("tls.psk-optional", req=["TLS-11", "TLS-24"], mode=ON, needs="tls",
      clients=("libnbd",))
def test_optional(wire, enter):
    """Where it is optional, clients with keys and without are served side by side."""
    wire.transmit()
    reads(enter())
    same(wire.read(4096, 8192), pattern(8192, 4096), 8192)


@case("tls.psk-wrong", req=["TLS-16"], mode=FORCED, needs="tls", clients=("libnbd",))
@pytest.mark.parametrize("name", ["alice", "mallory"], ids=["key", "name"])
def test_wrong(enter, name, tmp_path):
    """A wrong key, or an unknown name, gets nobody in; the next client is served."""
    keys = tmp_path / "keys.psk"
    keys.write_text(f"{name}:{'5a' * 32}\n")
    nobody_in(lambda: enter(name, keys), enter)


@case("tls.psk-no-key", req=["TLS-16"], mode=FORCED, needs="tls", clients=("libnbd",))
def test_no_key(wire, enter):
    """A client that has no key fails the handshake, and gets no answer after it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    wire.option(STARTTLS)
    wire.expect_reply(STARTTLS, ACK)
    nobody_in(lambda: wire.conn.start_tls(context, None), enter)


@case("tls.psk-plain-refused", req=["TLS-17", "TLS-18", "TLS-19"], mode=FORCED,
      needs="tls", clients=("libnbd",))
def test_plain_refused(dial, enter):
    """In the clear a server that demands keys tells nothing, and opens nothing."""
    wire = dial()
    for number in (LIST, INFO, GO, STRUCTURED_REPLY, 99):
        named = number in (INFO, GO)
        wire.option(number, go_payload(wire.name) if named else b"")
        found, last = wire.final(number)
        assert not found and last.type == ERR_TLS_REQD, str(last)
    other = dial()
    other.option(EXPORT_NAME, text(other.name))
    other.conn.expect_closed("the export is for those who have a key")
    reads(enter())
