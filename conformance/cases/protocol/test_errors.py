# SPDX-License-Identifier: BSD-3-Clause
"""Commands and flags that do not exist, or do not belong together."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import SHOULD, case
from nbdspec.nbd import EINVAL

SECTION = "errors"


@case("error.unknown-command", req=["ERR-07"], level=SHOULD)
@pytest.mark.parametrize("command", [8, 9, 255, 0x7FFF, 0xFFFF])
@pytest.mark.parametrize("length", [0, 512, 1 << 31])
def test_unknown_command(wire, command, length):
    """A command that nobody knows gets EINVAL; its length announces no payload."""
    wire.transmit()
    cookie = wire.request(command, 0, length)
    wire.expect_errno(cookie, EINVAL)
    wire.in_step()


@case("error.unknown-flag", req=["ERR-08"], level=SHOULD)
@pytest.mark.parametrize("bit", [6, 7, 14, 15])
@pytest.mark.parametrize("command", [nbd.READ, nbd.FLUSH], ids=nbd.command_name)
def test_unknown_flag(wire, lease, command, bit):
    """A command flag that nobody knows gets EINVAL."""
    if command == nbd.FLUSH and not lease.profile.has("flush"):
        pytest.skip("the server does not offer FLUSH")
    wire.transmit()
    length = 512 if command == nbd.READ else 0
    cookie = wire.request(command, 0, length, flags=1 << bit)
    wire.expect_errno(cookie, EINVAL)
    wire.in_step()


@case("error.write-with-unknown-flag", req=["ERR-08", "TX-12"], level=SHOULD)
@pytest.mark.parametrize("bit", [6, 15])
def test_write_with_unknown_flag(wire, bit):
    """A WRITE that is refused for its flags has its payload skipped."""
    wire.transmit()
    cookie = wire.request(nbd.WRITE, 0, data=bytes(4096), flags=1 << bit)
    wire.expect_errno(cookie, EINVAL, also={nbd.EPERM: SHOULD})
    wire.in_step()


@case("error.misplaced-flag", req=["ERR-09"], level=SHOULD)
@pytest.mark.parametrize("flag", [nbd.NO_HOLE, nbd.REQ_ONE, nbd.FAST_ZERO],
                         ids=nbd.command_flag_names)
def test_misplaced_flag(wire, flag):
    """A flag that belongs to another command gets EINVAL."""
    wire.transmit()
    wire.expect_errno(wire.request(nbd.READ, 0, 512, flags=flag), EINVAL)
    wire.in_step()


@case("error.wrong-magic", req=["TX-08"], hostile=True, needs="stores writable")
def test_wrong_magic(connect):
    """A request whose magic is wrong is not carried out."""
    wire = connect()
    wire.greet()
    wire.transmit()
    wire.write(b"a" * 512, 0)
    bad = wire.request(nbd.WRITE, 0, data=b"b" * 512, magic=0x25609514)
    wire.conn.shut()
    wire.conn.drain()
    wire.conn.close()
    del wire.pending[bad]
    other = connect()
    other.greet()
    other.transmit()
    assert other.read(512, 0) == b"a" * 512, "a request with a wrong magic wrote"
