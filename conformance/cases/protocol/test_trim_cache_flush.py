# SPDX-License-Identifier: BSD-3-Clause
"""TRIM, CACHE and FLUSH, and FUA on all commands."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import MUST, SHOULD, Mode, case
from nbdspec.fixtures import both_kinds_of_reply
from nbdspec.nbd import CACHE, EINVAL, EPERM, FLUSH, FUA, READ, TRIM
from nbdspec.verdict import counts_as

SECTION = "trim-cache-flush"
MIB = 1 << 20
#: CACHE may be offered, and yet do nothing but fail with EINVAL (TX-CACHE-05).
NO_CACHE = {0: MUST}


@case("trim.neighbours-kept", req=["TX-TRIM-02", "TX-TRIM-07"],
      needs="stores writable trim size>=1M minimum<=1")
@pytest.mark.parametrize(("offset", "length"), [(1, 1), (4095, 4098), (100, 300000)])
def test_neighbours_kept(client, offset, length):
    """Bytes next to a trimmed range keep what they had."""
    client.pwrite(b"x" * (length + 200), offset)
    client.trim(length, offset + 100)
    assert client.pread(100, offset) == b"x" * 100
    assert client.pread(100, offset + 100 + length) == b"x" * 100


@case("trim.length-0", req=["TX-TRIM-04"], level=SHOULD, needs="writable trim")
def test_trim_length_0(wire):
    """A TRIM of no bytes is answered, whatever the answer; the connection stays."""
    wire.transmit()
    with counts_as(SHOULD, "TX-TRIM-04"):
        wire.wait(wire.request(TRIM, 0, 0))
        wire.in_step()


@case("trim.readonly", req=["ERR-04", "TF-06"], level=SHOULD, mode=Mode(readonly=True),
      needs="readonly")
def test_trim_readonly(wire):
    """A read-only export refuses TRIM with EPERM."""
    wire.transmit()
    wire.expect_errno(wire.request(TRIM, 0, 512), EPERM)
    wire.in_step()


@case("trim.not-offered", req=["TF-02"], needs="writable no-trim",
      mode=Mode(without=("trim",)))
def test_trim_not_offered(wire):
    """TRIM where it was not offered is answered, and changes nothing."""
    wire.transmit()
    wire.write(b"x" * 512, 0)
    others = {0: MUST, nbd.EIO: SHOULD}
    wire.expect_errno(wire.request(TRIM, 0, 512), EINVAL, also=others)
    assert wire.read(512, 0) == b"x" * 512


@case("cache.changes-nothing", req=["TX-CACHE-03", "TX-CACHE-07"],
      needs="stores writable cache size>=1M")
@both_kinds_of_reply
def test_cache_changes_nothing(wire, structured):
    """CACHE brings no data and leaves all data as it was."""
    wire.transmit(structured=structured)
    wire.write(b"x" * 65536, 65536)
    reply = wire.expect_errno(wire.request(CACHE, 0, MIB), EINVAL, also=NO_CACHE)
    assert not reply.data
    assert wire.read(65536, 65536) == b"x" * 65536


@case("cache.unknown-flag", req=["TX-CACHE-06"], needs="cache")
@pytest.mark.parametrize("bit", [1, 2, 3, 4, 5, 6, 15])
def test_cache_unknown_flag(wire, bit):
    """Flags that CACHE does not take are refused."""
    wire.transmit()
    cookie = wire.request(CACHE, 0, wire.export.block, flags=1 << bit)
    wire.expect_refused(cookie, EINVAL, row="ERR-08")
    wire.in_step()


@case("cache.beyond-end", req=["TX-CACHE-02", "SIZE-35"], level=SHOULD, needs="cache")
def test_cache_beyond_end(wire):
    """CACHE beyond the end is refused."""
    wire.transmit()
    wire.expect_errno(wire.request(CACHE, wire.export.size, 512), EINVAL)
    wire.in_step()


@case("cache.large", req=["TX-CACHE-05", "SIZE-30", "TX-CACHE-07"], level=SHOULD,
      needs="cache size>=200M", mode=Mode(size=200 * MIB))
def test_cache_large(wire):
    """CACHE has no payload, so that the maximum block size does not end it."""
    wire.transmit()
    wire.wait(wire.request(CACHE, 0, 200 * MIB))
    wire.in_step()


@case("flush.succeeds", req=["TX-FLUSH-05"], needs="flush")
def test_flush_succeeds(client):
    """FLUSH succeeds where it was offered, on a read-only export too."""
    client.flush()


@case("flush.readonly", req=["TX-FLUSH-05"], needs="flush", mode=Mode(readonly=True))
def test_flush_readonly(client):
    """FLUSH succeeds on a read-only export that offers it."""
    client.flush()


@case("flush.with-range", req=["SIZE-28", "TXTERM-10"], needs="flush")
@pytest.mark.parametrize(("offset", "length"), [(0, 512), (512, 0), (512, 512)])
def test_flush_with_range(wire, offset, length):
    """FLUSH with a range is answered, and the stream stays in step."""
    wire.transmit()
    wire.expect_errno(wire.request(FLUSH, offset, length), EINVAL, also={0: MUST})
    wire.in_step()


@case("fua.every-command", req=["TX-FUA-02"], needs="writable fua size>=1M")
@pytest.mark.parametrize("command", [READ, FLUSH, TRIM, CACHE, nbd.WRITE_ZEROES],
                         ids=nbd.command_name)
def test_fua_every_command(wire, command):
    """FUA is taken on every command where it was offered."""
    wire.transmit()
    offered = {
        FLUSH: nbd.SEND_FLUSH,
        TRIM: nbd.SEND_TRIM,
        CACHE: nbd.SEND_CACHE,
        nbd.WRITE_ZEROES: nbd.SEND_WRITE_ZEROES,
    }.get(command, nbd.HAS_FLAGS)
    length = 0 if command == FLUSH else max(4096, wire.export.minimum)
    cookie = wire.request(command, 0, length, flags=FUA)
    if not wire.export.flags & offered:
        wire.wait(cookie)
    elif command == CACHE:
        plain = wire.expect_errno(wire.request(CACHE, 0, length), EINVAL, also=NO_CACHE)
        wire.expect_errno(cookie, plain.error)
    else:
        wire.expect_ok(cookie)
    wire.in_step()


@case("multi-conn.flush-seen", req=["MC-01"],
      needs="stores writable multi-conn flush minimum<=4096")
@pytest.mark.parametrize("way", ["flush", "fua"])
def test_multi_conn_flush_seen(connect, lease, way):
    """What is flushed on one connection is read on all others."""
    if way == "fua" and not lease.profile.flags & nbd.SEND_FUA:
        way = "flush"
    first, second = connect(), connect()
    for wire in (first, second):
        wire.greet()
        wire.transmit()
    for round_ in range(8):
        data = bytes([round_ + 1]) * 4096
        second.read(4096, 8192)  # what a cache of its own would keep
        first.write(data, 8192, flags=FUA if way == "fua" else 0)
        if way == "flush":
            first.command(FLUSH)
        assert second.read(4096, 8192) == data
