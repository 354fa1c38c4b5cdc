# SPDX-License-Identifier: BSD-3-Clause
"""What the server does with the memory that its buffers give up."""

from __future__ import annotations

import struct
from pathlib import Path

from server_process import WRITE, Client, Server, connected

MIB = 1 << 20
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
