# SPDX-License-Identifier: BSD-3-Clause
"""/tickets on the control socket, and what a ticket does to its clients."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plain_client import LIMIT, SIZE, Answer, Client, Local, differs, until
from imageio.process import Daemon


def control(client: Client, method: str, uuid: str, body: Any = None) -> Answer:
    return client.ask(method, f"/tickets/{uuid}", body, on=client.control)


@pytest.fixture
def url(directory: Path) -> str:
    path = directory / "other.raw"
    path.write_bytes(b"o" * SIZE)
    return path.as_uri()


def test_status(client: Client, url: str) -> None:
    assert client.ticket("status", url=url, ops=["write"]).status == 200
    client.ask("PUT", "/images/status", b"12345")
    status = control(client, "GET", "status").json
    assert isinstance(status.pop("expires"), int)  # by some clock of its own
    expected = {
        "uuid": "status",
        "size": SIZE,
        "ops": ["write"],
        "url": url,
        "timeout": 300,
        "idle_time": 0,
        "active": False,
        "canceled": False,
        "connections": 1,
        "sparse": False,
        "dirty": False,
        "inactivity_timeout": 60,
        "transferred": 5,
    }
    assert {key: status[key] for key in expected} == expected


def test_unknown(client: Client) -> None:
    assert control(client, "GET", "nobody").status == 404
    assert control(client, "PATCH", "nobody", {"timeout": 5}).status == 404


def test_the_name_is_the_uuid_in_the_body(client: Client, url: str) -> None:
    values = {"uuid": "inner", "size": 5, "ops": ["read"], "timeout": 9, "url": url}
    assert control(client, "PUT", "outer", values).status == 200
    assert control(client, "GET", "inner").status == 200
    assert control(client, "GET", "outer").status == 404


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"size": "5"}, "size"),
        pytest.param({"size": True}, "size", marks=differs),
        pytest.param({"size": -1}, "size", marks=differs),
        pytest.param({"ops": ["trim"]}, "trim", marks=differs),
        ({"ops": "write"}, "ops"),
        ({"timeout": None}, "timeout"),
        pytest.param({"url": "nbd:unix:/socket"}, "url", marks=differs),
        pytest.param({"url": "file://"}, "url", marks=differs),
        ({"sparse": 1}, "sparse"),
        ({"inactivity_timeout": 0.5}, "inactivity_timeout"),
    ],
)
def test_invalid(client: Client, values: dict[str, Any], word: str) -> None:
    answer = client.ticket("bad", **values)
    assert answer.status == 400
    assert answer.text.startswith("Invalid ticket: ") and word in answer.text


@pytest.mark.parametrize("missing", ["uuid", "size", "ops", "timeout", "url"])
def test_incomplete(client: Client, missing: str) -> None:
    values = {"uuid": "x", "size": 5, "ops": [], "timeout": 5, "url": "file:///x"}
    del values[missing]
    answer = control(client, "PUT", "x", values)
    assert (answer.status, missing in answer.text) == (400, True)


@differs  # 500
def test_no_object(client: Client) -> None:
    assert control(client, "PUT", "x", [1]).status == 400
    assert control(client, "PATCH", "image", [1]).status == 400


def test_read_only(client: Client, url: str) -> None:
    client.ticket("ro", url=url, ops=["read"])
    answer = client.ask("OPTIONS", "/images/ro")
    assert not {"flush", "zero"} & set(answer.json["features"])
    assert answer.headers["Allow"] == "OPTIONS,GET"
    assert client.ask("GET", "/images/ro", Range="bytes=0-1").body == b"oo"
    refused = client.ask("PUT", "/images/ro", b"x")
    assert (refused.status, refused.closes) == (403, True)
    job = {"op": "zero", "size": 1}
    assert client.ask("PATCH", "/images/ro", job).status == 403


def test_smaller_than_the_image(client: Client, url: str) -> None:
    client.ticket("small", url=url, size=100)
    assert client.ask("GET", "/images/small").body == b"o" * 100
    span = {"Content_Range": "bytes 99-100/*"}
    assert client.ask("PUT", "/images/small", b"xx", **span).status == 416


def test_larger_than_the_image(client: Client, url: str) -> None:
    """Reading goes by what is there; writing makes it larger."""
    client.ticket("large", url=url, size=SIZE + 10)
    answer = client.ask("GET", "/images/large", Range=f"bytes={SIZE}-{SIZE}")
    assert answer.status == 416
    span = {"Content_Range": f"bytes {SIZE}-{SIZE + 1}/*"}
    assert client.ask("PUT", "/images/large", b"xx", **span).status == 200
    job = {"op": "zero", "offset": SIZE + 5, "size": 5}
    assert client.ask("PATCH", "/images/large", job).status == 200
    answer = client.ask("GET", "/images/large", Range=f"bytes={SIZE}-{SIZE + 9}")
    assert answer.body == b"xx" + bytes(8)


def test_no_such_file(client: Client, directory: Path) -> None:
    client.ticket("gone", url=(directory / "gone").as_uri())
    answer = client.ask("GET", "/images/gone")
    assert answer.status == 500


def test_expiry_and_renewal(client: Client, url: str) -> None:
    client.ticket("old", url=url, timeout=0)
    answer = client.ask("OPTIONS", "/images/old")
    assert (answer.status, "expired" in answer.text) == (403, True)
    assert control(client, "PATCH", "old", {"timeout": 300}).status == 200
    assert client.ask("OPTIONS", "/images/old").status == 200
    assert control(client, "PATCH", "old", {"timeout": "x"}).status == 400


def test_deleting_is_idempotent(client: Client, url: str) -> None:
    client.ticket("t", url=url)
    assert control(client, "DELETE", "t").status == 204
    assert control(client, "DELETE", "t").status == 204
    answer = client.ask("PUT", "/images/t", b"x")
    assert (answer.status, "No such ticket" in answer.text) == (403, True)


def test_deleting_all(
    start: Callable[..., Daemon], connect: Callable[[Daemon], Client], url: str
) -> None:
    client = connect(start())
    client.ticket("second", url=url)
    assert control(client, "DELETE", "").status == 204
    assert control(client, "GET", "image").status == 404
    assert control(client, "GET", "second").status == 404


def test_deleting_cancels_what_is_under_way(client: Client, url: str) -> None:
    """The upload that is in the middle of its body is told, then nobody is left."""
    client.ticket("busy", url=url)
    client.remote.putrequest("PUT", "/images/busy")
    client.remote.putheader("Content-Length", str(SIZE))
    client.remote.endheaders()
    client.remote.send(b"x" * 1000)
    # the daemon has read the headers
    until(lambda: control(client, "GET", "busy").json["active"])
    path = "/tickets/busy"
    client.control.request("DELETE", path)
    second = Local(client.daemon.control, timeout=LIMIT)
    until(lambda: Answer(ask(second, path)).json["canceled"])
    second.close()
    client.remote.send(b"x" * (SIZE - 1000))
    answer = Answer(client.remote.getresponse())
    assert (answer.status, answer.closes) == (403, True)
    assert "was canceled" in answer.text
    assert Answer(client.control.getresponse()).status == 204


@differs  # 60 seconds there
def test_deleting_what_does_not_end(
    start: Callable[..., Daemon], connect: Callable[[Daemon], Client]
) -> None:
    client = connect(start("--remove-timeout", "0.1", "--fault", "PUT:1:hang"))
    client.remote.request("PUT", "/images/image", b"x")
    until(lambda: control(client, "GET", "image").json["active"])
    assert control(client, "DELETE", "image").status == 409
    assert control(client, "GET", "image").json["canceled"] is True


def ask(connection: Local, path: str) -> http.client.HTTPResponse:
    connection.request("GET", path)
    return connection.getresponse()
