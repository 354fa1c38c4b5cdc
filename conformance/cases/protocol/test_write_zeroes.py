# SPDX-License-Identifier: BSD-3-Clause
"""WRITE_ZEROES with its flags."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import SHOULD, Mode, case
from nbdspec.client import Refused
from nbdspec.nbd import EINVAL, ENOTSUP, EOVERFLOW, FAST_ZERO, NO_HOLE, WRITE_ZEROES
from nbdspec.transmission import same
from nbdspec.verdict import Finding, counts_as

SECTION = "write-zeroes"
MIB = 1 << 20
ZEROES = "writable write-zeroes"
FLAGS = pytest.mark.parametrize("flags", [0, NO_HOLE], ids=["any", "no-hole"])


@case("zeroes.exact-range", req=["TX-ZERO-07", "TX-ZERO-11", "TX-ZERO-03"],
      needs=f"stores {ZEROES} size>=1M minimum<=1")
@pytest.mark.parametrize("length", [1, 511, 4096, 65536, 300001])
@pytest.mark.parametrize("offset", [1, 4096, 65535])
@FLAGS
def test_exact_range(client, offset, length, flags):
    """Exactly the range reads as zeroes; its neighbours keep what they had."""
    around = length + 200
    client.pwrite(b"x" * around, offset + 1)
    client.zero(length, offset + 101, flags)
    want = b"x" * 100 + bytes(length) + b"x" * 100
    assert client.pread(around, offset + 1) == want


@case("zeroes.large", req=["TX-ZERO-11"], mode=Mode(size=200 * MIB), quick=False,
      needs=f"stores {ZEROES} size>=200M minimum<=512")
@FLAGS
def test_large(client, flags):
    """130 MiB at once: first, middle and last blocks are zero, neighbours are not."""
    start, end = 4096, 4096 + 130 * MIB
    places = [start - 512, start, start + 64 * MIB, end - 512, end]
    for place in places:
        client.pwrite(b"x" * 512, place)
    client.zero(end - start, start, flags)
    want = [place in (start - 512, end) for place in places]
    assert [client.pread(512, place) != bytes(512) for place in places] == want


@case("zeroes.fua", req=["TX-FUA-02"], needs=f"{ZEROES} fua")
def test_fua(client):
    """FUA is taken."""
    client.zero(max(4096, client.minimum), 0, nbd.FUA)


@case("zeroes.fast", req=["TF-14", "TX-ZERO-04", "TX-ZERO-15", "TX-ZERO-16"],
      needs=f"{ZEROES} fast-zero")
@FLAGS
def test_fast(client, run, flags):
    """FAST_ZERO zeroes, or fails with ENOTSUP and best leaves all as it was."""
    client.pwrite(b"x" * 65536, 0)
    try:
        client.zero(65536, 0, FAST_ZERO | flags)
    except Refused as refused:
        if refused.error == EOVERFLOW:
            words = "EOVERFLOW came where ENOTSUP is the fitting error"
            run.findings.append(Finding(SHOULD, words, "TX-ZERO-15"))
        else:
            assert refused.error == ENOTSUP, nbd.error_name(refused.error)
        if client.pread(65536, 0) != b"x" * 65536:
            words = "refused, and yet the data changed"
            run.findings.append(Finding(SHOULD, words, "TX-ZERO-16"))
    else:
        same(client.pread(65536, 0), bytes(65536))


@case("zeroes.fast-not-offered", req=["TX-ZERO-19", "TX-ZERO-18", "TF-12"],
      level=SHOULD,
      needs=f"{ZEROES} no-fast-zero", mode=Mode(without=("fast-zero",)))
def test_fast_not_offered(wire):
    """FAST_ZERO where it was not offered is refused, and the server lives on."""
    wire.transmit()
    cookie = wire.request(WRITE_ZEROES, 0, 512, flags=FAST_ZERO)
    wire.expect_errno(cookie, EINVAL)
    wire.in_step()


@case("zeroes.backend-fails", req=["TX-ZERO-21", "TX-ZERO-14"],
      mode=Mode(fail=("zero", "write")), needs=ZEROES)
def test_backend_fails(wire):
    """A back end that fails makes an error, and never ENOTSUP without FAST_ZERO."""
    wire.transmit()
    reply = wire.wait(wire.request(WRITE_ZEROES, 0, 4096))
    assert reply.error and reply.error != ENOTSUP, str(reply)
    wire.in_step()


@case("zeroes.length-0", req=["TX-ZERO-06"], level=SHOULD, needs=ZEROES)
def test_length_0(wire):
    """A request of no bytes is answered, whatever the answer; the connection stays."""
    wire.transmit()
    with counts_as(SHOULD, "TX-ZERO-06"):
        wire.wait(wire.request(WRITE_ZEROES, 0, 0))
        wire.in_step()


@case("zeroes.readonly", req=["TX-ZERO-23", "TF-06"], level=SHOULD,
      mode=Mode(readonly=True), needs="readonly")
def test_readonly(wire):
    """A read-only export refuses it with EPERM."""
    wire.transmit()
    wire.expect_errno(wire.request(WRITE_ZEROES, 0, 512), nbd.EPERM)
    wire.in_step()
