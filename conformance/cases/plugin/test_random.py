# SPDX-License-Identifier: BSD-3-Clause
"""Plugins made at random, held against the model of the contract."""

from __future__ import annotations

import errno

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.model import RAISE, Model, Refused, Spec
from nbdspec.nbd import ERR_UNKNOWN
from nbdspec.payloads import go_payload

SECTION = "plugin.random"

SIZE = 1 << 20
NUMBERS = [errno.ENOSPC, errno.EPERM, errno.ENOENT, errno.EOPNOTSUPP, errno.ESHUTDOWN]
BOOLEANS = (
    "can_write can_flush can_trim can_zero can_fast_zero can_extents can_multi_conn "
    "is_rotational"
).split()

truth = st.sampled_from([True, True, False, False, RAISE])
level = st.sampled_from([0, 1, 2, 2, 1, True, False, -1, None, RAISE])
size = st.sampled_from([SIZE, SIZE, SIZE, SIZE, SIZE, SIZE, 512, 0, -5, "4096", None])
does = st.one_of(
    st.none(),
    st.none(),
    st.just(RAISE),
    st.tuples(st.just("error"), st.sampled_from(NUMBERS)),
)


@st.composite
def specs(draw) -> Spec:
    """Any subset of callbacks, with any results."""
    asks = draw(st.dictionaries(st.sampled_from(BOOLEANS), truth, max_size=5))
    levels = st.dictionaries(st.sampled_from(["can_fua", "can_cache"]), level)
    asks.update(draw(levels))
    names = "pread pwrite flush trim zero cache extents".split()
    data = draw(st.dictionaries(st.sampled_from(names), does))
    if draw(st.booleans()):
        data.setdefault("pwrite", None)
    return Spec(draw(st.sampled_from([1, 2])), draw(size), asks, data)


COMMANDS = [nbd.READ, nbd.WRITE, nbd.FLUSH, nbd.TRIM, nbd.CACHE, nbd.WRITE_ZEROES]
COMMANDS.append(nbd.BLOCK_STATUS)


@st.composite
def requests(draw) -> tuple[int, int, int, int]:
    """A command that makes sense, now and then one that does not."""
    command = draw(st.sampled_from(COMMANDS))
    flags = 0
    if command in (nbd.WRITE, nbd.TRIM, nbd.WRITE_ZEROES):
        flags |= draw(st.sampled_from([0, nbd.FUA]))
    if command == nbd.WRITE_ZEROES:
        flags |= draw(st.sampled_from([0, nbd.NO_HOLE]))
        flags |= draw(st.sampled_from([0, 0, nbd.FAST_ZERO]))
    if command == nbd.BLOCK_STATUS:
        flags |= draw(st.sampled_from([0, nbd.REQ_ONE]))
    if command == nbd.FLUSH:
        return command, 0, 0, flags
    offset = draw(st.sampled_from([0, 1, 511, 4096, SIZE - 512, SIZE]))
    return command, offset, draw(st.sampled_from([1, 512, 513])), flags


def expected_calls(spec: Spec, calls: list[tuple]) -> list[str]:
    """The model's calls as the record would tell them."""
    found = []
    for name, length, offset, flags in calls:
        place = "" if length is None else f" {length}@{offset}"
        told = spec.api == 2 or name in ("cache", "extents")
        if name == "zero" and spec.api == 1:
            found.append(f"{name}{place} {bool(flags & 1)}")
        else:
            found.append(f"{name}{place}" + (f" {flags}" if told else ""))
    return found


def recorded(spec: Spec, calls) -> list[str]:
    found = []
    for call in calls:
        rest = list(call.args[1:])
        if rest and isinstance(rest[0], dict):
            rest[0] = str(rest[0]["len"])
        place = f" {rest.pop(0)}@{rest.pop(0)}" if len(rest) >= 2 else ""
        found.append(" ".join([f"{call.name}{place}", *rest]))
    return found


#: Nothing is made smaller: each step of that would start a host that crashes anew.
ONCE = (Phase.explicit, Phase.generate)


def plain(spec: Spec, model: Model, request: tuple) -> bool:
    """Whether it is within what every host was written for."""
    command, _, _, flags = request
    if flags & nbd.FAST_ZERO and (not model.fast or spec.api == 1):
        return False
    if spec.api == 1 and spec.asks.get("can_fua") == 2:
        return False
    unsupported = ("error", errno.EOPNOTSUPP)
    return not (command == nbd.WRITE_ZEROES and spec.data.get("pwrite") == unsupported)


def play(hosts, spec: Spec, asked: list[tuple], all_of_it: bool) -> None:
    """One plugin: what it advertises, which callbacks are called, what is answered."""
    plugin = hosts.load(spec.source(), api=spec.api)
    wire = plugin.wire()
    try:
        model = Model(spec)
    except Refused:
        wire.option(nbd.GO, go_payload("x"))
        wire.expect_error(nbd.GO, ERR_UNKNOWN)
        return
    wire.negotiate_structured()
    wire.set_meta(("base:allocation",), "x")
    export = wire.go("x")
    flags = export.flags & ~nbd.SEND_DF
    assert flags == model.flags, (
        f"{nbd.flag_names(flags)}, not {nbd.flag_names(model.flags)}"
    )
    assert export.size == model.size
    names = set(model.asked)
    last = plugin.names()
    while "open" in last:
        del last[: last.index("open") + 1]
    seen = [n for n in last if n in names | set(spec.asks)]
    assert sorted(seen) == sorted(model.asked), f"asked {seen}, not {model.asked}"
    for request in asked:
        if not all_of_it and not plain(spec, model, request):
            continue
        command, offset, length, flags = request
        answer = model.request(command, offset, length, flags)
        before = len(plugin.calls())
        data = b"x" * length if command == nbd.WRITE else b""
        cookie = wire.request(command, offset, length, flags=flags, data=data)
        what = str(wire.pending[cookie])
        error = wire.wait(cookie).error
        calls = recorded(spec, plugin.calls()[before:])
        assert calls == expected_calls(spec, answer.calls), (
            f"{what}: calls {calls}, not {expected_calls(spec, answer.calls)}"
        )
        if flags & nbd.FAST_ZERO and not model.fast:
            assert error, f"{what}: success"
        else:
            assert error == answer.error, (
                f"{what}: {nbd.error_name(error)}, not {nbd.error_name(answer.error)}"
            )


def run(hosts, count: int, all_of_it: bool) -> None:
    @seed(20210101)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=ONCE,
        suppress_health_check=list(HealthCheck),
    )
    @given(specs(), st.lists(requests(), min_size=1, max_size=8))
    def one(spec: Spec, asked: list[tuple]) -> None:
        play(hosts, spec, asked, all_of_it)

    one()


@case("plugin.random.model", req=["PY-RAND-01", "PY-DEF-26"])
def test_model(hosts):
    """Random plugins advertise, call and answer what the model says."""
    run(hosts, 120, False)


@case("plugin.random.all-of-it", req=["PY-RAND-01", "PY-RAND-02"])
def test_all_of_it(hosts):
    """The same with what only a robust host gets right."""
    run(hosts, 120, True)


@case("plugin.random.model-long", req=["PY-RAND-01", "PY-RAND-02"], slow=True)
def test_model_long(hosts):
    """The same for many more."""
    run(hosts, 1500, True)
