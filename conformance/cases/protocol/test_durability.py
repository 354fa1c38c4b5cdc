# SPDX-License-Identifier: BSD-3-Clause
"""FLUSH and FUA: data on stable storage ahead of the reply.

What reached the storage cannot be seen from outside, but whether the server asked for
it can: its calls of fsync and the like are counted. And what a server keeps to itself,
in memory of its own, is lost when it is killed.
"""

from __future__ import annotations

import signal

import pytest

from nbdspec import nbd
from nbdspec.case import Mode, case
from nbdspec.nbd import FUA, WRITE, WRITE_ZEROES
from nbdspec.verdict import NotApplicable

SECTION = "durability"

COUNTED = Mode(size=1 << 20, syncs=True)
KILLED = COUNTED.but(private=True)


@case("durability.flush-syncs", req=["TX-FLUSH-01", "TX-FLUSH-02", "TX-FLUSH-05"],
      mode=COUNTED, needs="writable flush")
@pytest.mark.parametrize("command", ["write", "zeroes", "trim"])
def test_flush_syncs(wire, lease, command):
    """FLUSH after a write asks the system to put it on the disk."""
    server, profile = lease.server, lease.profile
    wire.transmit()
    if command == "write":
        wire.write(b"f" * 512, 4096)
    elif command == "zeroes" and profile.has("write-zeroes"):
        wire.command(WRITE_ZEROES, 8192, 4096)
    elif command == "trim" and profile.has("trim"):
        wire.command(nbd.TRIM, 16384, 4096)
    else:
        raise NotApplicable(f"the server has no {command}")
    before = server.syncs.value
    wire.command(nbd.FLUSH)
    assert server.syncs.value > before, "FLUSH succeeded, and nothing was synced"


@case("durability.fua-syncs", req=["TX-FUA-01", "TX-FUA-02"], mode=COUNTED,
      needs="writable fua")
@pytest.mark.parametrize("command", [WRITE, WRITE_ZEROES], ids=nbd.command_name)
def test_fua_syncs(wire, lease, command):
    """A write with FUA asks the system to put it on the disk before it is answered."""
    if command == WRITE_ZEROES and not lease.profile.has("write-zeroes"):
        raise NotApplicable("the server has no WRITE_ZEROES")
    wire.transmit()
    for offset in (0, 100, 65536):
        before = lease.server.syncs.value
        if command == WRITE:
            wire.write(b"f" * 4096, offset, flags=FUA)
        else:
            wire.command(WRITE_ZEROES, offset, 4096, flags=FUA)
        assert lease.server.syncs.value > before, "FUA succeeded, and nothing was synced"


@case("durability.flush-on-each-connection", req=["MC-01", "TX-FLUSH-02"], mode=COUNTED,
      needs="writable flush multi-conn")
def test_flush_on_each_connection(dial, lease):
    """A FLUSH covers what other connections wrote, where the server says so."""
    first, second = dial(), dial()
    first.transmit()
    second.transmit()
    first.write(b"m" * 512, 0)
    before = lease.server.syncs.value
    second.command(nbd.FLUSH)
    assert lease.server.syncs.value > before, "FLUSH succeeded, and nothing was synced"
    assert second.read(512, 0) == b"m" * 512


@case("durability.killed", req=["TX-FLUSH-02", "TX-FUA-01", "TX-WRITE-04"], mode=KILLED,
      needs="writable flush")
@pytest.mark.parametrize("how", ["flush", "fua"])
def test_killed(wire, lease, how):
    """What was flushed is in the file when the server is killed."""
    server = lease.server
    if server.image is None or server.process is None:
        raise NotApplicable("the file is out of reach")
    if how == "fua" and not lease.profile.has("fua"):
        raise NotApplicable("the server has no FUA")
    wire.transmit()
    data = bytes(range(256)) * 16
    wire.write(data, 12345, flags=FUA if how == "fua" else 0)
    if how == "flush":
        wire.command(nbd.FLUSH)
    server.end(signal.SIGKILL)
    server.process.wait()
    with server.image.open("rb") as file:
        file.seek(12345)
        assert file.read(len(data)) == data, "what was flushed is gone"
