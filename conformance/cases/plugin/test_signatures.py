# SPDX-License-Identifier: BSD-3-Clause
"""What each callback is called with, in both versions."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.nbd import EIO
from nbdspec.payloads import pattern
from nbdspec.sources import EVERY

SECTION = "plugin.signatures"

both = pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])

ALL = EVERY + "SIZE = 1 << 40\n"
CONTROL = (
    "get_size can_write can_flush can_trim can_zero can_fast_zero can_extents "
    "can_multi_conn is_rotational can_fua can_cache block_size export_description "
    "close"
).split()


def handle_and(calls, name: str) -> list:
    """The arguments of the one call of that name, without its handle."""
    found = [call for call in calls if call.name == name]
    assert len(found) == 1, f"{len(found)} calls of {name}"
    handle, *rest = found[0].args
    assert handle["type"] == "Handle", f"{name}'s first argument is {handle}"
    return rest


@case("plugin.signatures.connection", req=["PY-SIG-03", "PY-SIG-06", "PY-SIG-07"])
@both
def test_connection(hosts, api):
    """preconnect and open get readonly as a bool, close the handle."""
    plugin = hosts.load(ALL, api=api)
    plugin.go("x").leave()
    plugin.settle()
    calls = {call.name: call.args for call in plugin.calls()}
    assert calls["preconnect"] == ["False"]
    assert calls["open"] == ["False"]
    assert [argument["type"] for argument in calls["close"]] == ["Handle"]


@case("plugin.signatures.exports", req=["PY-SIG-04", "PY-SIG-05"])
@both
def test_exports(hosts, api):
    """list_exports and default_export get readonly and is_tls, both bools."""
    plugin = hosts.load(ALL, api=api)
    wire = plugin.wire()
    wire.list()
    wire.go("")
    calls = {call.name: call.args for call in plugin.calls()}
    assert calls["list_exports"] == ["False", "False"]
    assert calls["default_export"] == ["False", "False"]


@case("plugin.signatures.handle-only", req=["PY-SIG-08", "PY-SIG-09", "PY-SIG-07"])
@both
@pytest.mark.parametrize("name", CONTROL)
def test_handle_only(hosts, api, name):
    """What asks about an export gets the handle, and nothing else."""
    plugin = hosts.load(ALL, api=api)
    wire = plugin.wire()
    wire.go("x", [nbd.INFO_BLOCK_SIZE, nbd.INFO_DESCRIPTION])
    wire.leave()
    plugin.settle()
    assert handle_and(plugin.calls(), name) == []


@case("plugin.signatures.pread", req=["PY-SIG-10", "PY-SIG-11"])
@both
def test_pread(hosts, api):
    """pread: (h, count, offset) in version 1, (h, buf, offset, flags) in 2."""
    plugin = hosts.load(ALL, api=api)
    plugin.client().pread(777, 12345)
    args = handle_and(plugin.calls(), "pread")
    if api == 1:
        assert args == ["777", "12345"]
    else:
        assert args[0]["type"] == "memoryview" and args[0]["len"] == 777
        assert args[1:] == ["12345", "0"]


@case("plugin.signatures.pwrite", req=["PY-SIG-12", "PY-SIG-13"])
@both
def test_pwrite(hosts, api):
    """pwrite: (h, buf, offset), in version 2 with flags."""
    plugin = hosts.load(ALL, api=api)
    plugin.client().pwrite(pattern(0, 777), 12345)
    buf, *rest = handle_and(plugin.calls(), "pwrite")
    assert buf["len"] == 777 and buf["head"] == pattern(0, 16).hex()
    assert rest == (["12345"] if api == 1 else ["12345", "0"])


@case("plugin.signatures.flush", req=["PY-SIG-14"])
@both
def test_flush(hosts, api):
    """flush: (h), in version 2 with flags, which are 0."""
    plugin = hosts.load(ALL, api=api)
    plugin.client().flush()
    assert handle_and(plugin.calls(), "flush") == ([] if api == 1 else ["0"])


@case("plugin.signatures.trim", req=["PY-SIG-15", "PY-SIG-16"])
@both
def test_trim(hosts, api):
    """trim: (h, count, offset), in version 2 with flags."""
    plugin = hosts.load(ALL, api=api)
    plugin.client().trim(777, 12345)
    expected = ["777", "12345"] + ([] if api == 1 else ["0"])
    assert handle_and(plugin.calls(), "trim") == expected


@case("plugin.signatures.zero-v1", req=["PY-SIG-17", "PY-EMU-19"])
@pytest.mark.parametrize("flags", [0, nbd.NO_HOLE], ids=["may-trim", "no-hole"])
def test_zero_v1(hosts, flags):
    """zero of version 1: (h, count, offset, may_trim), the last a bool."""
    plugin = hosts.load(ALL, api=1)
    plugin.client().zero(777, 12345, flags)
    expected = ["777", "12345", str(not flags)]
    assert handle_and(plugin.calls(), "zero") == expected


@case(
    "plugin.signatures.zero-v2",
    req=["PY-SIG-18", "PY-SIG-28", "PY-SIG-29", "PY-SIG-30", "PY-EMU-19"],
)
@pytest.mark.parametrize("no_hole", [0, nbd.NO_HOLE], ids=["trim", "no-hole"])
@pytest.mark.parametrize("fast", [0, nbd.FAST_ZERO], ids=["any", "fast"])
@pytest.mark.parametrize("fua", [0, nbd.FUA], ids=["lazy", "fua"])
def test_zero_v2(hosts, no_hole, fast, fua):
    """zero of version 2 is told MAY_TRIM, FUA and FAST_ZERO, each as it was asked."""
    plugin = hosts.load(ALL)
    plugin.client().zero(777, 12345, no_hole | fast | fua)
    expected = (0 if no_hole else 1) | (2 if fua else 0) | (8 if fast else 0)
    args = handle_and(plugin.calls(), "zero")
    assert args == ["777", "12345", str(expected)]


@case("plugin.signatures.cache", req=["PY-SIG-19", "PY-OLD-02"])
@both
def test_cache(hosts, api):
    """cache: (h, count, offset, flags) in both versions."""
    plugin = hosts.load(ALL, api=api)
    plugin.client().cache(777, 12345)
    assert handle_and(plugin.calls(), "cache") == ["777", "12345", "0"]


@case("plugin.signatures.extents", req=["PY-SIG-20", "PY-SIG-27", "PY-OLD-02"])
@both
@pytest.mark.parametrize("flags", [0, nbd.REQ_ONE], ids=["all", "one"])
def test_extents(hosts, api, flags):
    """extents: (h, count, offset, flags) in both versions, with FLAG_REQ_ONE."""
    plugin = hosts.load(ALL, api=api)
    client = plugin.client(contexts=("base:allocation",))
    client.block_status(777, 12345, flags)
    expected = ["777", "12345", "4" if flags else "0"]
    assert handle_and(plugin.calls(), "extents") == expected


@case("plugin.signatures.fua", req=["PY-SIG-30", "PY-EMU-13"])
@pytest.mark.parametrize("command", ["pwrite", "trim", "zero"])
def test_fua(hosts, command):
    """With FUA_NATIVE the flag is passed on, and flush is not called."""
    plugin = hosts.load(ALL)
    client = plugin.client()
    first = pattern(0, 512) if command == "pwrite" else 512
    getattr(client, command)(first, 0, nbd.FUA)
    flags = int(handle_and(plugin.calls(), command)[-1])
    assert flags & 2, f"flags are {flags}"
    assert plugin.names("flush") == []


@case("plugin.signatures.fua-emulated", req=["PY-SIG-30", "PY-OLD-02"])
@both
@pytest.mark.parametrize("command", ["pwrite", "trim", "zero"])
def test_fua_emulated(hosts, api, command):
    """With FUA_EMULATE the functions are not told about FUA."""
    source = ALL.replace("FUA_NATIVE", "FUA_EMULATE")
    plugin = hosts.load(source, api=api)
    first = pattern(0, 512) if command == "pwrite" else 512
    getattr(plugin.client(), command)(first, 0, nbd.FUA)
    args = handle_and(plugin.calls(), command)
    told = {"pwrite": "0", "trim": "0", "zero": "1"}[command]
    if api == 2:
        assert args[-1] == told
    assert plugin.names("flush") == ["flush"]


@case("plugin.signatures.flags", req=["PY-SIG-23"])
def test_flags(hosts):
    """flags is an int, and has no bit beyond the constants'."""
    plugin = hosts.load(ALL)
    client = plugin.client(contexts=("base:allocation",))
    client.pwrite(b"x", 0, nbd.FUA)
    client.zero(1, 0, nbd.FAST_ZERO | nbd.NO_HOLE)
    client.cache(1, 0)
    client.block_status(1, 0, nbd.REQ_ONE)
    for name in ("pwrite", "zero", "cache", "extents"):
        flags = handle_and(plugin.calls(), name)[-1]
        assert flags.isdigit() and int(flags) & ~15 == 0, f"{name}: flags {flags}"


@case("plugin.signatures.large-count", req=["PY-SIG-22", "PY-SIG-26"])
@both
@pytest.mark.parametrize("count", [2**31, 2**32 - 512, 2**32 - 1])
@pytest.mark.parametrize("name", ["trim", "zero", "cache", "extents"])
def test_large_count(hosts, api, name, count):
    """Counts up to 2**32 - 1 arrive as they are."""
    plugin = hosts.load(ALL, api=api)
    client = plugin.client(contexts=("base:allocation",))
    command = {"extents": "block_status"}.get(name, name)
    getattr(client, command)(count, 4096)
    assert handle_and(plugin.calls(), name)[:2] == [str(count), "4096"]


@case("plugin.signatures.large-offset", req=["PY-SIG-22"])
@both
@pytest.mark.parametrize("offset", [2**31, 2**32 + 1, 2**62, 2**63 - 1 - 16])
def test_large_offset(hosts, api, offset):
    """Offsets up to the largest size arrive as they are."""
    plugin = hosts.load(ALL + "SIZE = 2**63 - 1\n", api=api)
    client = plugin.client()
    client.pread(16, offset)
    client.pwrite(b"x" * 16, offset)
    client.trim(16, offset)
    for name, place in (("pread", 1), ("pwrite", 1), ("trim", 1)):
        assert handle_and(plugin.calls(), name)[place] == str(offset)


@case("plugin.signatures.unchanged", req=["PY-SIG-25"])
@both
def test_unchanged(hosts, api):
    """Requests are not rounded, split or merged, whatever block_size says."""
    plugin = hosts.load(ALL.replace("(1, 4096", "(512, 4096"), api=api)
    client = plugin.client()
    client.pwrite(b"x", 1)
    client.pwrite(b"yz", 2)
    client.pwrite(b"y" * 12345, 4095)
    client.trim(3, 4097)
    sizes = [(c.args[1]["len"], c.args[2]) for c in plugin.calls("pwrite")]
    assert sizes == [(1, "1"), (2, "2"), (12345, "4095")]
    assert handle_and(plugin.calls(), "trim")[:2] == ["3", "4097"]


@case("plugin.signatures.positional", req=["PY-SIG-21"])
@both
def test_positional(hosts, api):
    """Arguments are positional: parameters may have any names, or defaults."""
    plugin = hosts.load(
        """
def open(a, /, b=1): return "handle"
def get_size(self, /): return 4096
def pwrite(one, two, three, four=4, five=5): note("got", len(two), three, five)
def pread(*everything):
    note("read", len(everything))
    return bytes(512)
""",
        api=api,
        record=False,
    )
    client = plugin.client()
    client.pwrite(bytes(16), 32)
    assert plugin.calls("got")[0].args == ["16", "32", "5"]
    client.pread(512, 0)
    assert plugin.calls("read")[0].args == ["3" if api == 1 else "4"]


ARITY = {
    "pread": (nbd.READ, "def pread(h): pass"),
    "pwrite": (nbd.WRITE, "def pwrite(): pass"),
    "flush": (nbd.FLUSH, "def flush(h, a, b, c): pass"),
    "trim": (nbd.TRIM, "trim = lambda: None"),
    "zero": (nbd.WRITE_ZEROES, "def zero(h, /): pass"),
    "cache": (nbd.CACHE, "def cache(h, count): pass"),
    "extents": (nbd.BLOCK_STATUS, "def extents(h, count, offset): pass"),
    "builtin": (nbd.TRIM, "trim = len"),
}


@case("plugin.signatures.arity", req=["PY-SIG-24"])
@both
@pytest.mark.parametrize("what", ARITY)
def test_arity(hosts, api, what):
    """Another number of parameters: TypeError in the log, EIO, and life goes on."""
    command, source = ARITY[what]
    plugin = hosts.load(ALL + source, api=api, record=False)
    wire = plugin.go(contexts=("base:allocation",))
    data = {"data": b"x" * 512} if command == nbd.WRITE else {}
    length = 0 if command in (nbd.FLUSH, nbd.WRITE) else 512
    wire.expect_errno(wire.request(command, 0, length, **data), EIO)
    other = nbd.TRIM if command != nbd.TRIM else nbd.CACHE
    wire.command(other, 0, 512)
    log = plugin.wait_log("argument")
    assert {"builtin": "trim"}.get(what, what) in log
