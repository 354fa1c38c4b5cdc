# SPDX-License-Identifier: BSD-3-Clause
"""The order and number of calls, from start to end."""

from __future__ import annotations

import os
import signal

import pytest

from nbdspec.case import case
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
def work():
    threading.main_thread().join()
    note("finished")
def after_fork(): threading.Thread(target=work).start()
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
