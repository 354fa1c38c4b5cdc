# SPDX-License-Identifier: BSD-3-Clause
"""Commands and flags that do not exist, or do not belong together."""

from __future__ import annotations

import errno

import pytest

from nbdspec import nbd
from nbdspec.case import SHOULD, Mode, case
from nbdspec.fixtures import both_kinds_of_reply
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


@case("error.write-with-unknown-flag", req=["ERR-08", "TX-12"], level=SHOULD,
      needs="writable")
@pytest.mark.parametrize("bit", [6, 15])
def test_write_with_unknown_flag(wire, bit):
    """A WRITE that is refused for its flags has its payload skipped."""
    wire.transmit()
    cookie = wire.request(nbd.WRITE, 0, data=bytes(4096), flags=1 << bit)
    wire.expect_errno(cookie, EINVAL)
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
    block = wire.export.block
    wire.write(b"a" * block, 0)
    bad = wire.request(nbd.WRITE, 0, data=b"b" * block, magic=0x25609514)
    wire.conn.shut()
    wire.conn.drain()
    wire.conn.close()
    del wire.pending[bad]
    other = connect()
    other.greet()
    other.transmit()
    assert other.read(block, 0) == b"a" * block, "a request with a wrong magic wrote"


ERRNOS = Mode(size=1 << 20, errnos=True)
WRITERS = [nbd.WRITE, nbd.TRIM, nbd.WRITE_ZEROES]
#: machine's error numbers that have a number of their own on the wire
MAPPED = {
    errno.EPERM: nbd.EPERM,
    errno.EROFS: nbd.EPERM,
    errno.EIO: nbd.EIO,
    errno.ENOMEM: nbd.ENOMEM,
    errno.EINVAL: nbd.EINVAL,
    errno.ENOSPC: nbd.ENOSPC,
    errno.EDQUOT: nbd.ENOSPC,
    errno.EFBIG: nbd.ENOSPC,
    errno.ESHUTDOWN: nbd.ESHUTDOWN,
}


@case("error.only-known-numbers", req=["ERR-12", "ERR-05", "ERR-06"], mode=ERRNOS,
      needs="writable")
@pytest.mark.parametrize(
    "command", [nbd.READ, nbd.WRITE, nbd.WRITE_ZEROES, nbd.TRIM], ids=nbd.command_name
)
@both_kinds_of_reply
def test_only_known_numbers(wire, command, structured):
    """Whatever error a back end has, one of the protocol's eight crosses the wire;
    EOVERFLOW and ENOTSUP only where they have a meaning."""
    wire.transmit(structured=structured)
    for number in range(1, 134):
        data = b"e" * 512 if command == nbd.WRITE else b""
        reply = wire.wait(wire.request(command, 4096 * number, 512, data=data))
        emulated = command == nbd.WRITE_ZEROES and number == errno.EOPNOTSUPP
        assert reply.error or emulated, f"success where errno {number} was the answer"
        if reply.error == nbd.EOVERFLOW:
            wire.finding(SHOULD, f"EOVERFLOW for {reply.request}", "ERR-05")
        if reply.error == nbd.ENOTSUP:
            wire.finding(SHOULD, f"ENOTSUP for {reply.request}", "ERR-06")


@case("error.mapped", req=["ERR-02", "ERR-12"], level=SHOULD, mode=ERRNOS,
      needs="writable")
def test_mapped(wire):
    """A full disk is ENOSPC by whatever name, and each error keeps its meaning."""
    wire.transmit()
    for number, wanted in MAPPED.items():
        cookie = wire.request(nbd.WRITE, 4096 * number, data=b"m" * 512)
        wire.expect_errno(cookie, wanted, row="ERR-02")


@case("error.enotsup-is-for-fast-zero", req=["ERR-06", "ERR-07"], level=SHOULD,
      needs="size>=1M")
def test_enotsup_is_for_fast_zero(wire):
    """What a server does not have is EINVAL, never ENOTSUP."""
    wire.transmit()
    for command in (nbd.CACHE, nbd.BLOCK_STATUS, nbd.RESIZE, 42, 0xFFFF):
        reply = wire.wait(wire.request(command, 0, 4096))
        assert reply.error != nbd.ENOTSUP, str(reply)
    wire.in_step()


@case("error.every-flag-on-every-command", req=["ERR-08", "ERR-09", "TX-12", "ERR-12"],
      level=SHOULD)
@both_kinds_of_reply
def test_every_flag_on_every_command(wire, structured):
    """Each of the sixteen flags on each command that writes nothing: EINVAL unless
    they belong together, and the stream stays in step."""
    commands = [c for c in (*nbd.COMMANDS, 9) if c != nbd.DISC and c not in WRITERS]
    every_flag(wire, structured, commands)


@case("error.every-flag-on-every-write", req=["ERR-08", "ERR-09", "TX-12", "ERR-12"],
      level=SHOULD, needs="writable")
@both_kinds_of_reply
def test_every_flag_on_every_write(wire, structured):
    """The same for the commands that write."""
    every_flag(wire, structured, WRITERS)


def every_flag(wire, structured: bool, commands: list[int]) -> None:
    wire.transmit(structured=structured)
    for command in commands:
        for bit in range(16):
            flag = 1 << bit
            length = 0 if command == nbd.FLUSH else 512
            data = b"f" * 512 if command == nbd.WRITE else b""
            cookie = wire.request(command, 0, length, flags=flag, data=data)
            reply = wire.wait(cookie)
            if may_have(command, flag, wire.export.flags):
                continue
            if not reply.error:
                wire.finding(SHOULD, f"{reply.request} succeeded", "ERR-09")
            elif reply.error != EINVAL:
                words = f"{reply.request}: {nbd.error_name(reply.error)}"
                wire.finding(SHOULD, words, "ERR-08")
    wire.in_step()


def may_have(command: int, flag: int, export: int) -> bool:
    """Whether a flag may belong to a command; what comes of it is for other cases."""
    if flag == nbd.FUA:
        return bool(export & nbd.SEND_FUA)
    return (command, flag) in {
        (nbd.READ, nbd.DF),
        (nbd.WRITE_ZEROES, nbd.NO_HOLE),
        (nbd.WRITE_ZEROES, nbd.FAST_ZERO),
        (nbd.BLOCK_STATUS, nbd.REQ_ONE),
    }
