# SPDX-License-Identifier: BSD-3-Clause
"""Stalled, slow, vanishing and too many clients."""

from __future__ import annotations

import errno
import os
import re
import resource
import select
import socket
import struct
from pathlib import Path

import pytest
from server_process import (
    ACK,
    GO,
    GUARD,
    IHAVEOPT,
    LIST,
    READ,
    STRUCTURED_REPLY,
    WRITE,
    Client,
    Server,
    connected,
    needs_python,
    sanitizer,
)

SET_META_CONTEXT, BLOCK_STATUS = 10, 7


def port_of(s: Server) -> int:
    return int(s.log().split("\n")[0].rsplit(":", 1)[1])


# -- the handshake's time


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\0\0",
        b"\0\0\0\3",
        b"\0\0\0\3IHAVEOPT",
        b"\0\0\0\3IHAVEOPT" + struct.pack(">II", GO, 100) + b"half of it",
    ],
    ids=["nothing", "half-flags", "flags", "half-option", "half-data"],
)
def test_stalled_handshake_ends(sent: bytes, place: Path) -> None:
    with Server(place, "--timeout", "1", "memory", "1M") as s, Client(s.socket) as c:
        c.send(sent)
        assert len(c.recv(100)) == 18  # the greeting, then the end
        assert "did not finish its handshake within 1 seconds" in s.log()


def test_no_limit_in_transmission(place: Path) -> None:
    """Another client's time is the clock."""
    with Server(place, "--timeout", "1", "memory", "1M") as s:
        with connected(s) as idle, Client(s.socket) as stalled:
            assert len(stalled.recv(100)) == 18
            idle.read(0, 512)


def test_limit_is_for_the_whole_handshake(place: Path) -> None:
    """A byte now and then does not begin it anew."""
    with Server(place, "--timeout", "1", "memory", "1M") as s:
        with Client(s.socket) as slow:
            slow.greet()
            slow.option(3)
            ended = False
            for _ in range(4):  # each as long as a stalled client's limit
                with Client(s.socket) as clock:
                    assert len(clock.recv(100)) == 18
                try:
                    slow.send(b"I")
                except BrokenPipeError:
                    ended = True
                    break
            assert ended


@needs_python
def test_time_in_the_plugin_does_not_count(place: Path) -> None:
    os.mkfifo(place / "fifo")
    (place / "plugin.py").write_text(
        "import builtins, os, nbdkit\n"
        "def thread_model(): return nbdkit.THREAD_MODEL_PARALLEL\n"
        "def open(readonly):\n"
        "    with builtins.open(os.environ['FIFO']) as f: f.read()\n"
        "def get_size(h): return 1 << 20\n"
        "def pread(h, count, offset): return bytes(count)\n"
    )
    args = ("--timeout", "1", "python", str(place / "plugin.py"))
    with Server(place, *args, env={"FIFO": str(place / "fifo")}) as s:
        with Client(s.socket) as c:
            c.greet()
            c.option(GO, struct.pack(">IH", 0, 0))
            writer = os.open(place / "fifo", os.O_WRONLY)  # it is in open
            for _ in range(2):
                with Client(s.socket) as clock:
                    assert len(clock.recv(100)) == 18
            os.close(writer)
            while c.reply()[1] != 1:
                pass
            c.read(0, 512)


@needs_python
def test_handshake_of_a_client_that_does_not_read(place: Path) -> None:
    (place / "plugin.py").write_text(
        "def open(readonly): return 1\n"
        "def get_size(h): return 512\n"
        "def pread(h, count, offset): return bytes(count)\n"
        "def list_exports(readonly, tls):\n"
        "    return [('x' * 200 + str(i), 'd' * 200) for i in range(9000)]\n"
    )
    args = ("--timeout", "1", "python", str(place / "plugin.py"))
    with Server(place, *args) as s, Client(s.socket) as c:
        c.greet()
        c.option(LIST)
        for _ in range(20):  # a clock: each a stalled client's whole time
            if "did not take what was sent within 1 seconds" in s.log():
                break
            with Client(s.socket) as clock:
                assert len(clock.recv(100)) == 18
        assert "did not take what was sent within 1 seconds" in s.log()


# -- clients that hold up nobody else


def test_half_a_request_and_unread_replies_hold_up_nobody(place: Path) -> None:
    with Server(place, "memory", "64M") as s:
        with connected(s) as half, connected(s) as deaf, connected(s) as payload:
            half.send(struct.pack(">IHH", 0x25609513, 0, READ))
            payload.request(WRITE, 0, 1 << 20, b"only a part of it")
            for _ in range(20):
                deaf.request(READ, 0, 32 << 20)
            with connected(s) as c:
                for _ in range(100):
                    c.read(1 << 20, 4096)
            assert s.stop() == 0  # nor the end of the server


SESSION = (
    b"\0\0\0\3"
    + b"IHAVEOPT" + struct.pack(">II", 3, 0)
    + b"IHAVEOPT" + struct.pack(">IIIH", GO, 6, 0, 0)
    + struct.pack(">IHHQQI", 0x25609513, 0, WRITE, 7, 0, 64) + bytes(64)
    + struct.pack(">IHHQQI", 0x25609513, 0, READ, 7, 0, 512)
)  # fmt: skip


@pytest.mark.parametrize("how", ["reset", "close"])
def test_client_that_vanishes_at_any_byte(how: str, place: Path) -> None:
    linger = struct.pack("ii", 1 if how == "reset" else 0, 0)
    listen = ("-i127.0.0.1", "-p0", "--print-uri")
    with Server(place, "memory", "1M", listen=listen) as s:
        port = port_of(s)
        for n in range(len(SESSION) + 1):
            with Client(("127.0.0.1", port)) as c:
                c.recv(18)
                c.send(SESSION[:n])
                if n % 3 == 0 and n >= 20:  # its replies on their way, or not
                    c.recv(20)
                c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        with Client(("127.0.0.1", port)) as c:
            c.greet()
            c.go()
            c.read(0, 512)
        assert s.stop() == 0


# -- too many


def test_max_connections(place: Path) -> None:
    with Server(place, "--max-connections", "2", "memory", "1M") as s:
        with connected(s) as first, connected(s) as second:
            with Client(s.socket) as third:
                first.read(0, 512)
                second.read(0, 512)
                assert not select.select([third.sock], [], [], 0)[0]
                second.sock.close()
                third.greet()  # now there is room
                third.go()
                third.read(0, 512)
                ticks = s.cpu_ticks()
                with Client(s.socket) as fourth:
                    for _ in range(100):
                        first.read(0, 512)
                    assert not select.select([fourth.sock], [], [], 0)[0]
                assert s.cpu_ticks() - ticks < 50


def test_out_of_descriptors(place: Path) -> None:
    with Server(place, "memory", "1M") as s, connected(s) as c:
        highest = max(int(fd) for fd in os.listdir(f"/proc/{s.pid}/fd"))
        _, hard = resource.prlimit(s.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(s.pid, resource.RLIMIT_NOFILE, (highest + 3, hard))
        others = [Client(s.socket) for _ in range(highest + 3)]
        s.wait_for_log("cannot accept a client: Too many open files")
        first, last = others[0], others[-1]
        first.greet()
        c.read(0, 512)
        assert not select.select([last.sock], [], [], 0)[0]
        assert s.cpu_ticks() < 100  # it does not spin
        for x in others[:-1]:
            x.sock.close()
        last.greet()  # it comes on by itself
        last.go()
        last.sock.close()
        assert s.stop() == 0


@pytest.mark.skipif(os.getuid() == 0, reason="root has no such limit")
def test_out_of_threads(place: Path) -> None:
    listen = ("-i127.0.0.1", "-p0", "--print-uri")
    with Server(place, "memory", "1M", listen=listen) as s:
        address = ("127.0.0.1", port_of(s))
        with Client(address) as c:
            c.greet()
            c.go()
            _, hard = resource.prlimit(s.pid, resource.RLIMIT_NPROC)
            resource.prlimit(s.pid, resource.RLIMIT_NPROC, (0, hard))
            for _ in range(5):
                with Client(address) as refused:
                    assert refused.at_end()
            c.read(0, 512)
            assert "cannot start a thread for a client: Resource temp" in s.log()
            resource.prlimit(s.pid, resource.RLIMIT_NPROC, (hard, hard))
            with Client(address) as another:
                another.greet()
                another.go()
                another.read(0, 512)
        assert s.stop() == 0


# -- nothing grows


def settled(s: Server, descriptors: int) -> None:
    """Until the threads of connections that were dropped have ended."""
    for _ in range(200):
        if s.descriptors() <= descriptors and s.status("Threads") <= 3:
            return
        with connected(s) as c:  # a round trip of the server's own time
            c.read(0, 512)
    raise AssertionError((s.descriptors(), descriptors, s.status("Threads")))


@pytest.mark.parametrize("cut", [0, 4, 20, len(SESSION)])
def test_connections_leave_nothing(cut: int, place: Path) -> None:
    with Server(place, "memory", "1M") as s:
        descriptors = s.descriptors() + 1  # one is kept for the statistics

        def cycle(n: int) -> None:
            for _ in range(n):
                with Client(s.socket) as c:
                    c.send(SESSION[:cut])
            settled(s, descriptors)

        cycle(300)
        memory = s.status("VmRSS")
        cycle(1000)
        assert s.status("VmRSS") - memory < (20000 if sanitizer() else 2000)


def test_refused_requests_leave_nothing(place: Path) -> None:
    with Server(place, "memory", "1M") as s, connected(s) as c:

        def refused(n: int) -> None:
            for _ in range(n):
                c.request(WRITE, 1 << 30, 512, bytes(512))
                assert c.simple_reply()[0] == errno.ENOSPC

        refused(500)
        memory, threads = s.status("VmRSS"), s.status("Threads")
        refused(9500)
        assert s.status("VmRSS") - memory < (20000 if sanitizer() else 1000)
        # The stand-by may have come, and the one that only sends.
        assert s.status("Threads") <= threads + 2


def test_clients_cannot_flood_the_log(place: Path) -> None:
    with Server(place, "memory", "1M") as s:
        for _ in range(500):
            with Client(s.socket) as c:
                c.recv(18)
                c.send(b"\xff\xff\xff\xff")  # flags that nobody offered
                assert c.at_end()
        assert s.stop() == 0
        log = s.log()
    lines = log.splitlines()
    hidden = sum(int(n) for n in re.findall(r"error: (\d+) more errors", log))
    shown = [line for line in lines if "client flags" in line]
    assert len(shown) + hidden == 500
    assert len(lines) < 250, "a few lines a second"


def test_time_limit_of_the_handshake_counts_every_bit(place: Path) -> None:
    """Waits of less than a millisecond count: a client that sends byte by byte has
    no more time than another."""
    with Server(place, "--timeout", "1", "memory", "1M") as s, Client(s.socket) as c:
        c.greet()
        c.send(struct.pack(">QII", IHAVEOPT, 0x7FFFFFFF, 64 << 20))
        for _ in range(100000):
            if select.select([c.sock], [], [], 0.0005)[0]:
                break  # what can be read is the end
            try:
                c.send(b"x")
            except (BrokenPipeError, ConnectionResetError):
                break
        else:
            raise AssertionError("it is still listened to")
        assert "did not finish its handshake within 1 seconds" in s.log()


def test_refused_set_of_contexts_drops_the_former(place: Path) -> None:
    """Also where it is refused for its length alone (OPT-META-28)."""
    contexts = struct.pack(">III", 0, 1, 15) + b"base:allocation"
    with Server(place, "memory", "1M") as s, Client(s.socket) as c:
        c.greet()
        c.option(STRUCTURED_REPLY)
        assert c.reply()[1] == ACK
        c.option(SET_META_CONTEXT, contexts)
        assert c.reply()[1] == 4 and c.reply()[1] == ACK
        c.option(SET_META_CONTEXT, bytes((1 << 20) + 1))
        assert c.reply()[1] == 2**31 + 9  # ERR_TOO_BIG
        c.go()
        c.request(BLOCK_STATUS, 0, 512)
        magic, _, kind, cookie, length = struct.unpack(">IHHQI", c.recv(20))
        assert (magic, kind, cookie) == (0x668E33EF, 0x8001, 7)
        assert struct.unpack(">I", c.recv(length)[:4]) == (errno.EINVAL,)


def test_socket_that_does_not_block(place: Path) -> None:
    """With -s it may be one: nothing to read is not the end."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with Server(
        place, "-s", "memory", "1M", listen=(), stdin=theirs, stdout=theirs, ready=False
    ):
        theirs.close()
        with Client(ours) as c:
            c.sock.settimeout(GUARD)
            c.greet()
            c.go()
            for _ in range(50):
                assert c.read(0, 65536) == bytes(65536)
            # More than the socket takes at once.
            for _ in range(16):
                c.request(READ, 0, 1 << 20)
            for _ in range(16):
                assert c.simple_reply(1 << 20)[0] == 0
