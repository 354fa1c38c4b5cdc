# SPDX-License-Identifier: BSD-3-Clause
"""A connection's calls: which, how many, with which handle, and close at its end."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.payloads import go_payload
from nbdspec.sources import EVERY

SECTION = "plugin.life"

both = pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])

ASKS = (
    "get_size can_write can_zero can_fast_zero can_trim can_fua can_flush "
    "is_rotational can_multi_conn can_cache can_extents"
).split()
WRITING = {"can_write", "can_zero", "can_fast_zero", "can_trim", "can_fua"}


@case("plugin.life.connection", req=["PY-LIFE-05", "PY-LIFE-06", "PY-LIFE-08"])
@both
def test_connection(hosts, api):
    """A connection: preconnect, open, each question once, the data, close."""
    plugin = hosts.load(EVERY, api=api)
    client = plugin.client(contexts=("base:allocation",), name="x")
    for _ in range(3):
        client.pwrite(b"x", 0, nbd.FUA)
        client.flush()
        client.trim(1, 0)
        client.zero(1, 0)
        client.cache(1, 0)
        client.block_status(1, 0)
        client.pread(1, 0)
    client.close()
    plugin.settle()
    names = plugin.names()
    assert names[:2] == ["preconnect", "open"] and names[-1] == "close", f"{names}"
    asked = [name for name in names if name in ASKS]
    assert len(asked) == len(set(asked)), f"asked twice: {asked}"
    assert set(asked) == set(ASKS), f"not asked: {set(ASKS) - set(asked)}"
    assert [names.count(n) for n in ("preconnect", "open", "close")] == [1, 1, 1]
    data = names.index("pwrite")
    late = [name for name in names[data:] if name in ASKS]
    assert not late or set(late) <= {"can_extents", "can_cache"}, f"late: {late}"


@case("plugin.life.nothing-said", req=["PY-LIFE-07", "PY-LIFE-06"])
def test_nothing_said(hosts):
    """A client that negotiates nothing: preconnect, and no open."""
    plugin = hosts.load(EVERY)
    plugin.connect().conn.close()
    wire = plugin.wire()
    wire.option(nbd.ABORT)
    wire.expect_reply(nbd.ABORT, nbd.ACK)
    plugin.wait_calls("preconnect", 2)
    assert set(plugin.names()) == {"preconnect"}


@case("plugin.life.block-size", req=["PY-LIFE-09", "PY-LIFE-10"])
def test_block_size(hosts):
    """block_size and export_description are called for clients that ask."""
    plugin = hosts.load(EVERY)
    wire = plugin.wire()
    wire.info("x")
    assert not {"block_size", "export_description"} & set(plugin.names())
    wire.info("x", [nbd.INFO_BLOCK_SIZE])
    assert plugin.names("block_size", "export_description") == ["block_size"]
    wire.info("x", [nbd.INFO_DESCRIPTION])
    asked = plugin.names("block_size", "export_description")
    assert asked == ["block_size", "export_description"]


@case("plugin.life.info-go", req=["PY-LIFE-11", "PY-LIFE-20"])
@both
def test_info_go(hosts, api):
    """INFO and GO each open; what was opened is closed."""
    plugin = hosts.load(EVERY, api=api)
    wire = plugin.wire()
    wire.info("x")
    wire.info("y")
    wire.go("x")
    wire.leave()
    plugin.settle()
    order = plugin.names("open", "close")
    assert order == ["open", "close"] * 3, f"{order}"


@case("plugin.life.list", req=["PY-LIFE-12", "PY-LIFE-13"])
def test_list(hosts):
    """list_exports is called for LIST alone, default_export for "" alone."""
    plugin = hosts.load(EVERY)
    wire = plugin.wire()
    wire.info("x")
    assert not {"list_exports", "default_export"} & set(plugin.names())
    wire.list()
    assert plugin.names("list_exports", "default_export") == ["list_exports"]
    wire.go("")
    asked = plugin.names("list_exports", "default_export")
    assert asked == ["list_exports", "default_export"]


@case("plugin.life.default-kept", req=["PY-LIFE-14"])
def test_default_kept(hosts):
    """The default export's name is asked for once in a connection."""
    plugin = hosts.load(EVERY)
    wire = plugin.wire()
    for _ in range(3):
        wire.info("", [nbd.INFO_NAME])
    wire.go("")
    assert plugin.names("default_export") == ["default_export"]


@case("plugin.life.readonly", req=["PY-LIFE-15", "PY-LIFE-17", "PY-CLI-01"])
@both
def test_readonly(hosts, api):
    """With -r nothing is asked that is about writing; the rest is."""
    plugin = hosts.load(EVERY, api=api, options=("-r",))
    wire = plugin.wire()
    wire.list()
    wire.go("")
    assert wire.export.flags & nbd.READ_ONLY
    calls = {call.name: call.args for call in plugin.calls()}
    assert not WRITING & set(calls), f"asked: {WRITING & set(calls)}"
    assert set(ASKS) - WRITING <= set(calls)
    assert calls["preconnect"] == calls["open"] == ["True"]
    assert calls["list_exports"] == calls["default_export"] == ["True", "False"]


@case("plugin.life.cannot-write", req=["PY-LIFE-16"])
@both
def test_cannot_write(hosts, api):
    """With can_write false likewise."""
    source = EVERY + "def can_write(h): return False\n"
    plugin = hosts.load(source, api=api)
    plugin.go("x")
    asked = set(plugin.names()) & set(ASKS)
    assert asked == set(ASKS) - WRITING | {"can_write"}, f"asked: {asked}"


@case("plugin.life.same-handle", req=["PY-LIFE-26", "PY-LIFE-27"])
@both
def test_same_handle(hosts, api):
    """The object of open goes to each callback; each connection has its own."""
    plugin = hosts.load(EVERY, api=api)
    for _ in range(2):
        client = plugin.client(name="x")
        client.pwrite(b"x", 0)
        client.flush()
        client.close()
    first, second = plugin.client(name="x"), plugin.client(name="x")
    first.flush()
    second.flush()
    handles = [call.args[0]["id"] for call in plugin.calls("flush")][-2:]
    assert handles[0] != handles[1], "two connections with one handle"
    mine: dict = {}
    for call in plugin.calls():
        if call.args and isinstance(call.args[0], dict):
            mine.setdefault(call.args[0]["id"], set()).add(call.name)
    assert all("get_size" in names for names in mine.values())


ENDS = ["disc", "gone", "garbage", "half-header"]


@case("plugin.life.close", req=["PY-LIFE-20", "PY-LIFE-21", "PY-LIFE-22"])
@pytest.mark.parametrize("model", [0, 1, 2, 3])
@pytest.mark.parametrize("how", ENDS)
def test_close(hosts, model, how):
    """However a connection ends, close is called once."""
    plugin = hosts.load(EVERY, model=model)
    wire = plugin.go("x")
    wire.write(b"x", 0)
    if how == "disc":
        wire.leave()
    elif how == "garbage":
        wire.conn.send(b"\xee" * 28, "garbage")
        wire.conn.expect_closed("bad magic")
    elif how == "half-header":
        wire.conn.send(b"\x25\x60\x95\x13\0", "half a header")
    wire.conn.close()
    plugin.settle()
    assert plugin.names("open", "close") == ["open", "close"]


HANDLE = """
import weakref
class Thing: pass
def open(readonly):
    thing = Thing()
    weakref.finalize(thing, note, "gone")
    return thing
def pwrite(h, buf, offset, *flags):
    if offset:
        raise ValueError
"""


@case("plugin.life.handle-dropped", req=["PY-LIFE-24"])
@both
def test_handle_dropped(hosts, api):
    """After close the handle's finaliser runs."""
    plugin = hosts.load(HANDLE, api=api)
    client = plugin.client()
    client.pwrite(b"x", 0)
    client.close()
    plugin.wait_calls("gone")
    assert plugin.names("close", "gone") == ["close", "gone"]


@case("plugin.life.handle-dropped-failing", req=["PY-LIFE-25"])
@both
@pytest.mark.parametrize("name", ["pwrite", "get_size", "can_write"])
def test_handle_dropped_failing(hosts, api, name):
    """The same when a callback failed."""
    source = HANDLE
    if name != "pwrite":
        source += f"def {name}(h): raise ValueError('no')\n"
    plugin = hosts.load(source, api=api)
    wire = plugin.wire()
    if name == "pwrite":
        wire.go("x")
        wire.expect_errno(wire.request(nbd.WRITE, 1, data=b"x"), nbd.EIO)
    else:
        wire.option(nbd.GO, go_payload("x"))
        wire.expect_error(nbd.GO)
    wire.leave()
    plugin.settle()
    plugin.wait_calls("gone")
