# SPDX-License-Identifier: BSD-3-Clause
"""The daemon's command line.

    imageiod --dir DIR --image disk.raw --size 6G --ticket 1234

It prints one line of JSON when it is ready: the URL, the sockets and the ticket's
URL. SIGTERM ends it; its log on stderr then tells the most requests there were at
once, and with --digest what the image holds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import socket
import ssl
import threading
from pathlib import Path

from .knobs import FEATURES, Bandwidth, Fault, Knobs
from .server import Server, bind_unix, log, remove_socket
from .session import Shared


def size(text: str) -> int:
    match = re.fullmatch(r"(\d{1,18})([KMGT]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a size such as 200M")
    return int(match[1]) << 10 * " KMGT".index(match[2] or " ")


def fault(text: str) -> Fault:
    try:
        return Fault(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 0")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 0 to 3600 seconds")
    return value


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="imageiod", description="A stand-in for oVirt's imageio daemon."
    )
    p.add_argument("--dir", type=Path, required=True, help="for the Unix sockets")
    p.add_argument("--image", type=Path, help="a file to serve, made if need be")
    p.add_argument("--size", type=size, help="of the image and its ticket")
    p.add_argument("--ticket", default="image", help="the ticket's id (image)")
    p.add_argument("--ops", default="write", help="what it allows (write): read,write")
    p.add_argument("--port", type=count, default=0, help="on 127.0.0.1 (any free)")
    p.add_argument("--abstract", metavar="NAME", help="an abstract Unix socket")
    p.add_argument("--cert", type=Path, help="TLS on the port: the certificate")
    p.add_argument("--key", type=Path, help="and its key")
    p.add_argument("--max-readers", type=count, default=8, help="0: do not tell (8)")
    p.add_argument("--max-writers", type=count, default=8, help="0: do not tell (8)")
    p.add_argument("--without", action="append", default=[], choices=FEATURES)
    p.add_argument("--options-status", type=int, default=200, choices=(200, 204, 405))
    p.add_argument("--no-socket", action="store_true", help="OPTIONS names no socket")
    p.add_argument("--put-latency", type=seconds, default=0.0, metavar="S")
    p.add_argument(
        "--hold-puts", type=count, default=0, metavar="N", help="until N are under way"
    )
    p.add_argument("--bandwidth", type=size, metavar="BYTES", help="a second, of PUT")
    p.add_argument("--idle-timeout", type=seconds, metavar="S")
    p.add_argument("--remove-timeout", type=seconds, default=60.0, metavar="S")
    p.add_argument("--fault", type=fault, action="append", default=[])
    p.add_argument("--stdin", action="store_true", help="end when stdin is closed")
    p.add_argument("--digest", action="store_true", help="log the image's SHA-256")
    return p


def digest(path: Path) -> str:
    answer, block = hashlib.sha256(), memoryview(bytearray(1 << 20))
    with open(path, "rb", buffering=0) as f:
        while n := f.readinto(block):
            answer.update(block[:n])
    return answer.hexdigest()


def end_with_stdin() -> None:
    """Whoever started this is gone, however it ended."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def add_ticket(shared: Shared, args: argparse.Namespace) -> None:
    args.image.touch()
    os.truncate(args.image, args.size)
    shared.tickets.add(
        {
            "uuid": args.ticket,
            "size": args.size,
            "ops": args.ops.split(","),
            "timeout": 3600,
            "url": args.image.resolve().as_uri(),
            "sparse": True,
        }
    )


def run(argv: list[str] | None = None) -> int:
    p = parser()
    args = p.parse_args(argv)
    if (args.image is None) != (args.size is None):
        p.error("--image and --size: one needs the other")
    if (args.cert is None) != (args.key is None):
        p.error("--cert and --key: one needs the other")
    local = f"@{args.abstract}" if args.abstract else str(args.dir / "imageio")
    control = str(args.dir / "control")
    knobs = Knobs(
        max_readers=args.max_readers,
        max_writers=args.max_writers,
        features=tuple(f for f in FEATURES if f not in args.without),
        options_status=args.options_status,
        advertise_socket=not args.no_socket,
        put_latency=args.put_latency,
        hold_puts=args.hold_puts,
        idle_timeout=args.idle_timeout,
        remove_timeout=args.remove_timeout,
        faults=args.fault,
        bandwidth=Bandwidth(args.bandwidth) if args.bandwidth else None,
    )
    shared = Shared(knobs, local.replace("@", "\0", 1) if args.abstract else local)
    tls = None
    try:
        if args.cert:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(args.cert, args.key)
        if args.image:
            add_ticket(shared, args)
        server = Server(shared, tls)
        # blocked before threads start, so that they inherit it and sigwait gets it
        signals = {signal.SIGTERM, signal.SIGINT}
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        remote = socket.create_server(("127.0.0.1", args.port))
        server.listen(remote, "remote")
        server.listen(bind_unix(local), "local")
        server.listen(bind_unix(control), "control")
    except OSError as error:
        p.exit(1, f"imageiod: {error}\n")
    url = f"{'https' if tls else 'http'}://127.0.0.1:{remote.getsockname()[1]}"
    ready = {
        "url": url,
        "image": f"{url}/images/{args.ticket}" if args.image else "",
        "unix_socket": local,
        "control": control,
        "pid": os.getpid(),
    }
    print(json.dumps(ready), flush=True)
    if args.stdin:
        threading.Thread(target=end_with_stdin, daemon=True).start()
    signal.sigwait(signals)
    server.stop()
    remove_socket(local)
    remove_socket(control)
    most = " ".join(f"{kind}={n}" for kind, n in sorted(shared.gauge.most.items()))
    log(f"MOST AT ONCE {most}")
    if args.digest and args.image:
        log(f"IMAGE sha256={digest(args.image)} size={args.image.stat().st_size}")
    return 0
