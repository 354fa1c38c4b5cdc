# SPDX-License-Identifier: BSD-3-Clause
"""What each method does to an image or to a ticket.

The order of a PUT's checks is the daemon's: what is malformed is told before what
is forbidden, so a bad request on an unknown ticket is answered 400 and not 403.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from .protocol import Disconnected, HTTPError, Request, head, reply, reply_json
from .session import Session

Handler = Callable[[Session, Request, str], None]


def options(session: Session, request: Request, uuid: str) -> None:
    shared, writes = session.shared, True
    if uuid != "*":
        ticket = shared.tickets.find(uuid)
        writes = ticket.may_write
        with shared.tickets.operation(ticket, None):
            session.spoil("OPTIONS", request)
    knobs = shared.knobs
    if knobs.options_status == 204:
        reply(request, 204)
        return
    if knobs.options_status != 200:
        raise HTTPError(knobs.options_status, "OPTIONS is not supported")
    answer: dict[str, Any] = {
        "features": [
            name for name in knobs.features if writes or name not in ("flush", "zero")
        ]
    }
    if knobs.advertise_socket and shared.unix_socket:
        answer["unix_socket"] = shared.unix_socket
    if uuid != "*":
        for name in ("max_readers", "max_writers"):
            if most := getattr(knobs, name):
                answer[name] = most
    methods = "OPTIONS,GET,PUT,PATCH" if writes else "OPTIONS,GET"
    reply_json(request, answer, {"Allow": methods})


def content_range(request: Request) -> int:
    """The offset; the end that a Content-Range names is not looked at."""
    text = request.headers.get("content-range")
    if text is None:
        return 0
    match = re.fullmatch(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", text)
    if match is None:
        words = f"Invalid Content-Range: {text!r}, expected bytes FIRST-LAST/TOTAL"
        raise HTTPError(400, words)
    return int(match[1])


def put(session: Session, request: Request, uuid: str) -> None:
    if request.length is None:
        raise HTTPError(400, "Content-Length is required")
    offset = content_range(request)
    flush = request.flag("flush", default=True)
    shared = session.shared
    ticket = shared.tickets.find(uuid)
    with session.operation("PUT", request, ticket) as image:
        ticket.check_range(offset, request.length)
        with session.clock.phase("write") as phase:
            carry = shared.knobs.bandwidth
            phase.size = image.write(request, offset, carry.carry if carry else None)
            if flush:
                image.flush("write.flush")
            shared.gauge.hold("PUT", shared.knobs.hold_puts)
            time.sleep(shared.knobs.put_latency)
        shared.tickets.count(ticket, request.length)
    reply(request)


def number(values: dict[str, Any], key: str, default: int | None) -> int:
    value = values.get(key, default)
    # true is 1 here, as in the daemon
    if not isinstance(value, int) or value < 0:
        raise HTTPError(400, f"Invalid {key}: {value!r}, expected an integer from 0")
    return value


def patch(session: Session, request: Request, uuid: str) -> None:
    values = request.json()
    if not isinstance(values, dict):
        # so does the daemon, where anything but an object takes it by surprise
        raise HTTPError(500, f"{type(values).__name__} instead of an object")
    op = values.get("op")
    if op == "zero":
        zero(session, request, uuid, values)
    elif op == "flush":
        ticket = session.shared.tickets.find(uuid)
        with session.operation("flush", request, ticket) as image:
            with session.clock.phase("flush"):
                image.flush()
        reply(request)
    else:
        raise HTTPError(400, f"Invalid op: {op!r}, expected zero or flush")


def zero(
    session: Session, request: Request, uuid: str, values: dict[str, Any]
) -> None:
    size, offset = number(values, "size", None), number(values, "offset", 0)
    flush = values.get("flush", False)
    if type(flush) is not bool:
        raise HTTPError(400, f"Invalid flush: {flush!r}, expected true or false")
    ticket = session.shared.tickets.find(uuid)
    with session.operation("zero", request, ticket) as image:
        ticket.check_range(offset, size)
        with session.clock.phase("zero") as phase:
            image.zero(offset, size)
            if flush:
                image.flush("zero.flush")
            phase.size = size
        session.shared.tickets.count(ticket, size)
    reply(request)


def get_range(request: Request, size: int) -> tuple[int, int]:
    """(offset, length) of what a Range header asks for."""
    text = request.headers["range"]
    match = re.fullmatch(r"bytes=(\d{1,19})-(\d{1,19})?", text)
    if match is None or (match[2] and int(match[1]) > int(match[2])):
        raise HTTPError(416, f"Unsupported range {text!r}, expected bytes=FIRST-[LAST]")
    first, last = int(match[1]), int(match[2] or max(size - 1, int(match[1])))
    if last >= size:
        words = f"Range {text!r} is beyond {size} bytes"
        raise HTTPError(416, words, headers={"Content-Range": f"bytes */{size}"})
    return first, last - first + 1


def get(session: Session, request: Request, uuid: str) -> None:
    ticket = session.shared.tickets.find(uuid)
    with session.operation("GET", request, ticket) as image:
        size = image.size
        offset, length, status = 0, size, 200
        headers = {"Content-Type": "application/octet-stream"}
        if "range" in request.headers:
            offset, length = get_range(request, size)
            status = 206
            last = offset + length - 1
            headers["Content-Range"] = f"bytes {offset}-{last}/{size}"
        with session.clock.phase("read") as phase:
            request.sock.sendall(head(status, length, request.close, headers))
            try:
                for piece in image.read(offset, length):
                    with session.clock.phase("read.write") as writing:
                        request.sock.sendall(piece)
                        writing.size = len(piece)
            except OSError as error:
                # the status has gone out: closing is all that is left to say
                raise Disconnected(f"in a reply: {error}") from error
            phase.size = length
        session.shared.tickets.count(ticket, length)


def extents(session: Session, request: Request, uuid: str) -> None:
    context = request.query.get("context", ["zero"])[-1]
    if context not in ("zero", "dirty"):
        raise HTTPError(400, f"Invalid context: {context!r}, expected zero or dirty")
    ticket = session.shared.tickets.find(uuid)
    with session.operation("extents", request, ticket) as image:
        if context == "dirty":
            raise HTTPError(404, "The image has no dirty bitmap")
        with session.clock.phase("extents"):
            answer = image.extents()
    reply_json(request, answer, {})


def ticket_put(session: Session, request: Request, uuid: str) -> None:
    session.shared.tickets.add(request.json())
    reply(request)


def ticket_get(session: Session, request: Request, uuid: str) -> None:
    ticket = session.shared.tickets.find(uuid, status=404)
    reply_json(request, ticket.status(), {})


def ticket_patch(session: Session, request: Request, uuid: str) -> None:
    session.shared.tickets.extend(uuid, request.json())
    reply(request)


def ticket_delete(session: Session, request: Request, uuid: str) -> None:
    session.shared.tickets.remove(uuid)
    reply(request, 204)


IMAGES: dict[str, Handler] = {
    "OPTIONS": options,
    "GET": get,
    "PUT": put,
    "PATCH": patch,
}
EXTENTS: dict[str, Handler] = {"GET": extents}
TICKETS: dict[str, Handler] = {
    "GET": ticket_get,
    "PUT": ticket_put,
    "PATCH": ticket_patch,
    "DELETE": ticket_delete,
}


def find(request: Request, control: bool) -> tuple[Handler, str]:
    """What answers a request, and the ticket's id that its path has."""
    routes = [(r"/images/(.+)/extents", EXTENTS), (r"/images/(.*)", IMAGES)]
    if control:
        routes = [(r"/tickets/(.*)", TICKETS)]
    for pattern, table in routes:
        if match := re.fullmatch(pattern, request.path):
            break
    else:
        raise HTTPError(404, f"No such resource: {request.path!r}")
    if not match[1] and not control:
        raise HTTPError(400, "Ticket id is required")
    if request.method not in table:
        text = f"{request.method} is not supported here"
        raise HTTPError(405, text, headers={"Allow": ",".join(table)})
    return table[request.method], match[1]
