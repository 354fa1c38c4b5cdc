# SPDX-License-Identifier: BSD-3-Clause
"""What a plugin may hand its buffers to: files, sockets, digests, and so on."""

from __future__ import annotations

import pytest

from nbdspec.case import case
from nbdspec.payloads import pattern

SECTION = "plugin.consumers"

SIZES = [1, 511, 4096, 65537, 2 << 20]
IMPORTS = "import array, base64, binascii, ctypes, hashlib, io, mmap, os, pickle\n"
IMPORTS += "import socket, sqlite3, ssl, struct, tempfile, zlib\n"


def takes(hosts, body: str, sizes=SIZES, helpers: str = "") -> None:
    """The body makes `got` out of `buf`; it has to be the bytes that were written."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    for api in (1, 2):
        plugin = hosts.load(
            IMPORTS
            + helpers
            + f"\ndef pwrite(h, buf, offset, *flags):\n{lines}"
            + "    note('got', bytes(got) == pattern(offset, len(buf)), len(buf))\n",
            api=api,
            record=False,
        )
        client = plugin.client()
        for size in sizes:
            client.pwrite(pattern(5, size), 5)
        found = [call.args for call in plugin.calls("got")]
        assert found == [["True", str(size)] for size in sizes], f"v{api}: {found}"


def fills(hosts, body: str, sizes=SIZES, helpers: str = "") -> None:
    """The body fills `buf` with `data`, which is what the client has to get."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    plugin = hosts.load(
        IMPORTS
        + helpers
        + "\ndef pread(h, buf, offset, flags):\n    data = pattern(offset, len(buf))\n"
        + lines,
        record=False,
    )
    client = plugin.client()
    for size in sizes:
        assert client.pread(size, 5) == pattern(5, size), f"{size} bytes"


@case("plugin.consumers.hashlib", req=["PY-USE-01"])
@pytest.mark.parametrize("name", ["md5", "sha1", "sha256", "blake2b"])
def test_hashlib(hosts, name):
    """hashlib takes the buffer."""
    takes(
        hosts,
        f"""
same = hashlib.{name}(buf).digest() == hashlib.{name}(pattern(offset, len(buf))).digest()
got = buf if same else b""
""",
    )


@case("plugin.consumers.zlib", req=["PY-USE-02"])
def test_zlib(hosts):
    """zlib takes the buffer."""
    takes(
        hosts,
        """
assert zlib.crc32(buf) == zlib.crc32(pattern(offset, len(buf)))
got = zlib.decompress(zlib.compress(buf, 1))
""",
    )


@case("plugin.consumers.file", req=["PY-USE-03"])
@pytest.mark.parametrize("buffering", [-1, 0, 65536])
def test_file(hosts, buffering):
    """A file, buffered or not, takes the buffer and its slices."""
    takes(
        hosts,
        f"""
with tempfile.TemporaryFile(buffering={buffering}) as file:
    half = len(buf) // 2
    assert file.write(buf) == len(buf)
    file.write(buf[half:])
    file.flush()
    file.seek(0)
    got = file.read(len(buf))
    assert file.read() == bytes(buf[half:])
""",
    )


@case("plugin.consumers.null-and-pipe", req=["PY-USE-04"])
def test_null_and_pipe(hosts):
    """os.write takes the buffer, for /dev/null and for a pipe."""
    takes(
        hosts,
        """
null = os.open("/dev/null", os.O_WRONLY)
assert os.write(null, buf) == len(buf)
os.close(null)
parts, (r, w) = [], os.pipe()
for at in range(0, len(buf), 4000):
    part = buf[at : at + 4000]
    os.write(w, part)
    parts.append(os.read(r, len(part)))
os.close(r); os.close(w)
got = b"".join(parts)
""",
    )


RECEIVER = """
def receiver(sock, count):
    data = bytearray()
    def run():
        while len(data) < count:
            part = sock.recv(1 << 16)
            if not part:
                break
            data.extend(part)
    thread = threading.Thread(target=run)
    thread.start()
    return thread, data
def pair(kind):
    if kind == "unix":
        return socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        return here, server.accept()[0]
def send_all(sock, send, buf):
    while len(buf):
        buf = buf[send(buf):]
"""
SENDS = {
    "sendall": "here.sendall(buf)",
    "send": "send_all(here, here.send, buf)",
    "sendmsg": "send_all(here, lambda b: here.sendmsg([b[:7], b[7:]]), buf)",
    "makefile": "f = here.makefile('wb'); f.write(buf); f.flush(); f.close()",
}


@case("plugin.consumers.socket", req=["PY-USE-05", "PY-USE-15", "PY-USE-17"])
@pytest.mark.parametrize("kind", ["unix", "tcp"])
@pytest.mark.parametrize("how", SENDS)
def test_socket(hosts, kind, how):
    """A socket takes the buffer, while a thread of the plugin receives it."""
    takes(
        hosts,
        f"""
here, there = pair("{kind}")
thread, got = receiver(there, len(buf))
{SENDS[how]}
thread.join()
here.close(); there.close()
""",
        helpers=RECEIVER,
    )


@case("plugin.consumers.ssl", req=["PY-USE-06"])
def test_ssl(hosts):
    """An ssl object takes the buffer."""
    takes(
        hosts,
        """
a_in, a_out = ssl.MemoryBIO(), ssl.MemoryBIO()
client = ssl.create_default_context()
client.check_hostname = False
client.verify_mode = ssl.CERT_NONE
client.set_ciphers("aNULL:@SECLEVEL=0")
client.maximum_version = ssl.TLSVersion.TLSv1_2
server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
server.set_ciphers("aNULL:@SECLEVEL=0")
server.maximum_version = ssl.TLSVersion.TLSv1_2
one = client.wrap_bio(a_in, a_out)
two = server.wrap_bio(a_out, a_in, server_side=True)
for side in (one, two, one, two):
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        pass
data, rest = [], buf
while len(rest):
    rest = rest[one.write(rest):]
    while a_out.pending:
        try:
            data.append(two.read(1 << 16))
        except ssl.SSLWantReadError:
            break
    if not len(rest):
        break
try:
    while True:
        data.append(two.read(1 << 16))
except ssl.SSLWantReadError:
    pass
got = b"".join(data)
""",
        sizes=[1, 511, 4096, 65537],
    )


@case("plugin.consumers.http", req=["PY-USE-07"])
def test_http(hosts):
    """http.client takes the buffer as a body."""
    takes(
        hosts,
        """
connection = http.client.HTTPConnection("localhost")
here, there = socket.socketpair()
connection.sock = here
thread, data = receiver(there, 1 << 40)
connection.request("PUT", "/image", body=buf, headers={"x": "y"})
here.shutdown(socket.SHUT_WR)
thread.join()
there.close(); connection.close()
head, _, got = bytes(data).partition(b"\\r\\n\\r\\n")
assert b"Content-Length: %d" % len(buf) in head, head
""",
        helpers="import http.client\n" + RECEIVER,
    )


@case("plugin.consumers.os-pwrite", req=["PY-USE-08"])
def test_os_pwrite(hosts):
    """os.pwrite and os.pwritev take the buffer."""
    takes(
        hosts,
        """
with tempfile.TemporaryFile() as file:
    fd = file.fileno()
    assert os.pwrite(fd, buf, 100) == len(buf)
    assert os.pwritev(fd, [buf[:3], buf[3:]], 100 + len(buf)) == len(buf)
    got = os.pread(fd, len(buf), 100)
    assert os.pread(fd, len(buf), 100 + len(buf)) == got
""",
    )


FILLS = {
    "preadv": "os.preadv(file.fileno(), [buf], 0)",
    "preadv-parts": "os.preadv(file.fileno(), [buf[:1], buf[1:]], 0)",
    "readinto": "file.readinto(buf)",
    "readinto-slices": """
half = len(buf) // 2
file.readinto(buf[:half])
file.readinto(buf[half:])""",
    "readv": "os.readv(file.fileno(), [buf])",
    "buffered": "io.BufferedReader(file, 4096).readinto(buf)",
    "bytesio": "io.BytesIO(data).readinto(buf)",
}


@case("plugin.consumers.fills", req=["PY-USE-09", "PY-USE-15"])
@pytest.mark.parametrize("how", FILLS)
def test_fills(hosts, how):
    """preadv, readv and readinto fill the buffer."""
    fills(
        hosts,
        f"""
file = tempfile.TemporaryFile(buffering=0)
os.pwrite(file.fileno(), data, 0)
{FILLS[how]}
file.close()
""",
    )


@case("plugin.consumers.recv-into", req=["PY-USE-09"])
@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_recv_into(hosts, kind):
    """recv_into and recvmsg_into fill the buffer."""
    fills(
        hosts,
        f"""
here, there = pair("{kind}")
thread = threading.Thread(target=here.sendall, args=(data,))
thread.start()
at = there.recvmsg_into([buf[:1]])[0]
while at < len(buf):
    at += there.recv_into(buf[at:])
thread.join()
here.close(); there.close()
""",
        helpers=RECEIVER,
    )


@case("plugin.consumers.mmap", req=["PY-USE-10"])
def test_mmap(hosts):
    """mmap takes the buffer in a slice, and fills it from one."""
    takes(
        hosts,
        """
mapped = mmap.mmap(-1, len(buf))
mapped[:] = buf
got = mapped[:]
""",
    )
    fills(
        hosts,
        """
mapped = mmap.mmap(-1, len(buf))
mapped.write(data)
buf[:] = memoryview(mapped)
""",
    )


@case("plugin.consumers.struct", req=["PY-USE-11"])
def test_struct(hosts):
    """struct and array work on the buffer."""
    takes(
        hosts,
        """
assert struct.unpack_from("B", buf) == (pattern(offset, 1)[0],)
assert struct.unpack(f"{len(buf)}B", buf) == tuple(buf)
numbers = array.array("B")
numbers.frombytes(buf)
got = numbers.tobytes()
""",
        sizes=[1, 511, 65537],
    )
    fills(
        hosts,
        """
struct.pack_into(f"{len(buf)}s", buf, 0, data)
""",
    )


@case("plugin.consumers.ctypes", req=["PY-USE-12"])
def test_ctypes(hosts):
    """ctypes copies from the buffer, and works in that of pread."""
    takes(hosts, "got = bytes((ctypes.c_char * len(buf)).from_buffer_copy(buf))")
    fills(
        hosts,
        """
chars = (ctypes.c_char * len(buf)).from_buffer(buf)
ctypes.memmove(chars, data, len(data))
del chars
""",
    )


@case("plugin.consumers.sqlite", req=["PY-USE-13"])
def test_sqlite(hosts):
    """sqlite3 takes the buffer as a BLOB."""
    takes(
        hosts,
        """
db = sqlite3.connect(":memory:")
db.execute("create table t (b blob)")
db.execute("insert into t values (?)", (buf,))
got = db.execute("select b from t").fetchone()[0]
db.close()
""",
    )


@case("plugin.consumers.numpy", req=["PY-USE-14", "PY-LOAD-29"])
def test_numpy(hosts):
    """numpy.frombuffer sees the buffer, writable as it is."""
    pytest.importorskip("numpy")
    takes(
        hosts,
        """
view = numpy.frombuffer(buf, dtype=numpy.uint8)
assert not view.flags.writeable
got = view.tobytes()
""",
        helpers="import numpy\n",
    )
    fills(
        hosts,
        """
view = numpy.frombuffer(buf, dtype=numpy.uint8)
view[:] = numpy.frombuffer(data, dtype=numpy.uint8)
""",
        helpers="import numpy\n",
    )


@case("plugin.consumers.pieces", req=["PY-USE-15"])
@pytest.mark.parametrize("step", [1000, 4096, 65536])
def test_pieces(hosts, step):
    """The buffer can be used up in slices."""
    takes(
        hosts,
        f"""
out, rest = io.BytesIO(), buf
while len(rest):
    out.write(rest[:{step}])
    rest = rest[{step}:]
got = out.getbuffer()
""",
    )


@case("plugin.consumers.encodings", req=["PY-USE-16"])
def test_encodings(hosts):
    """base64, binascii, pickle of its bytes, and BytesIO work."""
    takes(
        hosts,
        """
assert base64.b64decode(base64.b64encode(buf)) == pattern(offset, len(buf))
assert binascii.unhexlify(binascii.hexlify(buf)) == pattern(offset, len(buf))
assert pickle.loads(pickle.dumps(bytes(buf))) == bytes(buf)
assert bytes(buf).find(bytes(buf[-8:])) >= 0
assert int.from_bytes(buf[:8], "big") == int.from_bytes(pattern(offset, 8)[:len(buf)], "big")
got = io.BytesIO(buf).read()
""",
    )


@case("plugin.consumers.thread", req=["PY-USE-17"])
def test_thread(hosts):
    """A thread of the plugin may use the buffer until the callback returns."""
    takes(
        hosts,
        """
parts = []
thread = threading.Thread(target=lambda: parts.append(bytes(buf)))
thread.start()
thread.join()
got = parts[0]
""",
    )
    fills(
        hosts,
        """
def fill(): buf[:] = data
thread = threading.Thread(target=fill)
thread.start()
thread.join()
""",
    )
