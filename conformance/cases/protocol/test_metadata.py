# SPDX-License-Identifier: BSD-3-Clause
"""Names of contexts, and queries that ask for none, for many, or for nonsense."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import MAY, SHOULD, case
from nbdspec.nbd import (
    ACK,
    EINVAL,
    ERR_INVALID,
    ERR_TOO_BIG,
    ERR_UNSUP,
    LIST_META_CONTEXT,
    SET_META_CONTEXT,
)
from nbdspec.payloads import meta_payload
from nbdspec.verdict import NotApplicable

SECTION = "meta-context"

ALLOCATION = "base:allocation"
OFFERED = f"meta:{ALLOCATION}"
BOTH = pytest.mark.parametrize(
    "number", [LIST_META_CONTEXT, SET_META_CONTEXT], ids=nbd.option_name
)


@case("meta.names", needs=OFFERED,
      req=["META-06", "META-07", "META-08", "META-09", "META-10", "OPT-META-16"])
def test_names(wire):
    """Names are namespace:leaf, of a namespace that may be used."""
    wire.negotiate_structured()
    for name in wire.list_meta():
        namespace, colon, leaf = name.partition(":")
        assert colon and namespace and leaf, repr(name)
        assert namespace.isprintable() and not any(c.isspace() for c in namespace)
        assert len(name) <= 4096
        known = namespace in ("base", "nbd-server", "qemu")
        assert known or namespace.startswith("x-"), f"{namespace} is nobody's"
        if namespace.startswith("x-"):
            wire.finding(SHOULD, f"{name}: x- is for experiments", "META-10")


@case("meta.list-zero-queries", req=["OPT-META-11", "OPT-META-10"], level=SHOULD,
      needs="structured")
def test_list_zero_queries(wire):
    """A list of everything is never too big, and has what SET can select."""
    wire.negotiate_structured()
    if not wire.set_meta([ALLOCATION]):
        raise NotApplicable("the server has no base:allocation")
    wire.option(LIST_META_CONTEXT, meta_payload(wire.name))
    found, last = wire.final(LIST_META_CONTEXT)
    assert last.type == ACK, str(last)
    assert ALLOCATION in [wire.parse_context(answer)[1] for answer in found]


@case("meta.empty-leaf", req=["META-12", "META-BASE-01"], level=SHOULD, needs=OFFERED)
@pytest.mark.parametrize("query", ["base:", "qemu:", "x-foo:", "nbd-server:"])
def test_empty_leaf(wire, query):
    """A namespace alone selects nothing."""
    wire.negotiate_structured()
    assert wire.set_meta([query]) == {}
    wire.transmit()
    wire.expect_errno(wire.request(nbd.BLOCK_STATUS, 0, 512), EINVAL)
    wire.in_step()


@case("meta.odd-queries", req=["META-07", "OPT-META-05", "OPT-META-06", "META-06"],
      needs=OFFERED)
@BOTH
@pytest.mark.parametrize(
    "query",
    ["nocolon", ":", ":allocation", "", "base:allocation ", " base:allocation",
     "BASE:allocation", "base:allocation:x", "base::allocation", "base:alloc"],
)
def test_odd_queries(wire, number, query):
    """What is no name of a context matches none: ignored, or ERR_INVALID."""
    wire.negotiate_structured()
    wire.option(number, meta_payload(wire.name, [query]))
    found, last = wire.final(number)
    assert last.type in (ACK, ERR_INVALID), str(last)
    if last.type == ERR_INVALID:
        wire.finding(MAY, f"{query!r} is refused, not ignored", "OPT-META-05")
    assert not found, f"{query!r} brings {found[0]}"
    wire.in_step()


@case("meta.some-match", req=["OPT-META-06", "META-BASE-03", "OPT-META-25"],
      needs=OFFERED)
@BOTH
def test_some_match(wire, number):
    """Queries that match nothing do not spoil those that do."""
    wire.negotiate_structured()
    queries = ["x-nope:foo", "base:nope", ALLOCATION, "x-nope:", "qemu:nope"]
    wire.option(number, meta_payload(wire.name, queries))
    names = list(wire.expect_contexts(number).values())
    assert names == [ALLOCATION], str(names)
    wire.in_step()


@case("meta.list-unstructured", req=["OPT-META-02", "XH-15"], level=MAY, needs=OFFERED)
def test_list_unstructured(wire):
    """LIST_META_CONTEXT without structured replies: a list, or ERR_INVALID."""
    wire.option(LIST_META_CONTEXT, meta_payload(wire.name))
    found, last = wire.final(LIST_META_CONTEXT)
    assert last.type in (ACK, ERR_INVALID), str(last)
    wire.in_step()


@case("meta.ten-thousand-queries", req=["OPT-META-14", "OPT-META-23", "TERM-06"],
      needs=OFFERED, hostile=True)
@BOTH
def test_ten_thousand_queries(wire, number):
    """Ten thousand queries are answered or too big; the session goes on."""
    wire.negotiate_structured()
    wire.option(number, meta_payload(wire.name, [f"x-n:{i}" for i in range(10000)]))
    last = wire.final(number)[1]
    assert last.type in (ACK, ERR_TOO_BIG, ERR_INVALID), str(last)
    if last.type != ACK:
        wire.finding(MAY, f"{last}", "OPT-META-14")
    wire.in_step()


@case("meta.list-records", req=["OPT-META-12", "OPT-META-15", "OPT-META-25"],
      needs=OFFERED)
def test_list_records(wire):
    """Whatever LIST names SET can select, unless it is a namespace's record."""
    wire.negotiate_structured()
    for name in wire.list_meta():
        if name.endswith(":"):
            wire.finding(MAY, f"{name} stands for a namespace", "OPT-META-15")
            continue
        assert name in wire.set_meta([name]).values(), f"{name} cannot be selected"


@case("meta.without-structured", req=["META-05", "OPT-META-20"], level=SHOULD)
def test_without_structured(wire):
    """SET_META_CONTEXT without structured replies selects nothing."""
    wire.option(SET_META_CONTEXT, meta_payload(wire.name, [ALLOCATION]))
    last = wire.final(SET_META_CONTEXT)[1]
    assert last.type in (ERR_INVALID, ERR_UNSUP), str(last)
    wire.transmit()
    wire.expect_errno(wire.request(nbd.BLOCK_STATUS, 0, 512), EINVAL)
    wire.in_step()
