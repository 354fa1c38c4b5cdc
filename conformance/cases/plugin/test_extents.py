# SPDX-License-Identifier: BSD-3-Clause
"""extents: what it may return, and what the client gets of it."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.nbd import EINVAL, EIO, REQ_ONE
from nbdspec.verdict import MUST

SECTION = "plugin.extents"

both = pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])


def load(hosts, value: str, **how):
    source = f"def extents(h, count, offset, flags): return {value}\n"
    return hosts.load(source, record=False, **how)


def ask(hosts, value: str, length=4096, offset=0, flags=0, **how):
    client = load(hosts, value, **how).client(contexts=("base:allocation",))
    return client.block_status(length, offset, flags)["base:allocation"]


def clipped(found: list[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Up to the end of the request; the last may reach beyond it."""
    rest, cut = length, []
    for count, kind in found:
        cut.append((min(count, rest), kind))
        rest -= cut[-1][0]
        if not rest:
            break
    return cut


ITERABLES = {
    "list": "[(0, 1024, 0), (1024, 3072, 3)]",
    "tuple": "((0, 1024, 0), (1024, 3072, 3))",
    "generator": "(e for e in [(0, 1024, 0), (1024, 3072, 3)])",
    "iterator": "iter([(0, 1024, 0), (1024, 3072, 3)])",
    "map": "map(tuple, [[0, 1024, 0], [1024, 3072, 3]])",
}


@case("plugin.extents.iterables", req=["PY-EXT-01"])
@both
@pytest.mark.parametrize("what", ITERABLES)
def test_iterables(hosts, api, what):
    """Any iterable of tuples (offset, length, type) will do."""
    found = ask(hosts, ITERABLES[what], api=api)
    assert clipped(found, 4096) == [(1024, 0), (3072, 3)]


@case("plugin.extents.types", req=["PY-EXT-02"])
@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_types(hosts, kind):
    """Data, HOLE, ZERO and both reach the client."""
    assert clipped(ask(hosts, f"[(0, 4096, {kind})]"), 4096) == [(4096, kind)]


@case("plugin.extents.before", req=["PY-EXT-03"])
@both
def test_before(hosts, api):
    """What lies ahead of the request is cut off, or skipped."""
    value = "[(0, 512, 3), (512, 1024, 0), (1536, 9999, 2)]"
    found = ask(hosts, value, length=4096, offset=1024, api=api)
    assert clipped(found, 4096) == [(512, 0), (3584, 2)]


@case("plugin.extents.merged", req=["PY-EXT-04"])
def test_merged(hosts):
    """Equal neighbours become one."""
    value = "[(i * 256, 256, 3 * (i >= 8)) for i in range(16)]"
    assert clipped(ask(hosts, value), 4096) == [(2048, 0), (2048, 3)]


@case("plugin.extents.empty-ones", req=["PY-EXT-05"])
def test_empty_ones(hosts):
    """Extents of length 0 are ignored."""
    value = "[(0, 0, 3), (0, 1024, 0), (1024, 0, 2), (1024, 3072, 3), (4096, 0, 1)]"
    assert clipped(ask(hosts, value), 4096) == [(1024, 0), (3072, 3)]


BROKEN = {
    "gap": "[(0, 512, 0), (1024, 3072, 0)]",
    "overlap": "[(0, 1024, 0), (512, 3584, 3)]",
    "order": "[(1024, 3072, 0), (0, 1024, 3)]",
    "late": "[(512, 3584, 0)]",
}


@case("plugin.extents.broken", req=["PY-EXT-06"])
@both
@pytest.mark.parametrize("what", BROKEN)
def test_broken(hosts, api, what):
    """A gap, an overlap, a wrong order, a late start: an error."""
    plugin = load(hosts, BROKEN[what], api=api)
    wire = plugin.go(contexts=("base:allocation",))
    cookie = wire.request(nbd.BLOCK_STATUS, 0, 4096)
    wire.expect_errno(cookie, EIO, also={EINVAL: MUST})
    wire.in_step()
    plugin.wait_log("error")


WRONG = {
    "none": "None",
    "int": "4096",
    "lists": "[[0, 4096, 0]]",
    "pairs": "[(0, 4096)]",
    "quads": "[(0, 4096, 0, 0)]",
    "str": "'text'",
    "floats": "[(0.0, 4096.0, 0.0)]",
    "strs": "[('0', '4096', '0')]",
    "nones": "[(None, None, None)]",
    "ints": "[0, 4096, 0]",
}


@case("plugin.extents.wrong", req=["PY-EXT-07"])
@both
@pytest.mark.parametrize("what", WRONG)
def test_wrong(hosts, api, what):
    """What is no list of extents: EIO."""
    wire = load(hosts, WRONG[what], api=api).go(contexts=("base:allocation",))
    wire.expect_errno(wire.request(nbd.BLOCK_STATUS, 0, 4096), EIO)
    wire.in_step()


@case("plugin.extents.none", req=["PY-EXT-08"])
@pytest.mark.parametrize("value", ["[]", "()", "[(0, 0, 0)]", "[(0, 1024, 0)]"])
def test_none(hosts, value):
    """Nothing, or nothing at the offset: an error."""
    wire = load(hosts, value).go(contexts=("base:allocation",))
    cookie = wire.request(nbd.BLOCK_STATUS, 2048, 1024)
    wire.expect_errno(cookie, EIO, also={EINVAL: MUST})
    wire.in_step()


@case("plugin.extents.one", req=["PY-EXT-09"])
@both
def test_one(hosts, api):
    """With REQ_ONE: one extent, at most as long as the request."""
    value = "[(0, 1024, 3), (1024, 65536, 0)]"
    assert ask(hosts, value, flags=REQ_ONE, api=api) == [(1024, 3)]
    assert ask(hosts, value, offset=2048, flags=REQ_ONE, api=api) == [(4096, 0)]


@case("plugin.extents.generator-raises", req=["PY-EXT-10"])
def test_generator_raises(hosts):
    """A generator that raises midway is an error."""
    plugin = hosts.load(
        """
def extents(h, count, offset, flags):
    yield (0, 1024, 3)
    raise RuntimeError("midway")
"""
    )
    wire = plugin.go(contexts=("base:allocation",))
    wire.expect_errno(wire.request(nbd.BLOCK_STATUS, 0, 4096), EIO)
    plugin.wait_log("midway")


@case("plugin.extents.large", req=["PY-EXT-11", "PY-EXT-14"])
@pytest.mark.parametrize("length", [4096, 2**32 - 1])
@pytest.mark.parametrize("size", [2**32, 2**40, 2**63 - 1])
def test_large(hosts, length, size):
    """An extent of 4 GiB and more is cut to what fits; the host lives."""
    source = "def extents(h, count, offset, flags): return [(0, SIZE, 3)]\n"
    plugin = hosts.load(source + f"SIZE = {size}\n", record=False)
    client = plugin.client(contexts=("base:allocation",))
    found = client.block_status(length, 0)["base:allocation"]
    assert found[0][1] == 3 and sum(count for count, _ in found) <= size
    client.in_step()


ABSURD = {
    "beyond": "[(0, 2**64 - 1, 0)]",
    "beyond-later": "[(0, 1024, 0), (1024, 2**64 - 1, 3)]",
    "negative": "[(-1, 4097, 0)]",
    "negative-length": "[(0, -4096, 0)]",
    "huge": "[(0, 2**70, 0)]",
    "huge-offset": "[(2**70, 1, 0)]",
    "huge-type": "[(0, 4096, 2**70)]",
    "top": "[(2**64 - 1, 2**64 - 1, 0)]",
}


@case("plugin.extents.absurd", req=["PY-EXT-12"])
@pytest.mark.parametrize("what", ABSURD)
def test_absurd(hosts, what):
    """Absurd numbers: an error, or what lies on the disk; the host lives."""
    wire = load(hosts, ABSURD[what]).go(contexts=("base:allocation",))
    wire.wait(wire.request(nbd.BLOCK_STATUS, 0, 4096))
    wire.in_step()


@case("plugin.extents.beyond-disk", req=["PY-EXT-14"])
def test_beyond_disk(hosts):
    """Extents may reach beyond the disk; nothing beyond it is sent."""
    source = "def extents(h, count, offset, flags): return [(0, 1 << 40, 2)]\n"
    plugin = hosts.load(source + "SIZE = 65536\n", record=False)
    client = plugin.client(contexts=("base:allocation",))
    found = client.block_status(4096, 57344)["base:allocation"]
    assert sum(count for count, _ in found) <= 8192, f"{found}"


@case("plugin.extents.sum", req=["PY-EXT-15"])
@pytest.mark.parametrize("step", [512, 1000, 4096])
def test_sum(hosts, step):
    """All but the last sum up to less than the request."""
    value = f"[({step} * i, {step}, i % 2) for i in range(40)]"
    ask(hosts, value)  # held against META rules by the client


@case("plugin.extents.many", req=["PY-EXT-15", "PY-EXT-02"])
def test_many(hosts):
    """Thousands of extents arrive in order."""
    value = "[(512 * i, 512, i % 2) for i in range(20000)]"
    found = ask(hosts, value, length=512 * 20000)
    assert found == [(512, i % 2) for i in range(20000)]


@case("plugin.extents.endless", req=["PY-EXT-16"])
def test_endless(hosts):
    """An endless generator does not hold the host for ever."""
    plugin = hosts.load(
        """
def extents(h, count, offset, flags):
    at = 0
    while True:
        yield (at, 512, at // 512 % 2)
        at += 512
""",
        record=False,
    )
    wire = plugin.go(contexts=("base:allocation",))
    wire.wait(wire.request(nbd.BLOCK_STATUS, 0, 4096))
    wire.in_step()


@case("plugin.extents.false", req=["PY-EXT-13"])
@both
def test_false(hosts, api):
    """can_extents false: one extent of data, and extents is not called."""
    plugin = hosts.load(
        "def can_extents(h): return False\n"
        "def extents(h, c, o, f): return [(o, c, 3)]\n",
        api=api,
    )
    client = plugin.client(contexts=("base:allocation",))
    assert client.block_status(4096, 512) == {"base:allocation": [(4096, 0)]}
    assert plugin.names("extents") == []
