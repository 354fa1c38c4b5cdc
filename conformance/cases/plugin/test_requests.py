# SPDX-License-Identifier: BSD-3-Clause
"""What does not reach the plugin, and the exports that it names."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.nbd import EINVAL, ENOMEM, ENOSPC, EPERM, ERR_UNKNOWN
from nbdspec.payloads import go_payload
from nbdspec.verdict import MUST

SECTION = "plugin.requests"

both = pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])

ALL = "".join(
    f"def {name}(h, *args): pass\n" for name in "pwrite flush trim zero cache".split()
) + "def extents(h, count, offset, flags): return [(offset, count, 0)]\n"
DATA = ("pread", "pwrite", "flush", "trim", "zero", "cache", "extents")
SIZE = 64 << 20
LENGTHS = {
    nbd.READ: 512,
    nbd.TRIM: 512,
    nbd.WRITE_ZEROES: 512,
    nbd.CACHE: 512,
    nbd.BLOCK_STATUS: 512,
}


def untouched(plugin, wire) -> None:
    """No data callback was called, and the stream is in step."""
    assert plugin.names(*DATA) == [], f"called: {plugin.names(*DATA)}"
    wire.in_step()


@case("plugin.requests.readonly", req=["PY-VAL-01"])
@both
@pytest.mark.parametrize("how", ["option", "can_write"])
def test_readonly(hosts, api, how):
    """Writing to a read-only export: EPERM, and no callback."""
    source = ALL + ("def can_write(h): return False\n" if how == "can_write" else "")
    options = ("-r",) if how == "option" else ()
    plugin = hosts.load(source, api=api, options=options)
    wire = plugin.go()
    for command in (nbd.WRITE, nbd.TRIM, nbd.WRITE_ZEROES):
        data = b"x" * 512 if command == nbd.WRITE else b""
        wire.expect_errno(wire.request(command, 0, 512, data=data), EPERM)
    untouched(plugin, wire)


@case("plugin.requests.range", req=["PY-VAL-02"])
@pytest.mark.parametrize(
    "offset, length",
    [(SIZE, 1), (SIZE - 1, 2), (SIZE + 1, 1), (2**64 - 1, 2), (0, 0), (SIZE, 0)],
)
def test_range(hosts, offset, length):
    """Beyond the end, or of no length: refused, and no callback."""
    plugin = hosts.load(ALL)
    wire = plugin.go(contexts=("base:allocation",))
    for command in LENGTHS:
        full = command == nbd.WRITE_ZEROES
        first, second = (ENOSPC, EINVAL) if full else (EINVAL, ENOSPC)
        cookie = wire.request(command, offset, length)
        wire.expect_errno(cookie, first, also={second: MUST})
    untouched(plugin, wire)


@case("plugin.requests.not-offered", req=["PY-VAL-03"])
def test_not_offered(hosts):
    """Commands that are not offered are refused, and no callback is called."""
    never = "".join(f"def can_{n}(h): return 0 > 1\n" for n in ("flush", "trim"))
    plugin = hosts.load(ALL + never + "def can_cache(h): return 0\n")
    wire = plugin.go()
    for command, length in ((nbd.FLUSH, 0), (nbd.TRIM, 512), (nbd.CACHE, 512)):
        wire.expect_errno(wire.request(command, 0, length), EINVAL)
    untouched(plugin, wire)


@case("plugin.requests.fua", req=["PY-VAL-04"])
def test_fua(hosts):
    """FUA that is not offered is refused, and no callback is called."""
    plugin = hosts.load(ALL + "def can_fua(h): return 0\n")
    wire = plugin.go()
    cookie = wire.request(nbd.WRITE, 0, data=b"x", flags=nbd.FUA)
    wire.expect_errno(cookie, EINVAL)
    cookie = wire.request(nbd.TRIM, 0, 512, flags=nbd.FUA)
    wire.expect_errno(cookie, EINVAL)
    untouched(plugin, wire)


@case("plugin.requests.fua-ignored", req=["PY-VAL-09"])
@both
def test_fua_ignored(hosts, api):
    """FUA that is offered is taken on read, flush and cache, and means nothing."""
    plugin = hosts.load(ALL, api=api)
    wire = plugin.go()
    for command, length in ((nbd.READ, 512), (nbd.FLUSH, 0), (nbd.CACHE, 512)):
        wire.expect_ok(wire.request(command, 0, length, flags=nbd.FUA))
    assert plugin.names(*DATA) == ["pread", "flush", "cache"]


@case("plugin.requests.fast-zero", req=["PY-VAL-05"])
@both
def test_fast_zero(hosts, api):
    """FAST_ZERO that is not offered: an error, no callback; the host lives."""
    plugin = hosts.load(ALL, api=api)
    wire = plugin.go()
    assert not wire.export.flags & nbd.SEND_FAST_ZERO
    cookie = wire.request(nbd.WRITE_ZEROES, 0, 4096, flags=nbd.FAST_ZERO)
    wire.expect_errno(cookie, EINVAL, also={nbd.ENOTSUP: MUST})
    untouched(plugin, wire)


@case("plugin.requests.too-large", req=["PY-VAL-06"])
def test_too_large(hosts):
    """More than 64 MiB: refused, no callback, the stream in step."""
    plugin = hosts.load(ALL + "SIZE = 1 << 30\n")
    wire = plugin.go()
    length = (64 << 20) + 8
    cookie = wire.request(nbd.READ, 0, length)
    wire.expect_errno(cookie, EINVAL, also={ENOMEM: MUST, nbd.EOVERFLOW: MUST})
    cookie = wire.request(nbd.WRITE, 0, data=b"8 bytes." * (length // 8))
    wire.expect_errno(cookie, EINVAL, also={ENOMEM: MUST})
    untouched(plugin, wire)


@case("plugin.requests.no-context", req=["PY-VAL-07"])
@pytest.mark.parametrize("structured", [False, True])
def test_no_context(hosts, structured):
    """BLOCK_STATUS without base:allocation: refused, and no callback."""
    plugin = hosts.load(ALL)
    wire = plugin.go(structured=structured)
    wire.expect_errno(wire.request(nbd.BLOCK_STATUS, 0, 512), EINVAL)
    untouched(plugin, wire)


@case("plugin.requests.half-payload", req=["PY-VAL-08"])
@pytest.mark.parametrize("length", [512, 65536, 1 << 20])
def test_half_payload(hosts, length):
    """A write whose payload ends halfway does not reach the plugin."""
    plugin = hosts.load(ALL)
    wire = plugin.go()
    wire.request(nbd.WRITE, 0, length, data=b"x" * (length // 2))
    wire.pending.clear()
    wire.conn.close()
    plugin.settle()
    assert plugin.names(*DATA) == []


@case("plugin.requests.open-refuses", req=["PY-EXP-05", "PY-EXP-08"])
@both
def test_open_refuses(hosts, api):
    """open can refuse a name; another works on the same connection."""
    plugin = hosts.load(
        """
def open(readonly):
    name = nbdkit.export_name()
    if name != "good":
        raise ValueError(name)
    return Handle()
""",
        api=api,
    )
    wire = plugin.wire()
    for name in ("bad", "", "worse"):
        wire.option(nbd.GO, go_payload(name))
        wire.expect_error(nbd.GO, ERR_UNKNOWN)
    wire.go("good")
    wire.read(512, 0)


@case("plugin.requests.names", req=["PY-EXP-08", "PY-EXP-03"])
def test_names(hosts):
    """Each open on a connection is for its own name; NAME is the client's."""
    plugin = hosts.load(
        "def open(r): note('open', nbdkit.export_name()); return 1\n"
        "def get_size(h): return len(nbdkit.export_name()) + 1\n",
        record=False,
    )
    wire = plugin.wire()
    for name in ("one", "three", ""):
        export = wire.info(name, [nbd.INFO_NAME])
        assert export.size == len(name) + 1
        assert export.name in (name, None)
    assert [c.args[0] for c in plugin.calls("open")] == ["'one'", "'three'", "''"]


@case("plugin.requests.long-names", req=["PY-EXP-06"])
def test_long_names(hosts):
    """A name of 4096 bytes works, a longer one is refused; the connection lives."""
    plugin = hosts.load("")
    wire = plugin.wire()
    wire.info("n" * 4096)
    wire.option(nbd.INFO, go_payload("n" * 4097))
    wire.expect_error(nbd.INFO)
    wire.go("n")


@case("plugin.requests.exportname-option", req=["PY-EXP-07", "PY-EXP-02"])
def test_exportname_option(hosts):
    """-e changes nothing of what is served."""
    source = "def open(r): note('open', nbdkit.export_name()); return 1\n"
    plugin = hosts.load(source, record=False, options=("-e", "other"))
    plugin.go("x")
    plugin.go("")
    assert [c.args[0] for c in plugin.calls("open")] == ["'x'", "''"]
