# SPDX-License-Identifier: BSD-3-Clause
"""Nobody is held up: replies in any order, slow callbacks, clients that leave."""

from __future__ import annotations

import contextlib
import socket

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.payloads import pattern
from nbdspec.sources import GATED, threads, write

SECTION = "plugin.threads"

CONNECTIONS, ALL_REQUESTS, REQUESTS, PARALLEL = range(4)


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
