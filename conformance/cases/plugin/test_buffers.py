# SPDX-License-Identifier: BSD-3-Clause
"""What plugins are handed as data: type, contents, what may be done with it."""

from __future__ import annotations

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.nbd import EIO
from nbdspec.payloads import pattern

SECTION = "plugin.buffers"

VERSIONS = pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
LENGTHS = pytest.mark.parametrize("length", [1, 512, 32768, 65536, 1 << 20])

#: pwrite by either version, its body to follow
PWRITE = {1: "def pwrite(h, buf, offset):", 2: "def pwrite(h, buf, offset, flags):"}


def program(version: int, body: str) -> str:
    """A program of one pwrite."""
    head = "API_VERSION = 2\n" if version == 2 else ""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return f"{head}{PWRITE[version]}\n{lines}"


@case("plugin.pwrite-memoryview", req=["BUF-01", "BUF-02", "BUF-06"])
@VERSIONS
@LENGTHS
def test_pwrite_memoryview(plugin, version, length):
    """pwrite gets a read-only memoryview of bytes, as long as the request."""
    host = plugin(program(version, 'note("pwrite", **describe(buf))'))
    host.wire().write(pattern(0, length), 0)
    seen = host.note("pwrite")
    del seen["what"], seen["thread"]
    assert seen == {
        "type": "memoryview",
        "readonly": True,
        "format": "B",
        "ndim": 1,
        "itemsize": 1,
        "contiguous": True,
        "length": length,
    }


@case("plugin.pwrite-readonly", req=["BUF-02", "FAIL-01"])
@VERSIONS
@pytest.mark.parametrize("length", [1, 65536])
def test_pwrite_readonly(plugin, version, length):
    """Storing into pwrite's buffer raises TypeError, and the request fails."""
    host = plugin(
        program(
            version,
            """
try:
    buf[0] = 0
except TypeError as error:
    note("refused", kind=type(error).__name__)
    raise
""",
        )
    )
    wire = host.wire()
    wire.expect_errno(wire.request(nbd.WRITE, 0, data=b"w" * length), EIO)
    host.note("refused")
    wire.in_step()


@case("plugin.pwrite-sliced", req=["BUF-04"])
@VERSIONS
@LENGTHS
def test_pwrite_sliced(plugin, version, length):
    """The buffer can be sliced: by odd steps, from behind, and slices of slices."""
    host = plugin(
        program(
            version,
            """
for at in range(0, len(buf), 4999):
    part = buf[at : at + 4999][:]
    disk[offset + at : offset + at + len(part)] = part
note("last", byte=buf[-1], backwards=bytes(buf[::-1][:8]).hex())
""",
        )
    )
    data = pattern(24, length)
    wire = host.wire()
    wire.write(data, 0)
    assert wire.read(length, 0) == data
    seen = host.note("last")
    assert (seen["byte"], seen["backwards"]) == (data[-1], data[::-1][:8].hex())


@case("plugin.pwrite-to-file", req=["BUF-05"])
@VERSIONS
@LENGTHS
def test_pwrite_to_file(plugin, version, length):
    """The buffer can be given to write(2), pwrite(2) and a buffered file."""
    host = plugin(
        "import tempfile\n"
        + program(
            version,
            """
with tempfile.TemporaryFile() as file:
    assert file.write(buf) == len(buf)
    file.flush()
    assert os.pwritev(file.fileno(), [buf, buf], 0) == 2 * len(buf)
    disk[: len(buf)] = os.pread(file.fileno(), len(buf), len(buf))
""",
        )
    )
    data = pattern(8, length)
    wire = host.wire()
    wire.write(data, 0)
    assert wire.read(length, 0) == data


@case("plugin.pwrite-to-socket", req=["BUF-05"])
@VERSIONS
@LENGTHS
def test_pwrite_to_socket(plugin, version, length):
    """The buffer can be sent over a socket while another thread receives."""
    host = plugin(
        program(
            version,
            """
a, b = socket.socketpair()
got = bytearray()
def receive():
    while len(got) < len(buf):
        got.extend(b.recv(65536))
thread = threading.Thread(target=receive)
thread.start()
a.sendall(buf)
thread.join()
a.close()
b.close()
disk[: len(got)] = got
""",
        )
    )
    data = pattern(16, length)
    wire = host.wire()
    wire.write(data, 0)
    assert wire.read(length, 0) == data


@case("plugin.pread-fills", req=["BUF-03"])
@LENGTHS
def test_pread_fills(plugin, length):
    """By version 2 pread fills a writable buffer, and the client gets that."""
    host = plugin(
        """
        API_VERSION = 2
        def pread(h, buf, offset, flags):
            note("pread", **describe(buf))
            buf[:] = bytes(disk[offset : offset + len(buf)])
        def pwrite(h, buf, offset, flags):
            disk[offset : offset + len(buf)] = buf
        """
    )
    wire = host.wire()
    data = pattern(0, length)
    wire.write(data, 4096 if length < 1 << 20 else 0)
    assert wire.read(length, 4096 if length < 1 << 20 else 0) == data
    seen = host.note("pread")
    assert (seen["type"], seen["readonly"]) == ("memoryview", False)
    assert seen["length"] == length


@case("plugin.python-buffer", req=["BUF-09"])
@VERSIONS
@pytest.mark.parametrize("kind", ["memoryview", "bytearray", "bytes"])
@pytest.mark.parametrize("length", [512, 65536])
def test_python_buffer(plugin, version, kind, length):
    """--python-buffer chooses the type that pwrite is handed; the data is the same."""
    host = plugin(
        program(
            version,
            """
note("pwrite", type=type(buf).__name__)
disk[offset : offset + len(buf)] = buf
""",
        ),
        options=(f"--python-buffer={kind}",),
        only="nbdspecd",
    )
    wire = host.wire()
    data = pattern(0, length)
    wire.write(data, 0)
    assert host.note("pwrite")["type"] == kind
    assert wire.read(length, 0) == data
