# SPDX-License-Identifier: BSD-3-Clause
"""EXPORT_NAME: the one option without a reply header."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import Mode, case
from nbdspec.payloads import go_payload, text
from nbdspec.verdict import NotApplicable

SECTION = "export-name"


@case("export-name.no-zeroes", req=["OPT-EXPORT-02", "HSF-02", "OPT-EXPORT-03"],
      needs="default-sizes")
def test_no_zeroes(raw):
    """With NO_ZEROES agreed ten bytes come, and then replies."""
    if not raw.greeting() & nbd.NO_ZEROES:
        raise NotApplicable("the server does not offer NO_ZEROES")
    raw.client_flags(nbd.FIXED_NEWSTYLE | nbd.NO_ZEROES)
    raw.export_name(zeroes=False)
    raw.in_step()


@case("export-name.zeroes", req=["OPT-EXPORT-02", "HSF-06", "HSF-04"],
      needs="default-sizes")
@pytest.mark.parametrize("flags", [0, nbd.FIXED_NEWSTYLE], ids=["plain", "fixed"])
def test_zeroes(raw, flags):
    """Without NO_ZEROES the reply is padded by exactly 124 zero bytes."""
    raw.greet(flags)
    raw.export_name(zeroes=True)
    raw.in_step()


@case(
    "export-name.unknown-closes",
    req=["OPT-EXPORT-01", "TERM-05"],
    mode=Mode(exports=("alpha", "beta")),
)
def test_unknown_closes(dial):
    """For an unknown export there is no reply: the server closes."""
    asked = dial()
    asked.option(nbd.INFO, go_payload("no such export"))
    if asked.final(nbd.INFO)[1].type == nbd.ACK:
        raise NotApplicable("the server has an export for every name")
    asked.leave()
    raw = dial()
    raw.option(nbd.EXPORT_NAME, text("no such export"))
    raw.conn.expect("end of stream: the export does not exist")
    rest = raw.conn.drain(all=False)
    assert not rest, f"{len(rest)} bytes in place of the end: {rest.hex(' ')}"
