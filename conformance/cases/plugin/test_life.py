# SPDX-License-Identifier: BSD-3-Clause
"""The order and number of calls, from start to end."""

from __future__ import annotations

import os
import signal

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.payloads import go_payload
from nbdspec.verdict import Closed

SECTION = "plugin.life"

both = pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])

TRACED = """
import atexit, nbdkit, recording
from recording import note
API_VERSION = {api}
note("top")
def config(key, value): pass
def config_complete(): pass
def thread_model(): return nbdkit.THREAD_MODEL_SERIALIZE_REQUESTS
def get_ready(): pass
def after_fork(): pass
def cleanup(): pass
def dump_plugin(): print("plugin_says=hello")
def preconnect(readonly): pass
def open(readonly): return recording.Gate()
def close(h): pass
def get_size(h): return 4096
def pread(h, *args): return bytes(4096)
atexit.register(note, "atexit")
{more}
recording.record(globals())
"""
START = ["top", "config_complete", "thread_model", "get_ready", "after_fork"]
MEANINGLESS = "".join(
    f"def {name}(*args): raise RuntimeError('called')\n"
    for name in "load longname description config_help prepare finalize".split()
)


def start(hosts, api: int = 2, more: str = "", **how):
    return hosts.start(TRACED.format(api=api, more=more), **how)


@case(
    "plugin.life.whole",
    req=["PY-LIFE-01", "PY-LIFE-02", "PY-LIFE-03", "PY-LIFE-04", "PY-SIG-02"],
)
@both
def test_whole(hosts, api):
    """From the top level to atexit, each in its place, on the main thread."""
    plugin = start(hosts, api, params=("a=1", "b=2"))
    wire = plugin.go("x")
    wire.leave()
    plugin.wait_calls("close")
    plugin.process.send(signal.SIGTERM)
    assert plugin.process.wait(10) == 0, plugin.process.end_in_words()
    calls = plugin.calls()
    names = [call.name for call in calls if call.name != "get_size"]
    expected = ["top", "config", "config", *START[1:]]
    assert names == [*expected, "preconnect", "open", "close", "cleanup", "atexit"]
    alone = {"preconnect", "open", "close", "get_size"}
    assert all(call.main for call in calls if call.name not in alone), "other threads"
    assert all(not c.args for c in calls if c.name in ("get_ready", "after_fork"))


@case("plugin.life.no-parameters", req=["PY-LIFE-02"])
def test_no_parameters(hosts):
    """config_complete is called without parameters too; config is not."""
    plugin = start(hosts)
    assert plugin.names() == START


@case("plugin.life.meaningless", req=["PY-LIFE-41"])
def test_meaningless(hosts):
    """Functions whose names mean nothing are not called."""
    plugin = start(hosts, more=MEANINGLESS)
    plugin.go("x").leave()
    plugin.wait_calls("close")
    plugin.process.send(signal.SIGTERM)
    assert plugin.process.wait(10) == 0
    assert not {"load", "prepare", "finalize"} & set(plugin.names())


COUNTED = """
def preconnect(readonly): pass
def list_exports(readonly, is_tls): return ["one"]
def default_export(readonly, is_tls): return "one"
def export_description(h): return "d"
def block_size(h): return (1, 4096, 65536)
def can_write(h): return True
def can_flush(h): return True
def can_trim(h): return True
def can_zero(h): return True
def can_fast_zero(h): return True
def can_extents(h): return True
def can_multi_conn(h): return True
def is_rotational(h): return True
def can_fua(h): return 2
def can_cache(h): return 2
def pwrite(h, *a): pass
def flush(h, *a): pass
def trim(h, *a): pass
def zero(h, *a): pass
def cache(h, *a): pass
def extents(h, c, o, f): return [(o, c, 0)]
"""
ASKS = (
    "get_size can_write can_zero can_fast_zero can_trim can_fua can_flush "
    "is_rotational can_multi_conn can_cache can_extents"
).split()
WRITING = {"can_write", "can_zero", "can_fast_zero", "can_trim", "can_fua"}


@case("plugin.life.connection", req=["PY-LIFE-05", "PY-LIFE-06", "PY-LIFE-08"])
@both
def test_connection(hosts, api):
    """A connection: preconnect, open, each question once, the data, close."""
    plugin = hosts.load(COUNTED, api=api)
    client = plugin.client(contexts=("base:allocation",), name="x")
    for _ in range(3):
        client.pwrite(b"x", 0, nbd.FUA)
        client.flush()
        client.trim(1, 0)
        client.zero(1, 0)
        client.cache(1, 0)
        client.block_status(1, 0)
        client.pread(1, 0)
    client.close()
    plugin.settle()
    names = plugin.names()
    assert names[:2] == ["preconnect", "open"] and names[-1] == "close", f"{names}"
    asked = [name for name in names if name in ASKS]
    assert len(asked) == len(set(asked)), f"asked twice: {asked}"
    assert set(asked) == set(ASKS), f"not asked: {set(ASKS) - set(asked)}"
    assert [names.count(n) for n in ("preconnect", "open", "close")] == [1, 1, 1]
    data = names.index("pwrite")
    late = [name for name in names[data:] if name in ASKS]
    assert not late or set(late) <= {"can_extents", "can_cache"}, f"late: {late}"


@case("plugin.life.nothing-said", req=["PY-LIFE-07", "PY-LIFE-06"])
def test_nothing_said(hosts):
    """A client that negotiates nothing: preconnect, and no open."""
    plugin = hosts.load(COUNTED)
    plugin.connect().conn.close()
    wire = plugin.wire()
    wire.option(nbd.ABORT)
    wire.expect_reply(nbd.ABORT, nbd.ACK)
    plugin.wait_calls("preconnect", 2)
    assert set(plugin.names()) == {"preconnect"}


@case("plugin.life.block-size", req=["PY-LIFE-09", "PY-LIFE-10"])
def test_block_size(hosts):
    """block_size and export_description are called for clients that ask."""
    plugin = hosts.load(COUNTED)
    wire = plugin.wire()
    wire.info("x")
    assert not {"block_size", "export_description"} & set(plugin.names())
    wire.info("x", [nbd.INFO_BLOCK_SIZE])
    assert plugin.names("block_size", "export_description") == ["block_size"]
    wire.info("x", [nbd.INFO_DESCRIPTION])
    asked = plugin.names("block_size", "export_description")
    assert asked == ["block_size", "export_description"]


@case("plugin.life.info-go", req=["PY-LIFE-11", "PY-LIFE-20"])
@both
def test_info_go(hosts, api):
    """INFO and GO each open; what was opened is closed."""
    plugin = hosts.load(COUNTED, api=api)
    wire = plugin.wire()
    wire.info("x")
    wire.info("y")
    wire.go("x")
    wire.leave()
    plugin.settle()
    order = plugin.names("open", "close")
    assert order == ["open", "close"] * 3, f"{order}"


@case("plugin.life.list", req=["PY-LIFE-12", "PY-LIFE-13"])
def test_list(hosts):
    """list_exports is called for LIST alone, default_export for "" alone."""
    plugin = hosts.load(COUNTED)
    wire = plugin.wire()
    wire.info("x")
    assert not {"list_exports", "default_export"} & set(plugin.names())
    wire.list()
    assert plugin.names("list_exports", "default_export") == ["list_exports"]
    wire.go("")
    asked = plugin.names("list_exports", "default_export")
    assert asked == ["list_exports", "default_export"]


@case("plugin.life.default-kept", req=["PY-LIFE-14"])
def test_default_kept(hosts):
    """The default export's name is asked for once in a connection."""
    plugin = hosts.load(COUNTED)
    wire = plugin.wire()
    for _ in range(3):
        wire.info("", [nbd.INFO_NAME])
    wire.go("")
    assert plugin.names("default_export") == ["default_export"]


@case("plugin.life.readonly", req=["PY-LIFE-15", "PY-LIFE-17", "PY-CLI-01"])
@both
def test_readonly(hosts, api):
    """With -r nothing is asked that is about writing; the rest is."""
    plugin = hosts.load(COUNTED, api=api, options=("-r",))
    wire = plugin.wire()
    wire.list()
    wire.go("")
    assert wire.export.flags & nbd.READ_ONLY
    calls = {call.name: call.args for call in plugin.calls()}
    assert not WRITING & set(calls), f"asked: {WRITING & set(calls)}"
    assert set(ASKS) - WRITING <= set(calls)
    assert calls["preconnect"] == calls["open"] == ["True"]
    assert calls["list_exports"] == calls["default_export"] == ["True", "False"]


@case("plugin.life.cannot-write", req=["PY-LIFE-16"])
@both
def test_cannot_write(hosts, api):
    """With can_write false likewise."""
    source = COUNTED + "def can_write(h): return False\n"
    plugin = hosts.load(source, api=api)
    plugin.go("x")
    asked = set(plugin.names()) & set(ASKS)
    assert asked == set(ASKS) - WRITING | {"can_write"}, f"asked: {asked}"


@case("plugin.life.same-handle", req=["PY-LIFE-26", "PY-LIFE-27"])
@both
def test_same_handle(hosts, api):
    """The object of open goes to each callback; each connection has its own."""
    plugin = hosts.load(COUNTED, api=api)
    for _ in range(2):
        client = plugin.client(name="x")
        client.pwrite(b"x", 0)
        client.flush()
        client.close()
    first, second = plugin.client(name="x"), plugin.client(name="x")
    first.flush()
    second.flush()
    handles = [call.args[0]["id"] for call in plugin.calls("flush")][-2:]
    assert handles[0] != handles[1], "two connections with one handle"
    mine: dict = {}
    for call in plugin.calls():
        if call.args and isinstance(call.args[0], dict):
            mine.setdefault(call.args[0]["id"], set()).add(call.name)
    assert all("get_size" in names for names in mine.values())


ENDS = ["disc", "gone", "garbage", "half-header"]


@case("plugin.life.close", req=["PY-LIFE-20", "PY-LIFE-21", "PY-LIFE-22"])
@pytest.mark.parametrize("model", [0, 1, 2, 3])
@pytest.mark.parametrize("how", ENDS)
def test_close(hosts, model, how):
    """However a connection ends, close is called once."""
    plugin = hosts.load(COUNTED, model=model)
    wire = plugin.go("x")
    wire.write(b"x", 0)
    if how == "disc":
        wire.leave()
    elif how == "garbage":
        wire.conn.send(b"\xee" * 28, "garbage")
        wire.conn.expect_closed("bad magic")
    elif how == "half-header":
        wire.conn.send(b"\x25\x60\x95\x13\0", "half a header")
    wire.conn.close()
    plugin.settle()
    assert plugin.names("open", "close") == ["open", "close"]


@case("plugin.life.close-at-end", req=["PY-LIFE-23", "PY-END-06", "PY-CLI-11"])
@pytest.mark.parametrize("model", [1, 2, 3])
def test_close_at_end(hosts, model):
    """Told to end with idle clients: at once, each closed, then cleanup."""
    more = f"def thread_model(): return {model}\n"
    plugin = start(hosts, more=more)
    wires = [plugin.go("x") for _ in range(3)]
    for wire in wires:
        wire.read(512, 0)
    plugin.process.send(signal.SIGTERM)
    assert plugin.process.wait(3) == 0, "it did not end: " + plugin.process.end_in_words()
    names = plugin.names("open", "close", "cleanup")
    assert names == ["open"] * 3 + ["close"] * 3 + ["cleanup"], f"{names}"


HANDLE = """
import weakref
class Thing: pass
def open(readonly):
    thing = Thing()
    weakref.finalize(thing, note, "gone")
    return thing
def pwrite(h, buf, offset, *flags):
    if offset:
        raise ValueError
"""


@case("plugin.life.handle-dropped", req=["PY-LIFE-24"])
@both
def test_handle_dropped(hosts, api):
    """After close the handle's finaliser runs."""
    plugin = hosts.load(HANDLE, api=api)
    client = plugin.client()
    client.pwrite(b"x", 0)
    client.close()
    plugin.wait_calls("gone")
    assert plugin.names("close", "gone") == ["close", "gone"]


@case("plugin.life.handle-dropped-failing", req=["PY-LIFE-25"])
@both
@pytest.mark.parametrize("name", ["pwrite", "get_size", "can_write"])
def test_handle_dropped_failing(hosts, api, name):
    """The same when a callback failed."""
    source = HANDLE
    if name != "pwrite":
        source += f"def {name}(h): raise ValueError('no')\n"
    plugin = hosts.load(source, api=api)
    wire = plugin.wire()
    if name == "pwrite":
        wire.go("x")
        wire.expect_errno(wire.request(nbd.WRITE, 1, data=b"x"), nbd.EIO)
    else:
        wire.option(nbd.GO, go_payload("x"))
        wire.expect_error(nbd.GO)
    wire.leave()
    plugin.settle()
    plugin.wait_calls("gone")


@case("plugin.life.dump-plugin", req=["PY-LIFE-28", "PY-LIFE-30", "PY-CLI-09"])
def test_dump_plugin(hosts):
    """--dump-plugin: config, thread_model, dump_plugin, and no more."""
    files = {"p.py": TRACED.format(api=2, more="")}
    done = hosts.command(["--dump-plugin", "python", "p.py", "a=b"], files=files)
    assert done.status == 0, done.words
    lines = done.out.splitlines()
    assert "plugin_says=hello" in lines
    keys = {line.split("=")[0] for line in lines}
    assert {"python_version", "python_pep_384_abi_version"} <= keys
    assert "nbdkit_python_maximum_api_version=2" in lines
    names = [n for n in done.names() if n not in ("cleanup", "atexit")]
    assert names == ["top", "config", "thread_model", "dump_plugin"], f"{names}"


@case("plugin.life.dump-plugin-raises", req=["PY-LIFE-29"])
def test_dump_plugin_raises(hosts):
    """An exception in dump_plugin is logged; no crash."""
    more = "def dump_plugin(): raise ValueError('not today')\n"
    files = {"p.py": TRACED.format(api=2, more=more)}
    done = hosts.command(["--dump-plugin", "python", "p.py"], files=files)
    assert done.status in (0, 1), done.words
    assert "not today" in done.err


def stop_daemon(directory) -> None:
    pid = int((directory / "pid").read_text())
    os.kill(pid, signal.SIGTERM)


FORKED = """
import os
def get_ready(): print("ready", flush=True); note("ready", os.getpid())
def after_fork(): note("forked", os.getpid())
"""


@case("plugin.life.daemon", req=["PY-LIFE-31", "PY-LIFE-32", "PY-CLI-05"])
def test_daemon(hosts):
    """get_ready is called before the fork of a daemon, after_fork in the child."""
    files = {"p.py": TRACED.format(api=2, more=FORKED)}
    done = hosts.command(["-P", "pid", "-U", "s", "python", "p.py"], files=files)
    assert done.status == 0, done.words
    assert "ready" in done.out, "what get_ready printed is lost"
    hosts.wait_for(done.directory, "the process id", lambda: _number(done.directory))
    pid = _number(done.directory)
    hosts.wait_for(done.directory, "after_fork", lambda: done.calls("forked"))
    notes = {call.name: call.args for call in done.calls()}
    stop_daemon(done.directory)
    assert notes["forked"] == [str(pid)], f"{notes['forked']} is not {pid}"
    assert notes["ready"] != notes["forked"], "there was no fork"


def _number(directory) -> int:
    path = directory / "pid"
    text = path.read_text().strip() if path.exists() else ""
    return int(text) if text.isdigit() else 0


@case("plugin.life.after-fork-fails", req=["PY-LIFE-34", "PY-LIFE-35", "PY-ERR-26"])
def test_after_fork_fails(hosts):
    """A daemon whose after_fork fails: status 1, a message, no pid file."""
    more = "def after_fork(): raise ValueError('cannot begin')\n"
    files = {"p.py": TRACED.format(api=2, more=more)}
    done = hosts.command(["-P", "pid", "-U", "s", "python", "p.py"], files=files)
    assert done.status == 1, f"the daemon's start counts as good: {done.words}"
    assert "cannot begin" in done.err
    assert not (done.directory / "pid").exists(), "there is a pid file"


@case("plugin.life.start-fails", req=["PY-ERR-25", "PY-ERR-26"])
@pytest.mark.parametrize(
    "name", ["config", "config_complete", "thread_model", "get_ready", "after_fork"]
)
def test_start_fails(hosts, name):
    """An exception at start: a message with the callback, status 1."""
    more = f"def {name}(*args): raise ValueError('cannot begin')\n"
    files = {"p.py": TRACED.format(api=2, more=more)}
    done = hosts.command(
        ["-U", "s", "python", "p.py", "a=b"], options=("-f",), files=files
    )
    assert done.status == 1, done.words
    assert "cannot begin" in done.err and name in done.err


@case("plugin.life.superset-print", req=["PY-LIFE-33"])
def test_superset_print(hosts):
    """What is printed after start-up goes to stderr."""
    more = "def pread(h, *a): print('printed', flush=True)\n"
    plugin = start(hosts, more=more)
    plugin.go("x").read(512, 0)
    plugin.wait_log("printed")


@case("plugin.life.close-fails", req=["PY-LIFE-37"])
def test_close_fails(hosts):
    """A failing close is logged and harms nobody."""
    plugin = hosts.load("def close(h): raise ValueError('will not close')")
    plugin.go("x").leave()
    plugin.settle()
    plugin.wait_log("will not close")
    plugin.go("x").read(512, 0)


@case("plugin.life.cleanup-fails", req=["PY-LIFE-38"])
def test_cleanup_fails(hosts):
    """A failing cleanup is logged; the exit status is 0."""
    more = "def cleanup(): raise ValueError('will not clean')\n"
    plugin = start(hosts, more=more)
    plugin.process.send(signal.SIGTERM)
    assert plugin.process.wait(10) == 0, plugin.process.end_in_words()
    assert "will not clean" in plugin.log()


@case("plugin.life.superset-unload", req=["PY-LIFE-39"])
def test_superset_unload(hosts):
    """unload is called last, after cleanup."""
    plugin = start(hosts, more="def unload(): pass\n")
    plugin.process.send(signal.SIGTERM)
    assert plugin.process.wait(10) == 0
    assert plugin.names()[-3:] == ["cleanup", "unload", "atexit"]


@case("plugin.life.directory", req=["PY-LIFE-40"])
def test_directory(hosts):
    """With -f the working directory stays."""
    more = "import os\ndef pread(h, *a): note('at', os.getcwd())\n"
    plugin = start(hosts, more=more)
    plugin.go("x").read(512, 0)
    assert plugin.calls("at")[0].args == [repr(str(plugin.host.directory))]


@case("plugin.life.docstring", req=["PY-LIFE-42"])
def test_docstring(hosts):
    """--help with a script shows its docstring."""
    files = {"p.py": '"""Serves what nobody asked for."""\n' + TRACED.format(api=2, more="")}
    done = hosts.command(["python", "p.py", "--help"], files=files)
    assert done.status == 0, done.words
    assert "Serves what nobody asked for." in done.out


@case("plugin.life.threads-joined", req=["PY-LIFE-43"])
def test_threads_joined(hosts):
    """A thread of the script that is no daemon is waited for at the end."""
    more = """
import threading
ending = threading.Event()
def work():
    ending.wait(10)
    note("finished")
def after_fork(): threading.Thread(target=work).start()
def cleanup(): ending.set()
"""
    plugin = start(hosts, more=more)
    plugin.process.send(signal.SIGTERM)
    assert plugin.process.wait(10) == 0
    assert plugin.names("finished") == ["finished"]


@case("plugin.life.preconnect-refuses", req=["PY-LIFE-06", "PY-ERR-18"])
def test_preconnect_refuses(hosts):
    """preconnect comes before anything of the handshake."""
    plugin = hosts.load("def preconnect(readonly): hold('pre')")
    wire = plugin.connect()
    plugin.inside(1, "pre")
    import select

    early = select.select([wire.conn.sock], [], [], 0)[0]
    plugin.open_gate("pre")
    assert not early, "the greeting came before preconnect had ended"
    try:
        wire.greeting()
    except Closed:
        raise AssertionError("no greeting after preconnect") from None
