# SPDX-License-Identifier: BSD-3-Clause
"""LIST_META_CONTEXT and SET_META_CONTEXT, and what base: is about."""

from __future__ import annotations

import struct

import pytest

from nbdspec.case import MUST, SHOULD, Mode, case
from nbdspec.nbd import (
    ACK,
    BLOCK_STATUS,
    EINVAL,
    ERR_INVALID,
    ERR_TOO_BIG,
    ERR_UNKNOWN,
    LIST_META_CONTEXT,
    REP_META_CONTEXT,
    SET_META_CONTEXT,
)
from nbdspec.payloads import meta_payload, string
from nbdspec.verdict import MAY

SECTION = "meta-context"
ALLOCATION = "base:allocation"
HAS = f"meta:{ALLOCATION}"
NAMED = Mode(exports=("alpha", "beta"))
NAMES = ["META-06", "META-07", "META-08"]
BOTH = pytest.mark.parametrize(
    "number", [LIST_META_CONTEXT, SET_META_CONTEXT], ids=["list", "set"]
)


@pytest.fixture
def haggling(wire):
    """Haggling, with structured replies agreed on."""
    wire.negotiate_structured()
    return wire


@case("meta.list-all", needs=HAS,
      req=["OPT-META-08", "OPT-META-10", "OPT-META-16", *NAMES])
def test_list_all(haggling):
    """A list without queries has every context of the export, by proper names."""
    found = haggling.list_meta()
    assert ALLOCATION in found
    for name in found:
        space = name.partition(":")[0]
        assert space.isprintable() and not set(space) & set(" \t"), repr(name)


@case("meta.namespaces", req=["META-09"], needs=HAS)
def test_namespaces(haggling):
    """Contexts are in namespaces that exist: base, nbd-server, x-..., qemu."""
    for name in haggling.list_meta():
        space = name.partition(":")[0]
        known = space in ("base", "nbd-server", "qemu") or space.startswith("x-")
        assert known, name
    haggling.in_step()


@case("meta.list-wildcard", req=["META-BASE-02", "OPT-META-12"], needs=HAS)
def test_list_wildcard(haggling):
    """The query "base:" lists what that namespace has, and nothing else."""
    found = haggling.list_meta(["base:"])
    assert ALLOCATION in found
    assert all(name.startswith("base:") for name in found), found


@case("meta.list-one", req=["OPT-META-12"], needs=HAS)
def test_list_one(haggling):
    """A query by full name lists that context."""
    assert haggling.list_meta([ALLOCATION]) == [ALLOCATION]


@case("meta.list-id-0", req=["OPT-META-17"], level=SHOULD, needs=HAS)
def test_list_id_0(haggling):
    """A list gives no ids away: they are 0."""
    haggling.option(LIST_META_CONTEXT, meta_payload(haggling.name))
    found, _ = haggling.final(LIST_META_CONTEXT)
    assert {haggling.parse_context(answer)[0] for answer in found} == {0}


@case("meta.nothing-matches", req=["OPT-META-06", "OPT-META-07", "META-BASE-03"],
      needs=HAS)
@pytest.mark.parametrize("query", ["x-none:such", "base:no-such-leaf", "qemu:x"])
@BOTH
def test_nothing_matches(haggling, number, query):
    """A namespace or leaf that nobody knows brings an ACK and nothing else."""
    haggling.option(number, meta_payload(haggling.name, [query]))
    haggling.expect_reply(number, ACK)
    haggling.in_step()


@case("meta.set-answers-with-id", req=["OPT-META-24", "OPT-META-31"], needs=HAS)
def test_set_answers_with_id(haggling):
    """What SET selects comes back with its name, among queries that select nothing."""
    queries = ["x-none:such", ALLOCATION, "base:other"]
    assert list(haggling.set_meta(queries).values()) == [ALLOCATION]


@case("meta.set-twice-the-same", req=["OPT-META-24"], needs=HAS)
def test_set_twice_the_same(haggling):
    """A context that is asked for twice is selected once, or has two ids."""
    haggling.set_meta([ALLOCATION, ALLOCATION])
    haggling.transmit()
    haggling.block_status(haggling.export.block, 0)


@case("meta.set-wildcard-ignored", req=["META-BASE-01"], needs=HAS)
def test_set_wildcard_ignored(haggling):
    """The wildcard "base:" selects nothing."""
    assert haggling.set_meta(["base:"]) == {}


@case("meta.set-nothing", req=["OPT-META-22", "OPT-META-30", "META-03"], needs=HAS)
def test_set_nothing(haggling):
    """SET without queries succeeds, selects nothing, and drops what was selected."""
    haggling.set_meta([ALLOCATION])
    assert haggling.set_meta([]) == {}
    haggling.transmit()
    cookie = haggling.request(BLOCK_STATUS, 0, haggling.export.block)
    haggling.expect_refused(cookie, EINVAL, row="META-03")


@case("meta.failed-set-drops", req=["OPT-META-28"], needs=HAS)
def test_failed_set_drops(haggling):
    """A SET that is refused drops the contexts that were selected before."""
    haggling.set_meta([ALLOCATION])
    haggling.option(SET_META_CONTEXT, meta_payload(haggling.name, [ALLOCATION])[:-1])
    haggling.expect_error(SET_META_CONTEXT)
    haggling.transmit()
    cookie = haggling.request(BLOCK_STATUS, 0, haggling.export.block)
    haggling.expect_refused(cookie, EINVAL, row="META-03")


@case("meta.bound-to-export", req=["OPT-META-29"], level=SHOULD, needs=HAS, mode=NAMED)
def test_bound_to_export(haggling):
    """Contexts that were selected for one export do not count for another."""
    haggling.set_meta([ALLOCATION], "alpha")
    haggling.transmit("beta")
    haggling.expect_errno(haggling.request(BLOCK_STATUS, 0, 512), EINVAL)
    haggling.in_step()


@case("meta.same-export-by-name", req=["META-02"], needs=HAS, mode=NAMED)
def test_same_export_by_name(haggling):
    """Contexts of the export that GO names are there in transmission."""
    haggling.set_meta([ALLOCATION], "beta")
    haggling.transmit("beta")
    assert haggling.block_status(haggling.export.block, 0)[ALLOCATION]


@case("meta.unknown-export", req=["OPT-META-32"], level=SHOULD, needs=HAS, mode=NAMED)
@BOTH
def test_unknown_export(haggling, number):
    """Contexts of an export that does not exist: an error, in step."""
    haggling.option(number, meta_payload("no such export", [ALLOCATION]))
    haggling.expect_error(number, ERR_UNKNOWN)
    haggling.in_step()
    haggling.transmit("alpha")


def _malformed() -> dict[str, bytes]:
    good = meta_payload("", [ALLOCATION])
    return {
        "empty": b"",
        "name-cut": string(b"name")[:-1],
        "name-absurd": struct.pack(">I", 0xFFFFFFFF) + b"x",
        "no-count": string(b""),
        "count-cut": good[:6],
        "query-missing": meta_payload("", [ALLOCATION, ALLOCATION])[: len(good)],
        "query-cut": good[:-1],
        "query-absurd": string(b"") + struct.pack(">II", 1, 0xFFFFFFF0) + b"base:x",
        "count-absurd": string(b"") + struct.pack(">I", 0xFFFFFFFF),
    }


@case("meta.malformed", req=["OPT-META-04"], needs=HAS, hostile=True)
@pytest.mark.parametrize("data", _malformed().values(), ids=_malformed())
@BOTH
def test_malformed(haggling, number, data):
    """Lengths that do not fit the option: ERR_INVALID, and the stream is in step."""
    haggling.option(number, data)
    haggling.expect_error(number, ERR_INVALID)
    haggling.in_step()


@case("meta.left-over-bytes", req=["OPT-META-04"], needs=HAS)
@BOTH
def test_left_over_bytes(haggling, number):
    """Bytes behind the last query make the option malformed; taking it is noted."""
    haggling.option(number, meta_payload(haggling.name, [ALLOCATION]) + b"x")
    last = haggling.final(number)[1]
    if last.type == ACK:
        haggling.finding(MAY, "bytes behind the last query are not looked at")
    else:
        assert last.type == ERR_INVALID, str(last)
    haggling.in_step()


@case("meta.many-queries", req=["OPT-META-04", "OPT-META-24"], needs=HAS)
@pytest.mark.parametrize("count", [2, 100, 20000])
def test_many_queries(haggling, count):
    """Many queries are answered, or refused as too many."""
    queries = [f"x-none:{i}" for i in range(count - 1)] + [ALLOCATION]
    haggling.option(SET_META_CONTEXT, meta_payload(haggling.name, queries))
    found, last = haggling.final(SET_META_CONTEXT)
    assert last.type in (ACK, ERR_TOO_BIG, ERR_INVALID), str(last)
    if last.type == ACK:
        assert [answer.type for answer in found] == [REP_META_CONTEXT]
    haggling.in_step()


@case("meta.bad-strings", req=["STR-01", "STR-03", "STR-04"], needs=HAS, hostile=True)
@pytest.mark.parametrize(
    "query",
    [b"base:allo\0cation", b"base:" + b"x" * 4092, b"x-\xff:leaf"],
    ids=["nul", "long", "not-utf8"],
)
def test_bad_strings(haggling, query):
    """What is no string of the protocol selects nothing, and is best refused."""
    haggling.option(SET_META_CONTEXT, meta_payload(haggling.name, [query]))
    found, last = haggling.final(SET_META_CONTEXT)
    assert not found, "a context was selected"
    if last.type == ACK:
        haggling.finding(MAY, "a string that breaks the rules is passed over")
    haggling.in_step()


@case("meta.set-after-set", req=["OPT-META-28", "META-02"], needs=HAS)
def test_set_after_set(haggling):
    """The last SET counts."""
    haggling.set_meta([])
    haggling.set_meta([ALLOCATION])
    haggling.transmit()
    assert list(haggling.block_status(haggling.export.block, 0)) == [ALLOCATION]


@case("meta.list-keeps-selection", req=["OPT-META-28"], level=MUST, needs=HAS)
def test_list_keeps_selection(haggling):
    """LIST between SET and GO changes nothing."""
    haggling.set_meta([ALLOCATION])
    haggling.list_meta()
    haggling.transmit()
    assert haggling.block_status(haggling.export.block, 0)[ALLOCATION]
