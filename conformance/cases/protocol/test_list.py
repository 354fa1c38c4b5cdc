# SPDX-License-Identifier: BSD-3-Clause
"""LIST: what it names can be had, and what can be had it names."""

from __future__ import annotations

import unicodedata

from nbdspec import nbd
from nbdspec.case import SHOULD, Mode, case
from nbdspec.nbd import INFO, INFO_BLOCK_SIZE, INFO_DESCRIPTION, LIST
from nbdspec.payloads import go_payload
from nbdspec.verdict import Breach

SECTION = "list"

MANY = Mode(exports=("alpha", "beta", "gamma"))


@case("list.names-all", req=["OPT-LIST-01", "OPT-LIST-05"], mode=MANY, needs="list")
def test_names_all(wire):
    """Each export is named, once."""
    names = [name for name, _ in wire.list()]
    assert sorted(names) == sorted(MANY.exports), f"LIST names {names}"
    wire.in_step()


@case("list.names-can-be-had", req=["OPT-LIST-06", "OPT-GO-04"], mode=MANY,
      needs="list default-sizes")
def test_names_can_be_had(dial):
    """INFO, GO and EXPORT_NAME take every name that LIST gives."""
    wire = dial()
    names = [name for name, _ in wire.list()]
    wire.leave()
    assert names, "LIST names no export"
    for name in names:
        wire = dial()
        told = wire.info(name, [INFO_BLOCK_SIZE])
        taken = wire.transmit(name).export
        assert (told.size, told.flags) == (taken.size, taken.flags)
        wire.in_step()
        wire.leave()
        old = dial()
        zeroes = not old.handshake_flags & nbd.NO_ZEROES
        assert old.export_name(name, zeroes=zeroes).size == taken.size
        old.in_step()
        old.leave()


@case("list.description-is-text", req=["OPT-LIST-07", "INFO-DESC-01", "STR-04"],
      needs="list")
def test_description_is_text(wire):
    """What follows a name in LIST is text, and INFO_DESCRIPTION says the same."""
    for name, description in wire.list():
        odd = [c for c in description if unicodedata.category(c) == "Cc"]
        assert not set(odd) - set("\t\n\r"), repr(description)
        told = wire.info(name, [INFO_DESCRIPTION, INFO_BLOCK_SIZE]).description
        if told is not None:
            assert told == description, f"{told!r} in INFO, {description!r} in LIST"


@case("list.twice", req=["OPT-LIST-01", "TLS-06"], mode=MANY, needs="list")
def test_twice(wire):
    """LIST can be asked for again and says the same."""
    first = wire.list()
    wire.info(MANY.exports[1], [INFO_BLOCK_SIZE])
    assert wire.list() == first


@case("list.data-of-any-length", req=["OPT-LIST-04", "HS-20"], level=SHOULD, needs="list")
def test_data_of_any_length(wire):
    """LIST with data is refused whatever its length, and the next one answered."""
    for length in (1, 7, 1000, 70000):
        wire.option(LIST, bytes(length))
        wire.expect_error(LIST, nbd.ERR_INVALID, also={nbd.ERR_TOO_BIG: SHOULD})
        wire.list()


@case("list.no-info-ahead-of-unknown", req=["OPT-INFO-15"], level=SHOULD, mode=MANY)
def test_no_info_ahead_of_unknown(wire):
    """Nothing is told about an export that does not exist."""
    for infos in ([], [0], [0, 1, 2, 3]):
        wire.option(INFO, go_payload("delta", infos))
        found, last = wire.final(INFO)
        if not last.is_error:
            raise Breach("ERR_UNKNOWN for an export LIST does not name", str(last))
        assert not found, f"{found[0]} ahead of {last}"
