# SPDX-License-Identifier: BSD-3-Clause
"""The functions of `import nbdkit` that end something: nanosleep's way out, shutdown
and disconnect."""

from __future__ import annotations

import signal

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.verdict import Closed

SECTION = "plugin.module"


@case("plugin.module.nanosleep-woken", req=["PY-MOD-42"])
@pytest.mark.parametrize("how", ["client", "server"])
def test_nanosleep_woken(hosts, how):
    """nanosleep ends when its client leaves, or the server."""
    plugin = hosts.start(
        """
import nbdkit
from recording import note, raised
API_VERSION = 2
def open(r): return 1
def get_size(h): return 4096
def pread(h, buf, offset, flags):
    note("sleeps")
    note("woken", raised(nbdkit.nanosleep, 100, 0) is not None)
def close(h): note("close")
"""
    )
    wire = plugin.go()
    wire.request(nbd.READ, 0, 512)
    plugin.wait_calls("sleeps")
    wire.pending.clear()
    if how == "client":
        wire.conn.close()
        plugin.wait_calls("close")
    else:
        plugin.process.send(signal.SIGTERM)
        assert plugin.process.wait(10) == 0, "it did not end"
        wire.conn.close()
    woken = [call.args for call in plugin.calls("woken")]
    assert woken == [["True"]], f"nanosleep: {woken}, or it is not there"


SERVED = """
import nbdkit
from recording import note
API_VERSION = 2
def thread_model(): return nbdkit.THREAD_MODEL_PARALLEL
def open(r): return 1
def get_size(h): return 4096
def pread(h, buf, offset, flags): pass
def close(h): note("close")
def cleanup(): note("cleanup")
"""


@case("plugin.module.shutdown", req=["PY-MOD-18", "PY-END-08"])
@pytest.mark.parametrize("times", [1, 2])
def test_shutdown(hosts, times):
    """shutdown: the request is answered, then the server ends in order."""
    source = SERVED + f"""
def flush(h, flags):
    for _ in range({times}):
        nbdkit.shutdown()
"""
    plugin = hosts.start(source)
    wire = plugin.go()
    wire.command(nbd.FLUSH)
    wire.conn.close()
    assert plugin.process.wait(10) == 0, plugin.process.end_in_words()
    assert plugin.names()[-1:] == ["cleanup"]


@case("plugin.module.shutdown-together", req=["PY-END-08"])
def test_shutdown_together(hosts):
    """Several connections that call shutdown at once end the server once."""
    source = SERVED + """
import threading
together = threading.Barrier(4)
def flush(h, flags):
    together.wait(10)
    nbdkit.shutdown()
"""
    plugin = hosts.start(source)
    wires = [plugin.go() for _ in range(4)]
    for wire in wires:
        wire.request(nbd.FLUSH)
        wire.pending.clear()
    plugin.host.wait("cleanup", lambda: plugin.names("cleanup") or None)
    for wire in wires:
        wire.conn.close()
    assert plugin.process.wait(10) == 0, plugin.process.end_in_words()
    assert plugin.names("cleanup") == ["cleanup"]


@case("plugin.module.shutdown-early", req=["PY-MOD-20"])
@pytest.mark.parametrize("where", ["top", "get_ready"])
def test_shutdown_early(hosts, where):
    """shutdown before serving: the server ends as soon as it would serve."""
    call = "nbdkit.shutdown()\n"
    source = SERVED + (call if where == "top" else f"def get_ready(): {call}")
    done = hosts.command(
        ["-U", "s", "python", "p.py"], options=("-f",), files={"p.py": source}
    )
    assert done.status == 0, done.words
    assert done.names("cleanup") == ["cleanup"]


DISCONNECT = """
def pwrite(h, buf, offset, flags): nbdkit.disconnect(bool(offset))
def trim(h, count, offset, flags): hold()
"""


@case("plugin.module.disconnect", req=["PY-MOD-21"])
def test_disconnect(hosts):
    """disconnect (True) ends the connection at once; the server lives."""
    plugin = hosts.load(DISCONNECT, record=False, model=3)
    wire, other = plugin.go(), plugin.go()
    cookie = wire.request(nbd.WRITE, 1, data=b"x")
    try:
        wire.wait(cookie)
        wire.in_step()
    except Closed:
        wire.pending.clear()
    else:
        raise AssertionError("the connection goes on")
    other.read(512, 0)


@case("plugin.module.disconnect-soft", req=["PY-MOD-22"])
def test_disconnect_soft(hosts):
    """disconnect (False): what is under way is answered, then comes the end."""
    plugin = hosts.load(DISCONNECT, record=False, model=3)
    wire = plugin.go()
    slow = wire.request(nbd.TRIM, 0, 512)
    plugin.inside(1)
    soft = wire.request(nbd.WRITE, 0, data=b"x")
    wire.expect_ok(soft)
    plugin.open_gate()
    wire.expect_ok(slow)
    later = wire.request(nbd.READ, 0, 512)
    try:
        assert wire.wait(later).error == nbd.ESHUTDOWN
    except Closed:
        wire.pending.clear()
    wire.conn.close()
    plugin.settle()
