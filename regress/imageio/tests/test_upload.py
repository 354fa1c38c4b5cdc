# SPDX-License-Identifier: BSD-3-Clause
"""pyplugins/upload.py between a server and the daemon: what each of them sees."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbd
import pytest
from plain_client import LIMIT, ROOT, SIZE, Client, until
from imageio.process import Daemon, most_at_once, phases
from nbdspec.bench.server import Server, ServerError, ServerSpec

UPLOAD = str(ROOT / "pyplugins" / "upload.py")
Start = Callable[..., Daemon]
Connect = Callable[[Daemon], Client]
Serve = Callable[..., Server]

needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-img") is None, reason="qemu-img is not installed"
)


@pytest.fixture(params=["nbdspecd", pytest.param("nbdkit", marks=pytest.mark.slow)])
def host(request: pytest.FixtureRequest) -> str:
    if request.param == "nbdkit" and shutil.which("nbdkit") is None:
        pytest.skip("nbdkit is not installed")
    return str(request.param)


@pytest.fixture
def serve(host: str, directory: Path) -> Iterator[Serve]:
    """Starts a server with the plugin, for a daemon's image."""
    running: list[Server] = []

    def server(daemon: Daemon, *parameters: str, options: tuple[str, ...] = ()) -> (
        Server
    ):
        words = [f"url={daemon.image}", f"size={SIZE}", *parameters]
        spec = ServerSpec(host, ("python", UPLOAD, *words), options, threads=8)
        running.append(Server(spec, directory))
        return running[-1]

    yield server
    for process in running:
        if process.directory.exists():  # the test has not stopped it
            process.stop()


@pytest.fixture
def handle() -> Iterator[Callable[..., Any]]:
    handles: list[Any] = []

    def connected(server: Server) -> Any:
        h = nbd.NBD()
        h.set_strict_mode(0)
        h.connect_unix(str(server.socket))
        handles.append(h)
        return h

    yield connected
    handles.clear()  # which closes them


def image(directory: Path) -> bytes:
    return (directory / "image.raw").read_bytes()


def convert(source: Path, server: Server, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", *options]
        + [str(source), server.uri],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


@pytest.fixture
def source(directory: Path) -> Path:
    """Data, zeroes that are written out, and holes; SIZE bytes."""
    path = directory / "source.raw"
    with open(path, "wb") as f:
        for start in range(0, SIZE, 1 << 20):
            f.seek(start)
            f.write(os.urandom(200_000) + bytes(100_000))
        f.truncate(SIZE)
    return path


def test_what_is_offered(start: Start, serve: Serve, handle: Any) -> None:
    h = handle(serve(start()))
    assert h.get_size() == SIZE
    assert h.can_flush() and h.can_fua() and h.can_zero() and h.can_multi_conn()
    assert not h.can_trim() and not h.is_read_only()


@pytest.mark.parametrize("local", ["no", "yes"])
def test_write_zero_flush_read(
    start: Start, serve: Serve, handle: Any, directory: Path, local: str
) -> None:
    daemon = start("--ops", "read,write")
    server = serve(daemon, f"local={local}", "connections=3")
    h = handle(server)
    data = os.urandom(1 << 20)
    h.pwrite(data, 4096)
    h.pwrite(data[:512], 0, nbd.CMD_FLAG_FUA)
    h.zero(8192, 8192)
    h.zero(512, 4096, nbd.CMD_FLAG_FUA)
    h.flush()
    expected = bytearray(SIZE)
    expected[4096 : 4096 + len(data)] = data
    expected[:512] = data[:512]
    expected[8192:16384] = bytes(8192)
    expected[4096:4608] = bytes(512)
    assert image(directory) == expected
    assert h.pread(1 << 20, 512) == expected[512 : 512 + (1 << 20)]
    h.shutdown()
    server.stop()
    log = daemon.stop()
    used = [c for c in phases(log) if len(c) > 2]
    # a flush goes out on every connection of the pool, used or not
    flushes = [p.operations for c in used for p in c if p.name == "flush"]
    assert flushes == [1, 1, 1]
    # FUA is the daemon's own flush, of that request only
    fua = {name: count(used, name) for name in ("write.flush", "zero.flush")}
    assert fua == {"write.flush": 1, "zero.flush": 1}
    listeners = [line.split()[2] for line in log.splitlines() if "OPEN" in line]
    assert listeners[0] == "listener=remote"  # OPTIONS always
    assert set(listeners[1:]) == {f"listener={'local' if local == 'yes' else 'remote'}"}


def count(connections: list[list[Any]], name: str) -> int:
    return sum(p.operations for c in connections for p in c if p.name == name)


@pytest.mark.parametrize("trust", ["cafile", "insecure", "nobody"])
def test_tls(
    host: str, start: Start, serve: Serve, handle: Any, directory: Path, trust: str
) -> None:
    """A certificate is believed when the authority is named, or when told to."""
    pki = directory / "pki"
    subprocess.run([ROOT / "ci" / "make-pki", pki], check=True, capture_output=True)
    cert, key = pki / "server-cert.pem", pki / "server-key.pem"
    daemon = start("--cert", str(cert), "--key", str(key))
    words = {"cafile": [f"cafile={pki / 'ca-cert.pem'}"], "insecure": ["insecure=yes"]}
    if trust == "nobody":
        given = (f"url={daemon.image}", f"size={SIZE}")
        text = fails_to_start(host, directory, *given)
        assert "CERTIFICATE_VERIFY_FAILED" in text
        return
    h = handle(serve(daemon, *words[trust]))
    data = os.urandom(1 << 20)
    h.pwrite(data, 512)
    h.flush()
    assert image(directory)[512 : 512 + len(data)] == data


def test_an_abstract_socket(
    start: Start, serve: Serve, handle: Any, directory: Path
) -> None:
    """The daemon's own default; OPTIONS tells it with a NUL in front."""
    daemon = start("--abstract", f"nbdspec/upload/{os.getpid()}")
    server = serve(daemon, "local=yes")
    h = handle(server)
    h.pwrite(b"data", 0)
    h.shutdown()
    server.stop()
    assert image(directory)[:4] == b"data"
    assert daemon.stop().count("OPEN connection=2 listener=local") == 1


@needs_qemu
def test_convert(start: Start, serve: Serve, source: Path, directory: Path) -> None:
    """A whole image, out of order; all connections get work."""
    daemon = start()
    server = serve(daemon, "local=yes")
    done = convert(source, server, "-W", "-m", "16")
    assert (done.returncode, done.stderr) == (0, "")
    server.stop()
    connections = [c for c in phases(daemon.stop()) if len(c) > 2]
    assert image(directory) == source.read_bytes()
    assert len(connections) == 4
    assert all({p.name for p in c} & {"write", "zero"} for c in connections)


@pytest.mark.parametrize(
    ("options", "asked", "pool"),
    [
        (("--max-writers", "2"), "8", 2),
        (("--max-readers", "0"), "8", 1),
        (("--max-readers", "16", "--max-writers", "16"), "6", 6),
        (("--options-status", "405"), "4", 1),
        (("--options-status", "204"), "4", 1),
    ],
)
def test_the_pool_is_what_the_daemon_allows(
    start: Start, serve: Serve, handle: Any, options: Any, asked: str, pool: int
) -> None:
    """With 8 requests in flight, the daemon sees as many as there are connections."""
    daemon = start(*options, "--hold-puts", str(pool), "--put-latency", "0.05")
    server = serve(daemon, f"connections={asked}")
    h = handle(server)
    data = nbd.Buffer.from_bytearray(bytearray(4096))
    cookies = [h.aio_pwrite(data, 4096 * i) for i in range(8)]
    finish(h, cookies)
    assert most_at_once(daemon.stop())["PUT"] == pool


def finish(h: Any, cookies: list[int]) -> list[int]:
    """Waits for all; the errno of each that failed."""
    errors = []
    while cookies:
        h.poll(-1)
        for cookie in list(cookies):
            try:
                if h.aio_command_completed(cookie):
                    cookies.remove(cookie)
            except nbd.Error as error:
                errors.append(error.errnum)
                cookies.remove(cookie)
    return errors


def test_without_zero_the_server_writes_zeroes(
    start: Start, serve: Serve, handle: Any, directory: Path
) -> None:
    daemon = start("--without", "zero")
    h = handle(serve(daemon))
    h.pwrite(b"x" * (1 << 20), 0)
    h.zero(1 << 19, 4096)
    content = image(directory)
    assert content[: 1 << 20] == b"x" * 4096 + bytes(1 << 19) + b"x" * (
        (1 << 19) - 4096
    )


def test_without_flush_nothing_is_promised(
    start: Start, serve: Serve, handle: Any
) -> None:
    h = handle(serve(start("--without", "flush")))
    assert not h.can_flush() and not h.can_fua()
    h.pwrite(b"x" * 512, 0)


def test_a_flush_waits_for_what_is_in_flight(
    start: Start, serve: Serve, handle: Any
) -> None:
    """Writes that were sent before it are acknowledged by its end, and two flushes
    at the same time both come through."""
    daemon = start("--put-latency", "0.02")
    h = handle(serve(daemon))
    data = nbd.Buffer.from_bytearray(bytearray(4096))
    cookies = [h.aio_pwrite(data, 4096 * i) for i in range(8)]
    cookies += [h.aio_flush(), h.aio_flush()]
    assert finish(h, cookies) == []
    connections = [c for c in phases(daemon.log()) if len(c) > 2]
    assert connections == []  # nothing was closed on the way


# What goes wrong at the daemon's end is an error of the request, with the reason in
# the server's log, and never a copy that looks well.


def failing(start: Start, serve: Serve, source: Path, *options: str) -> tuple[str, str]:
    """A convert that fails: its stderr, and the server's log."""
    server = serve(start(*options), "timeout=1", "local=yes")
    done = convert(source, server, "-W")
    assert done.returncode == 1
    assert "Input/output error" in done.stderr
    return done.stderr, server.log.read_text()


@needs_qemu
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("PUT:2-:500", "500 Internal Server Error: Status 500 on purpose"),
        ("PUT:3:full", r"500 Internal Server Error: \[Errno 28\] No space left on"),
        ("PUT:2:close", "RemoteDisconnected|ConnectionResetError"),
        ("PUT:2-:hang", "TimeoutError: timed out"),
        ("zero:1:500", "Status 500 on purpose"),
        ("PUT:1:403", "403 Forbidden"),
    ],
)
def test_a_daemon_that_fails(
    start: Start, serve: Serve, source: Path, fault: str, words: str
) -> None:
    _, log = failing(start, serve, source, "--fault", fault)
    assert re.search(words, log)


def test_a_lost_connection_says_what_lost_it(
    start: Start, serve: Serve, handle: Any
) -> None:
    """Whichever request is logged first, the daemon's own words are in the log."""
    server = serve(start("--fault", "PUT:1:close"), "connections=1")
    h = handle(server)
    for _ in range(2):
        with pytest.raises(nbd.Error):
            h.pwrite(bytes(4096), 0)
    by = r"lost before, by PUT \S+: (RemoteDisconnected|ConnectionResetError)"
    assert re.search(by, server.log.read_text())


def test_a_flush_that_fails(
    start: Start, serve: Serve, source: Path, handle: Any
) -> None:
    """On the second of four connections. (qemu-img convert never looks at what its
    flush at the end returns, whatever its cache mode; nbdcopy does.)"""
    server = serve(start("--fault", "flush:2-:500"))
    words = ["nbdcopy", "--flush", str(source), server.uri]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 1 and "flush" in done.stderr
    assert "Status 500 on purpose" in server.log.read_text()
    with pytest.raises(nbd.Error):
        handle(server).flush()


@needs_qemu
def test_a_slow_daemon(
    start: Start, serve: Serve, source: Path, directory: Path
) -> None:
    """Each request makes some headway within the plugin's time limit."""
    server = serve(start("--bandwidth", "1M"), "timeout=1")
    assert convert(source, server, "-W").returncode == 0
    assert image(directory) == source.read_bytes()


@needs_qemu
def test_a_read_only_ticket(start: Start, serve: Serve, source: Path) -> None:
    _, log = failing(start, serve, source, "--ops", "read")
    assert "403 Forbidden: Ticket image does not allow to write" in log


@needs_qemu
def test_a_ticket_that_is_too_small(
    start: Start, connect: Connect, serve: Serve, source: Path, directory: Path
) -> None:
    daemon = start()
    url = (directory / "image.raw").as_uri()
    connect(daemon).ticket("image", size=SIZE // 2, url=url)
    server = serve(daemon)
    assert convert(source, server).returncode == 1
    assert "416 Requested Range Not Satisfiable" in server.log.read_text()


@needs_qemu
def test_a_ticket_that_is_taken_away(
    start: Start, connect: Connect, serve: Serve, handle: Any
) -> None:
    daemon = start()
    server = serve(daemon)
    h = handle(server)
    h.pwrite(b"x" * 512, 0)
    client = connect(daemon)
    client.ask("DELETE", "/tickets/image", on=client.control)
    with pytest.raises(nbd.Error):
        h.pwrite(b"x" * 512, 0)
    with pytest.raises(nbd.Error):
        h.flush()
    assert "403 Forbidden: No such ticket 'image'" in server.log.read_text()


def test_a_daemon_that_dies(start: Start, serve: Serve, handle: Any) -> None:
    """Every later request fails, at once; the server ends as if nothing were."""
    daemon = start()
    server = serve(daemon)
    h = handle(server)
    h.pwrite(b"x" * 512, 0)
    daemon.kill()
    begin = time.monotonic()
    for _ in range(8):
        with pytest.raises(nbd.Error):
            h.pwrite(b"x" * 512, 0)
    with pytest.raises(nbd.Error):
        h.flush()
    assert time.monotonic() - begin < LIMIT


def test_a_connection_that_was_dropped_is_not_reopened(
    start: Start, serve: Serve, handle: Any
) -> None:
    """What it wrote might not be covered by another's flush."""
    server = serve(start("--fault", "PUT:2:close"), "connections=1")
    h = handle(server)
    h.pwrite(b"x" * 512, 0)
    for _ in range(2):
        with pytest.raises(nbd.Error):
            h.pwrite(b"x" * 512, 0)
    with pytest.raises(nbd.Error):
        h.flush()


def test_connections_that_idle_too_long(
    start: Start, serve: Serve, handle: Any
) -> None:
    """The daemon drops them; the upload fails rather than lose what it acknowledged."""
    daemon = start("--idle-timeout", "0.2")
    server = serve(daemon, "connections=1")
    h = handle(server)
    h.pwrite(b"x" * 512, 0)
    until(lambda: "idle for 0.2 s" in daemon.log())
    for _ in range(2):
        with pytest.raises(nbd.Error):
            h.pwrite(b"x" * 512, 0)
    with pytest.raises(nbd.Error):
        h.flush()


def fails_to_start(host: str, directory: Path, *words: str) -> str:
    """What is said by a server that ends before it has served; status 1.

    nbdkit writes its pid file before it calls after_fork: it may seem ready.
    """
    try:
        server = Server(ServerSpec(host, ("python", UPLOAD, *words)), directory)
    except ServerError as error:
        assert "ended with status 1" in str(error)
        return str(error)
    assert host == "nbdkit", "ready means ready"
    assert server.process.wait(LIMIT) == 1
    return server.log.read_text()


def test_no_ticket_at_the_start(host: str, start: Start, directory: Path) -> None:
    url = f"url={start().url}/images/nobody"
    text = fails_to_start(host, directory, url, f"size={SIZE}")
    assert "403 Forbidden: No such ticket 'nobody'" in text


def test_nobody_listens(host: str, directory: Path) -> None:
    url = "url=http://127.0.0.1:1/images/x"
    assert "refused" in fails_to_start(host, directory, url, f"size={SIZE}")


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        ("url=ftp://host/images/x", "url=ftp://host/images/x: expected http"),
        ("url=http:///images/x", "expected http"),
        ("url=http://host", "expected http"),
        ("size=0", "size= is missing or 0"),
        ("connections=0", "connections=0: expected a number from 1"),
        ("connections=many", "connections=many: expected a number from 1"),
        ("timeout=-1", "timeout=-1: expected a number from 1"),
        ("local=maybe", "local=maybe: expected yes or no"),
        ("threads=4", "unknown parameter 'threads': expected url, size"),
        ("cafile=/nowhere", "No such file"),
    ],
)
def test_bad_parameters(host: str, directory: Path, parameter: str, words: str) -> None:
    given = ["url=https://127.0.0.1:1/images/x", "size=1M", parameter]
    assert words in fails_to_start(host, directory, *given)


def test_nothing_is_copied(start: Start, directory: Path) -> None:
    """nbdspecd counts: the data goes from its buffer into the socket."""
    daemon = start()
    words = (f"url={daemon.image}", f"size={SIZE}", "local=yes")
    server = Server(ServerSpec("nbdspecd", ("python", UPLOAD, *words)), directory)
    h = nbd.NBD()
    h.connect_unix(str(server.socket))
    for offset in range(0, SIZE, 1 << 20):
        h.pwrite(b"x" * (1 << 20), offset)
    h.shutdown()
    stats = server.stop()
    assert (stats["bytes_copied"], stats["views_kept"]) == (0, 0)
    assert image(directory) == b"x" * SIZE


def test_the_error_text_reaches_the_client(start: Start, directory: Path) -> None:
    """--error-text: a client that shows it need not ask for the server's log."""
    daemon = start("--fault", "PUT:1:full")
    words = (f"url={daemon.image}", f"size={SIZE}")
    spec = ServerSpec("nbdspecd", ("python", UPLOAD, *words), ("--error-text",))
    server = Server(spec, directory)
    seen: list[str] = []
    h = nbd.NBD()
    h.set_debug(True)
    h.set_debug_callback(lambda context, text: seen.append(text))
    h.connect_unix(str(server.socket))
    with pytest.raises(nbd.Error):
        h.pwrite(b"x" * 512, 0)
    h.shutdown()
    server.stop()
    assert any("No space left on device" in text for text in seen)
