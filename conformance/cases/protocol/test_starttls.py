# SPDX-License-Identifier: BSD-3-Clause
"""STARTTLS: what comes before it, what survives it, and what must not.

Where a server offers TLS as an option, it is a SELECTIVETLS server without exports for
TLS only; where it demands TLS, it is a FORCEDTLS server.
"""

from __future__ import annotations

import ssl

import pytest

from nbdspec import nbd, pki
from nbdspec.case import SHOULD, Mode, case
from nbdspec.fixtures import both_kinds_of_reply
from nbdspec.nbd import (
    ABORT,
    ACK,
    BLOCK_STATUS,
    EINVAL,
    ERR_INVALID,
    ERR_TLS_REQD,
    EXPORT_NAME,
    GO,
    INFO,
    LIST,
    STARTTLS,
)
from nbdspec.payloads import go_payload, meta_payload
from nbdspec.transmission import same
from nbdspec.verdict import Breach, NotApplicable

SECTION = "starttls"
OPTIONAL = Mode(tls="x509")
REQUIRED = Mode(tls="x509", tls_mode="required")


@pytest.fixture
def clear(wire, server):
    """Haggling in the clear with a server that has TLS."""
    if server.tls is None:
        raise NotApplicable("the kit has no certificate for this server")
    return wire


@case("starttls.works", req=["TLS-11", "TLS-13", "TLS-14", "TLS-43"], mode=REQUIRED,
      needs="writable")
@both_kinds_of_reply
def test_works(clear, lease, structured):
    """After STARTTLS all is as it is without, over TLS 1.2 or later."""
    clear.starttls(lease.server.tls)
    if structured and not clear.negotiate_structured():
        raise NotApplicable("the server does not offer structured replies")
    assert clear.conn.sock.version() in ("TLSv1.2", "TLSv1.3")
    clear.transmit()
    clear.write(b"over TLS" * 10000, 512)
    if lease.profile.stores:
        same(clear.read(80000, 512), b"over TLS" * 10000, 512)
    clear.in_step()


@case("starttls.tls-1-2", req=["TLS-43"], mode=REQUIRED)
def test_tls_1_2(clear, server):
    """TLS 1.2 is understood."""
    clear.starttls(pki.client_context(newest=ssl.TLSVersion.TLSv1_2))
    assert clear.conn.sock.version() == "TLSv1.2"
    clear.transmit().in_step()


@case("starttls.no-old-versions", req=["TLS-46", "TLS-47"], level=SHOULD, mode=REQUIRED)
def test_no_old_versions(clear, server):
    """TLS 1.1 is not offered."""
    old = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    try:
        clear.starttls(pki.client_context(*old))
    except Breach:
        clear.conn.close()
        return
    raise Breach("TLS 1.2 or later", str(clear.conn.sock.version()))


@case("starttls.required-first", mode=REQUIRED,
      req=["TLS-17", "TLS-19", "OPT-INFO-17", "TLS-01", "TLS-06"])
@pytest.mark.parametrize("number", [LIST, INFO, GO, 4, 8, 9, 10, 11, 99])
def test_required_first(clear, server, number):
    """Before TLS every option gets ERR_TLS_REQD and nothing else; then TLS works."""
    for name in (clear.name, "no such export"):
        data = meta_payload(name, []) if number in (9, 10) else go_payload(name)
        clear.option(number, b"" if number in (LIST, 8, 11) else data)
        found, last = clear.final(number)
        assert not found and last.type == ERR_TLS_REQD, str(last)
    clear.starttls(server.tls)
    clear.transmit().in_step()


@case("starttls.abort-in-the-clear", req=["TLS-26", "TLS-17"], mode=REQUIRED)
def test_abort_in_the_clear(clear):
    """ABORT is acknowledged before TLS, too."""
    clear.option(ABORT)
    clear.expect_reply(ABORT, ACK)
    clear.conn.expect_closed("ABORT ends the session")


@case("starttls.export-name-closes", req=["TLS-18", "OPT-EXPORT-01", "TERM-05"],
      mode=REQUIRED)
def test_export_name_closes(clear):
    """EXPORT_NAME before TLS ends the session: it has no error reply."""
    clear.option(EXPORT_NAME, clear.name.encode())
    clear.conn.expect_closed("TLS comes first")


@case("starttls.never-without-fixed", req=["TLS-08"], mode=REQUIRED)
def test_never_without_fixed(raw, server):
    """Without the fixed newstyle flag there is no TLS, and so no export."""
    if server.tls is None:
        raise NotApplicable("the kit has no certificate for this server")
    raw.greet(0)
    raw.option(EXPORT_NAME, raw.name.encode())
    raw.conn.expect_closed("the export is not for this client")


@case("starttls.twice", req=["TLS-12", "TLS-20", "OPT-STARTTLS-02"], mode=REQUIRED)
def test_twice(clear, server):
    """Within TLS, STARTTLS is refused as out of place, and TLS goes on."""
    clear.starttls(server.tls)
    clear.option(STARTTLS)
    clear.expect_error(STARTTLS, ERR_INVALID)
    clear.transmit().in_step()


@case("starttls.never-required-inside", req=["TLS-20"], mode=REQUIRED)
@pytest.mark.parametrize("number", [LIST, INFO, GO, 8, 9, 10, 11, 99])
def test_never_required_inside(clear, server, number):
    """Within TLS nothing is answered with ERR_TLS_REQD."""
    clear.starttls(server.tls)
    clear.option(number, go_payload("no such export"))
    assert clear.final(number)[1].type != ERR_TLS_REQD
    if number == GO:
        return  # some servers have an export for every name
    clear.in_step()


@case("starttls.with-data", req=["OPT-STARTTLS-02"], mode=OPTIONAL)
def test_with_data(clear, server):
    """STARTTLS with data is refused, its data skipped; without, it then works."""
    clear.option(STARTTLS, b"data")
    clear.expect_error(STARTTLS, ERR_INVALID)
    clear.starttls(server.tls)
    clear.transmit().in_step()


@case("starttls.forgets-structured", req=["OPT-STARTTLS-03"], mode=OPTIONAL)
def test_forgets_structured(clear, server):
    """Structured replies that were agreed on in the clear are forgotten."""
    clear.negotiate_structured()
    clear.starttls(server.tls)
    clear.transmit()
    assert not clear.export.flags & nbd.SEND_DF
    clear.read(512, 0)


@case("starttls.forgets-contexts", req=["OPT-STARTTLS-03"], mode=OPTIONAL)
def test_forgets_contexts(clear, server):
    """Contexts that were selected in the clear are forgotten."""
    if not clear.negotiate_structured():
        raise NotApplicable("the server does not offer structured replies")
    clear.option(nbd.SET_META_CONTEXT, meta_payload(clear.name, ["base:allocation"]))
    clear.final(nbd.SET_META_CONTEXT)
    clear.starttls(server.tls)
    clear.negotiate_structured()
    clear.transmit()
    clear.expect_errno(clear.request(BLOCK_STATUS, 0, 512), EINVAL)


@case("starttls.forgets-extended", req=["OPT-XH-14", "OPT-STARTTLS-03"], mode=OPTIONAL,
      needs="extended")
def test_forgets_extended(clear, server):
    """Extended headers that were agreed on in the clear are forgotten."""
    clear.negotiate_extended()
    clear.starttls(server.tls)
    clear.transmit()
    clear.read(512, 0)


@case("starttls.handshake-fails", req=["TLS-16"], mode=OPTIONAL)
def test_handshake_fails(clear):
    """What is no TLS handshake ends the session."""
    clear.option(STARTTLS)
    clear.expect_reply(STARTTLS, ACK)
    clear.conn.send(b"GET / HTTP/1.0\r\n\r\n", "no TLS handshake")
    rest = clear.conn.drain()
    assert nbd.REPLY_MAGIC.to_bytes(8, "big") not in rest


@case("starttls.optional-without", req=["TLS-24", "TLS-01"], mode=OPTIONAL)
def test_optional_without(clear):
    """Where TLS is an option and the export is for all, nothing demands it."""
    for number, data in ((LIST, b""), (INFO, go_payload(clear.name)), (99, b"")):
        clear.option(number, data)
        assert clear.final(number)[1].type != ERR_TLS_REQD
    clear.transmit().in_step()


@case("starttls.refused-write", req=["TX-12", "TLS-14"], mode=REQUIRED,
      needs="writable")
@pytest.mark.parametrize("length", [512, 1 << 20])
def test_refused_write(clear, server, length):
    """The payload of a refused WRITE is skipped within TLS, and the session lives."""
    clear.starttls(server.tls)
    clear.transmit()
    cookie = clear.request(nbd.WRITE, clear.export.size, data=bytes(length))
    assert clear.wait(cookie).error
    clear.in_step()


@case("starttls.disc-closes-tls", req=["TXTERM-01", "TX-DISC-01"], mode=REQUIRED)
def test_disc_closes_tls(clear, server):
    """DISC ends TLS, then the connection."""
    clear.starttls(server.tls)
    clear.transmit()
    clear.disc()
