# SPDX-License-Identifier: BSD-3-Clause
"""--run: what the command sees, what comes back, and that both end together."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
from pathlib import Path

import pytest
from server_process import GUARD, NBDSPECD, Server, needs_python, read_line, wait_gone

NAMES = "uri nbd port unixsocket exportname tls"
SHOW = f'for v in {NAMES}; do eval "echo $v=\\$$v"; done'


def run(command: str, *args: str, **kwargs) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [NBDSPECD, "--run", command, *args],
        capture_output=True,
        text=True,
        timeout=GUARD,
        **kwargs,
    )


def variables(*args: str) -> dict[str, str]:
    r = run(SHOW, *args)
    assert r.returncode == 0, r.stderr
    return dict(line.split("=", 1) for line in r.stdout.splitlines())


def test_private_socket_unless_said_otherwise() -> None:
    v = variables("null", "1M")
    assert v["unixsocket"].startswith("/tmp/nbdspecd")
    assert v["uri"] == v["nbd"] == f"nbd+unix://?socket={v['unixsocket']}"
    assert (v["port"], v["exportname"], v["tls"]) == ("", "", "")
    assert not Path(v["unixsocket"]).parent.exists()


def test_odd_names_survive_the_shell(place: Path) -> None:
    odd = "a b'c\"d$e`f?g&h%i"
    path = place / odd
    v = variables("-U", str(path), "-e", odd, "null", "1M")
    encoded = "a%20b%27c%22d%24e%60f%3Fg%26h%25i"
    assert v["unixsocket"] == str(path)
    assert v["exportname"] == odd
    assert v["uri"] == f"nbd+unix:///{encoded}?socket={place}/{encoded}"


@pytest.mark.parametrize("option", ["-e", "--export", "--export-name", "--exportname"])
def test_export_name_by_each_option(option: str) -> None:
    assert variables(option, "disk", "null", "1M")["exportname"] == "disk"


def test_tcp_port_is_the_one_bound() -> None:
    v = variables("-p", "0", "null", "1M")
    assert int(v["port"]) > 0
    assert v["uri"] == f"nbd://localhost:{v['port']}"
    assert v["unixsocket"] == ""


@pytest.mark.parametrize(
    "address, host", [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")]
)
def test_uri_of_an_address_reaches_it(address: str, host: str) -> None:
    r = run(
        'echo "$uri"; nbdinfo --size "$uri"', "-i", address, "-p", "0", "null", "1M"
    )
    if "Cannot assign requested address" in r.stderr:
        pytest.skip("there is no IPv6 here")
    uri, size = r.stdout.split()
    assert uri.startswith(f"nbd://{host}:")
    assert size == "1048576"


def test_uri_is_not_a_variable_of_the_environment() -> None:
    assert run("env | grep -c -E '^(uri|nbd|port)=' || :", "null", "1M").stdout == "0\n"


@pytest.mark.parametrize(
    "command, status",
    [
        ("true", 0),
        ("exit 42", 42),
        ("no-such-command-here 2>/dev/null", 127),
        ("kill -9 $$", 128 + 9),
        ("kill -TERM $$", 128 + 15),
        ("kill -9 $PPID", -9),
    ],
)
def test_status_of_the_command(command: str, status: int) -> None:
    r = run(command, "null", "1M")
    assert r.returncode == status


@pytest.mark.parametrize(
    "command, sig, status",
    [
        ("exit 0", 9, 128 + 9),
        ("exit 5", 9, 128 + 9),  # the server's death counts for more
        ("exit 0", 6, 128 + 6),
        ("exit 5", 15, 5),  # an orderly end
        ("exit 0", 15, 0),
    ],
)
def test_status_when_the_server_ends_first(
    command: str, sig: int, status: int, place: Path
) -> None:
    script = (
        'nbdinfo --size "$uri" >/dev/null\n'  # so it serves
        f"pid=$(cat '{place}/pid'); kill -{sig} $pid\n"
        "tail --pid=$pid -s 0.02 -f /dev/null\n"
        f"{command}"
    )
    r = run(script, "-P", str(place / "pid"), "null", "1M")
    assert (r.returncode, r.stderr) == (status, "")
    assert list(place.iterdir()) == []


@needs_python
def test_status_when_the_server_cannot_start(place: Path) -> None:
    (place / "plugin.py").write_text(
        "def after_fork(): raise RuntimeError('not today')\n"
        "def open(r): pass\ndef get_size(h): return 1\ndef pread(h, c, o): pass\n"
    )
    r = run('nbdinfo "$uri"; exit 0', "python", str(place / "plugin.py"))
    assert r.returncode == 1
    assert "not today" in r.stderr


def test_nobody_holds_the_socket_when_the_server_has_died(place: Path) -> None:
    """A client that connects then must be refused, not left waiting."""
    script = (
        'nbdinfo --size "$uri" >/dev/null\n'
        f"pid=$(cat '{place}/pid'); kill -9 $pid\n"
        "tail --pid=$pid -s 0.02 -f /dev/null\n"
        'nbdinfo --size "$uri"\n'
    )
    args = ("-i", "127.0.0.1", "-p", "0", "-P", str(place / "pid"), "null", "1M")
    r = run(script, *args)
    assert "Connection refused" in r.stderr
    assert r.returncode == 128 + 9


def test_cleanup_has_run_when_all_is_over(place: Path) -> None:
    stats = place / "stats"
    r = run('nbdinfo --size "$uri"', "--stats", str(stats), "null", "1M")
    assert r.stdout == "1048576\n"
    assert '"requests"' in stats.read_text()


def test_command_has_the_users_input_and_output() -> None:
    r = run("read -r a; cat; echo $a >&2", "null", "1M", input="one\ntwo\n")
    assert (r.stdout, r.stderr) == ("two\n", "one\n")


def test_command_gets_default_signals_and_no_descriptors() -> None:
    r = run("ls /proc/self/fd; grep SigIgn /proc/self/status", "null", "1M")
    *descriptors, ignored = r.stdout.split("\n")[:-1]
    assert descriptors == ["0", "1", "2", "3"]  # ls itself has one
    assert int(ignored.split()[1], 16) & 1 << signal.SIGPIPE - 1 == 0


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_signal_ends_server_and_command(name: str, place: Path) -> None:
    r, w = os.pipe()
    script = f"sleep 1000 & echo $! >/dev/fd/{w}; cat '{place}/pid' >/dev/fd/{w}; wait"
    p = subprocess.Popen(
        [NBDSPECD, "-P", str(place / "pid"), "-U", str(place / "sock"), "--run",
         f'nbdinfo --size "$uri" >/dev/null; {script}', "null", "1M"],
        stdin=subprocess.DEVNULL,
        pass_fds=(w,),
    )  # fmt: skip
    os.close(w)
    sleep, server = int(read_line(r)), int(read_line(r))
    p.send_signal(getattr(signal, name))
    assert p.wait(GUARD) == 128 + getattr(signal, name)
    wait_gone(server)
    # The shell's child, too; but a shell may have its children behind it ignore
    # SIGINT.
    if name != "SIGINT":
        wait_gone(sleep)
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(sleep, signal.SIGKILL)
    os.close(r)
    assert list(place.iterdir()) == []


def test_interrupt_of_a_terminal_is_not_two_signals(place: Path) -> None:
    """The terminal sends it to all; the server's shutdown stays an orderly one."""
    pid, fd = pty.fork()
    if pid == 0:
        stats = str(place / "stats")
        command = 'nbdinfo --size "$uri"; echo ready; read -r line'
        os.execv(
            NBDSPECD,
            [NBDSPECD, "--stats", stats, "--run", command, "null", "1M"],
        )
    got = b""
    while b"ready" not in got:
        assert select.select([fd], [], [], GUARD)[0]
        got += os.read(fd, 4096)
    (place / "stats").unlink(missing_ok=True)
    os.write(fd, b"\x03")
    pidfd = os.pidfd_open(pid)
    assert select.select([pidfd], [], [], GUARD)[0]
    os.close(pidfd)
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGINT
    assert (place / "stats").exists()  # written at the end of an orderly shutdown


def test_runner_that_is_killed_takes_the_server_along(place: Path) -> None:
    r, w = os.pipe()
    command = f'nbdinfo --size "$uri" >/dev/null; cat "{place}/pid" >/dev/fd/{w}; cat'
    with subprocess.Popen(
        [NBDSPECD, "-P", str(place / "pid"), "--run", command, "null", "1M"],
        stdin=subprocess.PIPE,
        pass_fds=(w,),
    ) as p:
        os.close(w)
        server = int(read_line(r))
        p.kill()
        p.wait(GUARD)
        wait_gone(server)
    os.close(r)


def test_exit_with_parent_goes_for_both(place: Path) -> None:
    r, w = os.pipe()
    tell = f'nbdinfo --size "$uri" >/dev/null; cat "{place}/pid" >/dev/fd/{w}'
    with subprocess.Popen(
        ["sh", "-c", '"$@"; exit', "-", NBDSPECD, "--exit-with-parent",
         "-P", str(place / "pid"), "--run", f"{tell}; sleep 1000", "null", "1M"],
        stdin=subprocess.DEVNULL,
        pass_fds=(w,),
    ) as parent:  # fmt: skip
        os.close(w)
        server = int(read_line(r))
        parent.kill()
    wait_gone(server)
    assert read_line(r) == ""  # nor does the command hold the pipe any more
    os.close(r)
    assert list(place.iterdir()) == []


def test_pid_file_is_the_servers(place: Path) -> None:
    r = run(
        f'nbdinfo --size "$uri" >/dev/null; echo $PPID; cat "{place}/pid"',
        "-P",
        str(place / "pid"),
        "null",
        "1M",
    )
    runner, server = r.stdout.split()
    assert runner != server
    assert list(place.iterdir()) == []


def test_foreground_server_needs_no_run(place: Path) -> None:
    with Server(place, "null", "1M") as s:
        assert s.pid == s.process.pid
