# SPDX-License-Identifier: BSD-3-Clause
"""What the host does where the plugin cannot: zeroes, FUA, cache."""

from __future__ import annotations

import errno
import select

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.nbd import EINVAL, EIO, ENOTSUP
from nbdspec.payloads import pattern
from nbdspec.verdict import MUST

SECTION = "plugin.emulation"

both = pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])

MIB = 1 << 20
WRITES = """
SIZE = 1 << 30
def pwrite(h, *args): pass
def flush(h, *args): pass
"""
UNSUPPORTED = """
def zero(h, *args):
    nbdkit.set_error(errno.EOPNOTSUPP)
    raise RuntimeError("not supported")
"""
#: Ways in which zero can say that pwrite has to do it.
WAYS = {
    "raise": UNSUPPORTED,
    "enotsup": UNSUPPORTED.replace("EOPNOTSUPP", "ENOTSUP"),
    "return": UNSUPPORTED.replace('raise RuntimeError("not supported")', "return"),
}


def pieces(plugin, name: str = "pwrite") -> list[tuple[int, int]]:
    """Offset and length of each call."""
    found = []
    for call in plugin.calls(name):
        if name == "pwrite" or (name == "pread" and isinstance(call.args[1], dict)):
            found.append((int(call.args[2]), call.args[1]["len"]))
        else:
            found.append((int(call.args[2]), int(call.args[1])))
    return found


def covers(found: list[tuple[int, int]], offset: int, length: int) -> None:
    """The pieces follow one another and make up the whole range."""
    at = offset
    for start, count in found:
        assert start == at, f"a piece begins at {start}, not {at}: {found}"
        assert 0 < count <= 64 * MIB, f"a piece of {count} bytes"
        at += count
    assert at == offset + length, f"the pieces end at {at}, not {offset + length}"


def only_zeroes(plugin) -> None:
    from zlib import crc32

    for call in plugin.calls("pwrite"):
        buf = call.args[1]
        assert buf["crc"] == crc32(bytes(buf["len"])), f"{call}: bytes that are not 0"


@case("plugin.emulation.no-zero", req=["PY-EMU-01", "PY-EMU-06"])
@both
@pytest.mark.parametrize("how", ["absent", "refused"])
@pytest.mark.parametrize("length", [1, 4096, 65 * MIB])
def test_no_zero(hosts, api, how, length):
    """Without zero, pwrite writes the zeroes, piece by piece."""
    more = "" if how == "absent" else (
        "def zero(h, *args): pass\ndef can_zero(h): return False\n"
    )
    plugin = hosts.load(WRITES + more, api=api)
    plugin.client().zero(length, 4096)
    covers(pieces(plugin), 4096, length)
    only_zeroes(plugin)
    assert plugin.names("zero") == []


@case("plugin.emulation.fallback", req=["PY-EMU-02", "PY-EMU-03", "PY-EMU-06"])
@both
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("length", [1, 4096, MIB])
def test_fallback(hosts, api, way, length):
    """zero that set EOPNOTSUPP, raising or not: pwrite of zeroes follows."""
    plugin = hosts.load("import errno\n" + WRITES + WAYS[way], api=api)
    plugin.client().zero(length, 4096)
    assert plugin.names("zero", "pwrite")[:2] == ["zero", "pwrite"]
    covers(pieces(plugin), 4096, length)
    only_zeroes(plugin)


@case("plugin.emulation.fallback-large", req=["PY-EMU-05", "PY-EMU-06"])
@both
@pytest.mark.parametrize("length", [64 * MIB + 1, 130 * MIB])
def test_fallback_large(hosts, api, length):
    """The fallback of more than 64 MiB covers the whole range."""
    plugin = hosts.load("import errno\n" + WRITES + UNSUPPORTED, api=api)
    plugin.client().zero(length, 4096)
    covers(pieces(plugin), 4096, length)
    only_zeroes(plugin)


@case("plugin.emulation.superset-oserror", req=["PY-EMU-04"])
@both
def test_superset_oserror(hosts, api):
    """zero that raises OSError (EOPNOTSUPP): pwrite of zeroes follows."""
    plugin = hosts.load(
        "import errno, os\n"
        + WRITES
        + "def zero(h, *args): raise OSError(errno.EOPNOTSUPP, 'no')",
        api=api,
    )
    plugin.client().zero(4096, 4096)
    covers(pieces(plugin), 4096, 4096)


@case("plugin.emulation.plain-error", req=["PY-EMU-22"])
@both
@pytest.mark.parametrize("number", [0, errno.EIO, errno.ENOSPC, errno.EINVAL])
def test_plain_error(hosts, api, number):
    """Another error of zero is an error; nothing is written in its place."""
    plugin = hosts.load(
        WRITES
        + f"def zero(h, *args):\n    nbdkit.set_error({number})\n    raise ValueError",
        api=api,
    )
    wire = plugin.go()
    expected = {errno.ENOSPC: nbd.ENOSPC, errno.EINVAL: EINVAL}.get(number, EIO)
    wire.expect_errno(wire.request(nbd.WRITE_ZEROES, 0, 4096), expected)
    assert plugin.names("pwrite") == []


@case("plugin.emulation.fast", req=["PY-EMU-07"])
@both
@pytest.mark.parametrize("how", ["absent", "refused"])
def test_fast(hosts, api, how):
    """A fast zero that would be emulated: ENOTSUP, and nothing is written."""
    more = "" if how == "absent" else (
        "def zero(h, *args): pass\ndef can_zero(h): return False\n"
        "def can_fast_zero(h): return True\n"
    )
    plugin = hosts.load(WRITES + more, api=api)
    wire = plugin.go()
    cookie = wire.request(nbd.WRITE_ZEROES, 0, 4096, flags=nbd.FAST_ZERO)
    wire.expect_errno(cookie, ENOTSUP)
    assert plugin.names("pwrite", "zero") == []


@case("plugin.emulation.fast-unsupported", req=["PY-EMU-08", "PY-ERR-08"])
@pytest.mark.parametrize("way", WAYS)
def test_fast_unsupported(hosts, way):
    """A fast zero that zero does not support: ENOTSUP, and no fallback."""
    plugin = hosts.load(
        "import errno\n" + WRITES + WAYS[way] + "def can_fast_zero(h): return True\n"
    )
    wire = plugin.go()
    cookie = wire.request(nbd.WRITE_ZEROES, 0, 4096, flags=nbd.FAST_ZERO)
    wire.expect_errno(cookie, ENOTSUP)
    assert plugin.names("pwrite", "zero") == ["zero"]


@case("plugin.emulation.fallback-fails", req=["PY-EMU-09"])
@both
@pytest.mark.parametrize("zero", ["", UNSUPPORTED], ids=["absent", "fallback"])
@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSPC])
def test_fallback_fails(hosts, api, zero, number):
    """When pwrite fails too the client gets an error; the host lives."""
    plugin = hosts.load(
        f"""
import errno
def pwrite(h, *args):
    nbdkit.set_error({number})
    raise RuntimeError
"""
        + zero,
        api=api,
    )
    wire = plugin.go()
    expected = {errno.ENOSPC: nbd.ENOSPC}.get(number, EINVAL)
    wire.expect_errno(
        wire.request(nbd.WRITE_ZEROES, 0, 4096),
        expected,
        also={} if number == errno.ENOSPC else {EIO: MUST},
    )
    wire.in_step()


COMMANDS = ("pwrite", "trim", "zero")
DATA = "".join(f"def {n}(h, *args): pass\n" for n in ("pwrite", "trim", "zero"))


def run(client, name: str, flags: int) -> None:
    first = pattern(0, 4096) if name == "pwrite" else 4096
    getattr(client, name)(first, 0, flags)


@case("plugin.emulation.fua", req=["PY-EMU-10", "PY-EMU-21"])
@both
@pytest.mark.parametrize("name", COMMANDS)
def test_fua(hosts, api, name):
    """Emulated FUA: flush follows in the same request."""
    plugin = hosts.load(DATA + "def flush(h, *args): pass", api=api)
    run(plugin.client(), name, nbd.FUA)
    calls = plugin.calls("pwrite", "trim", "zero", "flush")
    assert [call.name for call in calls] == [name, "flush"]
    assert calls[1].args[1:] == ([] if api == 1 else ["0"])


@case("plugin.emulation.fua-before-reply", req=["PY-EMU-10"])
def test_fua_before_reply(hosts):
    """The reply to a FUA write waits for the flush."""
    plugin = hosts.load(DATA + "def flush(h, flags): hold()", model=3)
    wire, other = plugin.go(), plugin.go()
    cookie = wire.request(nbd.WRITE, 0, data=b"x", flags=nbd.FUA)
    plugin.inside(1)
    other.read(1, 0)
    early = select.select([wire.conn.sock], [], [], 0)[0]
    plugin.open_gate()
    assert not early, "the reply came before flush had ended"
    wire.expect_ok(cookie)


@case("plugin.emulation.no-fua", req=["PY-EMU-20"])
@both
@pytest.mark.parametrize("name", COMMANDS)
def test_no_fua(hosts, api, name):
    """Without FUA there is no flush."""
    plugin = hosts.load(DATA + "def flush(h, *args): pass", api=api)
    run(plugin.client(), name, 0)
    assert plugin.names("flush") == []


@case("plugin.emulation.fua-flush-fails", req=["PY-EMU-11"])
@both
@pytest.mark.parametrize("name", COMMANDS)
def test_fua_flush_fails(hosts, api, name):
    """When flush fails the client gets its error, though the data was written."""
    plugin = hosts.load(
        DATA
        + f"""
def flush(h, *args):
    nbdkit.set_error({errno.ENOSPC})
    raise RuntimeError("disk full")
""",
        api=api,
    )
    wire = plugin.go()
    command = {"pwrite": nbd.WRITE, "trim": nbd.TRIM, "zero": nbd.WRITE_ZEROES}[name]
    data = {"data": b"x" * 512} if name == "pwrite" else {}
    length = 0 if name == "pwrite" else 512
    cookie = wire.request(command, 0, length, flags=nbd.FUA, **data)
    wire.expect_errno(cookie, nbd.ENOSPC)
    assert plugin.names(*COMMANDS) == [name]


@case("plugin.emulation.fua-write-fails", req=["PY-EMU-12"])
@both
@pytest.mark.parametrize("name", COMMANDS)
def test_fua_write_fails(hosts, api, name):
    """No flush after a write that failed."""
    plugin = hosts.load(
        DATA + f"def flush(h, *args): pass\ndef {name}(h, *args): 1 / 0", api=api
    )
    wire = plugin.go()
    command = {"pwrite": nbd.WRITE, "trim": nbd.TRIM, "zero": nbd.WRITE_ZEROES}[name]
    data = {"data": b"x" * 512} if name == "pwrite" else {}
    length = 0 if name == "pwrite" else 512
    cookie = wire.request(command, 0, length, flags=nbd.FUA, **data)
    wire.expect_errno(cookie, EIO)
    assert plugin.names("flush") == []


@case("plugin.emulation.fua-native", req=["PY-EMU-13"])
@pytest.mark.parametrize("name", COMMANDS)
def test_fua_native(hosts, name):
    """Native FUA: flush is not called."""
    plugin = hosts.load(
        DATA + "def flush(h, f): pass\ndef can_fua(h): return nbdkit.FUA_NATIVE"
    )
    run(plugin.client(), name, nbd.FUA)
    assert plugin.names(*COMMANDS, "flush") == [name]


@case("plugin.emulation.fua-zeroes", req=["PY-EMU-14"])
@pytest.mark.parametrize("level", ["EMULATE", "NATIVE"])
def test_fua_zeroes(hosts, level):
    """FUA on emulated zeroes: one flush at the end, or FUA on every pwrite."""
    plugin = hosts.load(WRITES + f"def can_fua(h): return nbdkit.FUA_{level}")
    plugin.client().zero(65 * MIB, 0, nbd.FUA)
    calls = plugin.calls("pwrite", "flush")
    covers(pieces(plugin), 0, 65 * MIB)
    flags = {call.args[3] for call in calls if call.name == "pwrite"}
    flushes = [call.name for call in calls].count("flush")
    if level == "NATIVE":
        assert flags == {"2"} and flushes == 0
    else:
        assert flags == {"0"} and flushes == 1 and calls[-1].name == "flush"


@case("plugin.emulation.fua-native-v1", req=["PY-EMU-15"])
@pytest.mark.parametrize("flush", [True, False], ids=["flush", "no-flush"])
def test_fua_native_v1(hosts, flush):
    """FUA_NATIVE in version 1: flushed, or not on offer; never lost."""
    plugin = hosts.load(
        "def pwrite(h, *args): pass\n"
        + "def can_fua(h): return nbdkit.FUA_NATIVE\n"
        + ("def flush(h): pass\n" if flush else ""),
        api=1,
    )
    client = plugin.client()
    if client.flags & nbd.SEND_FUA:
        client.pwrite(b"x", 0, nbd.FUA)
        assert plugin.names("pwrite", "flush") == ["pwrite", "flush"], "FUA was lost"
    else:
        assert not flush, "FUA is not offered, although there is flush"


@case("plugin.emulation.cache", req=["PY-EMU-16", "PY-EMU-17"])
@both
@pytest.mark.parametrize("length", [1, 4096, 130 * MIB])
def test_cache(hosts, api, length):
    """CACHE_EMULATE: pread is called over the whole range, piece by piece."""
    plugin = hosts.load(
        "SIZE = 1 << 30\ndef can_cache(h): return nbdkit.CACHE_EMULATE\n"
        "def cache(h, *args): pass\n",
        api=api,
    )
    plugin.client().cache(length, 4096)
    covers(pieces(plugin, "pread"), 4096, length)
    assert plugin.names("cache") == []


@case("plugin.emulation.cache-fails", req=["PY-EMU-18"])
@both
def test_cache_fails(hosts, api):
    """Emulated cache fails when pread fails."""
    plugin = hosts.load(
        f"""
def can_cache(h): return nbdkit.CACHE_EMULATE
def pread(h, *args):
    nbdkit.set_error({errno.ENOMEM})
    raise RuntimeError
""",
        api=api,
    )
    wire = plugin.go()
    wire.expect_errno(wire.request(nbd.CACHE, 0, 4096), nbd.ENOMEM)
