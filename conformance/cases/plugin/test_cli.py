# SPDX-License-Identifier: BSD-3-Clause
"""The command line that scripts and tools use to run plugins."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.host import program_words
from nbdspec.watch import ended

SECTION = "plugin.cli"

SOURCE = """
import nbdkit
from recording import note
API_VERSION = 2
def config(key, value): note("config", key, value)
def open(readonly): note("open", readonly); return 1
def get_size(h): return 65536
def pread(h, buf, offset, flags): buf[:] = b"p" * len(buf)
def pwrite(h, buf, offset, flags): raise ValueError("will not write")
def close(h): note("close")
def cleanup(): note("cleanup")
"""
FILES = {"p.py": SOURCE}
CLIENT = (
    f"{sys.executable} -c 'import nbd; h = nbd.NBD(); h.connect_uri(\"'$uri'\"); "
    "print(h.pread(4, 0), h.get_size())'"
)


def run(hosts, command: str, *options: str, words=()):
    return hosts.command(
        ["--run", command, "python", "p.py", *words], options=options, files=FILES
    )


@case("plugin.cli.run", req=["PY-CLI-02", "PY-CLI-04"])
def test_run(hosts):
    """--run: $uri leads to the server, the status is the command's."""
    done = run(hosts, CLIENT, "-U", "-", words=("a=b",))
    assert done.status == 0, done.words
    assert "pppp" in done.out and "65536" in done.out
    assert done.names() == ["config", "open", "close", "cleanup"]


@case("plugin.cli.run-variables", req=["PY-CLI-02", "PY-CLI-04"])
def test_run_variables(hosts):
    """--run: $uri, $nbd, $unixsocket, $port and $exportname."""
    command = 'echo "uri=$uri"; echo "$nbd"; echo "s=$unixsocket" "p=$port" "e=$exportname"'
    done = run(hosts, command, "-U", "-", "-e", "a b")
    lines = done.out.splitlines()
    sock = lines[2].split()[0].removeprefix("s=")
    assert lines[0].startswith("uri=nbd+unix:///a%20b?socket=/"), done.out
    assert lines[1] == lines[0].removeprefix("uri=")
    assert lines[2].endswith("p= e=a b") and sock in lines[0]
    assert not os.path.exists(sock), "the private socket is still there"


@case("plugin.cli.run-status", req=["PY-CLI-02", "PY-CLI-03"])
@pytest.mark.parametrize("command, status", [("exit 42", 42), ("kill -9 $$", 137)])
def test_run_status(hosts, command, status):
    """--run: the command's status, 128 + its signal; cleanup has run."""
    done = run(hosts, command, "-U", "-")
    assert done.status == status, done.words
    assert done.names("cleanup") == ["cleanup"]


@case("plugin.cli.single", req=["PY-CLI-06", "PY-MOD-36"])
def test_single(hosts):
    """-s serves one client on stdin and stdout; stdio_safe is False."""
    source = SOURCE + "note('safe', nbdkit.stdio_safe())\n"
    directory = hosts.directory({"p.py": source})
    here, there = socket.socketpair()
    program = program_words(hosts.pool.target)
    argv = [*program, "-s", "python", "p.py"]
    with hosts.spawn(argv, directory, stdin=there, stdout=there) as process:
        there.close()
        wire = hosts.adopt(here)
        wire.greet()
        wire.go("x")
        assert wire.read(4, 0) == b"pppp"
        wire.leave()
        assert process.wait(10) == 0
    record = (directory / "record").read_text()
    assert '"safe", "args": ["False"]' in record


@case("plugin.cli.unknown", req=["PY-CLI-08"])
@pytest.mark.parametrize("option", ["--no-such-option", "-Z"])
def test_unknown(hosts, option):
    """An unknown option: status 1."""
    # One that is taken must not make a daemon that the whole network can reach.
    words = ["-f", "-U", "-", "--run", "true", option, "python", "p.py"]
    done = hosts.command(words, files=FILES)
    assert done.status == 1, done.words


@case("plugin.cli.signals", req=["PY-CLI-10"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"])
def test_signals(hosts, name):
    """The usual signals end the host in order."""
    plugin = hosts.start(SOURCE)
    plugin.go("x").leave()
    plugin.wait_calls("close")
    plugin.process.send(getattr(signal, name))
    assert plugin.process.wait(10) == 0, plugin.process.end_in_words()
    assert plugin.names("cleanup") == ["cleanup"]


@case("plugin.cli.exit-with-parent", req=["PY-CLI-12"])
def test_exit_with_parent(hosts):
    """--exit-with-parent: the host ends when its parent is killed."""
    directory = hosts.directory(FILES)
    program = program_words(hosts.pool.target)
    argv = [*program, "--exit-with-parent", "-P", "pid", "-U", "s", "python", "p.py"]
    starter = "import subprocess, sys; subprocess.call(sys.argv[1:])"
    with hosts.spawn([sys.executable, "-c", starter, *argv], directory) as parent:
        path = directory / "pid"
        hosts.wait_for(
            directory, "the pid file", lambda: path.exists() and path.read_text()
        )
        watch = os.pidfd_open(int(path.read_text()))
        parent.kill()
        parent.wait()
        gone = ended(watch, 10)
        os.close(watch)
    assert gone, "the host outlived its parent"


ACTIVATE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execvp(sys.argv[2], sys.argv[2:])
"""


@case("plugin.cli.activation", req=["PY-CLI-13"])
def test_activation(hosts):
    """Socket activation: it serves on the descriptor that it is given."""
    directory = hosts.directory(FILES)
    program = program_words(hosts.pool.target)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(directory / "s"))
    listening.listen()
    number = listening.fileno()
    argv = [sys.executable, "-c", ACTIVATE, str(number), *program, "python", "p.py"]
    with hosts.spawn(argv, directory, pass_fds=[number]) as process:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(10)
        sock.connect(str(directory / "s"))
        wire = hosts.adopt(sock)
        wire.greet()
        wire.go("x")
        assert wire.read(4, 0) == b"pppp"
        wire.leave()
        process.terminate()
        assert process.wait(10) == 0
    listening.close()


@case("plugin.cli.log-null", req=["PY-CLI-14"])
def test_log_null(hosts):
    """--log=null drops errors, tracebacks among them."""
    plugin = hosts.start(SOURCE, options=("--log=null",))
    wire = plugin.go("x")
    wire.expect_errno(wire.request(nbd.WRITE, 0, data=b"x"), nbd.EIO)
    wire.leave()
    plugin.process.send(signal.SIGTERM)
    assert plugin.process.wait(10) == 0
    assert "will not write" not in plugin.log()


@case("plugin.cli.long-and-short", req=["PY-CLI-15", "PY-CLI-01"])
@pytest.mark.parametrize("option", ["-r", "--readonly", "--read-only"])
def test_long_and_short(hosts, option):
    """Long and short options mean the same."""
    words = ["-f", option, "-t4", "--threads=4", "--threads", "4", "-p0", "-U", "-"]
    words.remove("-p0")
    done = hosts.command(
        [*words, "--run", CLIENT, "python", "p.py"], files=FILES
    )
    assert done.status == 0, done.words
    assert done.calls("open")[0].args == ["True"]


@case("plugin.cli.superset-compat", req=["PY-CLI-16"])
def test_superset_compat(hosts):
    """--nbdkit-compat turns the superset off."""
    plugin = hosts.load(
        """
import errno
def can_multi_conn(h): return 1
def pwrite(h, *args): raise OSError(errno.ENOSPC, "words")
""",
        options=("--nbdkit-compat",),
    )
    wire = plugin.go(structured=True)
    assert not wire.export.flags & nbd.CAN_MULTI_CONN
    wire.expect_errno(wire.request(nbd.WRITE, 0, data=b"x"), nbd.EIO)
    assert plugin.eval("hasattr(nbdkit, 'error')") is False


@case("plugin.cli.v2v", req=["PY-CLI-17", "PY-CLI-05"])
def test_v2v(hosts):
    """The command line by which virt-v2v uploads starts a plugin."""
    files = {"p.py": SOURCE}
    words = "--newstyle --pidfile pid --unix s --threads 8 --exportname / --readonly"
    debug = "--verbose -D nbdkit.backend.datapath=0 -f"
    directory = hosts.directory(files)
    argv = [
        *program_words(hosts.pool.target),
        *words.split(),
        *debug.split(),
        *["python", "script=p.py", "disk=1", "url=https://host/x?y=z"],
    ]
    with hosts.spawn(argv, directory, stderr=subprocess.DEVNULL) as process:
        path = directory / "pid"
        hosts.wait_for(
            directory, "the pid file", lambda: path.exists() and path.read_text()
        )
        assert int(path.read_text()) == process.pid
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(10)
        sock.connect(str(directory / "s"))
        wire = hosts.adopt(sock)
        wire.greet()
        wire.go("/")
        assert wire.export.flags & nbd.READ_ONLY
        wire.leave()
        process.terminate()
        assert process.wait(10) == 0
    assert "https://host/x?y=z" in (directory / "record").read_text()


@case("plugin.cli.second-signal", req=["PY-END-07"])
def test_second_signal(hosts):
    """A second signal ends a host at once that waits for a callback."""
    source = SOURCE + """
def pread(h, buf, offset, flags):
    import threading
    note("in")
    threading.Event().wait(60)
"""
    plugin = hosts.start(source)
    wire = plugin.go("x")
    wire.request(nbd.READ, 0, 512)
    plugin.wait_calls("in")
    plugin.process.send(signal.SIGTERM)
    wire.pending.clear()
    wire.conn.close()
    for _ in range(20):
        plugin.process.send(signal.SIGTERM)
        status = plugin.process.wait(0.5)
        if status is not None:
            break
    assert status == 1, f"status {status}"
    plugin.host.expected_status = 1


@case("plugin.cli.waiting-requests", req=["PY-END-05", "PY-END-04"])
def test_waiting_requests(hosts):
    """Requests that wait when the host ends: ESHUTDOWN or the end, none half done."""
    from nbdspec.verdict import Closed

    plugin = hosts.start(
        SOURCE
        + """
import os, threading
released = False
def pwrite(h, buf, offset, flags):
    global released
    note("in", offset)
    if not released:
        with builtins.open("go", "rb"):
            released = True
    note("out", offset)
import builtins
os.mkfifo("go")
"""
    )
    wire = plugin.go("x")
    cookies = [wire.request(nbd.WRITE, i, data=b"x") for i in range(5)]
    plugin.wait_calls("in")
    plugin.process.send(signal.SIGTERM)
    (plugin.host.directory / "go").open("wb").close()
    answers = []
    try:
        for cookie in cookies:
            answers.append(wire.wait(cookie).error)
    except Closed:
        wire.pending.clear()
    wire.conn.close()
    status = plugin.process.wait(10)
    assert status == 0, plugin.process.end_in_words()
    assert answers[0] == 0, "the callback's request was not answered"
    done = len(plugin.names("out"))
    assert len(plugin.names("in")) == done
    expected = [0] * done + [nbd.ESHUTDOWN] * (len(answers) - done)
    assert answers == expected, f"{answers}, with {done} calls"
