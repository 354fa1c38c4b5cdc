# SPDX-License-Identifier: BSD-3-Clause
"""What the server does with the memory that its buffers give up."""

from __future__ import annotations

import struct
from pathlib import Path

import nbd
from server_process import WRITE, Client, Server, connected

MIB = 1 << 20
TRIM = 4
PAGES = MIB // 4096


def minor_faults(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(") ")[1].split()[7])


def write(c: Client, length: int) -> None:
    c.request(WRITE, 0, length, bytes(length))
    assert c.simple_reply() == (0, b"")


def test_large_requests_leave_the_others_a_pool(place: Path) -> None:
    """Two buffers of 16 MiB fill the pool of unused memory.  They must give way:
    else every later request gets fresh pages from the kernel, and gives them back,
    which halved the speed of all that came after."""
    half = struct.pack(">IHHQQI", 0x25609513, 0, WRITE, 7, 0, 16 * MIB) + bytes(MIB)
    with Server(place, "memory", "64M") as s, connected(s) as a, connected(s) as b:
        for c in (a, b):  # both under way at the same time
            c.send(half)
        for c in (a, b):
            c.send(bytes(15 * MIB))
            assert c.simple_reply() == (0, b"")
        write(a, MIB)
        before = minor_faults(s.pid)
        for _ in range(100):
            write(a, MIB)
        assert minor_faults(s.pid) - before < 10 * PAGES


def test_data_is_never_a_hole(place: Path) -> None:
    """A write and a trim of the same range, at once: whichever wins, a page that has
    data is not said to be a hole (META-BASE-12)."""
    length = 32 * MIB
    data = b"\x55" * length
    head = struct.pack(">IHHQQI", 0x25609513, 0, WRITE, 7, 0, length)
    with Server(place, "memory", "32M") as s, connected(s) as a, connected(s) as b:
        h = nbd.NBD()
        h.add_meta_context("base:allocation")
        h.connect_unix(s.socket)
        for _ in range(5):
            a.send(head + data[:-1])
            a.send(data[-1:])
            b.request(TRIM, 0, length)
            assert a.simple_reply() == b.simple_reply() == (0, b"")
            found: list[int] = []
            h.block_status(length, 0, lambda _name, _at, flat, _e: found.extend(flat))
            at = 0
            for size, flags in zip(found[::2], found[1::2]):
                if flags:
                    assert bytes(h.pread(size, at)) == bytes(size), f"a hole at {at}"
                at += size
