# SPDX-License-Identifier: BSD-3-Clause
"""What the server's threads are to a script, and what its own do beside them."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.payloads import pattern
from nbdspec.sources import GATED, threads, write

SECTION = "plugin.threads"

CONNECTIONS, ALL_REQUESTS, REQUESTS, PARALLEL = range(4)

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
    assert plugin.eval("until(3)"), "while a client says nothing"
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
