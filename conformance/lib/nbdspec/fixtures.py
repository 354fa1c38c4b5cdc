# SPDX-License-Identifier: BSD-3-Clause
"""What a case may ask for by the name of an argument."""

from __future__ import annotations

from typing import Callable, Iterator

import pytest

from . import client_libnbd
from .caserun import CaseRun
from .client import Client, WireClient
from .clock import Clock
from .conn import Chop
from .pool import Lease
from .targets.base import Server
from .verdict import NotApplicable, may_write
from .wire import Wire

__all__ = [
    "both_kinds_of_reply",
    "client",
    "connect",
    "dial",
    "h",
    "raw",
    "run",
    "lease",
    "server",
    "structured",
    "wire",
]

#: A case with this runs twice: with simple and with structured replies.
both_kinds_of_reply = pytest.mark.parametrize(
    "structured", [False, True], ids=["simple", "structured"], indirect=True
)


@pytest.fixture
def run(request: pytest.FixtureRequest) -> CaseRun:
    """The evidence of this run of the case."""
    from .plugin import run_key

    return request.node.stash[run_key]


@pytest.fixture
def lease(request: pytest.FixtureRequest, run: CaseRun) -> Iterator[Lease]:
    """The server that the case asks for, once it is known to have what is needed."""
    from .plugin import state_key

    state = request.config.stash[state_key]
    target, case = state.pool.target, run.case
    if case.hostile and not target.disposable and not state.options.target.hostile:
        raise NotApplicable("hostile input, and --hostile was not given")
    Clock.case_starts(case.id)
    for need in case.needs:
        if absent := state.pool.lacks(need):
            raise NotApplicable(absent)
    if any(need.word == "writable" for need in case.needs):
        may_write(state.pool.may_write)
    lease = state.pool.get(case.mode)
    missing = [m for need in case.needs if (m := need.missing(lease.profile))]
    if missing:
        if case.mode.private:  # nobody else would end it
            state.pool.drop(lease)
        raise NotApplicable(missing[0])
    yield lease
    state.check_health(run, lease)


@pytest.fixture
def structured(request: pytest.FixtureRequest, lease: Lease) -> bool:
    """Whether the case is to ask for structured replies: see both_kinds_of_reply."""
    if request.param and not lease.profile.structured:
        raise NotApplicable("the server does not offer structured replies")
    return request.param


@pytest.fixture
def server(lease: Lease) -> Server:
    return lease.server


@pytest.fixture
def connect(
    request: pytest.FixtureRequest, server: Server, run: CaseRun
) -> Iterator[Callable[[], Wire]]:
    """Makes connections on which nothing was said; all are closed in the end."""
    from .plugin import state_key

    options = request.config.stash[state_key].options
    opened: list[Wire] = []

    def more() -> Wire:
        chop = Chop(options.target.chop, options.seed)
        conn = server.connect(run.transcript, chop)
        opened.append(Wire(conn, run.findings, server.export))
        opened[-1].always_tls = server.always_tls
        opened[-1].may_write = server.may_write
        return opened[-1]

    yield more
    for wire in opened:
        if run.breach is None:
            wire.leave()
        wire.conn.close()


@pytest.fixture
def dial(connect: Callable[[], Wire]) -> Callable[[], Wire]:
    """Makes connections in the haggling phase."""

    def more() -> Wire:
        wire = connect()
        wire.greet()
        return wire

    return more


@pytest.fixture
def raw(connect: Callable[[], Wire]) -> Wire:
    """One connection on which nothing was said."""
    return connect()


@pytest.fixture
def wire(raw: Wire) -> Wire:
    """One connection in the haggling phase."""
    raw.greet()
    return raw


@pytest.fixture
def h(server: Server):
    """A libnbd handle that is not connected yet: client_libnbd.connect does that."""
    handle = client_libnbd.handle(server)
    yield handle
    if handle.aio_is_ready():
        handle.shutdown()


@pytest.fixture
def client(
    request: pytest.FixtureRequest, lease: Lease, run: CaseRun, client_name: str
) -> Iterator[Client]:
    """A connection in transmission, by the client whose turn it is."""
    contexts = tuple(
        need.word[5:] for need in run.case.needs if need.word.startswith("meta:")
    )
    made: Client
    if client_name == "libnbd":
        made = client_libnbd.LibnbdClient(
            lease.server, run.transcript, run.findings, contexts
        )
    else:
        wire = request.getfixturevalue("wire")
        wire.transmit(structured=lease.profile.structured, contexts=contexts)
        made = WireClient(wire, run.findings)
    yield made
    made.close()
