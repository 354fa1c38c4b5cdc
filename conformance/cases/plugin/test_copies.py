# SPDX-License-Identifier: BSD-3-Clause
"""No copies: by the addresses that plugin and host see, and by the host's counter."""

from __future__ import annotations

import re

import pytest

from nbdspec.case import case

SECTION = "plugin.copies"

SIZES = [32768, 32769, 65536, 1 << 20, 2 << 20, 32 << 20]
STATS = ("--stats", "stats")

PLUGIN = """
from recording import address, note
API_VERSION = {api}
{body}
def open(r): return 1
def get_size(h): return 1 << 30
def flush(h, *args): pass
def trim(h, *args): pass
def zero(h, *args): pass
def cache(h, *args): pass
"""
PREAD = {
    1: "def pread(h, count, offset): return bytes(count)",
    2: "def pread(h, buf, offset, flags): note('pread', address(buf))",
}
PWRITE = "def pwrite(h, buf, offset, *flags): note('pwrite', address(buf))"


def start(hosts, body: str, *options: str, api: int = 2):
    source = PLUGIN.format(api=api, body=f"{body}\n{PREAD[api]}")
    return hosts.start(source, options=(*STATS, *options))


def copied(plugin, client) -> int:
    """How many bytes were copied, once the client has gone."""
    client.close()
    return plugin.wait_stats()["bytes_copied"]


@case("plugin.copies.pwrite", req=["PY-COPY-01"])
@pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])
def test_pwrite(hosts, api):
    """pwrite of 32 KiB and more copies nothing."""
    plugin = start(hosts, PWRITE, api=api)
    client = plugin.client()
    for size in SIZES:
        client.pwrite(b"8 bytes." * (size // 8) + b"x" * (size % 8), 0)
    assert copied(plugin, client) == 0, "bytes were copied"


@case("plugin.copies.pwrite-pipelined", req=["PY-COPY-01"])
def test_pwrite_pipelined(hosts):
    """The same with many writes on their way at once."""
    from nbdspec import nbd

    plugin = start(hosts, PWRITE)
    client = plugin.client()
    wire = client.wire
    for _ in range(4):
        asked = [wire.request(nbd.WRITE, 0, data=b"w" * 65536) for _ in range(4)]
        for cookie in asked:
            wire.expect_ok(cookie)
    assert copied(plugin, client) <= 16 * 4096, "payloads were copied"


@case("plugin.copies.pread", req=["PY-COPY-02"])
def test_pread(hosts):
    """pread of version 2 copies nothing."""
    plugin = start(hosts, PWRITE)
    client = plugin.client()
    for size in SIZES:
        client.pread(size, 0)
    assert copied(plugin, client) == 0, "bytes were copied"


@case("plugin.copies.pread-v1", req=["PY-COPY-03"])
def test_pread_v1(hosts):
    """pread of version 1 costs one copy."""
    plugin = start(hosts, PWRITE, api=1)
    client = plugin.client()
    for size in SIZES:
        client.pread(size, 0)
    assert copied(plugin, client) == sum(SIZES)


@case("plugin.copies.small", req=["PY-COPY-04"])
@pytest.mark.parametrize("size", [1, 512, 4096, 16384])
def test_small(hosts, size):
    """A small pwrite costs at most one copy."""
    plugin = start(hosts, PWRITE)
    client = plugin.client()
    for _ in range(10):
        client.pwrite(b"x" * size, 0)
    assert copied(plugin, client) <= 10 * size


@case("plugin.copies.kept", req=["PY-COPY-05"])
def test_kept(hosts):
    """A pwrite view that is kept costs no copy, a pread view one."""
    body = """
kept = []
def pwrite(h, buf, offset, flags): kept.append(buf)
"""
    plugin = start(hosts, body)
    client = plugin.client()
    for _ in range(4):
        client.pwrite(b"x" * 65536, 0)
    assert copied(plugin, client) == 0, "bytes of pwrite were copied"
    source = PLUGIN.format(
        api=2,
        body="kept = []\ndef pread(h, buf, offset, flags): kept.append(buf)",
    )
    plugin = hosts.start(source, options=STATS)
    client = plugin.client()
    for _ in range(4):
        client.pread(65536, 0)
    assert copied(plugin, client) == 4 * 65536


@case("plugin.copies.python-buffer", req=["PY-COPY-06"])
@pytest.mark.parametrize("kind", ["bytearray", "bytes"])
def test_python_buffer(hosts, kind):
    """--python-buffer=bytearray and bytes cost one copy."""
    body = "def pwrite(h, buf, offset, flags): note('got', type(buf).__name__)"
    plugin = start(hosts, body, f"--python-buffer={kind}")
    client = plugin.client()
    for _ in range(4):
        client.pwrite(b"x" * 65536, 0)
    assert copied(plugin, client) == 4 * 65536
    assert {call.args[0] for call in plugin.calls("got")} == {f"'{kind}'"}


@case("plugin.copies.others", req=["PY-COPY-07"])
def test_others(hosts):
    """flush, trim, zero and cache copy nothing."""
    plugin = start(hosts, PWRITE)
    client = plugin.client()
    client.flush()
    client.trim(1 << 20, 0)
    client.zero(1 << 20, 0)
    client.cache(1 << 20, 0)
    assert copied(plugin, client) == 0


@case("plugin.copies.address", req=["PY-COPY-08", "PY-COPY-01", "PY-COPY-02"])
def test_address(hosts):
    """The plugin's address is that of the host's buffer, as -v tells it."""
    plugin = start(hosts, PWRITE, "-v")
    client = plugin.client()
    for size in SIZES:
        client.pwrite(b"8 bytes." * (size // 8), 0)
        client.pread(size, 0)
    client.close()
    plugin.settle_log("pread: buffer", len(SIZES))
    for name in ("pwrite", "pread"):
        told = re.findall(rf"{name}: buffer (0x[0-9a-f]+), (\d+) bytes", plugin.log())
        assert len(told) == len(SIZES), f"the log tells {len(told)} buffers"
        seen = [int(call.args[0]) for call in plugin.calls(name)]
        assert [int(where, 16) for where, _ in told] == seen, f"{name} saw a copy"
