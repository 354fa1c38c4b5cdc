# SPDX-License-Identifier: BSD-3-Clause
"""Nothing grows: memory, descriptors and threads over many calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.payloads import go_payload
from nbdspec.verdict import NotApplicable

SECTION = "plugin.growth"

#: Calls in one of the rounds; the first rounds are for everything to find its size.
CALLS = 500
ROUNDS = 4
#: Bytes for each call that would be a leak: less than the smallest object kept.
SLOPE = 150

PLUGIN = """
def good(h, *args): pass
def bad(h, *args):
    local = bytearray(65536)
    raise ValueError("with 64 KiB at hand")
pwrite = flush = trim = zero = cache = {what}
def extents(h, count, offset, flags):
    if {what} is bad:
        bad(h)
    return [(offset + i, 1, i % 4) for i in range(count)]
{pread}
"""


def slope(plugin, step) -> float:
    """Bytes of growth for each call, over the later half of the rounds."""
    maps = Path(f"/proc/{plugin.process.pid}/maps").read_text()
    if "libasan.so" in maps or "libtsan.so" in maps:
        raise NotApplicable("a sanitizer remembers what was freed")
    sizes = []
    for _ in range(ROUNDS):
        step(CALLS)
        plugin.eval("__import__('gc').collect()")
        sizes.append(plugin.process.resident())
    half = ROUNDS // 2
    return (sizes[-1] - sizes[half - 1]) / (CALLS * (ROUNDS - half))


REQUESTS = {
    "pread": (nbd.READ, 4096),
    "pwrite": (nbd.WRITE, 4096),
    "flush": (nbd.FLUSH, 0),
    "trim": (nbd.TRIM, 4096),
    "zero": (nbd.WRITE_ZEROES, 4096),
    "cache": (nbd.CACHE, 4096),
    "extents": (nbd.BLOCK_STATUS, 64),
}


def sender(wire, name: str):
    command, length = REQUESTS[name]
    data = bytes(length) if name == "pwrite" else b""

    def step(count: int) -> None:
        for _ in range(count // 20):
            more = {"data": data} if data else {}
            asked = [wire.request(command, 0, length, **more) for _ in range(20)]
            for cookie in asked:
                wire.wait(cookie)

    return step


def load(hosts, what: str, api: int):
    pread = {
        ("good", 1): "def pread(h, count, offset): return bytes(count)",
        ("good", 2): "pread = good",
    }.get((what, api), "pread = bad")
    return hosts.load(PLUGIN.format(what=what, pread=pread), api=api, record=False)


@case("plugin.growth.good", req=["PY-GROW-01"])
@pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])
@pytest.mark.parametrize("name", REQUESTS)
def test_good(hosts, api, name):
    """Good requests leave nothing behind."""
    plugin = load(hosts, "good", api)
    wire = plugin.go(contexts=("base:allocation",))
    wire.conn.transcript.steps.clear()
    found = slope(plugin, sender(wire, name))
    assert found < SLOPE, f"{found:.0f} bytes for each call"


@case("plugin.growth.failing", req=["PY-GROW-02"])
@pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])
@pytest.mark.parametrize("name", REQUESTS)
def test_failing(hosts, api, name):
    """Failing requests leave nothing behind, though 64 KiB were in a local."""
    plugin = load(hosts, "bad", api)
    wire = plugin.go(contexts=("base:allocation",))
    found = slope(plugin, sender(wire, name))
    assert found < SLOPE, f"{found:.0f} bytes for each call"


@case("plugin.growth.connections", req=["PY-GROW-03"])
@pytest.mark.parametrize("model", [1, 3])
def test_connections(hosts, model):
    """Connections leave no memory, descriptor or thread behind."""
    plugin = hosts.load("", model=model, record=False)

    def step(count: int) -> None:
        for _ in range(count // 10):
            wire = plugin.go()
            wire.read(512, 0)
            wire.leave()
        plugin.settle()

    step(CALLS)
    process = plugin.process
    before = (process.descriptors(), process.threads())
    found = slope(plugin, step) * 10
    plugin.settle()
    plugin.host.wait(
        f"the {before[0]} descriptors and {before[1]} threads of before",
        lambda: process.descriptors() <= before[0] and process.threads() <= before[1],
    )
    assert found < 10 * SLOPE, f"{found:.0f} bytes for each connection"


@case("plugin.growth.control", req=["PY-GROW-04"])
@pytest.mark.parametrize("what", ["list", "tuples", "refused", "info"])
def test_control(hosts, what):
    """Listings, questions and refusals leave nothing behind."""
    plugin = hosts.load(
        f"""
def list_exports(r, t):
    names = [f"export {{i}} with a name" for i in range(20)]
    return [(n, "words") for n in names] if {what == "tuples"} else names
def open(readonly):
    if nbdkit.export_name() == "bad":
        local = bytearray(65536)
        raise ValueError("refused")
    return Handle()
""",
        record=False,
    )

    def ask(wire) -> None:
        if what in ("list", "tuples"):
            wire.option(nbd.LIST)
            wire.final(nbd.LIST)
        else:
            name = "bad" if what == "refused" else "x"
            wire.option(nbd.INFO, go_payload(name))
            wire.final(nbd.INFO)

    def step(count: int) -> None:
        # One LIST a connection, and not too many options: hosts have limits.
        for _ in range(count // 10):
            wire = plugin.wire()
            ask(wire)
            wire.leave()
        plugin.settle()

    found = slope(plugin, step) * 10
    limit = 20 * SLOPE
    assert found < limit, f"{found:.0f} bytes for each"


@case("plugin.growth.results", req=["PY-GROW-05", "PY-LIFE-24"])
def test_results(hosts):
    """What callbacks return, and the handle, are let go."""
    plugin = hosts.load(
        """
import gc, weakref
class Thing(list): pass
alive = weakref.WeakSet()
class Result:
    pass
def made(value=None):
    thing = Result()
    alive.add(thing)
    return thing
def open(readonly): return made()
def pwrite(h, *args): return made()
def flush(h, *args): return made()
def pread(h, *args): return made()
def close(h): return made()
""",
        record=False,
    )
    client = plugin.client()
    for _ in range(10):
        client.pwrite(b"x", 0)
        client.flush()
        client.pread(512, 0)
    assert plugin.eval("len(alive)") == 1, "more than the handle is alive"
    client.close()
    plugin.settle()
    plugin.host.wait(
        "the handle to be let go", lambda: plugin.eval("len(alive)") == 0
    )
