# SPDX-License-Identifier: BSD-3-Clause
"""What many connections and requests leave behind in a server: nothing.

After each case the kit counts the server's descriptors, and looks at its memory.
"""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import Mode, case
from nbdspec.nbd import INFO, LIST, READ, STRUCTURED_REPLY
from nbdspec.payloads import go_payload
from nbdspec.verdict import NotApplicable

SECTION = "growth"

ALONE = Mode(size=1 << 20)
#: Caches and allocators may take their share; a leak for each step is more.
SLACK = 12 << 20


def process_of(server):
    if server.process is None or server.process.resident() is None:
        raise NotApplicable("the process of this server is out of reach")
    return server.process


def scan(wire) -> None:
    """A port scanner: connects and goes."""


def greet(wire) -> None:
    wire.greet()


def haggle(wire) -> None:
    wire.greet()
    for number, data in [(LIST, b""), (STRUCTURED_REPLY, b""), (0x77, bytes(100)),
                         (INFO, go_payload(wire.name, [0, 1, 2, 3]))]:
        wire.option(number, data)
        wire.final(number)


def half_an_option(wire) -> None:
    wire.greet()
    wire.option(INFO, bytes(100), length=60000)


def serve(wire) -> None:
    wire.greet()
    wire.transmit()
    wire.read(wire.export.block, 0)
    wire.leave()


def half_a_request(wire) -> None:
    wire.greet()
    wire.transmit()
    wire.request(nbd.WRITE, 0, 60000)
    wire.conn.send(bytes(1000), "a part of the payload")


COUNTS = {
    scan: 600, greet: 300, haggle: 150, half_an_option: 150, serve: 150,
    half_a_request: 150,
}


@case("growth.connections", req=["TERM-08", "OPT-ABORT-05", "TXTERM-10"], mode=ALONE,
      quick=False)
@pytest.mark.parametrize("step", COUNTS, ids=lambda step: step.__name__.replace("_", "-"))
def test_connections(connect, server, run, step):
    """Hundreds of clients that come, go as far as they do, and leave."""
    process = process_of(server)

    def many(count: int) -> None:
        for _ in range(count):
            wire = connect()
            step(wire)
            wire.conn.close()
        run.transcript.steps.clear()  # of clients that all did the same

    def served() -> None:
        other = connect()
        other.greet()
        other.in_step()
        other.leave()

    many(COUNTS[step] // 3)
    served()
    before, threads = process.resident(), process.threads()
    many(COUNTS[step])
    served()
    grown = process.resident() - before
    assert grown < SLACK, f"{grown >> 10} KiB more after {COUNTS[step]} clients"
    left = process.threads() - threads
    assert left < COUNTS[step] // 2, f"{left} threads more are left"


@case("growth.requests", req=["TX-04", "TXTERM-10"], mode=ALONE, quick=False)
@pytest.mark.parametrize("length", [512, 65536])
def test_requests(wire, server, run, lease, length):
    """Thousands of requests, refused ones too, leave nothing behind."""
    process = process_of(server)
    wire.transmit(structured=lease.profile.structured)

    def many(count: int) -> None:
        for _ in range(count // 20):
            asked = [wire.request(READ, 4096 * i % 65536, length) for i in range(16)]
            asked += [wire.request(READ, wire.export.size, length) for _ in range(4)]
            for cookie in asked:
                wire.wait(cookie)
        run.transcript.steps.clear()

    many(400)
    before = process.resident()
    many(3000)
    grown = process.resident() - before
    assert grown < SLACK, f"{grown >> 10} KiB more after 3000 requests"
    wire.in_step()


@case("growth.log", req=["TERM-08"], mode=ALONE.but(private=True), quick=False)
def test_log(connect, server, run):
    """A port scanner cannot fill the disk by way of the log."""
    process = process_of(server)
    before = len(process.log())
    for _ in range(500):
        connect().conn.close()
    run.transcript.steps.clear()
    other = connect()
    other.greet()
    other.in_step()
    grown = len(process.log()) - before
    assert grown < 500 * 2000, f"{grown} bytes of log for 500 empty connections"
