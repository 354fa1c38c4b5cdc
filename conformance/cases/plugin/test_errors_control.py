# SPDX-License-Identifier: BSD-3-Clause
"""Exceptions in callbacks that carry no data: what is refused, and what goes on."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.nbd import ERR_PLATFORM, ERR_UNKNOWN
from nbdspec.payloads import go_payload
from nbdspec.sources import WITH_EXTENTS
from nbdspec.verdict import Closed

SECTION = "plugin.errors"

both = pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])


@case("plugin.errors.preconnect", req=["PY-ERR-18"])
@both
def test_preconnect(hosts, api):
    """preconnect that raises: the connection is closed before a byte."""
    plugin = hosts.load("def preconnect(readonly): raise RuntimeError('no')", api=api)
    plugin.connect().conn.expect_closed("preconnect raised")
    plugin.exec("del preconnect")
    plugin.go()


@case("plugin.errors.list-exports", req=["PY-ERR-19"])
@both
def test_list_exports(hosts, api):
    """list_exports that raises: ERR_PLATFORM, and the connection goes on."""
    wire = hosts.load("def list_exports(r, t): 1 / 0", api=api).wire()
    wire.option(nbd.LIST)
    wire.expect_error(nbd.LIST, ERR_PLATFORM)
    wire.go("x")


@case("plugin.errors.default-export", req=["PY-ERR-20"])
@both
def test_default_export(hosts, api):
    """default_export that raises refuses "" alone."""
    wire = hosts.load("def default_export(r, t): 1 / 0", api=api).wire()
    for option in (nbd.INFO, nbd.GO):
        wire.option(option, go_payload(""))
        wire.expect_error(option, ERR_UNKNOWN)
    wire.go("x")


ASKS = (
    "open get_size can_write can_zero can_fast_zero can_trim can_fua can_flush "
    "is_rotational can_multi_conn can_cache can_extents"
).split()


@case("plugin.errors.asks", req=["PY-ERR-21", "PY-LIFE-18", "PY-LIFE-19"])
@both
@pytest.mark.parametrize("name", ASKS)
def test_asks(hosts, api, name):
    """open, get_size or can_... that raises: ERR_UNKNOWN, then all is as before."""
    good = {"open": "Handle()", "get_size": "SIZE", "can_fua": "1", "can_cache": "2"}
    source = f"""
bad = True
def {name}(x):
    if bad:
        raise RuntimeError("no")
    return {good.get(name, True)}
"""
    plugin = hosts.load(WITH_EXTENTS + source, api=api)
    wire = plugin.wire()
    for option in (nbd.INFO, nbd.GO):
        wire.option(option, go_payload("x"))
        wire.expect_error(option, ERR_UNKNOWN)
    plugin.exec("bad = False")
    wire.go("x")
    closes = len(plugin.names("close"))
    assert closes == (0 if name == "open" else 2), f"{closes} calls of close"
    plugin.wait_log(name)


@case("plugin.errors.export-name", req=["PY-ERR-22", "PY-LIFE-18", "PY-LIFE-19"])
@both
@pytest.mark.parametrize("name", ["open", "get_size", "can_write"])
def test_export_name(hosts, api, name):
    """By EXPORT_NAME: the connection is closed; the host lives."""
    plugin = hosts.load(f"def {name}(x): raise RuntimeError('no')", api=api)
    wire = plugin.wire()
    wire.option(nbd.EXPORT_NAME, b"x")
    wire.conn.expect_closed(f"{name} raised")
    plugin.settle()
    assert len(plugin.names("close")) == (0 if name == "open" else 1)
    plugin.wire().in_step()


@case("plugin.errors.block-size", req=["PY-ERR-23"])
def test_block_size(hosts):
    """block_size that raises: GO does not succeed; the host lives."""
    plugin = hosts.load("def block_size(h): raise RuntimeError('no')")
    wire = plugin.wire()
    wire.option(nbd.GO, go_payload("x", [nbd.INFO_BLOCK_SIZE]))
    try:
        assert wire.final(nbd.GO)[1].is_error
    except Closed:
        wire.conn.close()
    plugin.go("x")


@case("plugin.errors.description", req=["PY-ERR-24"])
def test_description(hosts):
    """export_description that raises: left out, and logged."""
    plugin = hosts.load("def export_description(h): raise RuntimeError('no words')")
    export = plugin.wire().go("x", [nbd.INFO_DESCRIPTION])
    assert export.description is None
    plugin.wait_log("no words")
