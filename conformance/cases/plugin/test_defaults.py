# SPDX-License-Identifier: BSD-3-Clause
"""What is offered when callbacks are missing, and when they claim too much."""

from __future__ import annotations

import itertools

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.model import Model, Spec
from nbdspec.nbd import EIO
from nbdspec.payloads import pattern

SECTION = "plugin.defaults"

both = pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])

FUNCTIONS = ("pwrite", "flush", "trim", "zero", "cache", "extents")


def flags_of(hosts, source: str, **how) -> int:
    plugin = hosts.load(source, record=False, **how)
    return plugin.go("x").export.flags


def functions(*names: str) -> str:
    return "".join(f"def {name}(h, *args): pass\n" for name in names)


def named(flags: int) -> str:
    return nbd.flag_names(flags)


@case("plugin.defaults.least", req=["PY-DEF-16"])
@both
def test_least(hosts, api):
    """With the three required callbacks the export is read-only, with no more."""
    flags = flags_of(hosts, "", api=api)
    assert flags == nbd.HAS_FLAGS | nbd.READ_ONLY, named(flags)


@case("plugin.defaults.pwrite", req=["PY-DEF-17", "PY-DEF-01", "PY-DEF-04"])
@both
def test_pwrite(hosts, api):
    """With pwrite as well: WRITE_ZEROES and FAST_ZERO, no FUA."""
    flags = flags_of(hosts, functions("pwrite"), api=api)
    expected = nbd.HAS_FLAGS | nbd.SEND_WRITE_ZEROES | nbd.SEND_FAST_ZERO
    assert flags == expected, named(flags)


@case("plugin.defaults.all", req=["PY-DEF-18", "PY-DEF-09", "PY-DEF-10"])
@both
def test_all(hosts, api):
    """With all functions: FLUSH, FUA, TRIM, WRITE_ZEROES, CACHE; not FAST_ZERO."""
    flags = flags_of(hosts, functions(*FUNCTIONS), api=api)
    expected = (
        nbd.HAS_FLAGS
        | nbd.SEND_FLUSH
        | nbd.SEND_FUA
        | nbd.SEND_TRIM
        | nbd.SEND_WRITE_ZEROES
        | nbd.SEND_CACHE
    )
    assert flags == expected, named(flags)


@case(
    "plugin.defaults.every-subset",
    req=[f"PY-DEF-{n:02}" for n in (1, 2, 3, 4, 5, 7, 8, 9, 10, 16, 17, 18, 26)],
)
@both
@pytest.mark.parametrize("first", FUNCTIONS[:3])
def test_every_subset(hosts, api, first):
    """Every subset of functions gives the flags that the rules give."""
    rest = [name for name in FUNCTIONS if name not in FUNCTIONS[:3]]
    before = FUNCTIONS[: FUNCTIONS.index(first)]
    wrong = []
    for chosen in itertools.product([False, True], repeat=len(rest + list(before))):
        names = [first] + [n for n, c in zip([*rest, *before], chosen) if c]
        expected = Model(Spec(api=api, data=dict.fromkeys(names))).flags
        flags = flags_of(hosts, functions(*names), api=api)
        if flags != expected:
            wrong.append(f"{names}: {named(flags)}, not {named(expected)}")
    assert not wrong, "\n".join(wrong)


@case("plugin.defaults.fast-zero", req=["PY-DEF-05", "PY-DEF-04"])
@pytest.mark.parametrize("zero", ["", "zero"])
@pytest.mark.parametrize("can_zero", [None, True, False])
@pytest.mark.parametrize("can_fast", [None, True, False])
def test_fast_zero(hosts, zero, can_zero, can_fast):
    """Without can_fast_zero FAST_ZERO is the opposite of can_zero."""
    source = functions("pwrite", *filter(None, [zero]))
    if can_zero is not None:
        source += f"def can_zero(h): return {can_zero}\n"
    if can_fast is not None:
        source += f"def can_fast_zero(h): return {can_fast}\n"
    flags = flags_of(hosts, source)
    able = bool(zero) if can_zero is None else can_zero
    fast = (not able) if can_fast is None else can_fast
    assert bool(flags & nbd.SEND_FAST_ZERO) == fast, named(flags)
    assert flags & nbd.SEND_WRITE_ZEROES, "WRITE_ZEROES is not offered"


@case("plugin.defaults.extents", req=["PY-DEF-06", "PY-EXT-13"])
@both
@pytest.mark.parametrize("what", ["none", "false", "there"])
def test_extents(hosts, api, what):
    """base:allocation can be negotiated with and without extents."""
    source = {
        "none": "",
        "false": "def can_extents(h): return False\n",
        "there": "",
    }[what]
    if what != "none":
        source += "def extents(h, count, offset, flags): return [(offset, count, 3)]\n"
    client = hosts.load(source, api=api).client(contexts=("base:allocation",))
    found = client.block_status(4096, 512)
    assert found == {"base:allocation": [(4096, 3 if what == "there" else 0)]}


@case("plugin.defaults.no-block-size", req=["PY-DEF-12", "PY-DEF-15"])
@both
def test_no_block_size(hosts, api):
    """Without block_size and export_description neither is sent."""
    wire = hosts.load("", api=api).wire()
    export = wire.go("x", [nbd.INFO_BLOCK_SIZE, nbd.INFO_DESCRIPTION])
    assert export.block_size is None, f"block sizes {export.block_size}"
    assert export.description is None, f"description {export.description!r}"


@case("plugin.defaults.list", req=["PY-DEF-13", "PY-DEF-14"])
@both
@pytest.mark.parametrize("name", [None, "disk"])
def test_list(hosts, api, name):
    """Without list_exports LIST shows the default export's name."""
    source = f"def default_export(*args): return {name!r}" if name else ""
    assert hosts.load(source, api=api).wire().list() == [(name or "", "")]


CLAIMS = {
    "write": (nbd.WRITE, "def can_write(h): return True", "PY-DEF-19"),
    "trim": (nbd.TRIM, "def can_trim(h): return True", "PY-DEF-20"),
    "flush": (nbd.FLUSH, "def can_flush(h): return True", "PY-DEF-21"),
    "cache": (nbd.CACHE, "def can_cache(h): return nbdkit.CACHE_NATIVE", "PY-DEF-22"),
}


@case("plugin.defaults.claims", req=[claim[2] for claim in CLAIMS.values()])
@both
@pytest.mark.parametrize("what", CLAIMS)
def test_claims(hosts, api, what):
    """A claim without the function: EIO, and the connection lives."""
    command, source, _ = CLAIMS[what]
    if what == "trim":
        source += "\ndef pwrite(h, *args): pass"
    plugin = hosts.load(source, api=api)
    wire = plugin.go()
    data = {"data": bytes(512)} if what == "write" else {}
    length = 512 if what in ("trim", "cache") else 0
    wire.expect_errno(wire.request(command, 0, length, **data), EIO)
    wire.in_step()
    plugin.wait_log(what)


@case("plugin.defaults.claims-zero", req=["PY-DEF-23"])
@both
def test_claims_zero(hosts, api):
    """can_zero without zero: pwrite writes the zeroes."""
    source = functions("pwrite") + "def can_zero(h): return True"
    plugin = hosts.load(source, api=api)
    plugin.client().zero(4096, 512)
    buf, offset = plugin.calls("pwrite")[0].args[1:3]
    assert (buf["len"], offset, buf["head"]) == (4096, "512", "00" * 16)


@case("plugin.defaults.claims-extents", req=["PY-DEF-24"])
@both
def test_claims_extents(hosts, api):
    """can_extents without extents: one extent of data."""
    plugin = hosts.load("def can_extents(h): return True", api=api)
    client = plugin.client(contexts=("base:allocation",))
    assert client.block_status(4096, 512) == {"base:allocation": [(4096, 0)]}


@case("plugin.defaults.claims-fua", req=["PY-DEF-25"])
@both
def test_claims_fua(hosts, api):
    """can_fua EMULATE without flush: a FUA write fails after its data was written."""
    source = functions("pwrite") + "def can_fua(h): return nbdkit.FUA_EMULATE"
    plugin = hosts.load(source, api=api)
    wire = plugin.go()
    cookie = wire.request(nbd.WRITE, 0, data=pattern(0, 512), flags=nbd.FUA)
    wire.expect_errno(cookie, EIO)
    assert plugin.names("pwrite") == ["pwrite"]
    wire.write(pattern(0, 512), 0)


@case("plugin.defaults.fua-without-flush", req=["PY-DEF-27"])
@both
def test_fua_without_flush(hosts, api):
    """can_flush false, can_fua EMULATE: no FLUSH on offer, but FUA flushes."""
    source = functions("pwrite", "flush") + (
        "def can_fua(h): return nbdkit.FUA_EMULATE\ndef can_flush(h): return False\n"
    )
    plugin = hosts.load(source, api=api)
    client = plugin.client()
    assert not client.flags & nbd.SEND_FLUSH and client.flags & nbd.SEND_FUA
    client.pwrite(pattern(0, 512), 0, nbd.FUA)
    assert plugin.names("pwrite", "flush") == ["pwrite", "flush"]


@case("plugin.defaults.thread-model", req=["PY-DEF-11"])
@both
def test_thread_model(hosts, api):
    """Without thread_model it is SERIALIZE_ALL_REQUESTS."""
    files = {"p.py": f"API_VERSION = {api}\n" + THREE}
    done = hosts.command(["--dump-plugin", "python", "p.py"], files=files)
    assert "thread_model=serialize_all_requests" in done.out.splitlines(), done.words


THREE = """
def open(readonly): pass
def get_size(h): return 4096
def pread(h, *args): pass
"""
