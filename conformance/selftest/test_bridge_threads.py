# SPDX-License-Identifier: BSD-3-Clause
"""Threads, processes and signals of a script, in a server that serves."""

from __future__ import annotations

import os
import re
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path

import nbd
import pytest
from server_process import NBDSPECD, Server, connected, needs_python, read_line

pytestmark = needs_python

PLUGIN = """
import builtins
import errno
import os
import sys
import threading
import nbdkit
API_VERSION = 2
def thread_model(): return nbdkit.THREAD_MODEL_PARALLEL
def open(readonly): return 1
def get_size(h): return 1 << 20
def pread(h, buf, offset, flags): pass
def pwrite(h, buf, offset, flags): pass
def say(*words):
    with builtins.open(os.environ["FIFO"], "w") as f:
        print(*words, file=f)
"""


class Told:
    """A FIFO into which the script says what has happened."""

    def __init__(self, place: Path) -> None:
        self.path = place / "fifo"
        os.mkfifo(self.path)
        self.fd = os.open(self.path, os.O_RDWR)

    def line(self) -> str:
        return read_line(self.fd).rstrip("\n")


def serve(place: Path, text: str, *options: str) -> Server:
    script = place / "plugin.py"
    script.write_text(PLUGIN + text)
    return Server(
        place, *options, "python", str(script), env={"FIFO": str(place / "fifo")}
    )


def connect(server: Server) -> nbd.NBD:
    h = nbd.NBD()
    h.connect_unix(server.socket)
    return h


@pytest.mark.parametrize("where", ["load", "after_fork"])
def test_a_signal_handler(place: Path, where: str) -> None:
    """It runs while the server waits for clients, and may be called again."""
    told = Told(place)
    text = (
        "import signal\n"
        "def handle(number, frame):\n"
        "    say('signal', number, threading.current_thread().name)\n"
        "def install(): signal.signal(signal.SIGUSR1, handle)\n"
    )
    text += "install()\n" if where == "load" else "after_fork = install\n"
    with serve(place, text) as server:
        for _ in range(3):
            os.kill(server.pid, signal.SIGUSR1)
            assert told.line() == f"signal {int(signal.SIGUSR1)} MainThread"
        h = connect(server)
        os.kill(server.pid, signal.SIGUSR1)
        assert told.line().startswith("signal")
        h.pread(512, 0)
        assert server.stop() == 0


def test_a_signal_handler_that_raises(place: Path) -> None:
    told = Told(place)
    text = (
        "import signal\n"
        "def handle(number, frame):\n"
        "    say('handled')\n"
        "    raise ValueError('from the handler')\n"
        "signal.signal(signal.SIGUSR1, handle)\n"
    )
    with serve(place, text) as server:
        os.kill(server.pid, signal.SIGUSR1)
        assert told.line() == "handled"
        connect(server).shutdown()
        assert server.stop() == 0
        assert "signal handler: error: Traceback" in server.log()


def test_the_server_ends_although_the_script_handles_sigterm(place: Path) -> None:
    text = (
        "import signal\n"
        "def after_fork(): signal.signal(signal.SIGTERM, lambda n, f: None)\n"
    )
    with serve(place, text) as server:
        assert server.stop(signal.SIGTERM) == 0


def test_names_and_locals_of_workers(place: Path) -> None:
    told = Told(place)
    text = (
        "local = threading.local()\n"
        "def pread(h, buf, offset, flags):\n"
        "    local.n = getattr(local, 'n', 0) + 1\n"
        "    say(threading.current_thread().name, local.n)\n"
    )
    with serve(place, text) as server:
        h = connect(server)
        names = set()
        for n in range(1, 4):
            h.pread(512, 0)
            name, count = told.line().split()
            names.add(name)
            assert int(count) == n
        assert len(names) == 1 and not names.pop().startswith("Dummy")


def test_a_child_that_returns_does_not_answer(place: Path) -> None:
    text = (
        "def flush(h, flags):\n"
        "    pid = os.fork()\n"
        "    if pid == 0: return\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1\n"
    )
    with serve(place, text) as server:
        h = connect(server)
        for _ in range(3):
            h.flush()
        assert h.pread(4, 0) == bytes(4)
        h.shutdown()
        assert server.stop() == 0
        assert server.log().count("a child process made by os.fork returned") == 3


def test_a_child_that_raises_does_not_answer(place: Path) -> None:
    text = (
        "def flush(h, flags):\n"
        "    pid = os.fork()\n"
        "    if pid == 0: raise ValueError('in the child')\n"
        "    os.waitpid(pid, 0)\n"
    )
    with serve(place, text) as server:
        h = connect(server)
        h.flush()
        assert h.pread(4, 0) == bytes(4)
        assert "a child process made by os.fork" in server.log()


def test_children_of_all_kinds(place: Path) -> None:
    text = """
import asyncio
import concurrent.futures
import multiprocessing
import subprocess
def double(n): return 2 * n
async def later(n):
    await asyncio.sleep(0.001)
    return n
loops = threading.local()
def pread(h, buf, offset, flags):
    assert subprocess.check_output(["echo", "x"]) == b"x\\n"
    if not hasattr(loops, "loop"):
        loops.loop = asyncio.new_event_loop()
    assert loops.loop.run_until_complete(later(5)) == 5
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(double, range(4))) == [0, 2, 4, 6]
    process = multiprocessing.get_context("fork").Process(target=double, args=(1,))
    process.start()
    process.join()
    assert process.exitcode == 0
    fds = os.listdir("/proc/self/fd")
    out = subprocess.check_output(["ls", "/proc/self/fd"]).split()
    assert len(out) == 4, out  # the three, and the directory
"""
    with serve(place, text) as server:
        h = connect(server)
        h.pread(512, 0)
        h.pread(512, 0)
        h.shutdown()
        assert server.stop() == 0, server.log()


def test_handlers_of_forks_when_daemonising(place: Path) -> None:
    script = place / "plugin.py"
    notes = place / "notes"
    pidfile = place / "pid"
    script.write_text(
        PLUGIN
        + f"""
def note(word):
    with builtins.open({str(notes)!r}, "a") as f:
        print(word, os.getpid(), file=f)
os.register_at_fork(before=lambda: note("before"),
                    after_in_child=lambda: note("child"))
def after_fork():
    note("after_fork")
    threading.Thread(target=note, args=("thread",)).start()
"""
    )
    subprocess.run(
        [NBDSPECD, "-U", place / "sock", "-P", pidfile, "python", script],
        check=True,
        timeout=60,
    )
    server = int(pidfile.read_text())
    fd = os.pidfd_open(server)
    h = nbd.NBD()
    h.connect_unix(str(place / "sock"))
    h.pread(512, 0)
    h.shutdown()
    os.kill(server, signal.SIGTERM)
    wait_for_end(fd)
    lines = [line.split() for line in notes.read_text().splitlines()]
    assert [word for word, _ in lines] == ["before", "child", "after_fork", "thread"]
    assert lines[0][1] != str(server)
    assert {pid for word, pid in lines[1:]} == {str(server)}


def wait_for_end(fd: int) -> None:
    import select

    assert select.select([fd], [], [], 60)[0], "the server does not end"
    os.close(fd)


def test_shutdown_while_callbacks_run(place: Path) -> None:
    """They are waited for and answered; the end is a proper one."""
    told = Told(place)
    text = (
        "go = threading.Event()\n"
        "def pread(h, buf, offset, flags):\n"
        "    say('inside')\n"
        "    go.wait()\n"
        "    buf[:] = b'r' * len(buf)\n"
        "def release(): go.set()\n"
        "import signal\n"
        "signal.signal(signal.SIGUSR1, lambda n, f: go.set())\n"
        "import atexit\n"
        "atexit.register(print, 'atexit ran', file=sys.stderr)\n"
    )
    with serve(place, text) as server:
        got: list[bytes] = []
        h = connect(server)
        reader = threading.Thread(target=lambda: got.append(h.pread(8, 0)))
        reader.start()
        assert told.line() == "inside"
        os.kill(server.pid, signal.SIGUSR1)
        reader.join(60)
        assert [bytes(g) for g in got] == [b"r" * 8]
        assert server.stop() == 0
        assert "atexit ran" in server.log()


def test_a_second_signal_ends_it_at_once(place: Path) -> None:
    """Although a thread of the script would be waited for."""
    told = Told(place)
    text = (
        "def forever():\n"
        "    say('running')\n"
        "    threading.Event().wait()\n"
        "def after_fork(): threading.Thread(target=forever).start()\n"
        "def cleanup(): say('cleanup')\n"
    )
    with serve(place, text) as server:
        assert told.line() == "running"
        server.process.send_signal(signal.SIGTERM)
        assert told.line() == "cleanup"
        assert server.stop(signal.SIGTERM) == 1


def test_background_threads_run_while_nobody_is_there(place: Path) -> None:
    told = Told(place)
    text = (
        "def tick():\n"
        "    for n in range(3):\n"
        "        say('tick', n)\n"
        "def after_fork(): threading.Thread(target=tick, daemon=True).start()\n"
    )
    with serve(place, text):
        assert [told.line() for _ in range(3)] == ["tick 0", "tick 1", "tick 2"]


def test_extension_modules(place: Path) -> None:
    """Single- and multi-phase ones, and numpy where there is one."""
    text = """
import _ctypes, _decimal, _json, _sqlite3, _ssl, array, math, mmap, zlib
try:
    import numpy
except ImportError:
    numpy = None
def pread(h, buf, offset, flags):
    zlib.crc32(buf)
    if numpy:
        numpy.frombuffer(buf, numpy.uint8)[:] = 7
    else:
        buf[:] = b"\\7" * len(buf)
"""
    with serve(place, text) as server:
        assert connect(server).pread(512, 0) == b"\7" * 512
        assert server.stop() == 0
        assert not re.search("error", server.log()), server.log()


def test_the_interpreter_is_the_configured_one(place: Path) -> None:
    """Whatever python3 is first on PATH."""
    (place / "bin").mkdir()
    fake = place / "bin/python3"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    script = place / "plugin.py"
    script.write_text(
        PLUGIN + "print(sys.executable)\nprint(sys.prefix)\nprint(os.__file__)\n"
    )
    r = subprocess.run(
        [NBDSPECD, "-f", "--run", "true", "python", script],
        env={**os.environ, "PATH": f"{place}/bin:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    executable, prefix, library = r.stdout.split()
    dumped = subprocess.run(
        [NBDSPECD, "--dump-plugin", "python"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"python_executable={executable}\n" in dumped.stdout
    assert library.startswith(prefix)
    asked = subprocess.run(
        [executable, "-c", "import sys; print(sys.prefix)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert asked.stdout.strip() == prefix
    assert sys.executable  # the tests' own may be another


def test_a_reply_does_not_wait_for_one_who_computes(place: Path) -> None:
    """Nobody else gets the interpreter's lock: the finished reply is sent without."""
    text = """
import ctypes, os, nbdkit
def thread_model(): return nbdkit.THREAD_MODEL_PARALLEL
API_VERSION = 2
def open(readonly): return 1
def get_size(h): return 1 << 20
def pread(h, buf, offset, flags):
    if offset:  # PyDLL keeps the lock
        ctypes.PyDLL(None).read(FIFO, ctypes.create_string_buffer(1), 1)
"""
    reader, writer = os.pipe()
    text = text.replace("FIFO", str(reader))
    (place / "plugin.py").write_text(text)
    args = ("python", str(place / "plugin.py"))
    with Server(place, *args, pass_fds=(reader,)) as s, connected(s) as c:
        one, two = (
            struct.pack(">IHHQQI", 0x25609513, 0, 0, 7, offset, 512)
            for offset in (0, 4096)
        )
        c.send(one + two)
        assert c.simple_reply(512) == (0, bytes(512))
        os.write(writer, b"x")
        assert c.simple_reply(512) == (0, bytes(512))
    os.close(reader)
    os.close(writer)
