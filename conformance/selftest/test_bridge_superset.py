# SPDX-License-Identifier: BSD-3-Clause
"""What this server offers beyond nbdkit, and how --nbdkit-compat turns it off.

docs/nbdkit-compat.md has the list.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import nbd
import pytest
from server_process import Server, needs_python

pytestmark = needs_python

PLUGIN = """
import errno
import os
import sys
import nbdkit
API_VERSION = 2
def open(readonly): return 1
def get_size(h): return 1 << 20
def pread(h, buf, offset, flags): pass
def pwrite(h, buf, offset, flags): pass
"""


def serve(place: Path, text: str, *options: str) -> Server:
    script = place / "plugin.py"
    script.write_text(PLUGIN + text)
    return Server(place, *options, "python", str(script))


def connect(server: Server, name: str = "") -> nbd.NBD:
    h = nbd.NBD()
    h.set_export_name(name)
    h.connect_unix(server.socket)
    return h


#: What the server says by itself.
PLAIN = "input or output failed"


def read_error(server: Server) -> tuple[str, str | None]:
    """The error of a read: its number's name, and the words that came with it."""
    words: list[str] = []

    def listen(context: str, message: str) -> int:
        found = re.search(r"structured error server message: (.*)", message, re.DOTALL)
        if found:
            words.append(found[1])
        return 0

    h = nbd.NBD()
    h.set_debug(True)
    h.set_debug_callback(listen)
    h.connect_uri(f"nbd+unix:///?socket={server.socket}")
    with pytest.raises(nbd.Error) as caught:
        h.pread(512, 0)
    h.shutdown()
    return errno.errorcode[caught.value.errnum or 0], words[0] if words else None


FULL = """
def pread(h, buf, offset, flags):
    raise OSError(errno.ENOSPC, "No space left on device", "/secret/path")
"""
ERROR = """
def pread(h, buf, offset, flags):
    nbdkit.error("the ticket \\udcff has expired")
    raise RuntimeError("secret")
"""
OTHER = """
def pread(h, buf, offset, flags):
    raise RuntimeError("the database says no")
"""
TEXTS = {
    "OSError": (FULL, (), ("ENOSPC", "No space left on device")),
    "error": (ERROR, (), ("EIO", "the ticket \\udcff has expired")),
    "other": (OTHER, (), ("EIO", PLAIN)),
    "error-text": (
        OTHER,
        ("--error-text",),
        ("EIO", "RuntimeError: the database says no"),
    ),
    "OSError-in-nbdkit": (FULL, ("--nbdkit-compat",), ("EIO", PLAIN)),
    "error-text-in-nbdkit": (
        OTHER,
        ("--nbdkit-compat", "--error-text"),
        ("EIO", PLAIN),
    ),
}


@pytest.mark.parametrize("way", TEXTS)
def test_words_for_the_client(place: Path, way: str) -> None:
    text, options, expected = TEXTS[way]
    with serve(place, text, *options) as server:
        assert read_error(server) == expected


def test_long_words_are_cut_at_a_character(place: Path) -> None:
    text = "def pread(*a):\n    nbdkit.error('\\u20ac' * 3000)\n    raise ValueError\n"
    with serve(place, text) as server:
        number, words = read_error(server)
        assert number == "EIO" and words
        assert words == "\u20ac" * len(words) and 10 < len(words) <= 4096 // 3


def test_words_belong_to_one_request(place: Path) -> None:
    """What an earlier callback said is not the next error's text."""
    text = (
        "def pwrite(*a): nbdkit.error('from pwrite'); nbdkit.set_error(errno.ENOSPC)\n"
        "def pread(*a): raise ValueError\n"
    )
    with serve(place, text) as server:
        h = connect(server)
        h.pwrite(b"x", 0)
        h.shutdown()
        assert read_error(server) == ("EIO", PLAIN)


ZERO = {
    "set_error": ("nbdkit.set_error(errno.EOPNOTSUPP); raise ValueError", True),
    "set_error-alone": ("nbdkit.set_error(errno.EOPNOTSUPP)", True),
    "ENOTSUP": ("nbdkit.set_error(errno.ENOTSUP); raise ValueError", True),
    "OSError": ("raise OSError(errno.EOPNOTSUPP, 'no')", False),
}


@pytest.mark.parametrize("compat", [(), ("--nbdkit-compat",)], ids=["", "compat"])
@pytest.mark.parametrize("way", ZERO)
def test_the_fallback_of_zero(place: Path, way: str, compat: tuple[str, ...]) -> None:
    """Zeroes are written when zero says that it cannot; no traceback then."""
    body, in_nbdkit = ZERO[way]
    text = (
        f"def zero(h, count, offset, flags): {body}\n"
        "def pwrite(h, buf, offset, flags):\n"
        "    print('pwrite', offset, len(buf), bytes(buf) == bytes(len(buf)))\n"
    )
    with serve(place, text, *compat) as server:
        h = connect(server)
        if compat and not in_nbdkit:
            with pytest.raises(nbd.Error):
                h.zero(1000, 24)
        else:
            h.zero(1000, 24)
            assert "Traceback" not in server.log()
        h.shutdown()
        server.stop()
        written = "pwrite 24 1000 True" in server.log()
        if not compat:
            assert written


def test_eopnotsupp_elsewhere_is_an_error(place: Path) -> None:
    text = "def trim(*a): raise OSError(errno.EOPNOTSUPP, 'no')\n"
    with serve(place, text) as server:
        h = connect(server)
        with pytest.raises(nbd.Error) as caught:
            h.trim(512, 0)
        assert caught.value.errnum == errno.EIO


@pytest.mark.parametrize(
    ("result", "warnings"),
    [("bytes(len(buf))", 1), ("buf", 0), ("len(buf)", 0), ("None", 0)],
)
def test_data_that_version_2_returns(place: Path, result: str, warnings: int) -> None:
    """They are read as zeroes, as by nbdkit; here it is said, and said once."""
    text = f"def pread(h, buf, offset, flags): return {result}\n"
    with serve(place, text) as server:
        h = connect(server)
        assert h.pread(512, 0) == h.pread(512, 512) == bytes(512)
        h.shutdown()
        server.stop()
        found = server.log().count("pread: returned a bytes, which is ignored")
        assert found == warnings, server.log()


def test_native_fua_of_version_1_is_not_lost(place: Path) -> None:
    text = """
API_VERSION = 1
def pread(h, count, offset): return bytes(count)
def pwrite(h, buf, offset): print("pwrite")
def flush(h): print("flush")
def can_fua(h): return nbdkit.FUA_NATIVE
"""
    with serve(place, text) as server:
        h = connect(server)
        assert h.can_fua()
        h.pwrite(b"x", 0, nbd.CMD_FLAG_FUA)
        h.shutdown()
        server.stop()
        assert "pwrite\nflush\n" in server.log()
        assert "can_fua: returned FUA_NATIVE" in server.log()


def test_native_fua_of_version_1_without_flush(place: Path) -> None:
    text = """
API_VERSION = 1
def pread(h, count, offset): return bytes(count)
def pwrite(h, buf, offset): pass
def can_fua(h): return nbdkit.FUA_NATIVE
"""
    with serve(place, text) as server:
        assert not connect(server).can_fua()


# -------- The module

MODULE = """
import threading
results = []
def note(name, f, *args):
    try:
        results.append(f"{name} {f(*args)!r}")
    except Exception as e:
        results.append(f"{name} {type(e).__name__}: {e}")
def all_of_it(where):
    for name in ("export_name is_tls peer_pid peer_uid peer_gid peer_tls_dn"
                 " peer_tls_issuer_dn name stdio_safe").split():
        note(where + name, getattr(nbdkit, name))
all_of_it("load ")
def preconnect(r): all_of_it("preconnect ")
def open(r):
    all_of_it("open ")
    t = threading.Thread(target=all_of_it, args=("thread ",))
    t.start()
    t.join()
    return 1
def pread(h, buf, offset, flags): all_of_it("pread ")
def close(h): all_of_it("close ")
def cleanup():
    for line in results:
        print(line)
"""


def test_who_is_there(place: Path) -> None:
    with serve(place, MODULE) as server:
        h = connect(server, "the name")
        h.pread(1, 0)
        h.shutdown()
        server.stop()
        lines = server.log().splitlines()
        for where in ("open", "pread", "close"):
            assert f"{where} export_name 'the name'" in lines
            assert f"{where} is_tls False" in lines
            assert f"{where} peer_pid {os.getpid()}" in lines
            assert f"{where} peer_uid {os.getuid()}" in lines
            assert f"{where} peer_gid {os.getgid()}" in lines
            assert f"{where} peer_tls_dn ''" in lines
            assert f"{where} name 'nbdspecd'" in lines
        log = server.log()
        assert f"preconnect peer_pid {os.getpid()}" in lines
        for where in ("load", "thread", "preconnect"):
            assert f"{where} export_name RuntimeError: " in log
        for where in ("load", "thread"):
            assert f"{where} peer_pid RuntimeError: " in log


def test_a_name_beyond_ascii(place: Path) -> None:
    with serve(place, MODULE) as server:
        connect(server, "caf\u00e9").shutdown()
        server.stop()
        assert "open export_name 'caf\u00e9'" in server.log()


PARSED = [
    ("parse_bool('Yes')", "True"),
    ("parse_bool('oFF')", "False"),
    ("parse_bool('1')", "True"),
    ("parse_bool('f')", "False"),
    ("parse_bool('')", "ValueError"),
    ("parse_bool('maybe')", "ValueError"),
    ("parse_bool(1)", "TypeError"),
    ("parse_delay('d', '1')", "(1, 0)"),
    ("parse_delay('d', '1.5')", "(1, 500000000)"),
    ("parse_delay('d', '1.2s')", "(1, 200000000)"),
    ("parse_delay('d', '120ms')", "(0, 120000000)"),
    ("parse_delay('d', '1.2us')", "(0, 1200)"),
    ("parse_delay('d', '120\u03bcs')", "(0, 120000)"),
    ("parse_delay('d', '120\u00b5s')", "(0, 120000)"),
    ("parse_delay('d', '1ns')", "(0, 1)"),
    ("parse_delay('d', '0')", "(0, 0)"),
    ("parse_delay('d', '0.1ns')", "ValueError"),
    ("parse_delay('d', '-1')", "ValueError"),
    ("parse_delay('d', 'inf')", "ValueError"),
    ("parse_delay('d', 'nan')", "ValueError"),
    ("parse_delay('d', '9999999999')", "ValueError"),
    ("parse_delay('d', '1m')", "ValueError"),
    ("parse_delay('d', '')", "ValueError"),
    ("parse_probability('p', '0.1')", "0.1"),
    ("parse_probability('p', '1e-1')", "0.1"),
    ("parse_probability('p', '10%')", "0.1"),
    ("parse_probability('p', '1:10')", "0.1"),
    ("parse_probability('p', '1/10')", "0.1"),
    ("parse_probability('p', '200%')", "2.0"),
    ("parse_probability('p', '0:0')", "0.0"),
    ("parse_probability('p', '1:0')", "ValueError"),
    ("parse_probability('p', '-1')", "ValueError"),
    ("parse_probability('p', 'inf')", "ValueError"),
    ("parse_probability('p', '10%%')", "ValueError"),
    ("parse_probability('p', 'x')", "ValueError"),
    ("parse_size('1M')", "1048576"),
    ("parse_size('7E')", "8070450532247928832"),
    ("parse_size('8E')", "ValueError"),
    ("parse_size('1.5M')", "ValueError"),
    ("parse_size(17)", "TypeError"),
    ("read_password('secret')", "b'secret'"),
    ("read_password('+{file}')", "b'from a file'"),
    ("read_password('+{file}.no')", "FileNotFoundError"),
    ("read_password('-0')", "ValueError"),
    ("read_password('-2')", "ValueError"),
    ("read_password('-x')", "ValueError"),
    ("read_password('-99')", "OSError"),
    ("debug('%s %n')", "None"),
    ("debug(1)", "TypeError"),
    ("debug('a\\0b')", "ValueError"),
    ("debug('\\udc80')", "UnicodeEncodeError"),
    ("set_error(2 ** 31)", "OverflowError"),
    ("set_error('5')", "TypeError"),
    ("export_name(1)", "TypeError"),
    ("shutdown(1)", "TypeError"),
    ("nanosleep(0, 1)", "None"),
    ("nanosleep(-1, 0)", "ValueError"),
    ("nanosleep(2 ** 31 - 1, 1000000000)", "ValueError"),
    ("debug_hexdump(b'', '', 0)", "None"),
    ("debug_hexdiff(b'1', b'', '', 0)", "ValueError"),
    ("disconnect(True)", "None"),
]


def test_functions(place: Path) -> None:
    """Each expression's value, or the kind of exception."""
    secret = place / "secret"
    secret.write_text("from a file\nand more\n")
    asked = [text.replace("{file}", str(secret)) for text, _ in PARSED]
    text = f"""
for text in {asked!r}:
    try:
        print(repr(eval("nbdkit." + text)))
    except Exception as e:
        print(type(e).__name__)
sys.stdout.flush()
"""
    with serve(place, text) as server:
        server.stop()
        got = server.log().splitlines()[: len(PARSED)]
    assert list(zip(asked, got)) == [
        (question, answer) for question, (_, answer) in zip(asked, PARSED)
    ]


def test_a_password_from_a_descriptor(place: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"from a pipe\n")
    os.close(writer)
    script = place / "plugin.py"
    script.write_text(
        PLUGIN + "def config(k, v): print(nbdkit.read_password(v), flush=True)\n"
    )
    words = ("python", str(script), f"password=-{reader}")
    with Server(place, *words, pass_fds=(reader,)) as server:
        server.stop()
        assert "b'from a pipe'" in server.log()
    os.close(reader)


def test_dumps(place: Path) -> None:
    text = (
        "nbdkit.debug_hexdump(b'1234567812345678' * 2, 'data: ', 0)\n"
        "nbdkit.debug_hexdump(b'abc', '', 0x1fffffffe)\n"
        "nbdkit.debug_hexdiff(b'same' * 8, b'same' * 7 + b'sane', 'd ', 16)\n"
    )
    with serve(place, text, "-v") as server:
        server.stop()
        log = server.log()
    row = "31 32 33 34 35 36 37 38  31 32 33 34 35 36 37 38  |1234567812345678|"
    assert f"data: 00000000: {row}\n" in log
    assert f"data: 00000010: {row}\n" in log
    assert re.search(r"1fffffff0:  {43}61 62  \| {14}ab\|\n", log)
    assert re.search(r"200000000: 63 {48}\|c {15}\|\n", log)
    assert re.search(r"d  00000010: 73 61 .*\|samesamesamesame\|\n", log)
    assert re.search(r"d -00000020: 73 61 .* 6d 65  \|samesamesamesame\|\n", log)
    assert re.search(r"d \+00000020: {42,44}6e {5}\| {14}n \|\n", log)


def test_nanosleep_ends_with_the_server(place: Path) -> None:
    text = (
        "def pread(*a):\n    print('asleep', flush=True)\n    nbdkit.nanosleep(99, 0)\n"
    )
    with serve(place, text) as server:
        code = (
            "import nbd; h = nbd.NBD(); "
            f"h.connect_uri('nbd+unix:///?socket={server.socket}'); h.pread(1, 0)"
        )
        client = subprocess.Popen(
            [sys.executable, "-c", code], stderr=subprocess.DEVNULL
        )
        while "asleep" not in server.log():
            assert client.poll() is None
        assert server.stop(signal.SIGTERM) == 0
        client.wait()
        assert "nanosleep: woken because" in server.log()


@pytest.mark.parametrize("force", [True, False])
def test_disconnect(place: Path, force: bool) -> None:
    text = f"def pwrite(*a): nbdkit.disconnect({force})\n"
    with serve(place, text) as server:
        h = connect(server)
        if force:
            with pytest.raises(nbd.Error):
                h.pwrite(b"x", 0)
        else:
            h.pwrite(b"x", 0)
            with pytest.raises(nbd.Error) as caught:
                h.pread(1, 0)
            assert caught.value.errnum == errno.ESHUTDOWN
        connect(server).shutdown()


def test_shutdown(place: Path) -> None:
    """From a callback; the request is answered, and the status is 0."""
    with serve(place, "def pwrite(*a): nbdkit.shutdown()\n") as server:
        connect(server).pwrite(b"x", 0)
        assert server.wait() == 0


def test_the_name_that_was_given(place: Path) -> None:
    text = "print(nbdkit.name(), flush=True)\n"
    with serve(place, text, "--name", "disk seven") as server:
        assert "disk seven\n" in server.log()
