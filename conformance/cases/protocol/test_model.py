# SPDX-License-Identifier: BSD-3-Clause
"""A random session over up to three connections, held against a model byte by byte.

The model knows for each connection and each byte which values a READ may bring. A
write in flight adds its value; when it is answered, and no other touched the byte in
the meantime, its value is the only one left for its own connection. For the others it
is once the writer's FLUSH, or FUA, is answered, where the server promises that
(CAN_MULTI_CONN); a server that does not gets one connection only. A trimmed byte may
hold anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.nbd import FLUSH, FUA, NO_HOLE, READ, TRIM, WRITE, WRITE_ZEROES

SECTION = "model"

SPAN = 3072
ANY = frozenset(range(256))

spans = st.tuples(
    st.integers(0, SPAN - 1), st.integers(1, SPAN)
).map(lambda pair: (pair[0], min(pair[1], SPAN - pair[0])))
coins = st.booleans()


@dataclass
class Flight:
    """A request on its way."""

    conn: int
    command: int
    start: int
    end: int
    value: frozenset[int] = ANY
    fua: bool = False
    #: bytes that another write touched in the meantime
    contested: set[int] = field(default_factory=set)
    #: what a READ may bring, for each byte
    allowed: list[set[int]] = field(default_factory=list)
    #: for a FLUSH: bytes written by answered writes when it was sent
    covers: set[int] = field(default_factory=set)

    @property
    def writes(self) -> bool:
        return self.command in (WRITE, TRIM, WRITE_ZEROES)


class Model:
    """What may be read where."""

    def __init__(self, conns: int) -> None:
        self.views = [[frozenset({0})] * SPAN for _ in range(conns)]
        self.dirty: list[set[int]] = [set() for _ in range(conns)]
        self.flights: dict[tuple[int, int], Flight] = {}

    def sent(self, cookie: int, flight: Flight) -> None:
        if flight.writes:
            self._write_sent(flight)
        elif flight.command == READ:
            view = self.views[flight.conn]
            flight.allowed = [set(view[at]) for at in range(flight.start, flight.end)]
        else:
            flight.covers = set(self.dirty[flight.conn])
        self.flights[flight.conn, cookie] = flight

    def _write_sent(self, flight: Flight) -> None:
        for other in self.flights.values():
            low = max(other.start, flight.start)
            high = min(other.end, flight.end)
            if other.writes:
                flight.contested.update(range(low, high))
                other.contested.update(range(low, high))
            elif other.command == READ:
                for at in range(low, high):
                    other.allowed[at - other.start] |= flight.value
            else:
                other.covers.difference_update(range(flight.start, flight.end))
        for view in self.views:
            for at in range(flight.start, flight.end):
                view[at] |= flight.value

    def answered(self, conn: int, cookie: int) -> Flight:
        flight = self.flights.pop((conn, cookie))
        if flight.writes:
            settled = set(range(flight.start, flight.end)) - flight.contested
            for at in settled:
                self.views[conn][at] = flight.value
            self.dirty[conn] |= settled
            if flight.fua:
                self._show(conn, settled)
        elif flight.command == FLUSH:
            self._show(conn, flight.covers)
        return flight

    def _show(self, conn: int, places: set[int]) -> None:
        """What this connection wrote there is there for all."""
        for at in places & self.dirty[conn]:
            for view in self.views:
                view[at] = self.views[conn][at]
        self.dirty[conn] -= places

    def gone(self, conn: int) -> None:
        """The connection ended in order: its requests were carried out, unseen."""
        for key in [key for key in self.flights if key[0] == conn]:
            del self.flights[key]
        self.dirty[conn].clear()
        for at in range(SPAN):
            self.views[conn][at] = frozenset().union(*(v[at] for v in self.views))


def machine(dial, profile, failures) -> type[RuleBasedStateMachine]:
    """The state machine for one server."""
    conns = 3 if profile.has("multi-conn") and profile.has("flush") else 1
    numbers = st.integers(0, conns - 1)

    class Session(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model(conns)
            self.wires = [self.open() for _ in range(conns)]
            self.wires[0].write(bytes(SPAN), 0)
            if profile.has("flush"):
                self.wires[0].command(FLUSH)
            self.mark = 0

        def open(self):
            return dial().transmit(structured=profile.structured)

        def send(self, conn: int, command: int, span=(0, 0), value=ANY, **more):
            start, length = span
            fua = bool(more.get("flags", 0) & FUA)
            flight = Flight(conn, command, start, start + length, value, fua)
            size = 0 if command == WRITE else length
            cookie = self.wires[conn].request(command, start, size, **more)
            self.model.sent(cookie, flight)

        def may(self, flag: int, wanted: bool) -> int:
            return flag if wanted and profile.has("fua") else 0

        @rule(conn=numbers, span=spans, fua=coins)
        def write(self, conn, span, fua):
            self.mark = self.mark % 255 + 1
            data = bytes([self.mark]) * span[1]
            value = frozenset({self.mark})
            flags = self.may(FUA, fua)
            self.send(conn, WRITE, span, value, data=data, flags=flags)

        @precondition(lambda self: profile.has("write-zeroes"))
        @rule(conn=numbers, span=spans, fua=coins, keep=coins)
        def zero(self, conn, span, fua, keep):
            flags = self.may(FUA, fua) | (NO_HOLE if keep else 0)
            self.send(conn, WRITE_ZEROES, span, frozenset({0}), flags=flags)

        @precondition(lambda self: profile.has("trim"))
        @rule(conn=numbers, span=spans)
        def trim(self, conn, span):
            start, length = span
            self.send(conn, TRIM, (start, min(length, 300)), ANY)

        @rule(conn=numbers, span=spans)
        def read(self, conn, span):
            self.send(conn, READ, span)

        @precondition(lambda self: profile.has("flush"))
        @rule(conn=numbers)
        def flush(self, conn):
            self.send(conn, FLUSH)

        @precondition(lambda self: self.model.flights)
        @rule(data=st.data())
        def wait(self, data):
            self.take(*data.draw(st.sampled_from(sorted(self.model.flights))))

        def take(self, conn: int, cookie: int) -> None:
            try:
                reply = self.wires[conn].expect_ok(cookie)
                flight = self.model.answered(conn, cookie)
                if flight.command == READ:
                    check(flight, reply.data)
            except AssertionError as error:
                failures.append(error)
                raise

        @rule(conn=numbers, span=spans)
        def settle(self, conn, span):
            """Waits for all, so that there is something to be sure of, and looks."""
            for key in sorted(self.model.flights):
                self.take(*key)
            self.send(conn, READ, span)
            self.take(*max(self.model.flights))

        @rule(conn=numbers)
        def reconnect(self, conn):
            wire = self.wires[conn]
            wire.request(nbd.DISC)
            wire.conn.shut()
            wire.conn.drain()
            wire.conn.close()
            wire.pending.clear()
            self.model.gone(conn)
            self.wires[conn] = self.open()

        def teardown(self) -> None:
            for conn, cookie in sorted(self.model.flights):
                if not failures:
                    self.take(conn, cookie)
            for wire in self.wires:
                wire.leave()

    return Session


def check(flight: Flight, data: bytes) -> None:
    for at, (value, allowed) in enumerate(zip(data, flight.allowed)):
        assert value in allowed, (
            f"{value} at {flight.start + at:#x} on connection {flight.conn}, "
            f"where {sorted(allowed)[:8]} can be"
        )


def play(dial, profile, examples: int) -> None:
    failures: list[AssertionError] = []
    plan = settings(
        max_examples=examples,
        stateful_step_count=30,
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    try:
        run_state_machine_as_test(machine(dial, profile, failures), settings=plan)
    except Flaky:  # a race in the server: what was seen once was seen
        raise failures[0] from None


@case("model.random-session", req=["TX-WRITE-04", "TX-ZERO-07", "TX-ZERO-11", "MC-01",
                                   "TX-READ-19", "TX-04", "TX-DISC-01", "TX-TRIM-07"],
      needs="writable stores minimum=1 size>=1M", quick=False)
def test_random_session(dial, lease):
    """Commands in any order on up to three connections, in flight together."""
    play(dial, lease.profile, 15)


@case("model.short", req=["TX-WRITE-04", "TX-ZERO-07", "MC-01", "TX-04"],
      needs="writable stores minimum=1 size>=1M")
def test_short(dial, lease):
    """The same, a few of them, for the quick run."""
    play(dial, lease.profile, 4)
