# SPDX-License-Identifier: BSD-3-Clause
"""What pwrite and pread are handed: type, properties, content."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.nbd import EIO
from nbdspec.payloads import pattern

SECTION = "plugin.buffers"

MIB = 1 << 20
SIZES = [1, 511, 512, 4095, 4096, 65537, 2 * MIB]
LARGE = [32 * MIB, 64 * MIB]

both = pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])

PWRITE = """
def pwrite(h, buf, offset, *flags):
    pass
"""
#: A disk that keeps what is written, for both versions.
DISK = """
disk = {}
def pwrite(h, buf, offset, *flags):
    disk[offset] = bytes(buf)
def pread(h, *args):
    if API_VERSION == 1:
        return disk[args[1]]
    args[0][:] = disk[args[1]]
"""


def checks(hosts, api: int, callback: str, expressions: list[str], size=4096):
    """Lets the plugin judge expressions about `buf`, whose content is `data`."""
    arguments = "h, buf, offset, *flags"
    plugin = hosts.load(
        f"""
def pwrite(h, buf, offset, *flags): pass
def {callback}({arguments}):
    if {callback == "pread"}:
        buf[:] = pattern(offset, len(buf))
    judge({expressions!r}, buf=buf, data=pattern(offset, {size}))
""",
        api=api,
        record=False,
    )
    client = plugin.client()
    if callback == "pwrite":
        client.pwrite(pattern(8, size), 8)
    else:
        assert client.pread(size, 8) == pattern(8, size), "other bytes were read"
    found = {call.args[0]: call.args[1] for call in plugin.calls("check")}
    assert len(found) == len(expressions)
    wrong = [f"{text}: {value}" for text, value in found.items() if value != "True"]
    assert not wrong, "\n".join(wrong)


def shape(buf: dict, size: int, readonly: bool) -> None:
    """What recording.describe told of a buffer is what it has to be."""
    seen = {key: buf[key] for key in buf if key not in ("head", "crc")}
    assert seen == {
        "type": "memoryview",
        "readonly": readonly,
        "format": "B",
        "itemsize": 1,
        "ndim": 1,
        "nbytes": size,
        "len": size,
        "strides": [1],
        "contiguous": True,
    }


@case(
    "plugin.buffers.pwrite-memoryview",
    req=["PY-BUF-01", "PY-BUF-02", "PY-BUF-03", "PY-BUF-04"],
)
@both
@pytest.mark.parametrize("size", SIZES + LARGE)
def test_pwrite_memoryview(hosts, api, size):
    """pwrite is handed a read-only memoryview of bytes, as long as the request."""
    plugin = hosts.load(PWRITE, api=api)
    plugin.client().pwrite(b"8 bytes." * (size // 8) + b"x" * (size % 8), 0)
    shape(plugin.calls("pwrite")[0].args[1], size, True)


@case("plugin.buffers.pread-memoryview", req=["PY-BUF-05", "PY-BUF-03", "PY-BUF-04"])
@pytest.mark.parametrize("size", SIZES + LARGE)
def test_pread_memoryview(hosts, size):
    """pread of version 2 is handed a writable memoryview of bytes."""
    plugin = hosts.load("def pread(h, buf, offset, flags): buf[:1] = b'r'")
    assert plugin.client().pread(size, 0)[:1] == b"r"
    shape(plugin.calls("pread")[0].args[1], size, False)


@case("plugin.buffers.content", req=["PY-BUF-21"])
@both
@pytest.mark.parametrize("size", SIZES)
def test_content(hosts, api, size):
    """What is written is what pwrite sees, and what pread gives is what is read."""
    plugin = hosts.load(DISK, api=api, record=False)
    client = plugin.client()
    client.pwrite(pattern(3, size), 3)
    assert plugin.eval(f"disk == {{3: pattern(3, {size})}}"), "pwrite saw other bytes"
    assert client.pread(size, 3) == pattern(3, size), "other bytes came back"


@case("plugin.buffers.content-large", req=["PY-BUF-21"], quick=False)
@both
@pytest.mark.parametrize("size", LARGE)
def test_content_large(hosts, api, size):
    """The same for the largest requests."""
    plugin = hosts.load(DISK, api=api, record=False)
    client = plugin.client()
    data = b"contents" * (size // 8)
    client.pwrite(data, 0)
    assert client.pread(size, 0) == data, "other bytes came back"


EQUAL = [
    "buf == data",
    "data == buf",
    "buf == bytearray(data)",
    "bytearray(data) == buf",
    "not buf == data[:-1]",
    "buf != data + b'x'",
    "buf == memoryview(data)",
]


@case("plugin.buffers.equality", req=["PY-BUF-06"])
@both
def test_equality(hosts, api):
    """The buffer equals bytes and bytearray of the same content, and no other."""
    checks(hosts, api, "pwrite", EQUAL)


@case("plugin.buffers.equality-pread", req=["PY-BUF-06"])
def test_equality_pread(hosts):
    """The same for the buffer of pread."""
    checks(hosts, 2, "pread", EQUAL)


@case("plugin.buffers.hash", req=["PY-BUF-07"])
@both
def test_hash(hosts, api):
    """A read-only buffer has the hash of its bytes, and works as a key."""
    checks(hosts, api, "pwrite", ["hash(buf) == hash(data)", "{data: 1}[buf] == 1"])


@case("plugin.buffers.hash-writable", req=["PY-BUF-07"])
def test_hash_writable(hosts):
    """A writable buffer has no hash."""
    checks(hosts, 2, "pread", ["raised(hash, buf) == 'ValueError'"])


SLICES = [
    "bytes(buf[::2]) == data[::2]",
    "bytes(buf[1::7]) == data[1::7]",
    "bytes(buf[::-1]) == data[::-1]",
    "bytes(buf[-5:]) == data[-5:]",
    "bytes(buf[:-5]) == data[:-5]",
    "bytes(buf[-100:-50:3]) == data[-100:-50:3]",
    "bytes(buf[100:50:-4]) == data[100:50:-4]",
    "bytes(buf[10:2000][5:-7][::3]) == data[10:2000][5:-7][::3]",
    "bytes(buf[::2][::2][::-1]) == data[::2][::2][::-1]",
    "len(buf[5:5]) == 0",
    "bytes(buf[4000:9999]) == data[4000:9999]",
    "buf[-1] == data[-1]",
    "not buf[::2].contiguous",
    "buf[::2].readonly == buf.readonly",
]


@case("plugin.buffers.slices", req=["PY-BUF-08"])
@both
def test_slices(hosts, api):
    """Slices, with steps and from behind, and slices of slices, are those of bytes."""
    checks(hosts, api, "pwrite", SLICES)


@case("plugin.buffers.slices-pread", req=["PY-BUF-08"])
def test_slices_pread(hosts):
    """The same for the buffer of pread."""
    checks(hosts, 2, "pread", SLICES)


@case("plugin.buffers.slice-assignment", req=["PY-BUF-08", "PY-BUF-05"])
def test_slice_assignment(hosts):
    """The buffer of pread can be filled by slices, from slices, and by items."""
    plugin = hosts.load(
        """
def pread(h, buf, offset, flags):
    data = pattern(offset, len(buf))
    buf[::2] = data[::2]
    odd = buf[1::2]
    for i in range(0, len(odd), 2):
        odd[i] = data[1::2][i]
    buf[1::2][1::2] = memoryview(data)[3::4]
"""
    )
    assert plugin.client().pread(4096, 16) == pattern(16, 4096)


CASTS = [
    "buf.cast('I').itemsize == 4",
    "buf.cast('I').tobytes() == data",
    "buf.cast('I').cast('B') == data",
    "buf.cast('B', [64, 64])[3, 5] == data[3 * 64 + 5]",
    "buf.cast('B', [64, 64]).shape == (64, 64)",
    "buf.cast('B', [64, 64]).cast('B') == data",
    "buf.cast('c')[0] == data[:1]",
    "buf.cast('Q')[2] == struct.unpack('Q', data[16:24])[0]",
    "buf.cast('I').readonly == buf.readonly",
]


@case("plugin.buffers.cast", req=["PY-BUF-09"])
@both
def test_cast(hosts, api):
    """cast to other formats and shapes, and back, keeps the content."""
    checks(hosts, api, "pwrite", CASTS)


@case("plugin.buffers.cast-pread", req=["PY-BUF-09"])
def test_cast_pread(hosts):
    """A cast of the buffer of pread can be stored into."""
    checks(hosts, 2, "pread", CASTS)
    plugin = hosts.load(
        """
def pread(h, buf, offset, flags):
    words = buf.cast("Q")
    for i in range(len(words)):
        words[i] = int.from_bytes((offset + 8 * i).to_bytes(8, "big"), "little")
"""
    )
    assert plugin.client().pread(4096, 64) == pattern(64, 4096)


COPIES = [
    "buf.tobytes() == data",
    "buf.tolist() == list(data)",
    "buf.hex() == data.hex()",
    "bytes(buf) == data",
    "bytearray(buf) == data",
    "b''.join([b'<', buf, b'>']) == b'<' + data + b'>'",
    "b''.join([buf[:10], buf[10:]]) == data",
    "list(buf) == list(data)",
]


@case("plugin.buffers.copies", req=["PY-BUF-10"])
@both
def test_copies(hosts, api):
    """tobytes, tolist, hex, bytes, bytearray and join give the content."""
    checks(hosts, api, "pwrite", COPIES)


SEQUENCE = [
    "len(buf) == len(data)",
    "[byte for byte in buf] == list(data)",
    "list(reversed(buf)) == list(reversed(data))",
    "(255 in buf) == (255 in data)",
    "max(buf) == max(data)",
    "sum(buf) == sum(data)",
    "buf[0] == data[0]",
    "raised(lambda: buf[len(buf)]) == 'IndexError'",
    "raised(lambda: buf['x']) == 'TypeError'",
    "all(a == b for a, b in zip(buf, data))",
    "bool(buf)",
]


@case("plugin.buffers.sequence", req=["PY-BUF-22"])
@both
def test_sequence(hosts, api):
    """Iteration, indexing, in, len and reversed work as on bytes."""
    checks(hosts, api, "pwrite", SEQUENCE)


@case("plugin.buffers.toreadonly", req=["PY-BUF-23"])
def test_toreadonly(hosts):
    """toreadonly gives a read-only view of the same bytes."""
    expressions = [
        "buf.toreadonly().readonly",
        "buf.toreadonly() == data",
        "address(buf.toreadonly()) == address(buf)",
        "not buf.readonly",
    ]
    checks(hosts, 2, "pread", expressions)


WRONG_IN_PWRITE = {
    "item": "buf[0] = 1",
    "slice": "buf[:4] = b'abcd'",
    "all": "buf[:] = bytes(len(buf))",
    "delete": "del buf[0]",
    "append": "buf.append(1)",
    "extend": "buf.extend(b'x')",
    "decode": "buf.decode()",
    "add": "buf + b'x'",
    "iadd": "buf += b'x'",
    "find": "buf.find(b'x')",
    "startswith": "buf.startswith(b'x')",
    "range": "buf[len(buf)]",
    "cast": "buf.cast('I')[0] = 1",
    "ctypes": "(ctypes.c_char * 8).from_buffer(buf)",
    "readinto": "io.BytesIO(b'12345678').readinto(buf)",
}
EXPECTED = {
    "append": "AttributeError",
    "extend": "AttributeError",
    "decode": "AttributeError",
    "find": "AttributeError",
    "startswith": "AttributeError",
    "range": "IndexError",
}


@case(
    "plugin.buffers.pwrite-refuses",
    req=["PY-BUF-11", "PY-BUF-13", "PY-BUF-24", "PY-BUF-02"],
)
@both
@pytest.mark.parametrize("what", WRONG_IN_PWRITE)
def test_pwrite_refuses(hosts, api, what):
    """What a read-only view cannot do raises; the client gets EIO and goes on."""
    plugin = hosts.load(
        f"""
import ctypes, io
def pwrite(h, buf, offset, *flags):
    before = bytes(buf)
    try:
        {WRONG_IN_PWRITE[what]}
    except Exception as error:
        note("raised", type(error).__name__, bytes(buf) == before)
        raise
""",
        api=api,
        record=False,
    )
    wire = plugin.go()
    wire.expect_errno(wire.request(nbd.WRITE, 0, data=pattern(0, 64)), EIO)
    wire.in_step()
    raised = plugin.calls("raised")[0].args
    expected = EXPECTED.get(what, "TypeError")
    assert raised[0] in (f"'{expected}'", "'BufferError'"), f"it raised {raised[0]}"
    assert raised[1] == "True", "the buffer was changed all the same"


WRONG_IN_PREAD = {
    "longer": ("buf[:] = bytes(len(buf) + 1)", "ValueError"),
    "shorter": ("buf[:] = bytes(len(buf) - 1)", "ValueError"),
    "slice": ("buf[:8] = b'x'", "ValueError"),
    "str": ("buf[:] = 'x' * len(buf)", "TypeError"),
    "none": ("buf[:] = None", "TypeError"),
    "value": ("buf[0] = 256", "ValueError"),
    "type": ("buf[0] = 'x'", "TypeError"),
    "delete": ("del buf[0]", "TypeError"),
    "range": ("buf[len(buf)] = 1", "IndexError"),
    "append": ("buf.append(1)", "AttributeError"),
    "extend": ("buf.extend(b'x')", "AttributeError"),
}


@case(
    "plugin.buffers.pread-refuses", req=["PY-BUF-12", "PY-BUF-13", "PY-BUF-24"]
)
@pytest.mark.parametrize("what", WRONG_IN_PREAD)
def test_pread_refuses(hosts, what):
    """What does not fit into the buffer raises; the client gets EIO and goes on."""
    code, expected = WRONG_IN_PREAD[what]
    plugin = hosts.load(
        f"""
def pread(h, buf, offset, flags):
    if offset:
        return
    try:
        {code}
    except Exception as error:
        note("raised", type(error).__name__)
        raise
""",
        record=False,
    )
    wire = plugin.go()
    wire.expect_errno(wire.request(nbd.READ, 0, 64), EIO)
    assert wire.read(64, 512) == bytes(64), "the next read has other bytes"
    assert plugin.calls("raised")[0].args == [f"'{expected}'"]


@case("plugin.buffers.release", req=["PY-BUF-14"])
@both
def test_release(hosts, api):
    """A plugin that releases the view itself does no harm."""
    plugin = hosts.load(
        """
def pwrite(h, buf, offset, *flags):
    note("first", buf[0])
    buf.release()
def pread(h, *args):
    if API_VERSION == 1:
        return b"r" * args[0]
    args[0][:] = b"r" * len(args[0])
    args[0].release()
""",
        api=api,
        record=False,
    )
    client = plugin.client()
    for size in (16, 4096, 65536):
        client.pwrite(b"w" * size, 0)
        assert client.pread(size, 0) == b"r" * size
    assert [c.args for c in plugin.calls("first")] == [["119"]] * 3
