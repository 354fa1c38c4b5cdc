# SPDX-License-Identifier: BSD-3-Clause
"""TLS: the modes of a server, STARTTLS, what may cross it, and how it ends."""

from __future__ import annotations

import ssl

import pytest

from nbdspec import nbd, pki
from nbdspec.case import MAY, SHOULD, Mode, case
from nbdspec.nbd import (
    ABORT,
    ACK,
    BLOCK_STATUS,
    EINVAL,
    ERR_TLS_REQD,
    EXPORT_NAME,
    GO,
    INFO,
    LIST,
    LIST_META_CONTEXT,
    SET_META_CONTEXT,
    STARTTLS,
    STRUCTURED_REPLY,
)
from nbdspec.payloads import go_payload, meta_payload, option, text
from nbdspec.verdict import Breach, NotApplicable

SECTION = "tls"

ALLOCATION = "base:allocation"
ON = Mode(tls="x509", tls_mode="optional")
FORCED = Mode(tls="x509", tls_mode="required")
SELECTIVE = Mode(tls="x509", tls_mode="selective", exports=("secret", "open"))

TLS12 = ssl.TLSVersion.TLSv1_2
REPLY_MAGIC = nbd.REPLY_MAGIC.to_bytes(8, "big")
TLS13 = ssl.TLSVersion.TLSv1_3


def exchanges(name: str) -> list[tuple[int, bytes]]:
    """Each option that leaves a client in haggling, with sensible data."""
    return [
        (LIST, b""),
        (INFO, go_payload(name)),
        (INFO, go_payload("no such export")),
        (STRUCTURED_REPLY, b""),
        (LIST_META_CONTEXT, meta_payload(name)),
        (SET_META_CONTEXT, meta_payload(name, [ALLOCATION])),
        (nbd.EXTENDED_HEADERS, b""),
        (0x1234, b"what is this"),
    ]


# STARTTLS and what follows


@case("tls.contexts-forgotten", req=["OPT-STARTTLS-03", "META-03"], mode=ON,
      needs=f"tls meta:{ALLOCATION}")
@pytest.mark.parametrize("again", [False, True], ids=["plain", "structured-again"])
def test_contexts_forgotten(wire, again, server):
    """Contexts selected in the clear are not selected inside TLS."""
    wire.negotiate_structured()
    wire.set_meta([ALLOCATION])
    wire.starttls(server.tls)
    if again:
        wire.negotiate_structured()
    wire.transmit()
    cookie = wire.request(BLOCK_STATUS, 0, wire.export.block)
    wire.expect_refused(cookie, EINVAL, row="META-03")
    wire.in_step()


@case("tls.injected-option", req=["OPT-STARTTLS-05", "TLS-14"], mode=ON, needs="tls",
      hostile=True)
@pytest.mark.parametrize(
    "number", [LIST, STRUCTURED_REPLY, ABORT], ids=nbd.option_name
)
def test_injected_option(raw, number, server):
    """An option sent in the clear right behind STARTTLS is not run inside TLS."""
    raw.greet()
    raw.conn.send(option(STARTTLS) + option(number), "STARTTLS with an option behind")
    raw.conn.expect("ACK, or the end of the stream")
    head = raw.conn.drain(all=False)
    if not head:
        return  # refused to go on: as good
    assert head[8:16] == b"\0\0\0\5\0\0\0\1", f"{head.hex(' ')} in place of an ACK"
    assert head.count(REPLY_MAGIC) == 1, "the option was answered in the clear"
    try:
        raw.conn.start_tls(server.tls, None)
    except Breach:
        return  # the bytes in the clear are no ClientHello: as good
    raw.option(INFO, go_payload(raw.name))
    raw.final(INFO)  # a reply to anything else is out of step


@case("tls.no-downgrade", req=["TLS-14", "TLS-16"], mode=ON, needs="tls", hostile=True)
def test_no_downgrade(wire):
    """Options in the clear after the ACK of STARTTLS are not answered."""
    wire.option(STARTTLS)
    wire.expect_reply(STARTTLS, ACK)
    wire.option(LIST)
    wire.conn.expect("a TLS alert or the end of the stream, no option reply")
    rest = wire.conn.drain(all=False)
    if rest:
        wire.option(LIST)
        wire.conn.shut()
        rest += wire.conn.drain()
    assert REPLY_MAGIC not in rest, "answered in the clear"


@case("tls.failed-handshake-ends", req=["TLS-16"], mode=ON, needs="tls", hostile=True)
@pytest.mark.parametrize("cut", [1, 5, 100])
def test_failed_handshake_ends(connect, cut, server):
    """After a TLS handshake that fails the session is over; others are served."""
    wire = connect()
    wire.greet()
    wire.option(STARTTLS)
    wire.expect_reply(STARTTLS, ACK)
    wire.conn.send(b"\x16\x03\x01\x00\x20" + bytes(31 + cut), "no ClientHello")
    rest = wire.conn.drain(all=False)
    if rest:  # an alert
        wire.option(LIST)
        wire.conn.shut()
        rest += wire.conn.drain()
    assert REPLY_MAGIC not in rest
    other = connect()
    other.greet()
    other.starttls(server.tls)
    other.in_step()


@case("tls.truncated", req=["TLS-16", "TERM-08"], mode=ON, needs="tls", hostile=True)
def test_truncated(connect, server):
    """A client that leaves without close_notify does no harm to the next."""
    for _ in range(5):
        wire = connect()
        wire.greet()
        wire.starttls(server.tls)
        wire.transmit()
        wire.request(nbd.READ, 0, 512)
        wire.conn.sock.shutdown(2)
        wire.conn.close()
    other = connect()
    other.greet()
    other.starttls(server.tls)
    other.transmit().in_step()


# Modes


@case("tls.optional-never-required", req=["TLS-24", "TLS-01", "TLS-06"], mode=ON,
      needs="tls")
def test_optional_never_required(wire):
    """Where TLS is optional nothing in the clear is refused for want of it."""
    for _ in range(2):
        for number, data in exchanges(wire.name):
            wire.option(number, data)
            last = wire.final(number)[1]
            assert last.type != ERR_TLS_REQD, str(last)
    wire.in_step()


@case("tls.plain-client", req=["TLS-08"], mode=ON, needs="tls")
def test_plain_client(raw):
    """For a client without the fixed newstyle flag there is no TLS."""
    raw.greet(0)
    raw.option(STARTTLS)
    raw.conn.expect("an error, or the end of the stream")
    head = raw.conn.drain(all=False)
    kind = int.from_bytes(head[12:16], "big")
    assert not head or kind & nbd.ERR_BIT, f"{nbd.reply_name(kind)} to STARTTLS"
    assert kind != ERR_TLS_REQD


@case("tls.plain-client-forced", req=["TLS-08", "TLS-18"], mode=FORCED, needs="tls",
      level=MAY)
def test_plain_client_forced(raw):
    """A client without the fixed newstyle flag cannot get past required TLS."""
    raw.greet(0)
    raw.option(EXPORT_NAME, text(raw.name))
    raw.conn.expect_closed("the server requires TLS")


@case("tls.selective", req=["TLS-22", "TLS-23", "TLS-24", "OPT-INFO-23"],
      mode=SELECTIVE, needs="tls")
def test_selective(dial):
    """An export that is for TLS only is refused in the clear, the other is not."""
    wire = dial()
    secret, plain = SELECTIVE.exports
    for number in (INFO, GO):
        wire.option(number, go_payload(secret))
        found, last = wire.final(number)
        if last.type == nbd.ERR_UNKNOWN:
            raise NotApplicable("the server hides the export")
        assert last.type == ERR_TLS_REQD, str(last)
    for number, data in exchanges(plain):
        if data == go_payload("no such export"):
            continue  # may be hidden: OPT-INFO-22
        wire.option(number, data)
        last = wire.final(number)[1]
        assert last.type != ERR_TLS_REQD, str(last)
    wire.leave()
    other = dial()
    other.option(EXPORT_NAME, text(secret))
    other.conn.expect_closed("the export is for TLS only")


@case("tls.selective-unknown", req=["OPT-INFO-22", "OPT-INFO-23"], level=SHOULD,
      mode=SELECTIVE, needs="tls")
def test_selective_unknown(wire):
    """A server that hides unknown names tells nothing about an export for TLS."""
    answers = []
    for name in ("no such export", SELECTIVE.exports[0]):
        wire.option(INFO, go_payload(name))
        found, last = wire.final(INFO)
        answers.append((len(found), last.type))
    unknown, secret = answers
    if unknown[1] == ERR_TLS_REQD:
        wire.finding(MAY, "unknown exports are hidden: ERR_TLS_REQD", "OPT-INFO-22")
        assert secret == unknown, "the answers can be told apart"


@case("tls.resists-downgrade", req=["TLS-51"], level=SHOULD, mode=FORCED)
def test_resists_downgrade(wire):
    """There is a mode in which TLS cannot be done without."""
    wire.option(LIST)
    last = wire.final(LIST)[1]
    assert last.type == ERR_TLS_REQD, str(last)


# Versions


@case("tls.version-1-3", req=["TLS-44"], level=SHOULD, mode=ON, needs="tls")
def test_version_1_3(wire):
    """Versions later than TLS 1.2 are there too."""
    wire.starttls(pki.client_context(TLS13, TLS13))
    wire.in_step()


# The end


@case("tls.close-notify", req=["TERM-02", "TXTERM-02", "TXTERM-01"], level=SHOULD,
      mode=ON, needs="tls")
@pytest.mark.parametrize("how", ["abort", "disc", "unknown-export", "bad-magic"])
def test_close_notify(wire, how, server):
    """TLS is shut down ahead of the connection, in order or not."""
    wire.starttls(server.tls)
    if how == "abort":
        wire.option(ABORT)
    elif how == "unknown-export":
        wire.option(EXPORT_NAME, b"a\0b")
    else:
        wire.transmit()
        magic = None if how == "disc" else 0xBAD
        wire.request(nbd.DISC, magic=magic)
        wire.phase = "over"
    wire.conn.expect("close_notify, then the end of the stream")
    wire.conn.drain()
    assert not wire.conn.ragged, "the stream ended without close_notify"
