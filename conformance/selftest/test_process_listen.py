# SPDX-License-Identifier: BSD-3-Clause
"""Where the server listens: addresses, socket activation, vsock."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from server_process import (
    GUARD,
    NBDSPECD,
    PLUGIN,
    Client,
    Server,
    needs_python,
    size_of,
)


def test_tcp_on_one_address_only(place: Path) -> None:
    with Server(place, "null", "1M", "--print-uri", listen=("-i127.0.0.1", "-p0")) as s:
        port = int(s.log().split("\n")[0].rsplit(":", 1)[1])
        assert size_of(("127.0.0.1", port)) == 1 << 20
        with pytest.raises(ConnectionRefusedError):
            Client(("127.0.0.2", port))


def have_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not have_ipv6(), reason="there is no IPv6 here")
@pytest.mark.parametrize(
    "options, open_at",
    [([], ["127.0.0.1", "::1"]), (["-4"], ["127.0.0.1"]), (["-6"], ["::1"]),
     (["-4", "-6"], ["::1"])],
)  # fmt: skip
def test_address_families(options: list[str], open_at: list[str], place: Path) -> None:
    with Server(place, *options, "null", "1M", "--print-uri", listen=("-p0",)) as s:
        port = int(s.log().split("\n")[0].rsplit(":", 1)[1])
        for address in ("127.0.0.1", "::1"):
            if address in open_at:
                assert size_of((address, port)) == 1 << 20
            else:
                with pytest.raises(ConnectionRefusedError):
                    Client((address, port))


def test_port_can_be_had_again_at_once(place: Path) -> None:
    with Server(place, "null", "1M", "--print-uri", listen=("-i127.0.0.1", "-p0")) as s:
        port = s.log().split("\n")[0].rsplit(":", 1)[1]
        with Client(("127.0.0.1", int(port))) as c:
            c.greet()
            s.stop()  # the server closes first: TIME_WAIT is on its side
    with Server(place, "null", "1M", listen=("-i127.0.0.1", f"-p{port}")) as s:
        assert size_of(("127.0.0.1", int(port))) == 1 << 20


def option_of_connection(s: Server, level: int, name: int) -> int:
    """A socket option of the server's side of its only connection."""
    pidfd = os.pidfd_open(s.pid)
    for entry in Path(f"/proc/{s.pid}/fd").iterdir():
        if not os.readlink(entry).startswith("socket:"):
            continue
        fd = pidfd_getfd(pidfd, int(entry.name))
        with socket.socket(fileno=fd) as sock:
            if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0:
                os.close(pidfd)
                return sock.getsockopt(level, name)
    raise AssertionError("there is no connection")


def pidfd_getfd(pidfd: int, fd: int) -> int:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    got = libc.syscall(438, pidfd, fd, 0)
    if got == -1 and ctypes.get_errno() == errno.EPERM:
        pytest.skip("another process may not be looked into here")
    assert got >= 0
    return got


@pytest.mark.parametrize("options, keepalive", [([], 0), (["--keepalive"], 1)])
def test_keepalive_and_no_delay(
    options: list[str], keepalive: int, place: Path
) -> None:
    listen = ("-i127.0.0.1", "-p0", "--print-uri", *options)
    with Server(place, "null", "1M", listen=listen) as s:
        port = int(s.log().split("\n")[0].rsplit(":", 1)[1])
        with Client(("127.0.0.1", port)) as c:
            c.greet()
            got = option_of_connection(s, socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert got == keepalive
            assert option_of_connection(s, socket.IPPROTO_TCP, socket.TCP_NODELAY)


def activated(*args: str, listeners: list[socket.socket], **kwargs):
    """LISTEN_PID has to be the server's own number, so a shell becomes it."""
    redirects = " ".join(
        f"{3 + i}<&{sock.fileno()} {sock.fileno()}<&-"
        for i, sock in enumerate(listeners)
    )
    script = f'exec {redirects} && LISTEN_PID=$$ exec "$@"'
    return subprocess.Popen(
        ["bash", "-c", script, "-", NBDSPECD, *args],
        env={**os.environ, "LISTEN_FDS": str(len(listeners))},
        pass_fds=tuple(sock.fileno() for sock in listeners),
        **kwargs,
    )


def test_socket_activation(place: Path) -> None:
    tcp = socket.create_server(("127.0.0.1", 0))
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(place / "sock"))
    unix.listen()
    port = tcp.getsockname()[1]
    # It stays in the foreground by itself, and removes nothing of others.
    p = activated("memory", "1M", listeners=[unix, tcp])
    try:
        tcp.close()
        unix.close()
        assert size_of(("127.0.0.1", port)) == 1 << 20
        assert size_of(str(place / "sock")) == 1 << 20
        p.send_signal(signal.SIGTERM)
        assert p.wait(GUARD) == 0
    finally:
        p.kill()
        p.wait()
    assert (place / "sock").is_socket()


@needs_python
def test_activation_is_not_passed_on(place: Path) -> None:
    (place / "plugin.py").write_text(
        PLUGIN
        + "import os\nassert not [k for k in os.environ if k.startswith('LISTEN_')]\n"
        + "os.system('ls /proc/self/fd >fds')\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        port = tcp.getsockname()[1]
        p = activated("python", "plugin.py", listeners=[tcp], cwd=place)
        try:
            tcp.close()
            assert size_of(("127.0.0.1", port)) == 1 << 20
        finally:
            p.kill()
            p.wait()
    assert (place / "fds").read_text().split() == ["0", "1", "2", "3"]


def test_activation_of_somebody_else(place: Path) -> None:
    with Server(place, "null", "1M", env={"LISTEN_PID": "1", "LISTEN_FDS": "1"}) as s:
        assert "LISTEN_PID=1 was not for us (ignored)" in s.log()
        assert size_of(s.socket) == 1 << 20


def vsock_works() -> bool:
    """Can a vsock client reach a server on this machine?"""
    try:
        with socket.socket(socket.AF_VSOCK) as server, socket.socket(
            socket.AF_VSOCK
        ) as client:
            server.bind((socket.VMADDR_CID_ANY, socket.VMADDR_PORT_ANY))
            server.listen()
            client.settimeout(2)
            client.connect((1, server.getsockname()[1]))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not Path("/dev/vsock").exists(), reason="there is no vsock here")
def test_vsock(place: Path) -> None:
    port = 20000 + os.getpid() % 20000
    listen = ("--vsock", "-p", str(port), "--print-uri")
    with Server(place, "null", "1M", listen=listen) as s:
        assert s.log().startswith(f"nbd+vsock://1:{port}\n")
        if vsock_works():
            with socket.socket(socket.AF_VSOCK) as sock:
                sock.settimeout(GUARD)
                sock.connect((1, port))
                c = Client(sock)
                c.greet()
                assert c.go() == 1 << 20
        assert s.stop() == 0
