# SPDX-License-Identifier: BSD-3-Clause
"""Starts that fail: one line that says what and where, status 1, nothing left."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from server_process import NBDSPECD, needs_python, refused


@pytest.mark.parametrize(
    "args, words",
    [
        (["--nonsense", "null", "1M"], "unrecognized option '--nonsense'"),
        (["--ex=x", "null", "1M"], "option '--ex=x' is ambiguous"),
        (["-P"], "option requires an argument -- 'P'"),
        (["--swap=5", "null", "1M"], "option '--swap' doesn't allow an argument"),
        ([], "no plugin given"),
        (["--dump-plugin"], "no plugin given"),
        (["file", "x"], "file: no such plugin here; there are python, memory and null"),
        (["./plugin.so"], "./plugin.so: plugins in C are not supported"),
        (["plugin.py"], "use: nbdspecd python plugin.py"),
        (["--filter=cow", "null", "1M"], "--filter=cow: there are no filters"),
        (["-t", "x", "null", "1M"], "-t: 'x': expected a number"),
        (["-t", "-1", "null", "1M"], "-t: '-1': expected a number"),
        (["-t", "5000000000", "null", "1M"], "-t: '5000000000': expected a number"),
        (["--mask-handshake", "z", "null", "1M"], "--mask-handshake: 'z'"),
        (["--max-connections", "many", "null", "1M"], "--max-connections: 'many'"),
        (["--timeout", "-5", "null", "1M"], "--timeout: '-5': expected seconds"),
        (["--timeout", "5h", "null", "1M"], "--timeout: '5h': expected seconds"),
        (["--tls", "maybe", "null", "1M"], "--tls: 'maybe': expected off, on or"),
        (["--log", "file", "null", "1M"], "--log: 'file': expected stderr, syslog"),
        (["--log", "/nowhere/log", "null", "1M"], "--log: /nowhere/log: No such file"),
        (["--python-buffer", "str", "null", "1M"], "--python-buffer: 'str': expected"),
        (["-D", "x", "null", "1M"], "-D: 'x': expected NAME.FLAG=N"),
        (["-D", ".a=1", "null", "1M"], "-D: '.a=1': expected NAME.FLAG=N"),
        (["-D", "a.=1", "null", "1M"], "-D: 'a.=1': expected NAME.FLAG=N"),
        (["-D", "a.b=", "null", "1M"], "-D: 'a.b=': expected NAME.FLAG=N"),
        (["-D", "a.b=c", "null", "1M"], "-D: 'a.b=c': expected a number"),
        (["-U", "/" + "a" * 107, "null", "1M"], "-U: path too long: length 108"),
        (["-U", "", "null", "1M"], "-U: empty file name"),
        (["-p", "70000", "null", "1M"], "-p: '70000': expected"),
        (["-p", "", "null", "1M"], "-p: '': expected"),
        (["-p", "no-such-service", "null", "1M"], "getaddrinfo: : no-such-service"),
        (["-i", "no.such.host.invalid", "null", "1M"], "getaddrinfo: no.such.host"),
        (["--vsock", "-p", "http", "null", "1M"], "-p: 'http': expected a number"),
        (["-u", "no-such-user", "-U", "-", "null", "1M"], "-u option: no-such-user"),
        # the command does not run: refused looks at standard output
        (
            ["-g", "no-such-group", "--run", "echo it ran", "null", "1M"],
            "-g option: no-such-group",
        ),
        (["-g", "no-such-group", "-U", "-", "null", "1M"], "-g option: no-such-group"),
        (["-P", "/nowhere/pid", "null", "1M"], "-P: /nowhere/pid: No such file"),
        (["--stats", "/nowhere/s", "null", "1M"], "--stats: /nowhere/s: No such file"),
        (["memory", "1x"], "1x"),
        (["memory"], "memory"),
        (["null", "size=1z"], "1z"),
    ],
)
def test_refused_with_one_line(args: list[str], words: str, place: Path) -> None:
    assert words in refused(*args, cwd=place)
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    "args",
    [
        ["-p", "1", "-U", "s"],
        ["--vsock", "-U", "s"],
        ["-s", "-p", "1"],
        ["-s", "-U", "s"],
        ["-s", "--vsock"],
        ["-s", "--run", "true"],
        ["-s", "--dump-plugin"],
    ],
)
def test_refused_combinations(args: list[str], place: Path) -> None:
    assert "cannot be used in this combination" in refused(*args, "null", cwd=place)
    assert list(place.iterdir()) == []


def test_oldstyle_has_no_tls() -> None:
    assert "-o cannot be used with --tls=require" in refused(
        "-o", "--tls=require", "null"
    )


@pytest.mark.parametrize("option", ["-i::1", "-p1", "-s", "-U-", "--run=true"])
def test_refused_with_socket_activation(option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        r = start_activated(listener, "1", option, "null")
    assert r.returncode == 1
    assert "socket activation cannot be used with" in r.stderr


@pytest.mark.parametrize(
    "count, words",
    [
        ("0", "LISTEN_FDS=0: expected a number from 1 to 16"),
        ("17", "LISTEN_FDS=17: expected"),
        ("x", "LISTEN_FDS=x: expected"),
        ("2", "socket activation: descriptor 4: "),
    ],
)
def test_bad_socket_activation(count: str, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        r = start_activated(listener, count, "-f", "null")
    assert r.returncode == 1
    assert words in r.stderr and r.stderr.count("\n") == 1


def test_activation_wants_listening_sockets() -> None:
    with socket.socket() as not_listening:
        r = start_activated(not_listening, "1", "-f", "null")
    assert r.returncode == 1
    assert "descriptor 3 is not a listening socket" in r.stderr


def start_activated(
    listener: socket.socket, count: str, *args: str
) -> subprocess.CompletedProcess[str]:
    """LISTEN_PID has to be the server's own number, so a shell becomes it."""
    script = 'exec 3<&"$0" && LISTEN_PID=$$ exec "$@"'
    return subprocess.run(
        ["bash", "-c", script, str(listener.fileno()), NBDSPECD, *args],
        env={**os.environ, "LISTEN_FDS": count},
        pass_fds=(listener.fileno(),),
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_port_in_use(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = refused(
            "-i", "127.0.0.1", "-p", port, "-P", str(place / "pid"), "null", "1M"
        )
    assert f"bind: 127.0.0.1:{port}: Address already in use" in line
    assert list(place.iterdir()) == []


def test_socket_file_in_the_way_is_kept(place: Path) -> None:
    path = place / "sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    before = path.stat().st_ino
    line = refused("-U", str(path), "-P", str(place / "pid"), "null", "1M")
    assert f"{path}: Address already in use" in line
    assert path.stat().st_ino == before
    assert list(place.iterdir()) == [path]


def test_pid_file_that_was_there_survives_a_failed_start(place: Path) -> None:
    (place / "pid").write_text("1\n")
    (place / "sock").write_text("not a socket")
    refused("-U", str(place / "sock"), "-P", str(place / "pid"), "null", "1M")
    assert (place / "pid").read_text() == "1\n"
    assert (place / "sock").read_text() == "not a socket"


def test_pid_file_in_the_place_of_a_directory(place: Path) -> None:
    line = refused("-U", str(place / "sock"), "-P", str(place), "null", "1M")
    assert f"-P: {place}: Is a directory" in line
    assert list(place.iterdir()) == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may change its user")
def test_only_root_changes_its_user(place: Path) -> None:
    line = refused("-u", "0", "-U", str(place / "sock"), "null", "1M")
    assert "-u: setuid: 0: Operation not permitted" in line
    assert list(place.iterdir()) == []


@needs_python
@pytest.mark.parametrize(
    "text, words",
    [
        ("def open(r: pass", "SyntaxError"),
        ("1/0", "ZeroDivisionError"),
        ("def open(r): return 1", "get_size"),
        ("def config_complete(): raise ValueError('left out')", "left out"),
        ("def get_ready(): raise ValueError('not today')", "not today"),
        ("def after_fork(): raise ValueError('not now')", "not now"),
    ],
)
@pytest.mark.parametrize("mode", ["-f", "-v", "daemon"])
def test_script_that_cannot_be_served(
    text: str, words: str, mode: str, place: Path
) -> None:
    script = place / "plugin.py"
    needed = "" if words in ("SyntaxError", "get_size") else (
        "def open(r): return 1\n"
        "def get_size(h): return 512\n"
        "def pread(h, c, o): return bytes(c)\n"
    )
    script.write_text(needed + text + "\n")
    files = ("-U", str(place / "sock"), "-P", str(place / "pid"))
    args = [NBDSPECD, *files, "python", str(script)]
    if mode != "daemon":
        args.insert(1, mode)
    r = subprocess.run(args, capture_output=True, text=True, timeout=60)
    assert r.returncode == 1
    assert words in r.stderr
    assert list(place.iterdir()) == [script]


@needs_python
def test_script_that_is_not_there(place: Path) -> None:
    line = refused("python", str(place / "none.py"))
    assert f"{place}/none.py" in line and "No such file" in line


@pytest.mark.parametrize("fd", [0, 1])
def test_standard_descriptors_must_be_open(fd: int) -> None:
    r = subprocess.run(
        ["sh", "-c", f'exec "$0" null 1M {fd}<&-', NBDSPECD],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert r.returncode == 1
    assert "stdin and stdout must be open" in r.stderr
