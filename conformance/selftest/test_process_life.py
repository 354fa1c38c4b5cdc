# SPDX-License-Identifier: BSD-3-Clause
"""From readiness to the end: daemon, signals, shutdown, files, parents."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from server_process import (
    GUARD,
    NBDSPECD,
    READ,
    Client,
    Server,
    connected,
    needs_python,
    read_line,
    sanitizer,
    wait_for_file,
    wait_gone,
)

#: Blocks in the named callback until somebody opens the FIFO for writing.
BLOCKING = """
import builtins, os
def wait(name):
    if os.environ["WHERE"] == name:
        with builtins.open(os.environ["FIFO"]) as f:
            f.read()
def note(name):
    with builtins.open(os.environ["NOTES"], "a") as f:
        f.write(name + "\\n")
def after_fork(): wait("after_fork")
def open(readonly): note("open"); wait("open"); return 1
def close(h): note("close")
def cleanup(): note("cleanup"); wait("cleanup")
def get_size(h): return 1 << 20
def pread(h, count, offset): wait("pread"); return b"x" * count
"""


def blocking(place: Path, where: str) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment for the plugin above."""
    (place / "plugin.py").write_text(BLOCKING)
    os.mkfifo(place / "fifo")
    env = {
        "WHERE": where,
        "FIFO": str(place / "fifo"),
        "NOTES": str(place / "notes"),
    }
    return ["python", str(place / "plugin.py")], env


def notes(place: Path) -> list[str]:
    return (place / "notes").read_text().split()


def release(place: Path) -> None:
    """Lets the callback go on; returns only once it is inside."""
    with (place / "fifo").open("w"):
        pass


# -- daemon


def start_daemon(place: Path, *args: str, **kwargs) -> int:
    """Starts a daemon, which must be ready then; its pid."""
    files = ("-U", str(place / "sock"), "-P", str(place / "pid"))
    r = subprocess.run(
        [NBDSPECD, *files, *args],
        capture_output=True,
        text=True,
        timeout=GUARD,
        **kwargs,
    )
    assert (r.returncode, r.stdout, r.stderr) == (0, "", "")
    return int((place / "pid").read_text())


def test_daemon_is_ready_when_its_starter_ends(place: Path) -> None:
    pid = start_daemon(place, "memory", "1M")
    try:
        with Client(str(place / "sock")) as c:
            c.greet()
            assert c.go() == 1 << 20
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        for fd in (0, 1, 2):
            assert os.readlink(f"/proc/{pid}/fd/{fd}") == "/dev/null"
        assert os.getsid(pid) == pid
        assert (place / "pid").read_text() == f"{pid}\n"
        assert (place / "pid").stat().st_mode & 0o777 == 0o644
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_gone(pid)
    assert list(place.iterdir()) == []


def test_relative_names_hold_after_the_change_of_directory(place: Path) -> None:
    r = subprocess.run(
        [NBDSPECD, "-U", "sock", "-P", "pid", "--stats", "stats", "null", "1M"],
        cwd=place,
        timeout=GUARD,
    )
    assert r.returncode == 0
    pid = int((place / "pid").read_text())
    os.kill(pid, signal.SIGTERM)
    wait_gone(pid)
    assert [p.name for p in place.iterdir()] == ["stats"]


@needs_python
def test_pid_file_comes_after_after_fork(place: Path) -> None:
    args, env = blocking(place, "after_fork")
    files = ("-U", str(place / "sock"), "-P", str(place / "pid"))
    starter = subprocess.Popen([NBDSPECD, *files, *args], env={**os.environ, **env})
    release(place)
    # It was inside after_fork, so what is here now was made before.
    assert starter.wait(GUARD) == 0
    pid = int((place / "pid").read_text())
    os.kill(pid, signal.SIGTERM)
    wait_gone(pid)


@needs_python
def test_nothing_tells_of_readiness_inside_after_fork(place: Path) -> None:
    args, env = blocking(place, "after_fork")
    files = ("-U", str(place / "sock"), "-P", str(place / "pid"))
    starter = subprocess.Popen([NBDSPECD, *files, *args], env={**os.environ, **env})
    writer = os.open(place / "fifo", os.O_WRONLY)  # it is inside
    try:
        assert not (place / "pid").exists()
        assert starter.poll() is None
    finally:
        os.close(writer)
    assert starter.wait(GUARD) == 0
    pid = int((place / "pid").read_text())
    os.kill(pid, signal.SIGTERM)
    wait_gone(pid)


@needs_python
def test_starter_reports_a_daemon_that_is_killed(place: Path) -> None:
    (place / "plugin.py").write_text(
        "import os\n"
        "def after_fork(): os.kill(os.getpid(), 9)\n"
        "def open(r): pass\ndef get_size(h): return 1\ndef pread(h, c, o): pass\n"
    )
    r = subprocess.run(
        [NBDSPECD, "-U", str(place / "sock"), "python", str(place / "plugin.py")],
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert r.returncode == 1
    assert "killed by signal 9 before it was ready" in r.stderr


def test_verbose_daemon_keeps_stderr(place: Path) -> None:
    with (place / "log").open("w") as log:
        r = subprocess.run(
            [NBDSPECD, "-v", "-U", "sock", "-P", "pid", "null", "1M"],
            cwd=place,
            stderr=log,
            timeout=GUARD,
        )
    assert r.returncode == 0
    pid = int((place / "pid").read_text())
    os.kill(pid, signal.SIGTERM)
    wait_gone(pid)
    assert "debug: shutting down" in (place / "log").read_text()


# -- the end


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP"])
def test_signals_end_the_server_with_idle_clients(name: str, place: Path) -> None:
    with Server(place, "memory", "1M") as s:
        with connected(s) as idle, Client(s.socket) as c:
            c.greet()  # in the middle of its handshake
            assert s.stop(getattr(signal, name)) == 0
            assert idle.at_end() and c.at_end()
        assert not Path(s.socket).exists()


def test_a_client_after_the_end_is_refused(place: Path) -> None:
    with Server(place, "null", "1M") as s:
        s.stop()
        with pytest.raises(FileNotFoundError):
            Client(s.socket)


@needs_python
def test_running_callback_is_answered_and_all_is_closed(place: Path) -> None:
    args, env = blocking(place, "pread")
    with Server(place, *args, env=env) as s, connected(s) as c, connected(s) as idle:
        c.request(READ, 0, 512)
        writer = os.open(place / "fifo", os.O_WRONLY)
        s.process.send_signal(signal.SIGTERM)
        assert idle.at_end()  # the shutdown is under way, the callback still runs
        os.close(writer)
        assert c.simple_reply(512) == (0, b"x" * 512)
        assert c.at_end()
        assert s.wait() == 0
    assert notes(place) == ["open", "open", "close", "close", "cleanup"]


@needs_python
@pytest.mark.parametrize("where", ["pread", "cleanup"])
def test_second_signal_ends_at_once(where: str, place: Path) -> None:
    if where == "cleanup" and sanitizer() == "tsan":
        pytest.skip("its runtime keeps signals back while the main thread waits")
    args, env = blocking(place, where)
    with Server(place, *args, "-P", str(place / "pid"), env=env, ready=False) as s:
        wait_for_file(place / "pid")
        with connected(s) as c, connected(s) as idle:
            if where == "pread":
                c.request(READ, 0, 512)
                writer = os.open(place / "fifo", os.O_WRONLY)
            s.process.send_signal(signal.SIGTERM)
            assert idle.at_end()  # two signals at once would be one
            if where == "cleanup":
                writer = os.open(place / "fifo", os.O_WRONLY)
            s.process.send_signal(signal.SIGTERM)
            assert s.wait() == 1
            os.close(writer)
        assert not Path(s.socket).exists()
        assert not (place / "pid").exists()


@needs_python
def test_signal_before_readiness_still_cleans_up(place: Path) -> None:
    args, env = blocking(place, "after_fork")
    with Server(place, *args, env=env, ready=False) as s:
        writer = os.open(place / "fifo", os.O_WRONLY)
        s.process.send_signal(signal.SIGTERM)
        os.close(writer)
        assert s.wait() == 0
        assert not Path(s.socket).exists()
    assert notes(place) == ["cleanup"]


def test_another_servers_files_are_left_alone(place: Path) -> None:
    with Server(place, "null", "1M", "-P", str(place / "pid"), ready=False) as s:
        wait_for_file(place / "pid")
        (place / "pid").unlink()
        (place / "pid").write_text("another\n")
        Path(s.socket).unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(s.socket)
            assert s.stop() == 0
    assert (place / "pid").read_text() == "another\n"
    assert Path(s.socket).is_socket()


def test_private_socket_and_its_directory_go(place: Path) -> None:
    with Server(place, "null", "1M", "--print-uri", listen=("-U", "-")) as s:
        path = Path(s.log().split("\n")[0].split("socket=")[1])
        assert path.is_socket()
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert s.stop() == 0
        assert not path.parent.exists()


# -- the parent


def test_exit_with_parent(place: Path) -> None:
    code = (
        "import os, subprocess, sys\n"
        "r, w = os.pipe()\n"
        "p = subprocess.Popen([*sys.argv[1:], '-P', f'/dev/fd/{w}'], pass_fds=(w,))\n"
        "os.close(w)\n"
        "print(os.read(r, 20).decode(), end='', flush=True)\n"
        "sys.stdin.read()\n"
    )
    args = [NBDSPECD, "--exit-with-parent", "-U", str(place / "sock"), "null", "1M"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        pid = int(read_line(parent.stdout.fileno()))
        parent.kill()
        parent.wait(GUARD)
        wait_gone(pid)
    assert list(place.iterdir()) == []


@needs_python
def test_parent_that_goes_while_the_server_starts(place: Path) -> None:
    """The kernel's signal is for a parent that ends after it was asked for."""
    (place / "plugin.py").write_text(
        "import os, select\n"
        "parent = os.pidfd_open(os.getppid())\n"
        "os.kill(os.getppid(), 9)\n"
        "select.select([parent], [], [])\n"
        "def open(r): pass\ndef get_size(h): return 1\ndef pread(h, c, o): pass\n"
    )
    r, w = os.pipe()
    args = [NBDSPECD, "--exit-with-parent", "-U", "sock", "python", "plugin.py"]
    subprocess.run(
        ["sh", "-c", '"$@"; exit', "-", *args], cwd=place, pass_fds=(w,), timeout=GUARD
    )
    os.close(w)
    assert select.select([r], [], [], GUARD)[0], "the server goes on"
    assert os.read(r, 1) == b""  # the last holder of the pipe has ended
    os.close(r)
    assert [p.name for p in place.iterdir()] == ["plugin.py"]


# -- user and memory

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may")


@needs_root
def test_user_and_group(place: Path) -> None:
    place.chmod(0o755)
    with Server(place, "-u", "nobody", "-g", "daemon", "null", "1M") as s:
        status = Path(f"/proc/{s.pid}/status").read_text()
        ids = {line.split()[0]: line.split()[1:] for line in status.splitlines()}
        uid = subprocess.check_output(["id", "-u", "nobody"], text=True).strip()
        entry = subprocess.check_output(["getent", "group", "daemon"], text=True)
        gid = entry.split(":")[2]
        assert ids["Uid:"] == [uid] * 4
        assert ids["Gid:"] == [gid] * 4
        assert ids["Groups:"] == [gid]
        assert s.stop() == 0


@needs_root
def test_pid_file_is_opened_before_the_user_changes(place: Path) -> None:
    place.chmod(0o755)  # which nobody cannot write to
    pid = start_daemon(place, "-u", "nobody", "null", "1M")
    os.kill(pid, signal.SIGTERM)
    wait_gone(pid)
    # Removal is as far as the user may; both are still root's.
    assert {p.name for p in place.iterdir()} == {"pid", "sock"}


@needs_root
def test_user_by_number_with_a_private_socket(place: Path) -> None:
    args = ("-u", "65534", "--print-uri", "null", "1M")
    with Server(place, *args, listen=("-U", "-")) as s:
        path = Path(s.log().split("\n")[0].split("socket=")[1])
        assert path.parent.stat().st_uid == 65534
        assert s.stop() == 0
        assert not path.parent.exists()


@needs_root
@pytest.mark.skipif(sanitizer() != "", reason="sanitizers make mlockall do nothing")
def test_swap_locks_memory(place: Path) -> None:
    with Server(place, "--swap", "null", "1M") as s:
        assert s.status("VmLck") > 0


def test_swap_without_the_right_to(place: Path) -> None:
    script = 'ulimit -l 0 && exec "$0" "$@"'
    if os.getuid() == 0 or sanitizer():
        pytest.skip("root may always; sanitizers make mlockall do nothing")
    r = subprocess.run(
        ["bash", "-c", script, NBDSPECD, "-f", "--swap", "-U", "sock", "null", "1M"],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert r.returncode == 1
    assert "--swap: mlockall" in r.stderr
    assert list(place.iterdir()) == []
