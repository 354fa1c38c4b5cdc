# SPDX-License-Identifier: BSD-3-Clause
"""/images: each method, and each way in which it says no."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from plain_client import LIMIT, SIZE, Client, differs
from imageio.process import Daemon

DATA = bytes(range(256)) * 16  # 4096 bytes


def image(directory: Path, offset: int, length: int) -> bytes:
    with open(directory / "image.raw", "rb") as f:
        f.seek(offset)
        return f.read(length)


def test_put_stores_where_content_range_begins(client: Client, directory: Path) -> None:
    answer = client.put(DATA, 8192)
    assert (answer.status, answer.body, answer.closes) == (200, b"", False)
    assert image(directory, 8190, 4100) == b"\0\0" + DATA + b"\0\0"


def test_put_without_content_range_starts_at_0(client: Client, directory: Path) -> None:
    assert client.ask("PUT", body=DATA).status == 200
    assert image(directory, 0, 4096) == DATA


def test_put_does_not_look_at_the_end_of_content_range(
    client: Client, directory: Path
) -> None:
    """Content-Length alone says how much it is."""
    answer = client.ask("PUT", body=DATA, Content_Range="bytes 4096-4097/*")
    assert answer.status == 200
    assert image(directory, 4096, 4096) == DATA


def test_put_larger_than_the_daemons_buffer(client: Client, directory: Path) -> None:
    data = os.urandom(3 << 20)
    assert client.put(data, 5).status == 200
    assert image(directory, 5, len(data)) == data


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("", {"Content_Range": "bytes 5/*"}, 400),
        ("", {"Content_Range": "octets 0-4095/*"}, 400),
        ("", {"Content_Range": "bytes -5-1/*"}, 400),
        ("?flush=x", {}, 400),
        ("", {"Content_Range": f"bytes {SIZE - 4095}-{SIZE}/*"}, 416),
        ("", {"Content_Range": f"bytes {2**63}-{2**63}/*"}, 416),
    ],
)
def test_put_refused(
    client: Client, query: str, headers: dict[str, str], status: int
) -> None:
    """The body has not been read, so the connection is closed after the answer."""
    answer = client.ask("PUT", "/images/image" + query, DATA, **headers)
    assert (answer.status, answer.closes) == (status, True)
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert answer.text.endswith("\n") and answer.text.count("\n") == 1
    if status == 416:
        assert answer.headers["Content-Range"] == f"bytes */{SIZE}"
    assert client.put(DATA).status == 200


def test_put_without_content_length(client: Client) -> None:
    client.remote.putrequest("PUT", "/images/image")
    client.remote.endheaders()
    assert client.remote.getresponse().status == 400


def test_malformed_comes_before_forbidden(client: Client) -> None:
    bad = client.ask("PUT", "/images/nobody", DATA, Content_Range="nonsense")
    assert bad.status == 400
    answer = client.ask("PUT", "/images/nobody", DATA)
    assert (answer.status, answer.closes) == (403, True)


@pytest.mark.parametrize("over", ["remote", "local"])
def test_the_answer_arrives_although_the_body_is_unread(
    client: Client, over: str
) -> None:
    """A client that sends all of a large body first still learns why."""
    connection = getattr(client, over)
    try:
        connection.request("PUT", "/images/nobody", bytes(64 << 20))
    except (BrokenPipeError, ConnectionResetError):
        pass  # the daemon need not take all of it
    reply = connection.getresponse()
    assert (reply.status, b"nobody" in reply.read()) == (403, True)


def test_expect_100_continue(client: Client, directory: Path) -> None:
    with socket.create_connection((client.remote.host, client.remote.port)) as s:
        s.settimeout(LIMIT)
        s.sendall(
            b"PUT /images/image HTTP/1.1\r\nContent-Length: 4\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        assert s.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(b"data")
        assert s.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
    assert image(directory, 0, 4) == b"data"


def test_100_continue_comes_before_any_check(client: Client) -> None:
    """Asking first does not save the client its body."""
    with socket.create_connection((client.remote.host, client.remote.port)) as s:
        s.settimeout(LIMIT)
        s.sendall(
            b"PUT /images/nobody HTTP/1.1\r\nContent-Length: 4\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        with s.makefile("rb") as answer:
            assert answer.readline() == b"HTTP/1.1 100 Continue\r\n"
            assert answer.readline() == b"\r\n"
            assert answer.readline().startswith(b"HTTP/1.1 403 ")


def test_get_whole_image(client: Client) -> None:
    client.put(DATA, 4096)
    answer = client.ask("GET")
    assert answer.status == 200
    assert answer.body == bytes(4096) + DATA + bytes(SIZE - 8192)


@pytest.mark.parametrize("last", ["8191", ""])
def test_get_range(client: Client, last: str) -> None:
    client.put(DATA, 4096)
    answer = client.ask("GET", Range=f"bytes=4100-{last}")
    end = int(last or SIZE - 1)
    assert answer.status == 206
    assert answer.headers["Content-Range"] == f"bytes 4100-{end}/{SIZE}"
    assert answer.body == (DATA[4:] + bytes(SIZE))[: end - 4099]


@pytest.mark.parametrize(
    "text", ["bytes=0-1,4-5", "bytes=-5", "bytes=5-4", f"bytes=0-{SIZE}", "lines=1-2"]
)
def test_get_range_refused(client: Client, text: str) -> None:
    answer = client.ask("GET", Range=text)
    assert (answer.status, answer.closes) == (416, False)
    if text == f"bytes=0-{SIZE}":  # one that makes sense of a larger image
        assert answer.headers["Content-Range"] == f"bytes */{SIZE}"


def test_zero(client: Client, directory: Path) -> None:
    client.put(b"x" * 65536 * 2)
    job = {"op": "zero", "offset": 4096, "size": 65536, "flush": False}
    answer = client.ask("PATCH", body=job)
    assert (answer.status, answer.body) == (200, b"")
    assert image(directory, 4095, 65538) == b"x" + bytes(65536) + b"x"


def test_zero_of_nothing_from_the_start(client: Client) -> None:
    assert client.ask("PATCH", body={"op": "zero", "size": 0}).status == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("{", 400),
        ({}, 400),
        ({"op": "trim", "size": 1}, 400),
        ({"op": "zero"}, 400),
        ({"op": "zero", "size": -1}, 400),
        ({"op": "zero", "size": "1"}, 400),
        ({"op": "zero", "size": 1, "offset": -1}, 400),
        ({"op": "zero", "size": 1, "flush": 1}, 400),
        ({"op": "zero", "size": SIZE, "offset": 1}, 416),
        ([1], 500),
        (None, 400),
    ],
)
def test_patch_refused(client: Client, body: object, status: int) -> None:
    """The body has been read: the connection goes on."""
    answer = client.ask("PATCH", body=body)
    assert (answer.status, answer.closes) == (status, False)
    assert client.ask("PATCH", body={"op": "flush"}).status == 200


@differs  # it knows the holes of an NBD server's image, and not those of a file
def test_extents(client: Client) -> None:
    client.put(DATA * 16, 1 << 20)
    answer = client.ask("GET", "/images/image/extents")
    hole, data = {"zero": True, "hole": True}, {"zero": False, "hole": False}
    after = (1 << 20) + 65536
    assert answer.json == [
        {"start": 0, "length": 1 << 20} | hole,
        {"start": 1 << 20, "length": 65536} | data,
        {"start": after, "length": SIZE - after} | hole,
    ]


def test_extents_of_a_context(client: Client) -> None:
    path = "/images/image/extents?context="
    assert len(client.ask("GET", path + "zero").json) == 1
    assert client.ask("GET", path + "dirty").status == 404
    assert client.ask("GET", path + "other").status == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/images/image", 405),
        ("DELETE", "/images/image", 405),
        ("BREW", "/images/image", 405),
        ("PUT", "/images/image/extents", 405),
        ("GET", "/images/", 400),
        ("GET", "/images/image/other", 403),
        ("GET", "/images", 404),
        ("GET", "/", 404),
        ("GET", "*", 404),
        ("GET", "/tickets/image", 404),
        ("GET", "/images/" + "x" * 4096, 414),
    ],
)
def test_nothing_there(client: Client, method: str, path: str, status: int) -> None:
    assert client.ask(method, path).status == status


@differs  # it takes these for HTTP/0.9, or passes over the header
@pytest.mark.parametrize(
    "line", [b"GET /images/image\r\n", b"\0\0\r\n", b"GET / HTTP/1.1\r\nnonsense\r\n"]
)
def test_not_http(client: Client, line: bytes) -> None:
    with socket.create_connection((client.remote.host, client.remote.port)) as s:
        s.settimeout(LIMIT)
        s.sendall(line + b"\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 400 ")


def test_close_on_request(client: Client) -> None:
    assert client.put(DATA, query="?close=y").closes is True
    assert client.put(DATA, query="?close=n").closes is False


def test_a_client_that_hangs_up_in_the_body(
    start: Callable[..., Daemon], connect: Callable[[Daemon], Client]
) -> None:
    """What arrived may be in the image; the daemon serves on."""
    client = connect(start())
    client.put(DATA)
    with socket.create_connection((client.remote.host, client.remote.port)) as s:
        s.sendall(b"PUT /images/image HTTP/1.1\r\nContent-Length: 9\r\n\r\nfive.")
        s.shutdown(socket.SHUT_WR)
        while s.recv(4096):  # until the daemon has noticed and closed as well
            pass
    assert client.ask("PATCH", body={"op": "flush"}).status == 200
    assert "4 bytes before the body's end" in client.daemon.stop()


@differs  # of files it allows one writer; and it has checksums
def test_options(client: Client) -> None:
    answer = client.ask("OPTIONS")
    assert answer.headers["Allow"] == "OPTIONS,GET,PUT,PATCH"
    assert answer.json == {
        "features": ["extents", "flush", "zero"],
        "unix_socket": client.daemon.unix_socket,
        "max_readers": 8,
        "max_writers": 8,
    }


def test_options_of_the_daemon(client: Client) -> None:
    answer = client.ask("OPTIONS", "/images/*")
    assert set(answer.json) == {"features", "unix_socket"}


def test_options_of_an_unknown_ticket(client: Client) -> None:
    answer = client.ask("OPTIONS", "/images/nobody")
    assert (answer.status, answer.closes) == (403, True)


def test_both_listeners_share_all_state(client: Client) -> None:
    assert client.put(DATA, on=client.local).status == 200
    assert client.ask("GET", Range="bytes=0-4095").body == DATA


@pytest.mark.parametrize("status", [204, 405])
def test_old_daemons(
    start: Callable[..., Daemon], connect: Callable[[Daemon], Client], status: int
) -> None:
    client = connect(start("--options-status", str(status)))
    assert client.ask("OPTIONS").status == status
    assert client.put(DATA).status == 200


def test_abstract_socket(
    start: Callable[..., Daemon], connect: Callable[[Daemon], Client]
) -> None:
    name = f"nbdspec/imageio/{os.getpid()}"
    client = connect(start("--abstract", name))
    path = client.ask("OPTIONS").json["unix_socket"]
    assert path == "\0" + name
    client.local.host = path
    assert client.put(DATA, on=client.local).status == 200
