# SPDX-License-Identifier: BSD-3-Clause
"""Strings and integers on the wire, and what a prompt server owes to TCP."""

from __future__ import annotations

import statistics
import time

from nbdspec import nbd
from nbdspec.case import SHOULD, Mode, case
from nbdspec.nbd import ERR_BIT, GO, INFO, LIST, LIST_META_CONTEXT, SET_META_CONTEXT
from nbdspec.payloads import go_payload, meta_payload
from nbdspec.transmission import same

SECTION = "conventions"

#: a delayed acknowledgement that meets Nagle's algorithm takes 40 ms
STALL = 0.02


@case("strings.of-the-server", req=["STR-02", "STR-01", "STR-03", "STR-04", "ERRREP-02"],
      level=SHOULD)
def test_of_the_server(wire, lease):
    """Names, descriptions, contexts and error texts are short, valid UTF-8, and
    without NUL; a text that comes with an error is a courtesy."""
    # The client checks every string it takes; here they are made to come.
    for number, data in [
        (LIST, b""),
        (INFO, go_payload(wire.name, [0, 1, 2, 3])),
        (INFO, go_payload("no such export " + "x" * 4000)),
        (LIST_META_CONTEXT, meta_payload(wire.name)),
        (LIST_META_CONTEXT, meta_payload(wire.name, ["base:" + "y" * 4000])),
        (SET_META_CONTEXT, b"\xff\xff\xff\xff"),
        (GO, b"junk"),
        (0x5A5A, bytes(200)),
    ]:
        wire.option(number, data)
        for answer in sum(([*found, last] for found, last in [wire.final(number)]), []):
            text = answer.data if answer.type & ERR_BIT else b""
            wire.check_string(text, "error text")
            if number == LIST and not answer.final:
                wire.parse_server(answer)
            if number == LIST_META_CONTEXT and not answer.final:
                wire.parse_context(answer)
    wire.in_step()


@case("strings.bad-names", req=["STR-01", "STR-03", "STR-04", "OPT-INFO-03"],
      mode=Mode(exports=("alpha", "beta")))
def test_bad_names(wire):
    """A name with a NUL, with broken UTF-8 or of 4097 bytes is no export's."""
    for name in (b"alpha\0", b"\0", b"alpha\0junk", b"\xff\xfe", b"alph\xc3", b"a" * 4097):
        for number in (INFO, GO):
            wire.option(number, go_payload(name))
            wire.expect_error(number)
        for number in (LIST_META_CONTEXT, SET_META_CONTEXT):
            wire.option(number, meta_payload(name))
            last = wire.final(number)[1]
            if not last.is_error:
                wire.finding(SHOULD, f"{name[:20]!r}: contexts of no export", "OPT-META-32")
    wire.in_step()


@case("strings.bad-name-ends-export-name", req=["OPT-EXPORT-01", "STR-01", "STR-03"],
      mode=Mode(exports=("alpha", "beta")))
def test_bad_name_ends_export_name(dial):
    """EXPORT_NAME with a name that cannot be ends the session without a byte."""
    for name in (b"alpha\0", b"\xff\xfe", b"a" * 4097, b"a" * 65536):
        wire = dial()
        wire.option(nbd.EXPORT_NAME, name)
        wire.conn.expect_closed("there is no export of that name")


@case("tcp.no-nagle", req=["TCP-01"], level=SHOULD, mode=Mode(transport="tcp"))
def test_no_nagle(wire):
    """Over TCP no reply waits for an acknowledgement: none takes tens of ms."""
    wire.transmit()
    small = wire.export.minimum
    lengths = (small, -(-3000 // small) * small)
    taken = []
    for _ in range(50):
        start = time.monotonic()
        asked = [wire.request(nbd.READ, 0, length) for length in lengths]
        for cookie in asked:
            wire.expect_ok(cookie)
        taken.append(time.monotonic() - start)
    middle = statistics.median(taken)
    assert middle < STALL, f"two small READs take {middle * 1000:.0f} ms"


@case("tcp.same-as-unix", req=["COMPAT-02", "TX-WRITE-04"], mode=Mode(transport="tcp"),
      needs="writable stores")
def test_same_as_unix(wire):
    """Over TCP a session goes as it does over a Unix socket."""
    wire.transmit()
    data = bytes(range(256)) * 4096
    offset = wire.export.block
    wire.write(data, offset)
    same(wire.read(len(data), offset), data, offset)
    wire.disc()
