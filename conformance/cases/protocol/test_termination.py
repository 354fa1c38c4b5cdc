# SPDX-License-Identifier: BSD-3-Clause
"""When a server may end a session, when it may not, and how it shuts down."""

from __future__ import annotations

import signal
import socket
import struct

import pytest

from nbdspec import nbd
from nbdspec.case import MAY, SHOULD, Mode, case
from nbdspec.fixtures import both_kinds_of_reply
from nbdspec.nbd import (
    ABORT,
    ERR_SHUTDOWN,
    ESHUTDOWN,
    GO,
    INFO,
    LIST,
    LIST_META_CONTEXT,
    READ,
    SET_META_CONTEXT,
    STARTTLS,
    STRUCTURED_REPLY,
)
from nbdspec.payloads import go_payload
from nbdspec.verdict import Closed

SECTION = "termination"

SLOW = Mode(delay=0.5, private=True)


def refusals() -> list[tuple[int, bytes]]:
    """Nineteen options, each of them well framed, and each of them refused."""
    wrong = go_payload("no such export of any kind") + b"junk"
    return [
        (0, b""),
        (4, b"peek"),
        (0x1234, bytes(300)),
        (0x80000000, b""),
        (0xFFFFFFFF, b"x"),
        (LIST, b"data"),
        (STARTTLS, b"data"),
        (STRUCTURED_REPLY, b"data"),
        (INFO, b""),
        (INFO, wrong),
        (INFO, b"\xff" * 8),
        (GO, b""),
        (GO, wrong),
        (GO, b"\0\0\1\0abc"),
        (LIST_META_CONTEXT, b""),
        (LIST_META_CONTEXT, b"\0\0\0\0\0\0\0\1\xff\xff\xff\xff"),
        (SET_META_CONTEXT, b""),
        (SET_META_CONTEXT, b"\0\0\0\1"),
        (SET_META_CONTEXT, b"\xff\xff\xff\xff"),
    ]


#: Options that are best refused when they are malformed, and the row that says so.
BEST = {
    LIST: "OPT-LIST-04",
    STRUCTURED_REPLY: "OPT-SR-02",
    INFO: "OPT-INFO-03",
    GO: "OPT-INFO-03",
}


@case("termination.refusals-keep-session", req=["TERM-10", "TERM-06", "ERRREP-01"])
def test_refusals_keep_session(wire):
    """A server refuses by errors, one an option, and does not drop the client."""
    for number, data in refusals():
        wire.option(number, data)
        if number not in BEST:
            last = wire.final(number)[1]
            assert last.is_error, f"{last} where a refusal was due"
        elif not wire.best_refused(number, BEST[number]) and number == GO:
            break  # in transmission
    wire.in_step()
    if wire.phase == "transmission":
        return
    wire.transmit().in_step()


@case("termination.refused-requests-keep-session", req=["TXTERM-10", "TERM-06"])
@both_kinds_of_reply
def test_refused_requests_keep_session(wire, structured):
    """Well-formed requests that are refused do not end the connection."""
    wire.transmit(structured=structured)
    size = wire.export.size
    refused(wire, {
        wire.request(99, 0, 512): "ERR-07",
        wire.request(0xFFFF): "ERR-07",
        wire.request(READ, size, 512): "SIZE-35",
        wire.request(READ, (1 << 64) - 512, 1024): "SIZE-35",
        wire.request(READ, 0, 512, flags=0x8000): "ERR-08",
        wire.request(READ, 0, 512, flags=nbd.NO_HOLE | nbd.REQ_ONE): "ERR-09",
        wire.request(nbd.FLUSH, flags=0x4000): "ERR-08",
        wire.request(nbd.CACHE, size, 512): "SIZE-35",
        wire.request(nbd.BLOCK_STATUS, 0, 512): "META-03",
    })


@case("termination.refused-writes-keep-session", req=["TXTERM-10", "TERM-06", "TX-12"],
      needs="writable")
@both_kinds_of_reply
def test_refused_writes_keep_session(wire, structured):
    """Nor do those that would write."""
    wire.transmit(structured=structured)
    size = wire.export.size
    refused(wire, {
        wire.request(nbd.WRITE, size, data=b"w" * 512): "SIZE-35",
        wire.request(nbd.TRIM, size, 512): "SIZE-35",
        wire.request(nbd.WRITE_ZEROES, size, 512): "SIZE-35",
    })


def refused(wire, wrong: dict[int, str]) -> None:
    """Each is answered; one that succeeds breaks the row named, which is a SHOULD."""
    for cookie, row in wrong.items():
        reply = wire.wait(cookie)
        if not reply.error:
            wire.finding(SHOULD, f"{reply.request}: a refusal was due", row)
    wire.in_step()


@case("termination.client-leaves", req=["TERM-08", "OPT-ABORT-05"], level=SHOULD)
@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
def test_client_leaves(dial, connect, reset):
    """A client that goes at any step, ABORT sent or not, does no harm to the next."""
    steps = [
        lambda w: w.greeting(),
        lambda w: w.greet(),
        lambda w: (w.greet(), w.option(ABORT)),
        lambda w: (w.greet(), w.option(LIST), w.option(ABORT)),
        lambda w: (w.greet(), w.option(STRUCTURED_REPLY), w.option(ABORT)),
        lambda w: (w.greet(), w.option(INFO, go_payload(w.name))),
        lambda w: (w.greet(), w.option(GO, go_payload(w.name))),
        lambda w: (w.greet(), w.transmit(), w.request(READ, 0, 65536)),
    ]
    for step in steps:
        wire = connect()
        step(wire)
        if reset:
            linger = struct.pack("ii", 1, 0)
            wire.conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        wire.conn.close()
    dial().in_step()


@case("termination.shutdown-options", req=["TERM-13"], level=SHOULD,
      mode=Mode(private=True))
def test_shutdown_options(wire, server):
    """While it shuts down a server answers options with ERR_SHUTDOWN."""
    if server.process is None:
        pytest.skip("the kit did not start this server")
    wire.info(None, [nbd.INFO_BLOCK_SIZE])
    server.end(signal.SIGTERM)
    wire.option(LIST)
    try:
        last = wire.final(LIST)[1]
    except Closed:
        # It was closed ahead of the option: there was nothing left to answer.
        wire.finding(MAY, "the connection was closed ahead of the option", "TERM-13")
        return
    if last.type != nbd.ACK:  # it may have been faster than the signal
        assert last.type == ERR_SHUTDOWN, str(last)


@case("termination.shutdown-in-flight", req=["TXTERM-04", "TXTERM-06"], level=SHOULD,
      mode=SLOW)
def test_shutdown_in_flight(wire, server):
    """Requests that are in flight when the server shuts down are answered."""
    if server.process is None:
        pytest.skip("the kit did not start this server")
    wire.transmit()
    asked = [wire.request(READ, 4096 * i, 4096) for i in range(4)]
    wire.wait(asked.pop(0))  # by now the others have begun
    more = wire.request(READ, 0, 512)
    server.end(signal.SIGTERM)
    try:
        for cookie in [*asked, more]:
            reply = wire.wait(cookie)
            assert reply.error in (0, ESHUTDOWN), str(reply)
    except Closed:
        wire.finding(SHOULD, "requests in flight were dropped", "TXTERM-04")


@case("termination.bad-option-magic", req=["TERM-03"], level=MAY, hostile=True)
def test_bad_option_magic(wire, dial):
    """Something that is no option ends the session; others are served on."""
    wire.option(LIST, magic=0xDEADBEEF)
    wire.conn.shut()
    rest = wire.conn.drain()
    assert not rest, f"it was answered: {rest[:40].hex(' ')}"
    dial().in_step()
