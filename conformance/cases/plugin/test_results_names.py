# SPDX-License-Identifier: BSD-3-Clause
"""What callbacks may return as names and descriptions of exports."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.nbd import ERR_PLATFORM, ERR_UNKNOWN
from nbdspec.payloads import go_payload

SECTION = "plugin.results"

both = pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])

LISTS = {
    "names": ("['a', 'b']", [("a", ""), ("b", "")]),
    "bytes": ("[b'a', b'b']", [("a", ""), ("b", "")]),
    "described": ("[('a', 'first'), ('b', '')]", [("a", "first"), ("b", "")]),
    "described-bytes": ("[(b'a', b'first')]", [("a", "first")]),
    "mixed": ("['a', ('b', 'second')]", [("a", ""), ("b", "second")]),
    "tuple": ("('a', 'b', 'c')", [("a", ""), ("b", ""), ("c", "")]),
    "generator": ("(str(i) for i in range(3))", [(str(i), "") for i in range(3)]),
    "set": ("{'only'}", [("only", "")]),
    "dict": ("{'key': 1}", [("key", "")]),
    "str": ("'abc'", [("a", ""), ("b", ""), ("c", "")]),
    "none": ("[]", []),
    "twice": ("['a', 'a']", [("a", ""), ("a", "")]),
    "utf-8": ("['päth/名前', '']", [("päth/名前", ""), ("", "")]),
    "long": ("['n' * 4096]", [("n" * 4096, "")]),
    "long-description": ("[('n', 'd' * 4096)]", [("n", "d" * 4096)]),
}


@case(
    "plugin.results.list-exports",
    req=[
        "PY-RET-25",
        "PY-RET-26",
        "PY-RET-27",
        "PY-RET-30",
        "PY-RET-38",
        "PY-RET-39",
        "PY-EXP-02",
    ],
)
@both
@pytest.mark.parametrize("what", LISTS)
def test_list_exports(hosts, api, what):
    """list_exports may be any iterable of names, or of names with descriptions."""
    value, expected = LISTS[what]
    plugin = hosts.load(f"def list_exports(r, t): return {value}", api=api)
    wire = plugin.wire()
    assert wire.list() == expected
    wire.findings[:] = [f for f in wire.findings if f.row != "STR-02"]
    wire.in_step()


@case("plugin.results.list-exports-10000", req=["PY-RET-29"])
def test_list_exports_10000(hosts):
    """10000 exports are listed."""
    source = "def list_exports(r, t): return [str(i) for i in range(10000)]"
    assert len(hosts.load(source).wire().list()) == 10000


LISTS_WRONG = {
    "int": "5",
    "none": "None",
    "ints": "[1, 2]",
    "triple": "[('a', 'b', 'c')]",
    "single": "[('a',)]",
    "list": "[['a', 'b']]",
    "none-description": "[('a', None)]",
    "none-name": "[None]",
    "too-long": "['n' * 4097]",
    "too-long-description": "[('n', 'd' * 4097)]",
    "too-many": "(str(i) for i in range(10001))",
}


@case(
    "plugin.results.list-exports-wrong",
    req=["PY-RET-28", "PY-RET-29", "PY-RET-30", "PY-ERR-19"],
)
@pytest.mark.parametrize("what", LISTS_WRONG)
def test_list_exports_wrong(hosts, what):
    """What is no list of exports: ERR_PLATFORM, and the connection goes on."""
    source = f"def list_exports(r, t): return {LISTS_WRONG[what]}"
    wire = hosts.load(source).wire()
    wire.option(nbd.LIST)
    wire.expect_error(nbd.LIST, ERR_PLATFORM)
    wire.go("x")


@case("plugin.results.list-exports-generator", req=["PY-RET-35"])
def test_list_exports_generator(hosts):
    """A generator that raises midway is an error, not a short list."""
    plugin = hosts.load(
        """
def list_exports(r, t):
    yield "one"
    raise RuntimeError("midway")
"""
    )
    wire = plugin.wire()
    wire.option(nbd.LIST)
    wire.expect_error(nbd.LIST, ERR_PLATFORM)
    plugin.wait_log("midway")
    wire.go("x")


TEXTS = {"str": "'name'", "bytes": "b'name'", "utf-8": "'ñame'", "empty": "''"}


def text_of(what: str) -> str:
    value = eval(TEXTS[what])
    return value.decode() if isinstance(value, bytes) else value


@case("plugin.results.default-export", req=["PY-RET-31", "PY-EXP-03"])
@both
@pytest.mark.parametrize("what", TEXTS)
def test_default_export(hosts, api, what):
    """default_export may be str or bytes; it is the canonical name of ""."""
    source = f"def default_export(r, t): return {TEXTS[what]}"
    export = hosts.load(source, api=api).wire().go("", [nbd.INFO_NAME])
    assert export.name == text_of(what), f"the name is {export.name!r}"


NAMES_WRONG = {
    "none": "None",
    "int": "1",
    "long": "'n' * 4097",
    "raise": "1 / 0",
    "list": "['n']",
}


@case("plugin.results.default-export-wrong", req=["PY-RET-31", "PY-ERR-20"])
@pytest.mark.parametrize("what", NAMES_WRONG)
def test_default_export_wrong(hosts, what):
    """A wrong default export refuses ""; another name works."""
    source = f"def default_export(r, t): return {NAMES_WRONG[what]}"
    wire = hosts.load(source).wire()
    wire.option(nbd.GO, go_payload(""))
    wire.expect_error(nbd.GO, ERR_UNKNOWN)
    wire.go("other")


@case("plugin.results.description", req=["PY-RET-32", "PY-EXP-04"])
@both
@pytest.mark.parametrize("what", TEXTS)
def test_description(hosts, api, what):
    """export_description may be str or bytes."""
    source = f"def export_description(h): return {TEXTS[what]}"
    export = hosts.load(source, api=api).wire().go("x", [nbd.INFO_DESCRIPTION])
    assert (export.description or "") == text_of(what)


@case("plugin.results.description-wrong", req=["PY-RET-32", "PY-ERR-24"])
@pytest.mark.parametrize("what", NAMES_WRONG)
def test_description_wrong(hosts, what):
    """A wrong description is left out; the export works."""
    source = f"def export_description(h): return {NAMES_WRONG[what]}"
    export = hosts.load(source).wire().go("x", [nbd.INFO_DESCRIPTION])
    assert export.description is None, f"{export.description!r}"


@case("plugin.results.surrogates", req=["PY-RET-33"])
@pytest.mark.parametrize("name", ["list_exports", "list_described"])
def test_surrogates(hosts, name):
    """A lone surrogate in a list is refused; the host lives."""
    value = "['\\udcff']" if name == "list_exports" else "[('a', '\\udcff')]"
    wire = hosts.load(f"def list_exports(r, t): return {value}").wire()
    wire.option(nbd.LIST)
    wire.expect_error(nbd.LIST)
    wire.go("x")


@case("plugin.results.surrogates-default", req=["PY-RET-33"])
def test_surrogates_default(hosts):
    """A lone surrogate in the default export refuses ""; the host lives."""
    wire = hosts.load("def default_export(r, t): return '\\udcff'").wire()
    wire.option(nbd.GO, go_payload(""))
    wire.expect_error(nbd.GO)
    wire.go("x")


@case("plugin.results.surrogates-description", req=["PY-RET-33"])
def test_surrogates_description(hosts):
    """A lone surrogate in a description leaves it out; the host lives."""
    wire = hosts.load("def export_description(h): return '\\udcff'").wire()
    export = wire.go("x", [nbd.INFO_DESCRIPTION])
    assert export.description is None
    wire.in_step()


@case("plugin.results.nul", req=["PY-RET-34"])
@pytest.mark.parametrize("value", ["['a\\0b']", "[b'a\\0b']", "[('a', 'b\\0c')]"])
def test_nul(hosts, value):
    """A NUL never gets to a client: refused, or cut off before it."""
    wire = hosts.load(f"def list_exports(r, t): return {value}").wire()
    wire.option(nbd.LIST)
    found, last = wire.final(nbd.LIST)
    for answer in found:
        assert "\0" not in "".join(wire.parse_server(answer))
    assert last.is_error or found
    wire.go("x")
