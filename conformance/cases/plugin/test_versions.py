# SPDX-License-Identifier: BSD-3-Clause
"""Old plugins and new: version 1 and 2, and what --python-buffer hands over."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.nbd import EIO
from nbdspec.payloads import pattern

SECTION = "plugin.versions"

#: One source for both: pread gives its data in the way of its version.
DISK = """
disk = bytearray(1 << 20)
SIZE = len(disk)
def put(args, data):
    if API_VERSION == 1:
        return data
    args[0][:] = data
def pread(h, *args):
    count = args[0] if API_VERSION == 1 else len(args[0])
    return put(args, bytes(disk[args[1] : args[1] + count]))
def pwrite(h, buf, offset, *flags): disk[offset : offset + len(buf)] = buf
def trim(h, count, offset, *flags): disk[offset : offset + count] = bytes(count)
def zero(h, count, offset, *how): disk[offset : offset + count] = bytes(count)
def flush(h, *flags): pass
def cache(h, count, offset, flags): pass
def extents(h, count, offset, flags): return [(offset, count, 0)]
"""


def conversation(hosts, api: int) -> list[dict]:
    """What was sent and received, step by step, with a fixed talk."""
    plugin = hosts.load(DISK, api=api, record=False)
    before = len(hosts.run.transcript.steps)
    client = plugin.client(contexts=("base:allocation",))
    for size in (1, 512, 65537):
        client.pwrite(pattern(size, size), 100)
        client.pread(size, 100)
        client.pwrite(pattern(0, size), 4096, nbd.FUA)
    client.zero(4096, 8192)
    client.zero(4096, 8192, nbd.NO_HOLE)
    client.trim(512, 100)
    client.flush()
    client.cache(4096, 0)
    client.block_status(4096, 0)
    wire = client.wire
    wire.wait(wire.request(nbd.READ, 1 << 20, 1))
    wire.wait(wire.request(nbd.WRITE, (1 << 20) - 1, data=b"xx"))
    client.pread(65536, 0)
    steps = hosts.run.transcript.steps[before:]
    return [{k: s.get(k) for k in ("dir", "hex", "text")} for s in steps]


@case("plugin.versions.same-wire", req=["PY-OLD-01", "PY-OLD-02"])
def test_same_wire(hosts):
    """One source as version 1 and as version 2: the same bytes on the wire."""
    old, new = conversation(hosts, 1), conversation(hosts, 2)
    assert len(old) == len(new)
    for a, b in zip(old, new):
        assert a == b, f"version 1: {a['text']}; version 2: {b['text']}"


BUFFERS = ["memoryview", "bytearray", "bytes"]
#: What an old plugin does with its buffer, and under which types that works.
HABITS = {
    "mutates": ("buf[0] = 1", {"bytearray"}),
    "appends": ("buf.append(1)", {"bytearray"}),
    "decodes": ("buf.decode('latin-1')", {"bytearray", "bytes"}),
    "finds": ("buf.find(b'x')", {"bytearray", "bytes"}),
    "concatenates": ("buf + b'tail'", {"bytearray", "bytes"}),
    "keeps": ("kept.append(buf)", set(BUFFERS)),
    "hashes": ("{buf: 1}", {"memoryview", "bytes"}),
    "copies": ("bytes(buf).decode('latin-1')", set(BUFFERS)),
    "own-bytearray": ("bytearray(buf).append(1)", set(BUFFERS)),
    "slices": ("disk[0 : len(buf)] = buf[:]", set(BUFFERS)),
    "joins": ("b''.join([buf, b'tail'])", set(BUFFERS)),
    "compares": ("buf == bytes(buf) or 1 / 0", set(BUFFERS)),
}


@case(
    "plugin.versions.superset-habits",
    req=["PY-OLD-03", "PY-OLD-04", "PY-OLD-06", "PY-OLD-07"],
)
@pytest.mark.parametrize("kind", BUFFERS)
@pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])
def test_superset_habits(hosts, api, kind):
    """Each habit works under the types that have it, and is EIO under the others."""
    wrong = []
    for habit, (code, works) in HABITS.items():
        plugin = hosts.load(
            f"""
kept = []
disk = bytearray(4096)
def pwrite(h, buf, offset, *flags):
    note("type", type(buf).__name__)
    {code}
""",
            api=api,
            record=False,
            options=(f"--python-buffer={kind}",),
        )
        wire = plugin.go()
        error = wire.wait(wire.request(nbd.WRITE, 0, data=pattern(0, 512))).error
        wire.in_step()
        if error != (0 if kind in works else EIO):
            wrong.append(f"{habit}: {nbd.error_name(error)}")
        assert plugin.calls("type")[0].args == [f"'{kind}'"]
    assert not wrong, "\n".join(wrong)


@case("plugin.versions.superset-own-copy", req=["PY-OLD-03", "PY-OLD-04"])
@pytest.mark.parametrize("kind", ["bytearray", "bytes"])
def test_superset_own_copy(hosts, kind):
    """What the plugin keeps of such a copy is its own for ever."""
    plugin = hosts.load(
        """
kept = []
def pwrite(h, buf, offset, flags): kept.append(buf)
def pread(h, buf, offset, flags): buf[:] = b"R" * len(buf)
""",
        record=False,
        options=(f"--python-buffer={kind}",),
    )
    client = plugin.client()
    for i in range(6):
        client.pwrite(bytes([65 + i]) * 65536, 0)
        client.pread(65536, 0)
    good = "[b == bytes([65 + i]) * 65536 for i, b in enumerate(kept)]"
    assert plugin.eval(good) == [True] * 6


@case("plugin.versions.default-buffer", req=["PY-OLD-05"])
def test_default_buffer(hosts):
    """Without the option pwrite is handed a memoryview, as with =memoryview."""
    source = "def pwrite(h, buf, offset, flags): pass"
    for options in ((), ("--python-buffer=memoryview",)):
        plugin = hosts.load(source, options=options)
        plugin.client().pwrite(b"x", 0)
        assert plugin.calls("pwrite")[0].args[1]["type"] == "memoryview"


@case("plugin.versions.wrong-buffer", req=["PY-OLD-08"])
@pytest.mark.parametrize("kind", ["list", "", "Bytes", "memoryview,bytes"])
def test_wrong_buffer(hosts, kind):
    """Another word is refused."""
    done = hosts.command(
        ["-U", "s", "python", "p.py"],
        options=("-f", f"--python-buffer={kind}"),
        files={"p.py": "def open(r): pass\nget_size = pread = open\n"},
    )
    assert done.status == 1 and "python-buffer" in done.err, done.words
