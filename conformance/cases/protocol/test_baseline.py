# SPDX-License-Identifier: BSD-3-Clause
"""The baseline that every server has, and what makes for the best interoperability."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import MAY, SHOULD, case
from nbdspec.nbd import (
    ACK,
    ERR_PLATFORM,
    ERR_POLICY,
    ERR_UNSUP,
    GO,
    INFO,
    INFO_BLOCK_SIZE,
    LIST,
    READ,
    STARTTLS,
    STRUCTURED_REPLY,
)
from nbdspec.payloads import go_payload

SECTION = "baseline"


@case("baseline.session", req=["COMPAT-02", "TX-01", "TX-WRITE-04", "TX-DISC-01"],
      needs="writable stores minimum<=4096")
def test_session(dial):
    """LIST, INFO, GO, WRITE, READ, DISC with nothing optional; then ABORT."""
    wire = dial()
    wire.option(LIST)
    wire.final(LIST)
    told = wire.info(None, [INFO_BLOCK_SIZE])
    assert wire.transmit().export.size == told.size
    wire.write(b"baseline" * 512, 4096)
    assert wire.read(4096, 4096) == b"baseline" * 512
    wire.disc()
    other = dial()
    other.option(nbd.ABORT)
    other.expect_reply(nbd.ABORT, ACK)
    other.conn.expect_closed("ABORT ends the session")


@case("baseline.best-interoperability", req=["COMPAT-06", "COMPAT-11", "COMPAT-12"],
      level=MAY)
def test_best_interoperability(dial, lease):
    """What should be there for the best interoperability: told, not judged, for a
    server's owner may have switched it off."""
    wire = dial()
    wire.option(STARTTLS)
    if wire.final(STARTTLS)[1].type == ERR_UNSUP:
        wire.finding(MAY, "there is no TLS", "COMPAT-06")
    wire.conn.close()
    asked = dial()
    if asked.info(None, [INFO_BLOCK_SIZE]).block_size is None:
        wire.finding(MAY, "there are no block sizes", "COMPAT-06")
    asked.leave()
    if lease.profile.has("default-sizes"):  # SIZE-09
        old = dial()
        old.export_name(zeroes=not old.handshake_flags & nbd.NO_ZEROES)
        old.in_step()
    if lease.profile.has("writable") and not lease.profile.has("flush"):
        wire.finding(SHOULD, "a writable export without FLUSH", "COMPAT-12")
    if lease.profile.has("writable") and not lease.profile.has("fua"):
        wire.finding(SHOULD, "a writable export without FUA", "COMPAT-12")


@case("baseline.export-name-beside-go", req=["COMPAT-11", "OPT-EXPORT-02"],
      level=SHOULD, needs="default-sizes")
def test_export_name_beside_go(dial):
    """EXPORT_NAME works after other options too, and says what GO says."""
    wire = dial()
    told = wire.info(None, [INFO_BLOCK_SIZE])
    for number in (LIST, 0x7777):
        wire.option(number)
        wire.final(number)
    old = wire.export_name(zeroes=not wire.handshake_flags & nbd.NO_ZEROES)
    wire.in_step()
    wire.leave()
    taken = dial().transmit().export
    assert (old.size, old.flags) == (taken.size, taken.flags)
    assert told.size == taken.size


@case("baseline.unsupported-options", req=["COMPAT-03", "COMPAT-04", "ERRREP-04"])
@pytest.mark.parametrize("length", [0, 1, 100, 65536])
def test_unsupported_options(wire, length):
    """Options that nobody has defined get ERR_UNSUP one after the other."""
    for number in (0, 4, 13, 0xFF, 0x1234, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        wire.option(number, bytes(length))
        wire.expect_error(number, ERR_UNSUP)
    wire.in_step()


@case("baseline.starttls-is-answered", req=["TLS-09", "OPT-STARTTLS-02"], needs="no-tls")
def test_starttls_is_answered(wire):
    """Without TLS STARTTLS is refused by a fitting error, and nothing changes."""
    wire.option(STARTTLS)
    last = wire.final(STARTTLS)[1]
    assert last.type in (ERR_UNSUP, ERR_POLICY, ERR_PLATFORM), str(last)
    wire.in_step()
    wire.transmit().in_step()


@case("baseline.extensions-wait", req=["OPT-SR-05", "TF-10", "OPT-XH-07", "OPT-XH-17"],
      level=SHOULD)
def test_extensions_wait(dial):
    """Before they are agreed on nothing of structured replies or extended headers
    is on offer, and GO does not demand them."""
    for number in (INFO, GO):
        wire = dial()
        wire.option(number, go_payload(wire.name, [INFO_BLOCK_SIZE]))
        export = wire.expect_export(number)
        early = nbd.SEND_DF | nbd.BLOCK_STATUS_PAYLOAD
        assert not export.flags & early, nbd.flag_names(export.flags & early)
        wire.phase = "transmission" if number == GO else wire.phase
        wire.in_step()
        wire.leave()


@case("baseline.info-twelve-bytes", req=["INFO-EXPORT-01", "OPT-INFO-14"],
      needs="default-sizes")
def test_info_twelve_bytes(dial):
    """INFO_EXPORT has twelve bytes, and says what EXPORT_NAME says."""
    wire = dial()
    told = wire.info(None, [INFO_BLOCK_SIZE])
    wire.leave()
    old = dial()
    taken = old.export_name(zeroes=not old.handshake_flags & nbd.NO_ZEROES)
    assert (told.size, told.flags) == (taken.size, taken.flags)
    assert old.wait(old.request(READ, 0, 512)).simple


@case("baseline.repeated-option", req=["HS-19"], level=MAY, needs="structured")
def test_repeated_option(wire):
    """STRUCTURED_REPLY a second time: an ACK or ERR_INVALID."""
    wire.negotiate_structured()
    wire.option(STRUCTURED_REPLY)
    last = wire.final(STRUCTURED_REPLY)[1]
    assert last.type in (ACK, nbd.ERR_INVALID), str(last)
    wire.transmit().in_step()
