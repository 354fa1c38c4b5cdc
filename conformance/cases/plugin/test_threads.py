# SPDX-License-Identifier: BSD-3-Clause
"""Thread models and -t: how many callbacks are inside at once, by gates, not clocks."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.payloads import go_payload, option
from nbdspec.sources import GATED, REQUIRED, threads, write

SECTION = "plugin.threads"

CONNECTIONS, ALL_REQUESTS, REQUESTS, PARALLEL = range(4)

def exactly(plugin, asked: list, allowed: int) -> None:
    """min (allowed, sent) are inside; for each that leaves exactly one enters."""
    count = min(allowed, len(asked))
    plugin.inside(count)
    for left in range(len(asked) - count):
        plugin.release(1)
        numbers = plugin.entered(count + left + 1)
        assert numbers["inside"] <= count, f"{numbers['inside']} inside, not {count}"
    plugin.open_gate()
    for wire, cookie in asked:
        wire.expect_ok(cookie)
    most = plugin.numbers()["most"]
    assert most == count, f"{most} callbacks were inside at once, not {count}"


@case("plugin.threads.parallel", req=["PY-THR-05", "PY-THR-11", "PY-THR-08"])
@pytest.mark.parametrize("sent", [1, 2, 8, 20, 128])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 16, 64])
def test_parallel(hosts, count, sent):
    """PARALLEL, -t N: exactly min (N, sent) callbacks are inside."""
    plugin = hosts.load(GATED, model=PARALLEL, options=threads(count), record=False)
    exactly(plugin, write(plugin.go(chop="segment"), sent), count)


@case("plugin.threads.default", req=["PY-THR-07"])
@pytest.mark.parametrize("count", [None, 0], ids=["unsaid", "0"])
def test_default(hosts, count):
    """Without -t, and with -t 0, there are 16."""
    plugin = hosts.load(GATED, model=PARALLEL, options=threads(count), record=False)
    exactly(plugin, write(plugin.go(), 24), 16)


@case("plugin.threads.per-connection", req=["PY-THR-06", "PY-THR-05"])
@pytest.mark.parametrize("wires", [2, 3, 4])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_per_connection(hosts, count, wires):
    """-t is per connection: W connections have W times as many."""
    plugin = hosts.load(GATED, model=PARALLEL, options=threads(count), record=False)
    asked = [one for _ in range(wires) for one in write(plugin.go(), count)]
    exactly(plugin, asked, count * wires)


@case("plugin.threads.each-connection-its-own", req=["PY-THR-06"])
def test_each_connection_its_own(hosts):
    """A connection that has all its own inside takes none of another's places."""
    plugin = hosts.load(
        "def pwrite(h, buf, offset, flags): hold(str(bytes(buf), 'ascii'))",
        model=PARALLEL,
        options=threads(3),
        record=False,
    )
    asked = []
    for name in ("a", "b"):
        wire = plugin.go()
        data = name.encode()
        asked += [(wire, wire.request(nbd.WRITE, i, data=data)) for i in range(9)]
    assert plugin.inside(3, "a")["inside"] == 3
    assert plugin.inside(3, "b")["inside"] == 3
    plugin.open_gate("a")
    plugin.open_gate("b")
    for wire, cookie in asked:
        wire.expect_ok(cookie)
    assert (plugin.numbers("a")["most"], plugin.numbers("b")["most"]) == (3, 3)


@case("plugin.threads.serial", req=["PY-THR-03", "PY-THR-09", "PY-DEF-11"])
@pytest.mark.parametrize("model", [ALL_REQUESTS, None], ids=["asked", "default"])
@pytest.mark.parametrize("count", [None, 8])
@pytest.mark.parametrize("sent", [2, 24])
def test_serial(hosts, model, count, sent):
    """SERIALIZE_ALL_REQUESTS: one, whatever -t says."""
    plugin = hosts.load(GATED, model=model, options=threads(count), record=False)
    exactly(plugin, write(plugin.go(), sent), 1)


@case("plugin.threads.serial-all", req=["PY-THR-03", "PY-THR-09"])
def test_serial_all(hosts):
    """SERIALIZE_ALL_REQUESTS: one in all connections together."""
    plugin = hosts.load(GATED, model=ALL_REQUESTS, record=False)
    wires = [plugin.go() for _ in range(3)]
    exactly(plugin, [one for wire in wires for one in write(wire, 3)], 1)


@case("plugin.threads.serial-requests", req=["PY-THR-04", "PY-THR-09"])
@pytest.mark.parametrize("wires", [1, 2, 4])
@pytest.mark.parametrize("count", [None, 8])
def test_serial_requests(hosts, wires, count):
    """SERIALIZE_REQUESTS: one for each connection, whatever -t says."""
    plugin = hosts.load(GATED, model=REQUESTS, options=threads(count), record=False)
    asked = []
    for _ in range(wires):
        asked += write(plugin.go(), 1)
    exactly(plugin, asked, wires)
    more = [one for wire, _ in asked for one in write(wire, 3)]
    for wire, cookie in more:
        wire.expect_ok(cookie)


@case("plugin.threads.serial-requests-each", req=["PY-THR-04"])
def test_serial_requests_each(hosts):
    """SERIALIZE_REQUESTS: of one connection never two, however long one takes."""
    plugin = hosts.load(
        "import time\n"
        "here = set()\n"
        "def pwrite(h, buf, offset, flags): hold(str(bytes(buf), 'ascii'))\n"
        "def pread(h, buf, offset, flags):\n"
        "    here.add(offset)\n"
        "    time.sleep(0.01)\n"
        "    buf[:] = bytes([len(here)])\n"
        "    here.remove(offset)\n",
        model=REQUESTS,
        record=False,
    )
    wires = {name: plugin.go() for name in ("a", "b")}
    asked = []
    for name, wire in wires.items():
        data = name.encode()
        asked += [(wire, wire.request(nbd.WRITE, i, data=data)) for i in range(4)]
    plugin.inside(1, "a")
    plugin.inside(1, "b")
    for left in range(3):
        plugin.release(1, "a")
        assert plugin.entered(left + 2, "a")["inside"] <= 1
    plugin.open_gate("a")
    plugin.open_gate("b")
    for wire, cookie in asked:
        wire.expect_ok(cookie)
    assert (plugin.numbers("a")["most"], plugin.numbers("b")["most"]) == (1, 1)
    wire = wires["a"]
    for cookie in [wire.request(nbd.READ, i, 1) for i in range(8)]:
        wire.expect_data(cookie, b"\1")


@case("plugin.threads.serial-connections", req=["PY-THR-01", "PY-THR-09"])
@pytest.mark.parametrize("count", [None, 8])
def test_serial_connections(hosts, count):
    """SERIALIZE_CONNECTIONS: the second client is served when the first is gone."""
    plugin = hosts.load(GATED, model=CONNECTIONS, options=threads(count))
    first = plugin.go()
    second = plugin.connect()
    # all that it has to say to be let in, ahead of the greeting it waits for
    flags = nbd.FIXED_NEWSTYLE | nbd.NO_ZEROES
    words = flags.to_bytes(4, "big") + option(nbd.GO, go_payload("x"))
    second.conn.send(words, "client flags and GO")
    exactly(plugin, write(first, 4), 1)
    assert len(plugin.names("open")) == 1
    first.leave()
    second.greeting()
    second.export = second.expect_export(nbd.GO)
    second.phase = "transmission"
    second.read(512, 0)
    order = plugin.names("open", "close")
    assert order == ["open", "close", "open"], f"{order}"


@case("plugin.threads.multi-conn", req=["PY-THR-02", "PY-THR-25"])
@pytest.mark.parametrize("model", [CONNECTIONS, ALL_REQUESTS, REQUESTS, PARALLEL])
def test_multi_conn(hosts, model):
    """CAN_MULTI_CONN is offered by all models but SERIALIZE_CONNECTIONS."""
    source = GATED + "def can_multi_conn(h): return True"
    wire = hosts.load(source, model=model).go()
    offered = bool(wire.export.flags & nbd.CAN_MULTI_CONN)
    assert offered == (model != CONNECTIONS)


@case("plugin.threads.wrong", req=["PY-THR-10"])
@pytest.mark.parametrize("value", ["-1", "x", "", "1.5", "8x"])
def test_wrong(hosts, value):
    """A -t that is no number of threads is refused."""
    files = {"p.py": REQUIRED}
    done = hosts.command(
        ["-U", "s", "python", "p.py"], options=("-f", "-t", value), files=files
    )
    assert done.status == 1, done.words



@case("plugin.threads.model-by-config", req=["PY-THR-26", "PY-LIFE-28"])
@pytest.mark.parametrize("model", [0, 1, 2, 3])
def test_model_by_config(hosts, model):
    """thread_model may depend on what config was given."""
    source = REQUIRED + """
chosen = None
def config(key, value):
    global chosen
    chosen = int(value)
def thread_model(): return chosen
"""
    done = hosts.command(
        ["--dump-plugin", "python", "p.py", f"m={model}"], files={"p.py": source}
    )
    name = (
        "serialize_connections serialize_all_requests serialize_requests parallel"
    ).split()[model]
    assert f"thread_model={name}" in done.out.splitlines(), done.words
