# SPDX-License-Identifier: BSD-3-Clause
"""INFO and GO: what they say about an export, and how they refuse one."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import MUST, SHOULD, Mode, case
from nbdspec.nbd import (
    ERR_INVALID,
    ERR_POLICY,
    ERR_TOO_BIG,
    ERR_UNKNOWN,
    ERR_UNSUP,
    GO,
    INFO,
    INFO_BLOCK_SIZE,
)
from nbdspec.payloads import go_payload
from nbdspec.verdict import MAY, NotApplicable

SECTION = "info-go"

BOTH = pytest.mark.parametrize("option", [INFO, GO], ids=nbd.option_name)
NAMED = Mode(exports=("alpha", "beta"))


@case(
    "go.unknown-export-keeps-sync",
    req=["OPT-GO-03", "OPT-GO-04", "HS-20"],
    mode=NAMED,
)
@BOTH
def test_unknown_export_keeps_sync(wire, option):
    """A refused export leaves the server able to parse the next option."""
    wire.option(option, go_payload("no such export", [INFO_BLOCK_SIZE]))
    found, last = wire.final(option)
    if last.type == nbd.ACK:
        raise NotApplicable("the server has an export for every name")
    if found:
        wire.finding(SHOULD, "REP_INFO ahead of the refusal", "OPT-INFO-15")
    assert last.type in (ERR_UNKNOWN, ERR_POLICY), str(last)
    wire.in_step()


@case("go.info-stays-in-haggling", req=["OPT-INFO-27", "OPT-INFO-14"])
def test_info_stays_in_haggling(wire):
    """INFO describes the export and leaves the client in the haggling phase."""
    wire.info(None, [INFO_BLOCK_SIZE])
    wire.in_step()


@case("go.same-as-info", req=["OPT-INFO-24"])
@pytest.mark.parametrize("infos", [[], [INFO_BLOCK_SIZE], [0, 1, 2, 3]], ids=str)
def test_same_as_info(wire, infos):
    """GO says what INFO said right before, twice asked."""
    first = wire.info(None, infos)
    second = wire.info(None, infos)
    assert first == second
    third = wire.go(None, infos)
    assert sorted(third.infos) == sorted(first.infos)
    assert (third.size, third.flags) == (first.size, first.flags)
    assert third.block_size == first.block_size
    wire.in_step()


@case("go.transmission-at-once", req=["OPT-GO-01", "OPT-GO-03"])
def test_transmission_at_once(wire):
    """Right behind the ACK of GO the server takes requests; no padding comes."""
    wire.option(GO, go_payload(wire.name, [INFO_BLOCK_SIZE]))
    wire.export = wire.expect_export(GO)
    wire.phase = "transmission"
    wire.in_step()


@case("go.unknown-info-ignored", req=["OPT-INFO-07"])
@BOTH
def test_unknown_info_ignored(wire, option):
    """Information that nobody knows is asked for in vain, not refused."""
    wire.option(option, go_payload(wire.name, [0x1234, INFO_BLOCK_SIZE, 0xFFFF]))
    wire.export = wire.expect_export(option)
    if option == GO:
        wire.phase = "transmission"
    wire.in_step()


@case("go.malformed", req=["OPT-INFO-03"], level=SHOULD)
@BOTH
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0",
        b"\0\0\0\0",
        b"\0\0\0\5abc\0\0",
        b"\xff\xff\xff\xffabc\0\0",
        b"\0\0\0\0\0\2\0\3",
        b"\0\0\0\0\xff\xff\0\3",
        b"\0\0\0\0\0\1\0\3\0",
    ],
    ids=[
        "empty",
        "two-bytes",
        "no-count",
        "name-too-long",
        "name-2^32-1",
        "count-too-big",
        "count-65535",
        "a-byte-too-much",
    ],
)
def test_malformed(wire, option, data):
    """Lengths that do not fit are refused, and the stream stays in step."""
    wire.option(option, data)
    wire.expect_error(option, ERR_INVALID, also={ERR_TOO_BIG: SHOULD, ERR_UNSUP: SHOULD})
    wire.in_step()


@case("go.long-name", req=["STR-03"])
@pytest.mark.parametrize("length", [4096, 4097, 65536])
def test_long_name(wire, length):
    """A name of 4096 bytes is looked up; a longer one is refused; both in step."""
    wire.option(GO, go_payload("x" * length))
    found, last = wire.final(GO)
    if last.type == nbd.ACK and length <= 4096:
        raise NotApplicable("the server has an export for every name")
    assert last.is_error, str(last)
    wire.in_step()


@case("go.default-export", req=["OPT-INFO-16"])
def test_default_export(wire):
    """An empty name means the default export; a server without one says so."""
    wire.option(INFO, go_payload("", [INFO_BLOCK_SIZE]))
    found, last = wire.final(INFO)
    if last.type == nbd.ACK:
        wire.parse_export(found)
    else:
        assert last.type in (ERR_UNKNOWN, ERR_POLICY), str(last)
        wire.finding(MAY, "there is no default export")
    wire.in_step()


@case("go.flags-make-sense", req=["TF-04", "TF-10", "TF-13", "TF-17"], level=MUST)
def test_flags_make_sense(wire):
    """HAS_FLAGS is set; what depends on something absent is not; no unknown bits."""
    flags = wire.info(None, [INFO_BLOCK_SIZE]).flags
    assert flags & nbd.HAS_FLAGS
    assert not flags & nbd.SEND_DF, "SEND_DF without structured replies"
    if not flags & nbd.SEND_WRITE_ZEROES:
        assert not flags & nbd.SEND_FAST_ZERO
    assert not flags & 0xF200, f"bits nobody agreed on: {flags:#x}"


@case("go.block-sizes-make-sense", req=["SIZE-13", "SIZE-14", "SIZE-17", "SIZE-21"])
def test_block_sizes_make_sense(wire):
    """Block sizes are powers of two in their order, and within their limits."""
    export = wire.info(None, [INFO_BLOCK_SIZE])
    if export.block_size is None:
        raise NotApplicable("the server sends no block sizes")
    minimum, preferred, maximum = export.block_size
    assert minimum and not minimum & (minimum - 1), f"minimum {minimum}"
    assert minimum <= 65536
    assert not preferred & (preferred - 1), f"preferred {preferred}"
    assert preferred >= max(minimum, 512)
    assert maximum >= preferred
