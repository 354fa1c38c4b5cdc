# SPDX-License-Identifier: BSD-3-Clause
"""What `import nbdkit` gives."""

from __future__ import annotations

import os

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.payloads import go_payload

SECTION = "plugin.module"


def true(hosts, *expressions: str, helpers: str = "") -> None:
    """Each expression is true at run time."""
    plugin = hosts.load(helpers, record=False)
    wrong = []
    for text in expressions:
        plugin.exec(f"judge([{text!r}], nbdkit=nbdkit)")
        value = plugin.calls("check")[-1].args[1]
        if value != "True":
            wrong.append(f"{text}: {value}")
    assert not wrong, "\n".join(wrong)


def raises(hosts, kind: str, *calls: str) -> None:
    true(hosts, *(f"raised(lambda: {call}) == '{kind}'" for call in calls))


@case("plugin.module.constants", req=[f"PY-MOD-{n}" for n in (24, 25, 26, 27, 40)])
def test_constants(hosts):
    """The constants have the numbers that plugins were written with."""
    values = {
        "THREAD_MODEL_SERIALIZE_CONNECTIONS": 0,
        "THREAD_MODEL_SERIALIZE_ALL_REQUESTS": 1,
        "THREAD_MODEL_SERIALIZE_REQUESTS": 2,
        "THREAD_MODEL_PARALLEL": 3,
        "FLAG_MAY_TRIM": 1,
        "FLAG_FUA": 2,
        "FLAG_REQ_ONE": 4,
        "FLAG_FAST_ZERO": 8,
        "FUA_NONE": 0,
        "FUA_EMULATE": 1,
        "FUA_NATIVE": 2,
        "CACHE_NONE": 0,
        "CACHE_EMULATE": 1,
        "CACHE_NATIVE": 2,
        "EXTENT_HOLE": 1,
        "EXTENT_ZERO": 2,
    }
    checks = [f"type(nbdkit.{n}) is int and nbdkit.{n} == {v}" for n, v in values.items()]
    true(hosts, *checks, "isinstance(nbdkit.__doc__, str)")


@case("plugin.module.debug", req=["PY-MOD-01", "PY-CLI-07"])
@pytest.mark.parametrize("verbose", [True, False], ids=["-v", "quiet"])
def test_debug(hosts, verbose):
    """debug prints with -v, and not without; % is safe."""
    plugin = hosts.load(
        "def pwrite(h, *a): note('result', nbdkit.debug('100% %s %n words'))",
        record=False,
        options=("-v",) if verbose else (),
    )
    plugin.client().pwrite(b"x", 0)
    assert plugin.calls("result")[0].args == ["None"]
    if verbose:
        plugin.wait_log("100% %s %n words")
    else:
        plugin.exec("import sys; print('later', file=sys.stderr, flush=True)")
        assert "words" not in plugin.wait_log("later")


@case("plugin.module.debug-wrong", req=["PY-MOD-02"])
def test_debug_wrong(hosts):
    """debug of what is no text raises."""
    raises(hosts, "TypeError", "nbdkit.debug(1)", "nbdkit.debug(b'x')")
    raises(hosts, "TypeError", "nbdkit.debug(msg='x')", "nbdkit.debug()")
    raises(hosts, "ValueError", r"nbdkit.debug('a\0b')")
    raises(hosts, "UnicodeEncodeError", r"nbdkit.debug('\udcff')")


NAMED = "".join(
    f"def {name}(h, *args): note({name!r}, nbdkit.export_name()){tail}\n"
    for name, tail in {
        "open": "; return 1",
        "get_size": "; return 4096",
        "can_write": "; return True",
        "pwrite": "",
        "flush": "",
        "close": "",
        "export_description": "; return 'd'",
    }.items()
)


@case("plugin.module.export-name", req=["PY-MOD-03", "PY-EXP-01", "PY-EXP-07"])
@pytest.mark.parametrize("name", ["", "disk", "a/b", "ñ名", "n" * 4096, "a b%20?x=1"])
def test_export_name(hosts, name):
    """export_name is the client's own, from open to close."""
    plugin = hosts.load(NAMED, record=False)
    wire = plugin.wire()
    wire.go(name, [nbd.INFO_DESCRIPTION])
    wire.write(b"x", 0)
    wire.command(nbd.FLUSH)
    wire.leave()
    plugin.settle()
    found = {call.name: call.args for call in plugin.calls()}
    assert len(found) == 7, f"{sorted(found)}"
    assert all(args == [repr(name)] for args in found.values()), f"{found}"


@case("plugin.module.export-name-nowhere", req=["PY-MOD-04", "PY-MOD-41"])
def test_export_name_nowhere(hosts):
    """Outside a connection's callbacks export_name raises RuntimeError."""
    plugin = hosts.load(
        """
def look(where): note(where, raised(nbdkit.export_name))
look("load")
def preconnect(r): look("preconnect")
def list_exports(r, t): look("list"); return []
def default_export(r, t): look("default"); return ""
def pwrite(h, *a):
    thread = threading.Thread(target=look, args=("thread",))
    thread.start()
    thread.join()
""",
        record=False,
    )
    wire = plugin.wire()
    wire.list()
    wire.go("")
    wire.write(b"x", 0)
    found = {call.name: call.args[0] for call in plugin.calls()}
    found.setdefault("load", "'RuntimeError'")
    names = {"load", "preconnect", "list", "default", "thread"}
    assert found == dict.fromkeys(names, "'RuntimeError'"), f"{found}"


@case("plugin.module.export-name-argument", req=["PY-MOD-05", "PY-MOD-19"])
def test_export_name_argument(hosts):
    """export_name and shutdown take no argument."""
    raises(hosts, "TypeError", "nbdkit.export_name(1)", "nbdkit.shutdown(1)")


@case("plugin.module.export-name-bytes", req=["PY-MOD-06"])
def test_export_name_bytes(hosts):
    """A name that is no UTF-8: refused, or export_name raises UnicodeDecodeError."""
    plugin = hosts.load(
        "def open(r): note('open', raised(nbdkit.export_name)); return 1",
        record=False,
    )
    wire = plugin.wire()
    wire.option(nbd.GO, go_payload(b"\xff\xfe"))
    last = wire.final(nbd.GO)[1]
    if last.type == nbd.ACK:
        assert plugin.calls("open")[0].args == ["'UnicodeDecodeError'"]
    else:
        wire.in_step()


@case("plugin.module.set-error-wrong", req=["PY-MOD-11"])
def test_set_error_wrong(hosts):
    """set_error of what is no number raises."""
    raises(hosts, "TypeError", "nbdkit.set_error('5')", "nbdkit.set_error(None)")
    raises(hosts, "TypeError", "nbdkit.set_error()", "nbdkit.set_error(1.5)")
    raises(hosts, "OverflowError", "nbdkit.set_error(2**31)", "nbdkit.set_error(-2**40)")


SIZES = {
    "0": 0,
    "1": 1,
    "512": 512,
    "010": 10,
    " 5": 5,
    "+5": 5,
    "1b": 1,
    "1s": 512,
    "1S": 512,
    "1k": 1 << 10,
    "1K": 1 << 10,
    "3M": 3 << 20,
    "1g": 1 << 30,
    "2T": 2 << 40,
    "1p": 1 << 50,
    "7E": 7 << 60,
    "9223372036854775807": 2**63 - 1,
}
SIZES_WRONG = [
    "",
    "-1",
    "-1k",
    "8E",
    "9223372036854775808",
    "1.5M",
    "1KiB",
    "0x10",
    "1 k",
    "k",
    "1kk",
    "1x",
    "ten",
    "99999999999999999999",
]


@case("plugin.module.parse-size", req=["PY-MOD-14", "PY-MOD-17"])
def test_parse_size(hosts):
    """parse_size: decimal, with suffixes."""
    true(hosts, *(f"nbdkit.parse_size({t!r}) == {n}" for t, n in SIZES.items()))


@case("plugin.module.parse-size-wrong", req=["PY-MOD-15", "PY-MOD-16"])
def test_parse_size_wrong(hosts):
    """parse_size of what is no size: ValueError; of what is no str: TypeError."""
    raises(hosts, "ValueError", *(f"nbdkit.parse_size({t!r})" for t in SIZES_WRONG))
    calls = [f"nbdkit.parse_size({v})" for v in ("17", "None", "b'1k'", "")]
    raises(hosts, "TypeError", *calls)


@case("plugin.module.parse-bool", req=["PY-MOD-32"])
def test_parse_bool(hosts):
    """parse_bool knows the usual words."""
    yes, no = "1 true t yes y on True YES", "0 false f no n off False OFF"
    true(hosts, *(f"nbdkit.parse_bool({w!r}) is True" for w in yes.split()))
    true(hosts, *(f"nbdkit.parse_bool({w!r}) is False" for w in no.split()))
    raises(hosts, "ValueError", "nbdkit.parse_bool('maybe')", "nbdkit.parse_bool('')")
    raises(hosts, "TypeError", "nbdkit.parse_bool(1)")


DELAYS = {
    "0": (0, 0),
    "1": (1, 0),
    "1.5": (1, 500000000),
    "20ms": (0, 20000000),
    "5us": (0, 5000),
    "7ns": (0, 7),
    "2s": (2, 0),
    "1500ms": (1, 500000000),
}


@case("plugin.module.parse-delay", req=["PY-MOD-33"])
def test_parse_delay(hosts):
    """parse_delay gives seconds and nanoseconds."""
    true(hosts, *(f"nbdkit.parse_delay('d', {t!r}) == {v}" for t, v in DELAYS.items()))
    wrong = ("", "-1", "1x", "x", "1 m", "inf", "1e400")
    raises(hosts, "ValueError", *(f"nbdkit.parse_delay('d', {t!r})" for t in wrong))


@case("plugin.module.parse-probability", req=["PY-MOD-34"])
def test_parse_probability(hosts):
    """parse_probability knows 0.1, 10%, 1:10 and 1/10."""
    values = {"0.1": 0.1, "10%": 0.1, "1:10": 0.1, "1/10": 0.1, "0": 0.0, "1": 1.0}
    close = "abs(nbdkit.parse_probability('p', {!r}) - {}) < 1e-9"
    true(hosts, *(close.format(t, v) for t, v in values.items()))
    wrong = ("", "x", "1:", "1:0", "-1", "1%%")
    calls = [f"nbdkit.parse_probability('p', {t!r})" for t in wrong]
    raises(hosts, "ValueError", *calls)


@case("plugin.module.read-password", req=["PY-MOD-35"])
def test_read_password(hosts, tmp_path):
    """read_password: the text itself, +FILE, -FD; as bytes."""
    path = tmp_path / "secret"
    path.write_text("from a file\nsecond line\n")
    opened = "os.open({!r}, os.O_RDONLY)".format(str(path))
    true(
        hosts,
        "nbdkit.read_password('plain') == b'plain'",
        f"nbdkit.read_password('+' + {str(path)!r}) == b'from a file'",
        f"nbdkit.read_password('-%d' % {opened}) == b'from a file'",
    )


@case("plugin.module.small-ones", req=["PY-MOD-36", "PY-MOD-37", "PY-MOD-38"])
def test_small_ones(hosts):
    """stdio_safe, timestamp, name and the dumps give what they should."""
    true(
        hosts,
        "nbdkit.stdio_safe() is True",
        "isinstance(nbdkit.timestamp(), str) and nbdkit.timestamp() != ''",
        "isinstance(nbdkit.name(), str) and nbdkit.name() != ''",
        "nbdkit.debug_hexdump(b'some bytes') is None",
        "nbdkit.debug_hexdump(bytearray(100), 'prefix', 1000) is None",
        "nbdkit.debug_hexdiff(b'one', b'two') is None",
        "nbdkit.debug_hexdiff(bytes(100), bytes(100), 'prefix', 5) is None",
    )


@case("plugin.module.hexdump", req=["PY-MOD-38"])
def test_hexdump(hosts):
    """debug_hexdump and debug_hexdiff print with -v."""
    plugin = hosts.load("", record=False, options=("-v",))
    plugin.exec("nbdkit.debug_hexdump(b'ABCDEFGHIJKLMNOPQ', 'dump', 0)")
    log = plugin.wait_log("ABCDEFGHIJKLMNOP")
    assert "41 42 43 44" in log
    plugin.exec("nbdkit.debug_hexdiff(b'same here ABCD', b'same here abcd', 'd', 0)")
    plugin.wait_log("61 62 63 64")


@case("plugin.module.is-tls", req=["PY-MOD-28"])
def test_is_tls(hosts):
    """is_tls is a bool."""
    plugin = hosts.load(
        "def open(r): note('tls', nbdkit.is_tls()); return 1\n"
        "def pwrite(h, *a): note('tls', nbdkit.is_tls())",
        record=False,
    )
    plugin.client().pwrite(b"x", 0)
    assert [call.args for call in plugin.calls("tls")] == [["False"], ["False"]]


@case("plugin.module.peer", req=["PY-MOD-29"])
def test_peer(hosts):
    """peer_pid, peer_uid and peer_gid are this process's."""
    plugin = hosts.load(
        "def pwrite(h, *a): note('peer', nbdkit.peer_pid(), nbdkit.peer_uid(), "
        "nbdkit.peer_gid())",
        record=False,
    )
    plugin.client().pwrite(b"x", 0)
    mine = [str(n) for n in (os.getpid(), os.getuid(), os.getgid())]
    assert plugin.calls("peer")[0].args == mine


NOWHERE = "peer_pid peer_uid peer_gid is_tls export_name peer_security_context".split()


@case("plugin.module.nowhere", req=["PY-MOD-30", "PY-MOD-41", "PY-MOD-23"])
def test_nowhere(hosts):
    """Outside a connection they raise, and disconnect does nothing."""
    true(
        hosts,
        *(f"raised(nbdkit.{name}) is not None" for name in NOWHERE),
        "nbdkit.disconnect(True) is None",
        "nbdkit.disconnect(False) is None",
    )


@case("plugin.module.peer-tcp", req=["PY-MOD-30"])
def test_peer_tcp(hosts):
    """peer_pid of a TCP client raises."""
    plugin = hosts.load(
        "def pwrite(h, *a): note('peer', raised(nbdkit.peer_pid) is not None)",
        record=False,
        transport="tcp",
    )
    plugin.client().pwrite(b"x", 0)
    assert plugin.calls("peer")[0].args == ["True"]


@case("plugin.module.nanosleep", req=["PY-MOD-31"])
def test_nanosleep(hosts):
    """nanosleep gives None; a negative time raises."""
    true(
        hosts,
        "nbdkit.nanosleep(0, 0) is None",
        "nbdkit.nanosleep(0, 1000) is None",
        "raised(nbdkit.nanosleep, -1, 0) is not None",
        "raised(nbdkit.nanosleep, 0, -1) is not None",
        "raised(nbdkit.nanosleep, 1) == 'TypeError'",
    )
