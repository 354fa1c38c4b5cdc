# SPDX-License-Identifier: BSD-3-Clause
"""WRITE: the data arrives, and a refused one leaves nothing in the stream."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import MUST, SHOULD, Mode, case
from nbdspec.nbd import EINVAL, EIO, ENOSPC, EPERM
from nbdspec.payloads import pattern, request
from nbdspec.transmission import same
from nbdspec.verdict import counts_as

SECTION = "write"

LENGTHS = [1, 512, 4096, 65536, 1 << 20, 32 << 20]


def requests_as_payload(length: int) -> bytes:
    """A payload that is made of valid requests: what is not skipped is obeyed."""
    one = request(nbd.READ, 0, 512, cookie=0xBAD)
    return (one * (length // len(one) + 1))[:length]


@case("write.read-back", req=["TX-WRITE-04", "SIZE-07"], needs="stores writable")
@pytest.mark.parametrize("length", LENGTHS[:-1])
def test_read_back(client, length):
    """What was written is read back, from one byte to a MiB; block-size.32-mib goes on."""
    if client.minimum > 1 and length % client.minimum:
        pytest.skip(f"the minimum block is {client.minimum}")
    if length > client.maximum:
        pytest.skip(f"the maximum payload is {client.maximum}")
    if client.minimum + length > client.size:
        pytest.skip(f"the export has {client.size} bytes")
    data = pattern(7, length)
    client.pwrite(data, client.minimum)
    same(client.pread(length, client.minimum), data, client.minimum)


@case("write.glued", req=["TX-12", "TX-WRITE-01"], needs="stores writable")
@pytest.mark.parametrize("length", [1, 512, 65536, 1 << 20])
def test_glued(wire, length):
    """A WRITE takes exactly its payload: the request right behind it is answered."""
    wire.transmit()
    if length % wire.export.minimum:
        pytest.skip(f"the minimum block is {wire.export.minimum}")
    data = pattern(3, length)
    first = wire.request(nbd.WRITE, 0, data=data)
    block = wire.export.block
    middle = wire.export.size // 2 // block * block
    second = wire.request(nbd.READ, middle, block)
    wire.expect_ok(first)
    wire.expect_ok(second)
    wire.expect_data(wire.request(nbd.READ, 0, length), data)


@case("write.refused-payload-skipped", req=["TX-12"], needs="writable")
@pytest.mark.parametrize("length", LENGTHS)
def test_refused_payload_skipped(wire, length):
    """The payload of a WRITE beyond the end is skipped, however long it is."""
    wire.transmit()
    if length > wire.export.maximum:
        pytest.skip(f"the maximum payload is {wire.export.maximum}")
    payload = requests_as_payload(length)
    cookie = wire.request(nbd.WRITE, wire.export.size, data=payload)
    wire.expect_errno(cookie, ENOSPC, also={EINVAL: MUST})
    wire.in_step()


@case(
    "write.readonly-refused",
    req=["TF-06", "ERR-04", "TX-12"],
    mode=Mode(readonly=True),
    needs="readonly",
)
@pytest.mark.parametrize("length", LENGTHS)
def test_readonly_refused(wire, length):
    """A read-only export refuses a WRITE, skips its payload and stays as it was."""
    wire.transmit()
    before = wire.read(512, 0)
    cookie = wire.request(nbd.WRITE, 0, data=requests_as_payload(length))
    wire.expect_errno(cookie, EPERM, also={EINVAL: SHOULD, EIO: SHOULD, ENOSPC: SHOULD})
    assert wire.read(512, 0) == before, "a refused write wrote"


@case(
    "write.backend-fails",
    req=["TX-WRITE-06", "TX-12"],
    mode=Mode(fail=("write",)),
    needs="writable",
)
@pytest.mark.parametrize("length", [1, 4096, 1 << 20])
def test_backend_fails(wire, length):
    """A WRITE that the back end fails gets its error, and the stream stays in step."""
    wire.transmit()
    cookie = wire.request(nbd.WRITE, 0, data=requests_as_payload(length))
    wire.expect_errno(cookie, EIO)
    wire.in_step()


@case("write.length-0", req=["TX-WRITE-03"], level=SHOULD, needs="writable")
def test_length_0(wire):
    """A WRITE of no bytes gets success, EINVAL or ENOSPC; the connection stays."""
    wire.transmit()
    with counts_as(SHOULD, "TX-WRITE-03"):
        cookie = wire.request(nbd.WRITE, 0, 0)
        wire.expect_errno(cookie, EINVAL, also={0: MUST, ENOSPC: MUST})
        wire.in_step()


@case("write.fua", req=["TX-FUA-02"], needs="stores writable fua")
def test_fua(client):
    """A WRITE with FUA succeeds where FUA was offered."""
    data = b"f" * client.block
    client.pwrite(data, 0, nbd.FUA)
    assert client.pread(len(data), 0) == data


@case("write.fua-not-offered", req=["TX-FUA-06"], level=SHOULD, needs="writable no-fua",
      mode=Mode(without=("fua",)))
def test_fua_not_offered(wire):
    """A WRITE with FUA is refused where FUA was not offered, its payload skipped."""
    wire.transmit()
    cookie = wire.request(nbd.WRITE, 0, data=b"f" * 512, flags=nbd.FUA)
    wire.expect_errno(cookie, EINVAL)
    wire.in_step()
