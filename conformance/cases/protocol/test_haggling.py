# SPDX-License-Identifier: BSD-3-Clause
"""Haggling at length: many options, odd clients, information about exports."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import SHOULD, Mode, case
from nbdspec.nbd import ABORT, ACK, ERR_INVALID, ERR_POLICY, GO, INFO, LIST, STARTTLS
from nbdspec.payloads import go_payload, option
from nbdspec.verdict import MAY, Closed

SECTION = "haggling"
NAMED = Mode(exports=("alpha", "beta"))


@case("haggling.forty-options", req=["HS-15", "TERM-06"])
def test_forty_options(wire):
    """Forty options are nothing out of the ordinary; to end there is noted."""
    for count in range(40):
        wire.option(INFO, go_payload(wire.name))
        try:
            wire.final(INFO)
        except Closed:
            wire.finding(MAY, f"after {count} options the server hangs up", "TERM-11")
            return
    wire.transmit().in_step()


@case("haggling.pipelined", req=["HS-15", "HS-20", "COMPAT-04", "MAGIC-01"])
def test_pipelined(wire):
    """Options and requests that come in one piece are answered one after the other."""
    name = go_payload(wire.name, [nbd.INFO_BLOCK_SIZE])
    batch = option(nbd.STRUCTURED_REPLY, b"no") + option(99, b"data" * 100)
    batch += option(INFO, name) + option(GO, name)
    wire.conn.send(batch, "four options at once")
    wire.best_refused(nbd.STRUCTURED_REPLY, "OPT-SR-02")
    wire.expect_error(99)
    for number in (INFO, GO):
        wire.export = wire.expect_export(number)
    wire.phase = "transmission"
    wire.in_step()


@case("haggling.abort-with-data", req=["OPT-ABORT-01", "OPT-ABORT-03"], level=SHOULD)
def test_abort_with_data(wire):
    """Data that comes with ABORT is ignored."""
    wire.option(ABORT, b"data")
    wire.expect_reply(ABORT, ACK)
    wire.conn.expect_closed("ABORT ends the session")


@case("haggling.abort-after-errors", req=["OPT-ABORT-01", "OPT-ABORT-06", "TERM-10"])
def test_abort_after_errors(wire):
    """ABORT is acknowledged after whatever went wrong."""
    wire.option(INFO, b"")
    wire.best_refused(INFO, "OPT-INFO-03")
    wire.option(77)
    wire.expect_error(77)
    wire.option(ABORT)
    wire.expect_reply(ABORT, ACK)
    wire.conn.expect_closed("ABORT ends the session")


@case("haggling.plain-client", req=["HSF-04", "OPT-EXPORT-04", "HS-20"], level=SHOULD)
def test_plain_client(raw):
    """A client without fixed newstyle that sends an option is answered or dropped,
    and never misunderstood."""
    raw.greet(0)
    raw.option(LIST)
    raw.option(ABORT)
    try:
        raw.final(LIST)
        raw.final(ABORT)
    except Closed:
        raw.finding(MAY, "without fixed newstyle the first option ends the session")


@case("haggling.error-text", req=["STR-01", "STR-03", "ERRREP-01", "ERRREP-04"])
def test_error_text(wire):
    """Error replies have bit 31, and text that people can read, or none."""
    for number, data, row in (
        (INFO, b"\0" * 5, "OPT-INFO-03"),
        (LIST, b"x", "OPT-LIST-04"),
        (GO, b"", "OPT-INFO-03"),
    ):
        wire.option(78)
        wire.expect_error(78)
        wire.option(number, data)
        wire.best_refused(number, row)
    wire.in_step()


@case("haggling.starttls-without-tls", req=["TLS-09", "OPT-STARTTLS-02"],
      needs="no-tls")
def test_starttls_without_tls(wire):
    """A server without TLS says so, and goes on in the clear."""
    wire.option(STARTTLS)
    wire.expect_error(STARTTLS, ERR_POLICY,
                      also={nbd.ERR_UNSUP: MAY, nbd.ERR_PLATFORM: MAY})
    wire.in_step()


@case("haggling.never-tls-required", req=["TLS-10"], needs="no-tls")
@pytest.mark.parametrize("number", [LIST, INFO, GO, 8, 9, 10, 11, 99])
def test_never_tls_required(wire, number):
    """A server without TLS never asks for it."""
    wire.option(number, go_payload("no such export"))
    last = wire.final(number)[1]
    assert last.type != nbd.ERR_TLS_REQD, str(last)


@case("haggling.magic-wrong", req=["HS-14"], hostile=True)
def test_magic_wrong(wire):
    """What does not begin with IHAVEOPT is no option."""
    wire.option(LIST, magic=nbd.IHAVEOPT ^ 1)
    wire.conn.expect_closed("the stream is out of step")


@case("haggling.length-absurd", req=["HS-20"], hostile=True)
@pytest.mark.parametrize("number", [LIST, GO, 9, 99])
def test_length_absurd(connect, number):
    """An option of nearly 4 GiB does not stop the server from serving others."""
    wire = connect()
    wire.greet()
    wire.option(number, b"x" * 1000, length=0xFFFFFFFF)
    other = connect()
    other.greet()
    other.in_step()


@case("info.listed-can-be-opened", req=["OPT-LIST-06", "OPT-LIST-07"], mode=NAMED,
      needs="list")
def test_listed_can_be_opened(wire):
    """Each name that is listed can be asked about, and the last one opened."""
    names = [name for name, _ in wire.list()]
    for name in names[:32]:
        wire.info(name, [nbd.INFO_BLOCK_SIZE])
    if names:
        wire.transmit(names[-1])
        wire.in_step()


@case("info.name", req=["INFO-NAME-01"], mode=NAMED)
def test_info_name(wire):
    """The canonical name of a named export is its name, where it is told."""
    export = wire.info("beta", [nbd.INFO_NAME, nbd.INFO_BLOCK_SIZE])
    assert export.name in (None, "beta"), export.name


@case("info.description", req=["INFO-DESC-01"], needs="list")
def test_info_description(wire):
    """A description is the same as in the list."""
    export = wire.info(None, [nbd.INFO_DESCRIPTION, nbd.INFO_BLOCK_SIZE])
    listed = dict(wire.list())
    if export.description is not None and listed.get(wire.name):
        assert export.description == listed[wire.name]


@case("info.block-size", req=["INFO-BS-01", "INFO-BS-02", "SIZE-04"],
      needs="block-size")
def test_info_block_size(wire):
    """Block sizes are told to those who ask, by INFO as by GO."""
    sizes = wire.info(None, [nbd.INFO_BLOCK_SIZE]).block_size
    assert sizes and wire.go(None, [nbd.INFO_BLOCK_SIZE]).block_size == sizes


@case("info.only-asked", req=["OPT-INFO-12", "OPT-INFO-14", "INFO-EXPORT-01"])
def test_only_asked(wire):
    """Without requests INFO_EXPORT comes; the client need not know what else comes."""
    assert nbd.INFO_EXPORT in wire.info().infos


@case("info.each-once", req=["INFO-01"], level=SHOULD)
def test_each_once(wire):
    """What is asked for many times is told once."""
    wire.info(None, [0, 1, 2, 3] * 50)
    wire.in_step()


@case("info.export-changes", req=["OPT-GO-04", "OPT-INFO-24"], mode=NAMED)
def test_export_changes(wire):
    """INFO about one export leaves no trace in GO of another."""
    asked = [nbd.INFO_NAME, nbd.INFO_BLOCK_SIZE]
    wire.info("alpha", asked)
    wire.option(INFO, go_payload("no such export", asked))
    wire.expect_error(INFO, nbd.ERR_UNKNOWN)
    assert wire.go("beta", asked).name in (None, "beta")
    wire.in_step()


@case("info.name-with-nul", req=["STR-01"], hostile=True)
@pytest.mark.parametrize("number", [INFO, GO], ids=["info", "go"])
def test_name_with_nul(wire, number):
    """A NUL byte in a name is never part of an export's name."""
    wire.option(number, go_payload("nul\0"))
    wire.expect_error(number, ERR_INVALID, also={nbd.ERR_UNKNOWN: MAY})
    wire.in_step()
