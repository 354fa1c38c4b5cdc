# SPDX-License-Identifier: BSD-3-Clause
"""Buffers that a plugin keeps: what they show later, and what they cannot harm."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.nbd import EIO

SECTION = "plugin.lifetimes"

both = pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])
MIB = 1 << 20

#: Ways to keep what pwrite was handed; each gives something that bytes () takes.
KEEP = {
    "view": "buf",
    "slice": "buf[:]",
    "cast": "buf.cast('Q')",
    "strided": "buf[::2]",
    "toreadonly": "buf.toreadonly()",
    "second-view": "memoryview(buf)",
}
PLUGIN = """
kept = []
def pwrite(h, buf, offset, *flags):
    kept.append(({keep}, bytes({keep})))
def unchanged():
    return [bytes(view) == data for view, data in kept]
"""


def letters(i: int, size: int) -> bytes:
    return bytes([65 + i]) * size


@case("plugin.lifetimes.pwrite", req=["PY-KEEP-01", "PY-KEEP-02"])
@both
@pytest.mark.parametrize("how", KEEP)
@pytest.mark.parametrize("size", [512, 65536, MIB])
def test_pwrite(hosts, api, how, size):
    """What is kept of a pwrite shows its own data after later requests."""
    plugin = hosts.load(PLUGIN.format(keep=KEEP[how]), api=api, record=False)
    client = plugin.client()
    for i in range(8):
        client.pwrite(letters(i, size), 0)
        client.pread(size, 0)
    assert plugin.eval("unchanged()") == [True] * 8, "a kept view changed"


@case("plugin.lifetimes.pwrite-then-larger", req=["PY-KEEP-01"])
@both
def test_pwrite_then_larger(hosts, api):
    """The same when later requests are larger."""
    plugin = hosts.load(PLUGIN.format(keep="buf"), api=api, record=False)
    client = plugin.client()
    for i, size in enumerate((512, 4096, 65536, MIB, 8 * MIB, 32 * MIB)):
        client.pwrite(letters(i, size), 0)
    assert plugin.eval("unchanged()") == [True] * 6, "a kept view changed"


@case("plugin.lifetimes.obj", req=["PY-KEEP-02"])
@both
def test_obj(hosts, api):
    """What buf.obj is keeps its data too, where a host has one."""
    plugin = hosts.load(
        """
kept = []
def pwrite(h, buf, offset, *flags):
    if buf.obj is not None:
        kept.append((buf.obj, bytes(buf)))
def unchanged():
    return [bytes(memoryview(o)) == data for o, data in kept]
""",
        api=api,
        record=False,
    )
    client = plugin.client()
    for i in range(8):
        client.pwrite(letters(i, 65536), 0)
    assert all(plugin.eval("unchanged()")), "a kept object changed"


@case("plugin.lifetimes.after-close", req=["PY-KEEP-03"])
@both
@pytest.mark.parametrize("size", [512, MIB])
def test_after_close(hosts, api, size):
    """A kept view can be read when its connection is closed."""
    plugin = hosts.load(PLUGIN.format(keep="buf"), api=api, record=False)
    for i in range(3):
        client = plugin.client()
        client.pwrite(letters(i, size), 0)
        client.close()
        plugin.settle()
    plugin.client().pread(size, 0)
    assert plugin.eval("unchanged()") == [True] * 3, "a kept view changed"


AT_EXIT = """
import atexit
from recording import note
API_VERSION = {api}
kept = []
def open(r): return 1
def get_size(h): return 1 << 30
def pread(h, *args): return bytes(args[0]) if API_VERSION == 1 else None
def pwrite(h, buf, offset, *flags): kept.append((buf, bytes(buf)))
def look(when): note(when, [bytes(v) == d for v, d in kept] == [True] * len(kept))
def cleanup(): look("cleanup")
atexit.register(look, "atexit")
"""


@case("plugin.lifetimes.at-exit", req=["PY-KEEP-04"])
@both
def test_at_exit(hosts, api):
    """A kept view can be read in cleanup and at exit, which is orderly."""
    plugin = hosts.start(AT_EXIT.format(api=api))
    client = plugin.client()
    for i in range(4):
        client.pwrite(letters(i, 65536), 0)
    client.close()
    plugin.process.send(15)
    assert plugin.process.wait(10) == 0, plugin.process.end_in_words()
    assert [str(c) for c in plugin.calls()] == ["cleanup(True)", "atexit(True)"]


SCRIBBLE = """
kept = []
def pread(h, buf, offset, flags):
    for view in kept:
        view[:] = b"E" * len(view)
    buf[:] = b"r" * len(buf)
    kept.append(buf)
def pwrite(h, buf, offset, flags):
    before = bytes(buf)
    for view in kept:
        view[:] = b"E" * len(view)
    note("same", bytes(buf) == before, before == b"w" * len(before))
"""


@case("plugin.lifetimes.scribble", req=["PY-KEEP-05"])
@pytest.mark.parametrize("size", [512, 65536, MIB])
def test_scribble(hosts, size):
    """Stores into kept pread views reach no client and no other buffer."""
    plugin = hosts.load(SCRIBBLE, record=False)
    client = plugin.client()
    for _ in range(4):
        assert client.pread(size, 0) == b"r" * size, "a kept view changed a reply"
        client.pwrite(b"w" * size, 0)
    assert [c.args for c in plugin.calls("same")] == [["True", "True"]] * 4


@case("plugin.lifetimes.scribble-thread", req=["PY-KEEP-06", "PY-KEEP-05"])
def test_scribble_thread(hosts):
    """A thread that writes into kept views all the time harms nothing."""
    plugin = hosts.load(
        """
kept = []
def scribble():
    while not gate("end").open:
        for view in kept[-8:]:
            view[:] = b"E" * len(view)
threading.Thread(target=scribble, daemon=True).start()
def pread(h, buf, offset, flags):
    buf[:] = b"r" * len(buf)
    note("filled", bytes(buf) == b"r" * len(buf))
    kept.append(buf)
def pwrite(h, buf, offset, flags):
    note("same", bytes(buf) == b"w" * len(buf))
""",
        record=False,
    )
    client = plugin.client()
    for i in range(40):
        assert client.pread(4096 << i % 5, 0) == b"r" * (4096 << i % 5)
        client.pwrite(b"w" * (4096 << i % 5), 0)
    plugin.open_gate("end")
    assert {str(call) for call in plugin.calls()} == {"filled(True)", "same(True)"}


@case("plugin.lifetimes.traceback", req=["PY-KEEP-07"])
@both
def test_traceback(hosts, api):
    """A traceback that the plugin keeps has the view with its own data."""
    plugin = hosts.load(
        """
kept = []
def pwrite(h, buf, offset, *flags):
    data = bytes(buf)
    try:
        raise ValueError
    except ValueError as error:
        kept.append(error)
        raise
def unchanged():
    found = []
    for error in kept:
        frame = error.__traceback__.tb_frame
        found.append(bytes(frame.f_locals["buf"]) == frame.f_locals["data"])
    return found
""",
        api=api,
        record=False,
    )
    wire = plugin.go()
    for i in range(6):
        cookie = wire.request(nbd.WRITE, 0, data=letters(i, 65536))
        wire.expect_errno(cookie, EIO)
    assert plugin.eval("unchanged()") == [True] * 6, "a kept view changed"


@case("plugin.lifetimes.generator", req=["PY-KEEP-08"])
@both
def test_generator(hosts, api):
    """A generator that was not finished, and a cycle, keep their view well."""
    plugin = hosts.load(
        """
import gc
kept = []
class Node: pass
def walk(buf, data):
    yield
    yield bytes(buf) == data
def pwrite(h, buf, offset, *flags):
    steps = walk(buf, bytes(buf))
    next(steps)
    kept.append(steps)
    a, b = Node(), Node()
    a.other, b.other, a.view = b, a, buf
def unchanged(): return [next(steps) for steps in kept]
""",
        api=api,
        record=False,
    )
    client = plugin.client()
    for i in range(6):
        client.pwrite(letters(i, 65536), 0)
    assert plugin.eval("unchanged()") == [True] * 6
    plugin.eval("(kept.clear(), gc.collect())[0]")
    client.pwrite(b"x" * 65536, 0)


@case("plugin.lifetimes.failed-pread", req=["PY-KEEP-12"])
def test_failed_pread(hosts):
    """A view that a failed pread kept harms nothing."""
    plugin = hosts.load(
        """
kept = []
def pread(h, buf, offset, flags):
    for view in kept:
        view[:] = b"E" * len(view)
    if offset == 0:
        kept.append(buf)
        raise ValueError
    buf[:] = b"r" * len(buf)
""",
        record=False,
    )
    wire = plugin.go()
    for _ in range(3):
        wire.expect_errno(wire.request(nbd.READ, 0, 65536), EIO)
        assert wire.read(65536, 65536) == b"r" * 65536


@case("plugin.lifetimes.many", req=["PY-KEEP-09"])
def test_many(hosts):
    """Many kept views cost their memory; dropped, they give it back."""
    plugin = hosts.load(PLUGIN.format(keep="buf[:1]"), record=False)
    client = plugin.client()
    for i in range(8):
        client.pwrite(letters(i, MIB), 0)
    plugin.exec("kept.clear()")
    before = plugin.process.resident()
    for _ in range(4):
        for i in range(16):
            client.pwrite(letters(i, MIB), 0)
        assert plugin.eval("unchanged()") == [True] * 16
        plugin.exec("kept.clear()")
        client.pwrite(b"last", 0)
        plugin.exec("kept.clear()")
    grown = plugin.process.resident() - before
    assert grown < 24 * MIB, f"{grown >> 20} MiB more than before"


@case("plugin.lifetimes.superset-logged", req=["PY-KEEP-10"])
def test_superset_logged(hosts):
    """The host says once that the script keeps its views, and counts them."""
    source = AT_EXIT.format(api=2)
    plugin = hosts.start(source, options=("--stats", "stats"))
    client = plugin.client()
    for i in range(4):
        client.pwrite(letters(i, 65536), 0)
    client.close()
    log = plugin.wait_log("keep")
    assert "plugin.py" in log and "pwrite" in log
    stats = plugin.wait_stats()
    assert stats["views_kept"] == 4, f"{stats}"


@case("plugin.lifetimes.copy", req=["PY-KEEP-11"])
@both
@pytest.mark.parametrize("size", [512, MIB])
def test_copy(hosts, api, size):
    """bytes (buf) is a copy that lasts."""
    source = """
kept = []
def pwrite(h, buf, offset, *flags): kept.append(bytes(buf))
def told(): return [[len(data), data[:1].decode(), len(set(data))] for data in kept]
"""
    plugin = hosts.load(source, api=api, record=False)
    client = plugin.client()
    for i in range(8):
        client.pwrite(letters(i, size), 0)
    wanted = [[size, letters(i, 1).decode(), 1] for i in range(8)]
    assert plugin.eval("told()") == wanted
