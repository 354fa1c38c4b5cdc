# SPDX-License-Identifier: BSD-3-Clause
"""Thread models and -t: how many callbacks are inside at once, by gates, not clocks."""

from __future__ import annotations

import contextlib
import socket

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.payloads import pattern

SECTION = "plugin.threads"

CONNECTIONS, ALL_REQUESTS, REQUESTS, PARALLEL = range(4)

#: Each WRITE waits in the gate; reads and flushes do not.
GATED = """
def pwrite(h, buf, offset, flags): hold()
def flush(h, flags): pass
"""


def threads(count: int | None) -> tuple[str, ...]:
    return () if count is None else ("-t", str(count))


def write(wire, count: int) -> list:
    """Sends so many writes; a wire that holds back sends them in one go."""
    cookies = [wire.request(nbd.WRITE, 512 * i, data=b"w") for i in range(count)]
    wire.conn.flush()
    return [(wire, cookie) for cookie in cookies]


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
    """SERIALIZE_REQUESTS: of one connection never two."""
    plugin = hosts.load(
        "def pwrite(h, buf, offset, flags): hold(str(bytes(buf), 'ascii'))",
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


@case("plugin.threads.serial-connections", req=["PY-THR-01", "PY-THR-09"])
@pytest.mark.parametrize("count", [None, 8])
def test_serial_connections(hosts, count):
    """SERIALIZE_CONNECTIONS: the second client is served when the first is gone."""
    plugin = hosts.load(GATED, model=CONNECTIONS, options=threads(count))
    first = plugin.go()
    second = plugin.connect()
    exactly(plugin, write(first, 4), 1)
    assert len(plugin.names("open")) == 1
    first.leave()
    second.greet()
    second.go("x")
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
    files = {"p.py": THREE}
    done = hosts.command(
        ["-U", "s", "python", "p.py"], options=("-f", "-t", value), files=files
    )
    assert done.status == 1, done.words


THREE = """import nbdkit
def open(readonly): pass
def get_size(h): return 4096
def pread(h, *args): pass
"""


@case("plugin.threads.model-by-config", req=["PY-THR-26", "PY-LIFE-28"])
@pytest.mark.parametrize("model", [0, 1, 2, 3])
def test_model_by_config(hosts, model):
    """thread_model may depend on what config was given."""
    source = THREE + """
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


@case("plugin.threads.out-of-order", req=["PY-THR-12"])
def test_out_of_order(hosts):
    """PARALLEL: what is finished first is answered first."""
    plugin = hosts.load(
        "def pwrite(h, buf, offset, flags): hold(str(offset))",
        model=PARALLEL,
        record=False,
    )
    wire = plugin.go()
    cookies = [wire.request(nbd.WRITE, i, data=b"w") for i in range(4)]
    for i in range(4):
        plugin.inside(1, str(i))
    for i in (2, 0, 3, 1):
        plugin.open_gate(str(i))
        assert wire.wait_any().request.cookie == cookies[i]


@case("plugin.threads.in-order", req=["PY-THR-12", "PY-THR-13"])
@pytest.mark.parametrize("model", [CONNECTIONS, ALL_REQUESTS, REQUESTS])
def test_in_order(hosts, model):
    """Under the serial models requests are called and answered in order."""
    source = "def pwrite(h, buf, offset, flags): note('at', offset)"
    plugin = hosts.load(source, model=model, record=False)
    wire = plugin.go()
    cookies = [wire.request(nbd.WRITE, i, data=b"w" * (1 + i)) for i in range(100)]
    assert [wire.wait_any().request.cookie for _ in cookies] == cookies
    assert [call.args[0] for call in plugin.calls("at")] == [str(i) for i in range(100)]


@case("plugin.threads.none-lost", req=["PY-THR-13", "PY-THR-29"])
@pytest.mark.parametrize("count", [3, 16])
def test_none_lost(hosts, count):
    """10,000 requests: each called once, answered once; never more than -t inside."""
    plugin = hosts.load(
        """
import collections
lock = threading.Lock()
now = most = 0
seen = collections.Counter()
def pread(h, buf, offset, flags):
    global now, most
    with lock:
        now += 1
        most = max(most, now)
        seen[offset] += 1
    buf[:] = offset.to_bytes(8, "big")
    with lock:
        now -= 1
""",
        model=PARALLEL,
        options=threads(count),
        record=False,
    )
    wire = plugin.go(chop="segment")
    total, window = 10000, 250
    offsets = {}
    for first in range(0, total, window):
        for i in range(first, first + window):
            offsets[wire.request(nbd.READ, 8 * i, 8)] = 8 * i
        for _ in range(window):
            reply = wire.wait_any()
            offset = offsets.pop(reply.request.cookie)
            assert bytes(reply.data) == pattern(offset, 8), f"the data of {offset}"
    assert plugin.eval("len(seen)") == total and plugin.eval("max(seen.values())") == 1
    most = plugin.eval("most")
    assert most <= count, f"{most} inside at once"


@case("plugin.threads.fed-by-another", req=["PY-THR-14"])
def test_fed_by_another(hosts):
    """A callback may wait for what another request of its connection brings."""
    plugin = hosts.load(
        """
import socket
here, there = socket.socketpair()
def pread(h, buf, offset, flags):
    buf[:] = here.recv(len(buf), socket.MSG_WAITALL)
def pwrite(h, buf, offset, flags):
    there.sendall(buf)
""",
        model=PARALLEL,
        options=threads(2),
        record=False,
    )
    wire = plugin.go()
    read = wire.request(nbd.READ, 0, 4096)
    for i in range(8):
        wire.write(pattern(512 * i, 512), 512 * i)
    wire.expect_data(read, pattern(0, 4096))


@case("plugin.threads.beside-one-that", req=["PY-THR-14", "PY-THR-21"])
@pytest.mark.parametrize("what", ["waits", "sleeps", "computes"])
def test_beside_one_that(hosts, what):
    """One that waits, sleeps or computes does not hold up the others."""
    body = {
        "waits": "hold()",
        "sleeps": "while not gate().open: time.sleep(0.001)",
        "computes": "while not gate().open: sum(range(100))",
    }[what]
    plugin = hosts.load(
        f"""
import time
def pwrite(h, buf, offset, flags):
    note("in")
    {body}
""",
        model=PARALLEL,
        options=threads(2),
        record=False,
    )
    wire = plugin.go()
    cookie = wire.request(nbd.WRITE, 0, data=b"w")
    plugin.wait_calls("in")
    for _ in range(20):
        wire.read(512, 0)
    plugin.open_gate()
    wire.expect_ok(cookie)


@case("plugin.threads.handshake-under-load", req=["PY-THR-15", "PY-THR-23"])
def test_handshake_under_load(hosts):
    """New clients come in, ask and leave while all threads of another are busy."""
    plugin = hosts.load(GATED, model=PARALLEL, options=threads(2), record=False)
    busy = plugin.go()
    asked = write(busy, 6)
    plugin.inside(2)
    for _ in range(3):
        wire = plugin.wire()
        wire.list()
        wire.info("x")
        wire.go("x")
        wire.read(512, 0)
        wire.leave()
    plugin.open_gate()
    for wire, cookie in asked:
        wire.expect_ok(cookie)


@case("plugin.threads.slow-open", req=["PY-THR-23", "PY-THR-15"])
def test_slow_open(hosts):
    """PARALLEL: one client in a slow open holds nobody up."""
    plugin = hosts.load(
        """
slow = False
def open(readonly):
    if slow:
        hold()
    return Handle()
""",
        model=PARALLEL,
    )
    first = plugin.go()
    plugin.exec("slow = True")
    second = plugin.wire()
    from nbdspec.payloads import go_payload

    second.option(nbd.GO, go_payload("x"))
    plugin.inside(1)
    first.read(512, 0)
    plugin.exec("slow = False")
    third = plugin.go()
    third.read(512, 0)
    plugin.open_gate()
    second.expect_export(nbd.GO)


@case("plugin.threads.stalled-handshake", req=["PY-THR-22"])
@pytest.mark.parametrize("model", [ALL_REQUESTS, REQUESTS, PARALLEL])
def test_stalled_handshake(hosts, model):
    """A client that says nothing in its handshake holds nobody up."""
    plugin = hosts.load(GATED, model=model)
    first = plugin.go()
    plugin.connect().greeting()
    first.read(512, 0)
    second = plugin.go()
    second.read(512, 0)


@case("plugin.threads.gone-while-busy", req=["PY-THR-16", "PY-END-01"])
@pytest.mark.parametrize("model", [ALL_REQUESTS, REQUESTS, PARALLEL])
def test_gone_while_busy(hosts, model):
    """A client goes while its callbacks run: they end, then comes close."""
    plugin = hosts.load(
        """
def pwrite(h, buf, offset, flags):
    hold()
    note("done")
""",
        model=model,
        options=threads(3),
    )
    wire = plugin.go()
    write(wire, 3)
    count = 3 if model == PARALLEL else 1
    plugin.inside(count)
    wire.pending.clear()
    wire.conn.close()
    if model == PARALLEL:
        other = plugin.go()
        other.read(512, 0)
        other.leave()
        plugin.wait_calls("close")
    before = 1 if model == PARALLEL else 0
    assert plugin.names("close", "done") == ["close"] * before, "close came too early"
    plugin.open_gate()
    plugin.settle()
    order = plugin.names("close", "done")[before:]
    assert order.count("done") >= count
    assert order.index("close") >= count, f"{order}"


SQLITE = """
import sqlite3
def open(readonly):
    db = sqlite3.connect(":memory:")
    db.execute("create table t (k integer primary key, v blob)")
    return db
def pwrite(h, buf, offset, flags):
    h.execute("insert or replace into t values (?, ?)", (offset, buf))
def pread(h, buf, offset, flags):
    buf[:] = h.execute("select v from t where k = ?", (offset,)).fetchone()[0]
def flush(h, flags): h.commit()
def close(h): h.close()
"""


@case("plugin.threads.sqlite", req=["PY-THR-18", "PY-USE-13"])
@pytest.mark.parametrize("model", [CONNECTIONS, ALL_REQUESTS, REQUESTS])
def test_sqlite(hosts, model):
    """Under the serial models an sqlite3 connection made in open works."""
    plugin = hosts.load(SQLITE, model=model, record=False)
    wire = plugin.go()
    for i in range(20):
        wire.write(pattern(512 * i, 512), 512 * i)
    wire.command(nbd.FLUSH)
    for i in range(20):
        assert wire.read(512, 512 * i) == pattern(512 * i, 512)
    wire.leave()
    plugin.settle()
    assert "ProgrammingError" not in plugin.log()


@case("plugin.threads.one-thread", req=["PY-THR-18"])
@pytest.mark.parametrize("model", [CONNECTIONS, ALL_REQUESTS, REQUESTS])
def test_one_thread(hosts, model):
    """Under the serial models all callbacks of a connection are on one thread."""
    plugin = hosts.load(GATED.replace("hold()", "pass"), model=model)
    wire = plugin.go()
    for size in (1, 4096, 65536, 1 << 20):
        cookies = [wire.request(nbd.WRITE, 0, data=b"w" * size) for _ in range(8)]
        for cookie in cookies:
            wire.expect_ok(cookie)
        wire.read(size, 0)
    wire.leave()
    plugin.settle()
    seen = {call.thread for call in plugin.calls()}
    assert len(seen) == 1, f"{len(seen)} threads"


@case("plugin.threads.own-threads", req=["PY-THR-19"])
def test_own_threads(hosts):
    """Under PARALLEL callbacks that run side by side are on different threads."""
    plugin = hosts.load(GATED, model=PARALLEL, options=threads(4))
    wire = plugin.go()
    asked = write(wire, 4)
    plugin.inside(4)
    plugin.open_gate()
    for _, cookie in asked:
        wire.expect_ok(cookie)
    assert len({call.thread for call in plugin.calls("pwrite")}) == 4
    assert not any(call.main for call in plugin.calls("pwrite"))


LOCAL = """
import contextvars, decimal
local = threading.local()
var = contextvars.ContextVar("var")
def pwrite(h, buf, offset, flags):
    note("was", getattr(local, "at", None), var.get(None), decimal.getcontext().prec)
    local.at = offset
    var.set(offset)
    decimal.getcontext().prec = 5
    note("name", threading.current_thread().name == "MainThread")
"""


@case("plugin.threads.local", req=["PY-THR-20"])
@pytest.mark.parametrize("model", [ALL_REQUESTS, REQUESTS, PARALLEL])
def test_local(hosts, model):
    """threading.local, context variables and the like last on their thread."""
    plugin = hosts.load(LOCAL, model=model, options=threads(1), record=False)
    wire = plugin.go()
    for i in range(5):
        wire.write(b"w", i)
    last: dict[int, str] = {}
    calls = plugin.calls("was")
    for i, call in enumerate(calls):
        before = last.get(call.thread)
        expected = [before, before, "5"] if before else call.args
        assert call.args == expected, f"{call} on a thread that had {before}"
        last[call.thread] = str(i)
    assert len(last) < len(calls), "no thread was used twice"


@case("plugin.threads.background", req=["PY-THR-21", "PY-LIFE-36"])
def test_background(hosts):
    """A thread of the plugin runs while the host is idle and while callbacks wait."""
    plugin = hosts.load(
        """
import itertools
ticks = 0
def tick():
    global ticks
    while not gate("end").open:
        ticks += 1
        gate("end").changed.acquire(); gate("end").changed.wait(0.001)
        gate("end").changed.release()
def until(more):
    target = ticks + more
    while ticks < target:
        gate("end").changed.acquire(); gate("end").changed.wait(0.001)
        gate("end").changed.release()
    return True
threading.Thread(target=tick, daemon=True).start()
def pwrite(h, buf, offset, flags): hold()
""",
        record=False,
    )
    assert plugin.eval("until(3)"), "idle"
    wire = plugin.go()
    cookie = wire.request(nbd.WRITE, 0, data=b"w")
    plugin.inside(1)
    assert plugin.eval("until(3)"), "while a callback waits"
    plugin.open_gate()
    plugin.open_gate("end")
    wire.expect_ok(cookie)


@case("plugin.threads.asyncio", req=["PY-THR-24"])
@pytest.mark.parametrize("model", [ALL_REQUESTS, PARALLEL])
def test_asyncio(hosts, model):
    """asyncio.run works in a callback, again and again."""
    plugin = hosts.load(
        """
import asyncio
async def fill(buf, byte):
    await asyncio.sleep(0)
    buf[:] = bytes([byte]) * len(buf)
def pread(h, buf, offset, flags): asyncio.run(fill(buf, offset % 256))
""",
        model=model,
        record=False,
    )
    wire = plugin.go()
    for i in range(10):
        assert wire.read(512, i) == bytes([i]) * 512


@case("plugin.threads.slow-close", req=["PY-THR-28"])
def test_slow_close(hosts):
    """SERIALIZE_ALL_REQUESTS: no data callback runs during another one's close."""
    plugin = hosts.load(
        """
def close(h):
    note("close")
    hold()
    note("closed")
def pwrite(h, buf, offset, flags): note("write")
""",
        model=ALL_REQUESTS,
        record=False,
    )
    first, second = plugin.go(), plugin.go()
    first.conn.close()
    plugin.inside(1)
    cookie = second.request(nbd.WRITE, 0, data=b"w")
    plugin.wait_calls("close")
    plugin.open_gate()
    second.expect_ok(cookie)
    assert plugin.names() == ["close", "closed", "write"]


@case("plugin.threads.end-while-busy", req=["PY-THR-17", "PY-END-04", "PY-END-06"])
@pytest.mark.parametrize("model", [ALL_REQUESTS, REQUESTS, PARALLEL])
def test_end_while_busy(hosts, model):
    """SIGTERM with all threads busy: callbacks end, close, cleanup, status 0."""
    plugin = hosts.start(
        f"""
import nbdkit, threading
from recording import note
API_VERSION = 2
release = threading.Event()
def thread_model(): return {model}
def open(r): return 1
def get_size(h): return 4096
def pread(h, buf, offset, flags): release.set()
def pwrite(h, buf, offset, flags):
    note("in")
    release.wait(10)
    note("out")
def close(h): note("close")
def cleanup(): note("cleanup")
def after_fork():
    import os
    def wait():
        with builtins.open("go", "rb"): release.set()
    import builtins
    os.mkfifo("go")
    threading.Thread(target=wait, daemon=True).start()
""",
        options=threads(2),
    )
    wire = plugin.go()
    asked = write(wire, 2)
    count = 2 if model == PARALLEL else 1
    plugin.wait_calls("in", count)
    plugin.process.send(15)
    with contextlib.suppress(BrokenPipeError):
        (plugin.host.directory / "go").open("wb").close()
    assert not wire.wait(asked[0][1]).error, "the callback's request was not answered"
    assert plugin.process.wait(10) == 0, plugin.process.end_in_words()
    order = plugin.names()
    assert order.count("out") >= count and order[-2:] == ["close", "cleanup"], f"{order}"


@case("plugin.threads.half-closed", req=["PY-END-02"])
@pytest.mark.parametrize("model", [ALL_REQUESTS, PARALLEL])
def test_half_closed(hosts, model):
    """A client that closes its sending side still gets the pending replies."""
    plugin = hosts.load(GATED, model=model, options=threads(2), record=False)
    wire = plugin.go()
    asked = write(wire, 2)
    plugin.inside(2 if model == PARALLEL else 1)
    wire.conn.sock.shutdown(socket.SHUT_WR)
    plugin.open_gate()
    for _, cookie in asked:
        wire.expect_ok(cookie)


@case("plugin.threads.replies-queued", req=["PY-END-03"])
@pytest.mark.parametrize("model", [ALL_REQUESTS, PARALLEL])
def test_replies_queued(hosts, model):
    """A client that goes with large replies on their way: the host lives."""
    plugin = hosts.load("", model=model, options=threads(8), record=False)
    for _ in range(3):
        wire = plugin.go()
        for i in range(16):
            wire.request(nbd.READ, i << 20, 1 << 20)
        wire.conn.read(4096, "the first bytes of a reply")
        wire.pending.clear()
        wire.conn.close()
    plugin.settle()
    plugin.go().read(512, 0)
