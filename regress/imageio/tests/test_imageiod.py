# SPDX-License-Identifier: BSD-3-Clause
"""The daemon's knobs, its faults, its log and its end."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import re
import resource
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from plain_client import LIMIT, ROOT, SIZE, Client, Local, until
from imageio.clock import Clock, Phase, humanized
from imageio.process import PROGRAM, CannotStart, Daemon, most_at_once, phases

Start = Callable[..., Daemon]
Connect = Callable[[Daemon], Client]
THREAD = """
[connection 1 ops, 3.561693 s]
[dispatch 550 ops, 2.808350 s]
[write 470 ops, 2.482875 s, 316.06 MiB, 127.30 MiB/s]
[zero 78 ops, 0.178174 s, 1.26 GiB, 7.05 GiB/s]
[flush 2 ops, 0.000211 s]
"""


def test_statistics_as_in_the_mail() -> None:
    """A line to each phase, or all of them on one."""
    for text in (THREAD, "CLOSE client=x" + THREAD.replace("\n", " ")):
        (connection,) = phases(text)
        assert "\n".join(map(str, connection)) == THREAD.strip()


def test_phase_in_words() -> None:
    phase = Phase("write")
    phase.operations, phase.seconds, phase.bytes = 470, 2.482875, 331411456
    assert str(phase) == "[write 470 ops, 2.482875 s, 316.06 MiB, 127.30 MiB/s]"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.00 KiB"), (3 << 39, "1.50 TiB")],
)
def test_humanized(size: int, text: str) -> None:
    assert humanized(size) == text


def test_a_failed_operation_takes_time_but_does_not_count() -> None:
    clock = Clock()
    for name in ("dispatch", "write"):
        with pytest.raises(ValueError), clock.phase(name) as phase:
            phase.size = 5
            raise ValueError
        assert phase.seconds > 0
        counted = (1, 5) if name == "dispatch" else (0, 0)
        assert (phase.operations, phase.bytes) == counted


def test_statistics_of_a_connection(start: Start, connect: Connect) -> None:
    """One line for each connection, phases in the order of their first use."""
    daemon = start("--ops", "read,write")
    client = connect(daemon)
    for offset in (0, 4096):
        client.put(b"x" * 4096, offset, on=client.local)
    client.ask("PATCH", body={"op": "zero", "size": 8192}, on=client.local)
    client.ask("PATCH", body={"op": "flush"}, on=client.local)
    client.ask("PUT", "/images/nobody", b"", on=client.local)
    client.close()
    (connection,) = phases(daemon.stop())
    found = [(p.name, p.operations, p.size) for p in connection]
    assert found == [
        ("connection", 1, ""),
        ("dispatch", 5, ""),
        ("write", 2, "8.00 KiB"),
        ("write.read", 2, "8.00 KiB"),
        ("write.write", 2, "8.00 KiB"),
        ("write.flush", 2, ""),
        ("zero", 1, "8.00 KiB"),
        ("zero.zero", 1, "8.00 KiB"),
        ("flush", 1, ""),
    ]
    times = {p.name: p.seconds for p in connection}
    assert times["connection"] >= times["dispatch"] >= times["write"]


def test_digest_of_the_image(start: Start, connect: Connect) -> None:
    daemon = start("--digest")
    connect(daemon).put(b"data", 100)
    content = bytes(100) + b"data" + bytes(SIZE - 104)
    assert f"sha256={hashlib.sha256(content).hexdigest()}" in daemon.stop()


def test_most_requests_at_once(start: Start, connect: Connect) -> None:
    """Three bodies under way at the same time, then a fourth on its own."""
    daemon = start()
    clients = [connect(daemon) for _ in range(3)]
    for client in clients:
        client.remote.putrequest("PUT", "/images/image")
        client.remote.putheader("Content-Length", "4")
        client.remote.endheaders()
    watch = connect(daemon)
    path = "/tickets/image"
    # all three have begun
    until(lambda: watch.ask("GET", path, on=watch.control).json["connections"] == 3)
    for client in clients:
        client.remote.send(b"data")
        assert client.remote.getresponse().read() == b""
    clients[0].put(b"data")
    assert most_at_once(daemon.stop())["PUT"] == 3


def test_latency(start: Start, connect: Connect) -> None:
    client = connect(start("--put-latency", "0.05"))
    begin = time.monotonic()
    client.put(b"x")
    assert time.monotonic() - begin >= 0.05


def test_bandwidth_is_shared(start: Start, connect: Connect) -> None:
    """Two clients at once take as long as one with all of the data."""
    daemon = start("--bandwidth", "8M")
    clients = [connect(daemon) for _ in range(2)]
    data = bytes(1 << 20)
    threads = [threading.Thread(target=c.put, args=(data,)) for c in clients]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - begin >= 0.25


def test_idle_connections_are_closed(start: Start, connect: Connect) -> None:
    daemon = start("--idle-timeout", "0.1")
    client = connect(daemon)
    client.put(b"x", on=client.local)
    sock = client.local.sock
    assert sock.recv(1) == b""  # closed, without a word
    client.local.close()
    assert "idle for 0.1 s" in daemon.stop()


def test_maxima_that_are_not_told(start: Start, connect: Connect) -> None:
    client = connect(start("--max-readers", "0", "--max-writers", "3"))
    answer = client.ask("OPTIONS").json
    assert ("max_readers" in answer, answer["max_writers"]) == (False, 3)


def test_features_that_are_left_out(start: Start, connect: Connect) -> None:
    client = connect(start("--without", "zero", "--no-socket"))
    answer = client.ask("OPTIONS").json
    assert answer["features"] == ["extents", "flush"]
    assert "unix_socket" not in answer


def test_fault_status(start: Start, connect: Connect) -> None:
    client = connect(start("--fault", "PUT:2:500"))
    statuses = [client.put(b"x").status for _ in range(3)]
    assert statuses == [200, 500, 200]


def test_fault_full(start: Start, connect: Connect) -> None:
    client = connect(start("--fault", "PUT:2-:full"))
    assert client.put(b"x").status == 200
    for _ in range(2):
        answer = client.put(b"x")
        assert (answer.status, "No space left" in answer.text) == (500, True)


def test_fault_close(start: Start, connect: Connect) -> None:
    client = connect(start("--fault", "PUT:1:close"))
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        client.put(b"x" * 4096)
    client.remote.close()
    assert client.put(b"x").status == 200


def test_fault_hang_ends_with_the_daemon(start: Start, connect: Connect) -> None:
    daemon = start("--fault", "flush:1:hang")
    client = connect(daemon)
    client.remote.request("PATCH", "/images/image", '{"op": "flush"}')
    path = "/tickets/image"
    until(lambda: client.ask("GET", path, on=client.control).json["active"])
    assert "left hanging on purpose" in daemon.stop()


def test_a_full_disk_for_real(start: Start, connect: Connect) -> None:
    """A file-size limit stands in for it: the write fails in the kernel."""
    daemon = start()
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (8192, 1 << 40))
    client = connect(daemon)
    assert client.put(b"x" * 8192).status == 200
    answer = client.put(b"x" * 4096, 8192)
    assert (answer.status, "File too large" in answer.text) == (500, True)
    assert answer.closes is False


def test_stopping_leaves_no_sockets(start: Start, directory: Path) -> None:
    start().stop()
    assert sorted(p.name for p in directory.iterdir()) == ["image.raw", "imageiod.log"]


def test_stopping_does_not_wait_for_clients(start: Start, connect: Connect) -> None:
    daemon = start()
    client = connect(daemon)
    client.put(b"x")
    client.put(b"x", on=client.local)
    log = daemon.stop()
    assert log.count("CLOSE ") == 2


def test_many_connections(start: Start, connect: Connect) -> None:
    daemon = start()
    clients = [connect(daemon) for _ in range(40)]
    for client in clients:
        assert client.put(b"x", on=client.local).status == 200
    status = clients[0].ask("GET", "/tickets/image", on=clients[0].control).json
    assert status["connections"] == 40


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--fault", "PUT:x:500"], "fault 'PUT:x:500': expected KIND:N:ACTION"),
        (["--fault", "PUT:1:200"], "expected KIND:N:ACTION"),
        (["--fault", "TRIM:1:500"], "expected KIND:N:ACTION"),
        (["--put-latency", "-1"], "'-1': expected 0 to 3600 seconds"),
        (["--bandwidth", "fast"], "'fast': expected a size such as 200M"),
        (["--max-readers", "-1"], "'-1': expected a number from 0"),
        (["--image", "x"], "--image and --size: one needs the other"),
        (["--cert", "x"], "--cert and --key: one needs the other"),
        (["--cert", "/nowhere", "--key", "/nowhere"], "No such file"),
        (["--image", "/nowhere/x", "--size", "1M"], "No such file"),
    ],
)
def test_bad_command_line(directory: Path, options: list[str], words: str) -> None:
    with pytest.raises(CannotStart, match=re.escape(words)):
        Daemon(directory, *options)


def test_the_program_needs_no_path(directory: Path) -> None:
    """It is started by its name alone, from anywhere, with any python3."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--help"],
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "stand-in" in done.stdout


@pytest.fixture
def pki(directory: Path) -> Path:
    target = directory / "pki"
    subprocess.run([ROOT / "ci" / "make-pki", target], check=True, capture_output=True)
    return target


def test_tls(start: Start, connect: Connect, pki: Path) -> None:
    cert, key = pki / "server-cert.pem", pki / "server-key.pem"
    daemon = start("--cert", str(cert), "--key", str(key))
    assert daemon.url.startswith("https://")
    host = daemon.url.partition("://")[2]
    context = ssl.create_default_context(cafile=pki / "ca-cert.pem")
    client = http.client.HTTPSConnection(host, timeout=LIMIT, context=context)
    data = os.urandom(3 << 20)
    client.request("PUT", "/images/image", data)
    assert client.getresponse().read() == b""
    client.request("PUT", "/images/nobody", data)
    assert client.getresponse().status == 403
    client.close()
    local = Local(daemon.unix_socket, timeout=LIMIT)  # never TLS
    local.request("PUT", "/images/image", b"x")
    assert local.getresponse().status == 200
    local.close()


def test_a_client_that_speaks_no_tls(start: Start, pki: Path) -> None:
    cert, key = pki / "server-cert.pem", pki / "server-key.pem"
    daemon = start("--cert", str(cert), "--key", str(key))
    port = int(daemon.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), LIMIT) as s:
        s.sendall(b"PUT /images/image HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            while s.recv(4096):
                pass
    assert "CLOSE connection=1" in daemon.stop()
