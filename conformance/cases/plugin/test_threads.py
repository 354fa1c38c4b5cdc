# SPDX-License-Identifier: BSD-3-Clause
"""Thread models: how many callbacks are in the plugin at once, no more, no less."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import case

SECTION = "plugin.threads"

#: Each WRITE stops at a gate; FLUSH does not.
PROGRAM = """
API_VERSION = 2
{model}
def pwrite(h, buf, offset, flags):
    with inside():
        gate(f"pwrite {{offset}}")
def flush(h, flags):
    note("flush")
"""


def program(model: str | None) -> str:
    chosen = ""
    if model:
        chosen = f"def thread_model():\n    return nbdkit.THREAD_MODEL_{model}"
    return PROGRAM.format(model=chosen)


def send_writes(wire, count: int) -> list[int]:
    return [wire.request(nbd.WRITE, 512 * i, data=b"w" * 512) for i in range(count)]


def finish(host, gates, left: int) -> None:
    """Opens gates, one after the other: for each that leaves one may come."""
    waiting = list(gates)
    while waiting:
        waiting.pop(0).open()
        if left:
            waiting += host.arrive(1)
            left -= 1


def most_inside(host) -> int:
    return max(entry["most"] for entry in host.notes("inside"))


@case("plugin.parallel-exactly-n", req=["THR-01"])
@pytest.mark.parametrize("threads", [1, 2, 8, 16])
def test_parallel_exactly_n(plugin, threads):
    """With -t N there are N callbacks of a connection in the plugin, never N + 1."""
    host = plugin(program("PARALLEL"), options=("-t", str(threads)))
    wire = host.wire()
    asked = send_writes(wire, threads + 5)
    gates = host.arrive(threads)
    # Another connection's round trip: time enough for one too many to come.
    host.wire().command(nbd.FLUSH)
    host.nobody_else()
    finish(host, gates, 5)
    for cookie in asked:
        wire.expect_ok(cookie)
    assert most_inside(host) == threads


@case("plugin.parallel-default-16", req=["THR-01"])
def test_parallel_default_16(plugin):
    """Without -t there are 16."""
    host = plugin(program("PARALLEL"))
    wire = host.wire()
    asked = send_writes(wire, 20)
    gates = host.arrive(16)
    host.wire().command(nbd.FLUSH)
    host.nobody_else()
    finish(host, gates, 4)
    for cookie in asked:
        wire.expect_ok(cookie)
    assert most_inside(host) == 16


@case("plugin.serialize-requests", req=["THR-02"])
def test_serialize_requests(plugin):
    """One callback a connection is in the plugin, and one of each connection."""
    host = plugin(program("SERIALIZE_REQUESTS"))
    first, second = host.wire(), host.wire()
    asked = [(first, c) for c in send_writes(first, 3)]
    asked += [(second, c) for c in send_writes(second, 3)]
    gates = host.arrive(2)
    host.wire().command(nbd.FLUSH)
    host.nobody_else()
    finish(host, gates, 4)
    for wire, cookie in asked:
        wire.expect_ok(cookie)
    assert most_inside(host) == 2


@case("plugin.serialize-all-requests", req=["THR-03", "THR-05"])
@pytest.mark.parametrize(
    "model", ["SERIALIZE_ALL_REQUESTS", None], ids=["asked-for", "default"]
)
def test_serialize_all_requests(plugin, model):
    """One callback in all is in the plugin, whoever asked for it."""
    host = plugin(program(model))
    first, second = host.wire(), host.wire()
    asked = [(first, c) for c in send_writes(first, 3)]
    asked += [(second, c) for c in send_writes(second, 3)]
    finish(host, host.arrive(1), 5)
    for wire, cookie in asked:
        wire.expect_ok(cookie)
    assert most_inside(host) == 1


@case("plugin.serialize-connections", req=["THR-04"])
def test_serialize_connections(plugin):
    """A second client is served when the first has gone, and only then."""
    host = plugin(program("SERIALIZE_CONNECTIONS"))
    first = host.wire()
    second = host.raw()
    asked = send_writes(first, 2)
    finish(host, host.arrive(1), 1)
    for cookie in asked:
        first.expect_ok(cookie)
    first.leave()
    second.greet()
    second.transmit()
    second.command(nbd.FLUSH)
    assert most_inside(host) == 1
