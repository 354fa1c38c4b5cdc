# SPDX-License-Identifier: BSD-3-Clause
"""What callbacks may return, and what becomes of everything else."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.nbd import ERR_UNKNOWN
from nbdspec.payloads import go_payload, pattern
from nbdspec.sources import DATA, REQUIRED
from nbdspec.verdict import Closed

SECTION = "plugin.results"

both = pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])

BOOLEANS = {
    "can_write": nbd.READ_ONLY,
    "can_flush": nbd.SEND_FLUSH,
    "can_trim": nbd.SEND_TRIM,
    "can_fast_zero": nbd.SEND_FAST_ZERO,
    "can_multi_conn": nbd.CAN_MULTI_CONN,
    "is_rotational": nbd.ROTATIONAL,
}


def flags_of(hosts, source: str, **how) -> int:
    return hosts.load(source, record=False, **how).go("x").export.flags


def refused(hosts, source: str, **how):
    """The export is refused, and the connection goes on to another option."""
    plugin = hosts.load(source, **how)
    wire = plugin.wire()
    wire.option(nbd.GO, go_payload("x"))
    wire.expect_error(nbd.GO, ERR_UNKNOWN)
    wire.in_step()
    return plugin


@case("plugin.results.booleans", req=["PY-RET-01"])
@both
@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("name", BOOLEANS)
def test_booleans(hosts, api, name, value):
    """True offers the capability, False does not."""
    flags = flags_of(hosts, DATA + f"def {name}(h): return {value}\n", api=api)
    offered = bool(flags & BOOLEANS[name])
    assert offered == (value if name != "can_write" else not value)


ODD = {
    "1": True,
    "2": True,
    "'yes'": True,
    "1.0": True,
    "-1": True,
    "object()": True,
    "[0]": True,
    "0": False,
    "None": False,
    "''": False,
    "0.0": False,
    "[]": False,
}


@case("plugin.results.superset-truth", req=["PY-RET-02"])
@pytest.mark.parametrize("value", ODD)
def test_superset_truth(hosts, value):
    """What is no bool counts by Python's truth."""
    source = DATA + f"def can_multi_conn(h): return {value}\n"
    flags = flags_of(hosts, source)
    assert bool(flags & nbd.CAN_MULTI_CONN) == ODD[value], nbd.flag_names(flags)


@case("plugin.results.superset-truth-logged", req=["PY-RET-02"])
def test_superset_truth_logged(hosts):
    """There is a line in the log about a result that is no bool."""
    plugin = hosts.start(
        """
def open(r): return 1
def get_size(h): return 4096
def pread(h, c, o): return bytes(c)
def can_multi_conn(h): return "yes"
"""
    )
    plugin.go()
    log = plugin.wait_log("can_multi_conn")
    assert "yes" in log and "plugin.py" in log


@case("plugin.results.truth-raises", req=["PY-ERR-21", "PY-RET-02"])
@pytest.mark.parametrize("name", BOOLEANS)
def test_truth_raises(hosts, name):
    """A result whose truth cannot be told refuses the export, or counts as false."""
    source = DATA + f"""
class Neither:
    def __bool__(self): raise RuntimeError("neither")
def {name}(h): return Neither()
"""
    plugin = hosts.load(source)
    wire = plugin.wire()
    wire.option(nbd.INFO, go_payload("x"))
    found, last = wire.final(nbd.INFO)
    if last.type == nbd.ACK:
        flags = wire.parse_export(found).flags
        assert bool(flags & BOOLEANS[name]) == (name == "can_write")
    else:
        assert last.type == ERR_UNKNOWN, str(last)
    wire.in_step()


FUA = {
    "0": (False, 0),
    "1": (True, 1),
    "2": (True, 0),
    "True": (True, 1),
    "False": (False, 0),
}


@case("plugin.results.can-fua", req=["PY-RET-03"])
@pytest.mark.parametrize("value", FUA)
def test_can_fua(hosts, value):
    """can_fua: 0 none, 1 flushes, 2 does not; True is 1, False 0."""
    plugin = hosts.load(DATA + f"def can_fua(h): return {value}\n")
    client = plugin.client()
    offered, flushes = FUA[value]
    assert bool(client.flags & nbd.SEND_FUA) == offered
    if offered:
        client.pwrite(b"x", 0, nbd.FUA)
        assert len(plugin.names("flush")) == flushes


@case("plugin.results.can-fua-high", req=["PY-RET-04"])
@pytest.mark.parametrize("value", ["3", "5", "1000"])
def test_can_fua_high(hosts, value):
    """A level above 2 counts as emulate: offered, and flushed."""
    plugin = hosts.load(DATA + f"def can_fua(h): return {value}\n")
    client = plugin.client()
    assert client.flags & nbd.SEND_FUA
    client.pwrite(b"x", 0, nbd.FUA)
    assert plugin.names("flush") == ["flush"]


LEVELS_WRONG = ["-1", "None", "'1'", "1.0", "b'1'", "[]", "object()"]


@case("plugin.results.can-fua-wrong", req=["PY-RET-05"])
@pytest.mark.parametrize("value", LEVELS_WRONG)
def test_can_fua_wrong(hosts, value):
    """What is no level refuses the export."""
    refused(hosts, DATA + f"def can_fua(h): return {value}\n")


@case("plugin.results.can-fua-logged", req=["PY-RET-06"])
@pytest.mark.parametrize("name", ["can_fua", "can_cache"])
def test_can_fua_logged(hosts, name):
    """The refusal is in the log, with script, callback and value."""
    for value in ("-1", "None", "'one'"):
        plugin = refused(hosts, DATA + f"def {name}(h): return {value}\n")
        log = plugin.wait_log(name)
        assert value.strip("'") in log and "recorder.py" in log


@case("plugin.results.can-fua-absurd", req=["PY-RET-07"])
@pytest.mark.parametrize("value", ["-2", "-2**31", "2**31", "2**40", "2**64", "-2**80"])
def test_can_fua_absurd(hosts, value):
    """Absurd levels: refused, and the host lives to serve the next."""
    plugin = refused(hosts, DATA + f"def can_fua(h): return {value}\n")
    plugin.exec("del can_fua")
    plugin.client().pwrite(b"x", 0, nbd.FUA)


CACHE = {"0": None, "1": "pread", "2": "cache", "False": None, "True": "pread"}


@case("plugin.results.can-cache", req=["PY-RET-08", "PY-EMU-16"])
@pytest.mark.parametrize("value", CACHE)
def test_can_cache(hosts, value):
    """can_cache: 0 none, 1 calls pread, 2 calls cache."""
    plugin = hosts.load(DATA + f"def can_cache(h): return {value}\n")
    client = plugin.client()
    assert bool(client.flags & nbd.SEND_CACHE) == (CACHE[value] is not None)
    if CACHE[value]:
        client.cache(4096, 512)
        assert plugin.names("pread", "cache") == [CACHE[value]]


@case("plugin.results.can-cache-high", req=["PY-RET-09"])
@pytest.mark.parametrize("value", ["3", "7"])
def test_can_cache_high(hosts, value):
    """A level above 2 counts as native."""
    plugin = hosts.load(DATA + f"def can_cache(h): return {value}\n")
    plugin.client().cache(4096, 512)
    assert plugin.names("pread", "cache") == ["cache"]


@case("plugin.results.can-cache-wrong", req=["PY-RET-10"])
@pytest.mark.parametrize("value", LEVELS_WRONG)
def test_can_cache_wrong(hosts, value):
    """What is no level refuses the export."""
    refused(hosts, DATA + f"def can_cache(h): return {value}\n")


MODELS = {
    "0": "serialize_connections",
    "1": "serialize_all_requests",
    "2": "serialize_requests",
    "3": "parallel",
    "4": "parallel",
    "100": "parallel",
    "True": "serialize_all_requests",
    "nbdkit.THREAD_MODEL_PARALLEL": "parallel",
}

def dump(hosts, more: str):
    files = {"p.py": REQUIRED + more}
    return hosts.command(["--dump-plugin", "python", "p.py"], files=files)


@case("plugin.results.thread-model", req=["PY-RET-11", "PY-THR-27", "PY-MOD-24"])
@pytest.mark.parametrize("value", MODELS)
def test_thread_model(hosts, value):
    """thread_model: 0 to 3, larger ones count as 3; --dump-plugin shows it."""
    done = dump(hosts, f"def thread_model(): return {value}\n")
    assert f"thread_model={MODELS[value]}" in done.out.splitlines(), done.words


MODELS_WRONG = ["-1", "None", "'parallel'", "1.0", "[]"]


@case("plugin.results.thread-model-wrong", req=["PY-RET-12"])
@pytest.mark.parametrize("value", MODELS_WRONG)
def test_thread_model_wrong(hosts, value):
    """What is no thread model ends the start with status 1."""
    done = hosts.command(
        ["-U", "s", "python", "p.py"],
        options=("-f",),
        files={"p.py": REQUIRED + f"def thread_model(): return {value}\n"},
    )
    assert done.status == 1, done.words


@case("plugin.results.thread-model-logged", req=["PY-RET-14"])
def test_thread_model_logged(hosts):
    """The message names the callback."""
    for value in MODELS_WRONG:
        done = dump(hosts, f"def thread_model(): return {value}\n")
        assert "thread_model" in done.err, f"{value}: {done.words}"


@case("plugin.results.thread-model-absurd", req=["PY-RET-13"])
@pytest.mark.parametrize("value", ["-5", "2**40", "-2**40", "2**31"])
def test_thread_model_absurd(hosts, value):
    """Absurd models: a message and status 1, or PARALLEL for a large one; no crash."""
    done = dump(hosts, f"def thread_model(): return {value}\n")
    if done.status == 0:
        assert "thread_model=parallel" in done.out.splitlines(), done.words
    else:
        assert done.status == 1 and "thread_model" in done.err, done.words


@case("plugin.results.get-size", req=["PY-RET-15"])
@both
@pytest.mark.parametrize("value", ["0", "1", "True", "511", "2**32", "2**63 - 1"])
def test_get_size(hosts, api, value):
    """get_size: an int from 0 to 2**63 - 1."""
    plugin = hosts.load(f"def get_size(h): return {value}", api=api)
    assert plugin.go().export.size == int(eval(value))


@case("plugin.results.get-size-0", req=["PY-RET-15"])
def test_get_size_0(hosts):
    """Of an export of size 0 every read fails, and no callback is called."""
    plugin = hosts.load("def get_size(h): return 0")
    wire = plugin.go()
    wire.expect_errno(wire.request(nbd.READ, 0, 1), nbd.EINVAL)
    assert plugin.names("pread") == []


SIZES_WRONG = [
    "1.0",
    "'4096'",
    "b'4096'",
    "None",
    "-1",
    "-2",
    "-2**63",
    "2**63",
    "2**64",
    "2**100",
    "[4096]",
]


@case("plugin.results.get-size-wrong", req=["PY-RET-16", "PY-LIFE-18"])
@pytest.mark.parametrize("value", SIZES_WRONG)
def test_get_size_wrong(hosts, value):
    """What is no size refuses the export, and the handle is closed."""
    plugin = refused(hosts, f"def get_size(h): return {value}")
    plugin.wait_calls("close", 1)


@case("plugin.results.get-size-logged", req=["PY-RET-17", "PY-RET-06"])
def test_get_size_logged(hosts):
    """The refusal is in the log, with the callback's name."""
    for value in SIZES_WRONG:
        plugin = refused(hosts, f"def get_size(h): return {value}")
        plugin.wait_log("get_size")


@case("plugin.results.open", req=["PY-RET-18", "PY-LIFE-26"])
@both
@pytest.mark.parametrize("value", ["None", "False", "0", "''", "(1, 2)", "object"])
def test_open(hosts, api, value):
    """open may return anything, and that is the handle."""
    plugin = hosts.load(
        f"""
def open(readonly): return {value}
def pwrite(h, *args): note("same", h == {value})
def close(h): note("close", h == {value})
""",
        api=api,
        record=False,
    )
    client = plugin.client()
    client.pwrite(b"x", 0)
    client.close()
    plugin.settle()
    assert [c.args for c in plugin.calls("same", "close")] == [["True"], ["True"]]


def go_block_size(plugin):
    wire = plugin.wire()
    wire.option(nbd.GO, go_payload("x", [nbd.INFO_BLOCK_SIZE]))
    return wire


@case("plugin.results.block-size", req=["PY-RET-20", "PY-RET-24"])
@both
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 512, 512),
        (1, 4096, 2**32 - 1),
        (512, 4096, 65536),
        (65536, 65536, 65536),
        (65536, 2**25, 2**25),
        (4096, 4096, 2**32 - 1),
    ],
    ids=lambda s: "-".join(map(str, s)),
)
def test_block_size(hosts, api, sizes):
    """block_size's three numbers reach a client that asks for them."""
    plugin = hosts.load(f"def block_size(h): return {sizes}", api=api)
    told = plugin.wire().go("x", [nbd.INFO_BLOCK_SIZE]).block_size
    assert told[:2] == sizes[:2], f"the client is told {told}"
    if sizes[2] == 2**32 - 1:
        assert told[2] >= nbd.DEFAULT_MAXIMUM
    else:
        assert told[2] == sizes[2], f"the client is told {told}"


@case("plugin.results.block-size-zero", req=["PY-RET-19"])
def test_block_size_zero(hosts):
    """(0, 0, 0) means no information."""
    plugin = hosts.load("def block_size(h): return (0, 0, 0)")
    assert plugin.wire().go("x", [nbd.INFO_BLOCK_SIZE]).block_size is None


BLOCK_SIZES_WRONG = [
    "[1, 4096, 65536]",
    "(1, 4096)",
    "(1, 4096, 65536, 0)",
    "None",
    "4096",
    "('1', '4096', '65536')",
    "(1.0, 4096.0, 65536.0)",
    "(3, 4096, 65536)",
    "(0, 4096, 65536)",
    "(131072, 131072, 131072)",
    "(1, 256, 65536)",
    "(1, 5000, 65536)",
    "(1, 2**26, 2**27)",
    "(4096, 512, 65536)",
    "(512, 4096, 1000)",
    "(512, 4096, 65537)",
    "(1, 4096, 2048)",
]


@case("plugin.results.block-size-wrong", req=["PY-RET-21"])
@pytest.mark.parametrize("value", BLOCK_SIZES_WRONG)
def test_block_size_wrong(hosts, value):
    """Block sizes that cannot be are not served: an error, or the end."""
    plugin = hosts.load(f"def block_size(h): return {value}")
    wire = go_block_size(plugin)
    try:
        found = wire.final(nbd.GO)[1]
    except Closed:
        wire.conn.close()
    else:
        assert found.is_error, str(found)
    plugin.wire().go("x")


@case("plugin.results.block-size-survives", req=["PY-RET-22"])
@pytest.mark.parametrize("value", [*BLOCK_SIZES_WRONG, "1 / 0"])
def test_block_size_survives(hosts, value):
    """After wrong block sizes the connection can go on to another option."""
    plugin = hosts.load(f"def block_size(h): return {value}")
    wire = go_block_size(plugin)
    wire.expect_error(nbd.GO)
    wire.in_step()
    plugin.wait_log("block")


@case("plugin.results.block-size-absurd", req=["PY-RET-21", "PY-RET-22"])
@pytest.mark.parametrize("value", ["(-1, -1, -1)", "(1, 4096, -1)", "(1, 512, 2**32)"])
def test_block_size_absurd(hosts, value):
    """Numbers that do not fit into 32 bits are not cut to what fits."""
    plugin = hosts.load(f"def block_size(h): return {value}")
    wire = go_block_size(plugin)
    wire.expect_error(nbd.GO)


@case("plugin.results.block-size-advisory", req=["PY-RET-23"])
@both
def test_block_size_advisory(hosts, api):
    """A client that did not ask for block sizes is not held to them."""
    source = DATA + "def block_size(h): return (512, 4096, 65536)"
    plugin = hosts.load(source, api=api)
    wire = plugin.go()
    wire.write(pattern(0, 7), 5)
    wire.write(pattern(0, 131072), 0)
    sizes = [call.args[1]["len"] for call in plugin.calls("pwrite")]
    assert sizes == [7, 131072]


IGNORED = ["False", "-1", "None", "12345", "'text'", "b'x'", "[]", "object()"]


@case("plugin.results.ignored", req=["PY-RET-36"])
@both
@pytest.mark.parametrize("value", IGNORED)
def test_ignored(hosts, api, value):
    """What data callbacks return is ignored: no exception is success."""
    source = "".join(
        f"def {name}(h, *args): return {value}\n"
        for name in "pwrite flush trim zero cache".split()
    )
    if api == 2:
        source += f"def pread(h, *args): return {value}\n"
    client = hosts.load(source, api=api).client()
    client.pwrite(b"x", 0, nbd.FUA)
    client.flush()
    client.trim(512, 0)
    client.zero(512, 0)
    client.cache(512, 0)
    client.pread(512, 0)


@case("plugin.results.ignored-control", req=["PY-RET-37"])
@pytest.mark.parametrize("value", ["False", "-1", "'text'"])
def test_ignored_control(hosts, value):
    """What config, get_ready, preconnect, close and the like return is ignored."""
    names = "config config_complete get_ready after_fork preconnect close cleanup"
    source = REQUIRED + "".join(
        f"def {name}(*args): return {value}\n" for name in names.split()
    )
    plugin = hosts.start(source, params=("a=b",))
    plugin.go("x").leave()
    plugin.go("y")
