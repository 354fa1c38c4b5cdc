# SPDX-License-Identifier: BSD-3-Clause
"""Whatever a script does: the documented error, one log line, a living server.

Each plugin here is good but for one thing.  What the client sees is looked at by
libnbd; then a second client proves that the server lives.
"""

from __future__ import annotations

import errno
import re
from pathlib import Path

import nbd
import pytest
from server_process import Server, needs_python

pytestmark = needs_python

GOOD = """
import errno
import sys
import nbdkit
API_VERSION = 2
def open(readonly):
    return {}
def get_size(h):
    return 1 << 20
def pread(h, buf, offset, flags):
    buf[:] = b"d" * len(buf)
def pwrite(h, buf, offset, flags):
    pass
def flush(h, flags):
    pass
def trim(h, count, offset, flags):
    pass
def zero(h, count, offset, flags):
    pass
def cache(h, count, offset, flags):
    pass
def extents(h, count, offset, flags):
    return [(0, 1 << 20, 0)]
"""
V1 = """
def open(readonly):
    return {}
def get_size(h):
    return 1 << 20
def pread(h, count, offset):
    return b"d" * count
def pwrite(h, buf, offset):
    pass
"""


def connect(server: Server, name: str = "") -> nbd.NBD:
    h = nbd.NBD()
    h.add_meta_context("base:allocation")
    h.set_export_name(name)
    h.set_full_info(True)
    h.connect_uri(f"nbd+unix:///?socket={server.socket}")
    return h


def status(h: nbd.NBD) -> list[int]:
    """The descriptors of the first megabyte."""
    found: list[int] = []

    def collect(context: str, offset: int, entries: list[int], error: object) -> int:
        found.extend(entries)
        return 0

    h.block_status(1 << 20, 0, collect)
    return found


OPERATIONS = {
    "pread": lambda h: h.pread(4096, 0),
    "pwrite": lambda h: h.pwrite(b"x" * 4096, 0),
    "flush": lambda h: h.flush(),
    "trim": lambda h: h.trim(4096, 0),
    "zero": lambda h: h.zero(4096, 0),
    "cache": lambda h: h.cache(4096, 0),
    "extents": status,
}


def serve(place: Path, text: str, *options: str) -> Server:
    script = place / "plugin.py"
    script.write_bytes(text.encode("utf-8", "surrogateescape"))
    return Server(place, *options, "python", str(script))


def check_alive(server: Server) -> None:
    """Another client is served, and the end is a proper one."""
    h = connect(server)
    h.shutdown()
    assert server.stop() == 0, server.log()


def failure(h: nbd.NBD, name: str) -> str:
    with pytest.raises(nbd.Error) as caught:
        OPERATIONS[name](h)
    number = caught.value.errnum
    return errno.errorcode[number] if number else "?"


# -------- Data callbacks: (definition, what the client gets, what the log says)

RAISE = {
    "ValueError": ('raise ValueError("as told")', "EIO", "ValueError: as told"),
    "OSError-ENOSPC": ('raise OSError(errno.ENOSPC, "full")', "ENOSPC", "full"),
    "OSError-EACCES": ('raise OSError(errno.EACCES, "no")', "EPERM", "PermissionError"),
    "OSError-EROFS": ('raise OSError(errno.EROFS, "ro")', "EPERM", "ro"),
    "OSError-ENOMEM": ('raise OSError(errno.ENOMEM, "m")', "ENOMEM", "m"),
    "OSError-EDQUOT": ('raise OSError(errno.EDQUOT, "q")', "ENOSPC", "q"),
    "OSError-EFBIG": ('raise OSError(errno.EFBIG, "b")', "ENOSPC", "b"),
    "OSError-ENOENT": ('raise OSError(errno.ENOENT, "gone")', "EIO", "gone"),
    "OSError-text": ('raise OSError("words only")', "EIO", "words only"),
    "OSError-odd": ('raise OSError("x", "y")', "EIO", "OSError"),
    "OSError-huge": ('raise OSError(1 << 99, "huge")', "EIO", "huge"),
    "set_error": (
        "nbdkit.set_error(errno.ENOSPC); raise ValueError",
        "ENOSPC",
        "ValueError",
    ),
    "set_error-beats-OSError": (
        'nbdkit.set_error(errno.ENOMEM); raise OSError(errno.ENOSPC, "x")',
        "ENOMEM",
        "OSError",
    ),
    "set_error-negative": ("nbdkit.set_error(-5); raise ValueError", "EIO", "ValueE"),
    "set_error-zero": ("nbdkit.set_error(0); raise ValueError", "EIO", "ValueError"),
    "set_error-unknown": ("nbdkit.set_error(9999); raise ValueError", "EINVAL", "Val"),
    "sys-exit": ("sys.exit(3)", "EIO", "SystemExit: 3"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "EIO", "KeyboardInterrupt"),
    "GeneratorExit": ("raise GeneratorExit", "EIO", "GeneratorExit"),
    "BaseException": ("raise BaseException(1)", "EIO", "BaseException: 1"),
    "MemoryError": ("raise MemoryError", "EIO", "MemoryError"),
    "real-MemoryError": ("bytearray(1 << 62)", "EIO", "MemoryError"),
    "recursion": ("def f(): f()\n    f()", "EIO", "RecursionError"),
    "surrogate": (r'raise ValueError("\udcff")', "EIO", r"\\udcff"),
    "NUL": (r'raise ValueError("a\0b")', "EIO", r"a\\x00b"),
    "terminal": (
        r'raise ValueError("a\x1b[2J\r\x7fb")',
        "EIO",
        r"a\\x1b\[2J\\x0d\\x7fb",
    ),
    "percent": ('raise ValueError("%s%n")', "EIO", "%s%n"),
    "long-text": ('raise ValueError("l" * 100000)', "EIO", "lllll"),
    "str-raises": (
        "class E(Exception):\n"
        "        def __str__(self): raise RuntimeError\n"
        "    raise E",
        "EIO",
        "E: <exception str",
    ),
    "str-no-str": (
        "class E(Exception):\n        def __str__(self): return 5\n    raise E",
        "EIO",
        "E: <exception str",
    ),
    "not-an-exception": ("raise 5", "EIO", "exceptions must derive"),
    "broken-traceback-module": (
        "import traceback; traceback.TracebackException = None\n"
        '    raise ValueError("short")',
        "EIO",
        "ValueError: short",
    ),
    "chained": (
        'try: raise KeyError("first")\n    except KeyError: raise ValueError("next")',
        "EIO",
        "first.*next",
    ),
}


@pytest.mark.parametrize("way", RAISE)
def test_an_exception(place: Path, way: str) -> None:
    body, expected, words = RAISE[way]
    text = GOOD + f"def pread(h, buf, offset, flags):\n    {body}\n"
    with serve(place, text) as server:
        h = connect(server)
        assert failure(h, "pread") == expected
        h.pwrite(b"x", 0)  # the connection goes on
        h.shutdown()
        check_alive(server)
        log = server.log()
        assert log.count("plugin.py: pread: error:") == 1, log
        assert re.search(words, log, re.DOTALL), log
        assert "nbdspecd: python[1]: error: " in log


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_exception_in_each_callback(place: Path, name: str) -> None:
    text = GOOD + f'def {name}(*args):\n    raise ValueError("from " + "{name}")\n'
    with serve(place, text) as server:
        h = connect(server)
        assert failure(h, name) == "EIO"
        h.shutdown()
        check_alive(server)
        log = server.log()
        assert f"plugin.py: {name}: error: Traceback" in log
        assert f"ValueError: from {name}" in log
        # the traceback points at the script's line, and quotes it
        line = text.splitlines().index(f"def {name}(*args):") + 2
        assert f"plugin.py\", line {line}, in {name}\n" in log
        assert f'raise ValueError("from " + "{name}")' in log


@pytest.mark.parametrize("name", OPERATIONS)
def test_wrong_arity(place: Path, name: str) -> None:
    with serve(place, GOOD + f"def {name}(h): pass\n") as server:
        h = connect(server)
        assert failure(h, name) == "EIO"
        h.shutdown()
        check_alive(server)
        assert re.search(f"plugin.py: {name}: error: TypeError: .*argument",
                         server.log())


@pytest.mark.parametrize("value", ["5", "None"], ids=["number", "None"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_function_that_goes_away(place: Path, name: str, value: str) -> None:
    """While a client is connected; what was offered fails, and says why."""
    text = GOOD + (
        "def is_rotational(h):\n"
        f"    globals()[{name!r}] = {value}\n"
        "    return False\n"
        f"def can_{name}(h): return True\n"
        "def can_cache(h): return 2\n"
        "def can_write(h): return True\n"
        "def can_extents(h): return True\n"
    )
    with serve(place, text) as server:
        h = connect(server)
        if name == "zero":  # zeroes are written then
            h.zero(4096, 0)
        elif name == "extents":  # and all of it is data
            assert status(h) == [1 << 20, 0]
        else:
            assert failure(h, name) == "EIO"
            assert f"plugin.py: {name}: error: " in server.log()
            assert f"the script has no function {name}" in server.log()
        h.shutdown()
        assert server.stop() == 0, server.log()


# -------- Results of v1's pread and of extents

V1_RESULTS = {
    "None": ("None", "NoneType"),
    "str": ('"x" * count', "a str"),
    "int": ("5", "an? int"),
    "list": ("[0] * count", "a list"),
    "strided": ("memoryview(bytes(2 * count))[::2]", "memoryview.*contiguous"),
    "short": ("bytes(count - 1)", "4095 bytes.*too small.*4096"),
    "empty": ('b""', "0 bytes.*too small"),
    "released": ("__import__('script_released').view", "memoryview"),
}


@pytest.mark.parametrize("way", V1_RESULTS)
def test_results_of_pread(place: Path, way: str) -> None:
    expression, words = V1_RESULTS[way]
    (place / "script_released.py").write_text(
        "view = memoryview(bytes(9999))\nview.release()\n"
    )
    text = V1 + f"def pread(h, count, offset):\n    return {expression}\n"
    with serve(place, text) as server:
        h = connect(server)
        assert failure(h, "pread") == "EIO"
        h.shutdown()
        check_alive(server)
        assert re.search(f"plugin.py: pread: error: .*{words}", server.log())


EXTENTS = {
    "None": ("return None", "NoneType"),
    "int": ("return 5", "int"),
    "empty": ("return []", None),
    "list-inside": ("return [[0, 1 << 20, 0]]", "expected a tuple"),
    "pair": ("return [(0, 1 << 20)]", "expected a tuple"),
    "four": ("return [(0, 1 << 20, 0, 0)]", "expected a tuple"),
    "float": ("return [(0, 1e6, 0)]", "expected a tuple"),
    "negative": ("return [(0, -1, 0)]", "not negative"),
    "huge": ("return [(0, 1 << 64, 0)]", "not negative"),
    "type-huge": ("return [(0, 1 << 20, 1 << 40)]", "not negative"),
    "gap": ("return [(0, 4096, 0), (8192, 4096, 0)]", "8192"),
    "overlap": ("return [(0, 8192, 0), (4096, 8192, 0)]", "4096"),
    "late-start": ("return [(512, 4096, 0)]", "512"),
    "raises": ("yield (0, 4096, 0)\n    raise ValueError('late')", "late"),
    "repr-raises": (
        "class T(tuple):\n"
        "        def __repr__(self): raise RuntimeError\n"
        "    return [T((1,))]",
        "an element is not an extent",
    ),
    "iter-raises": (
        "class I:\n"
        "        def __iter__(self): raise RuntimeError('iter')\n"
        "    return I()",
        "iter",
    ),
}


@pytest.mark.parametrize("way", EXTENTS)
def test_results_of_extents(place: Path, way: str) -> None:
    body, words = EXTENTS[way]
    text = GOOD + f"def extents(h, count, offset, flags):\n    {body}\n"
    with serve(place, text) as server:
        h = connect(server)
        assert failure(h, "extents") in ("EIO", "EINVAL")
        h.shutdown()
        check_alive(server)
        if words:
            assert re.search(words, server.log()), server.log()
        assert "extents" in server.log()


def test_an_endless_generator(place: Path) -> None:
    """It ends with the request."""
    text = GOOD + (
        "import itertools\n"
        "def extents(h, count, offset, flags):\n"
        "    return ((n << 12, 1 << 12, n & 1) for n in itertools.count())\n"
    )
    with serve(place, text) as server:
        assert status(connect(server)) == [4096, 0, 4096, 1] * 128
        check_alive(server)


# -------- Questions at the beginning: refused, or taken as documented

REFUSED = {
    "open-raises": ("def open(r): raise ValueError('o')", "open: error: .*ValueError"),
    "get_size-None": ("def get_size(h): return None", "get_size: error: returned None"),
    "get_size-float": ("def get_size(h): return 1e6", "returned 1000000.0 .float."),
    "get_size-negative": ("def get_size(h): return -1", "returned -1 .int."),
    "get_size-2**63": ("def get_size(h): return 1 << 63", "expected an integer from 0"),
    "get_size-raises": ("def get_size(h): raise KeyError('k')", "KeyError: 'k'"),
    "can_write-raises": ("def can_write(h): raise KeyError('k')", "can_write: error"),
    "can_write-bool-raises": (
        "class B:\n"
        "    def __bool__(self): raise RuntimeError('neither')\n"
        "def can_write(h): return B()",
        "neither",
    ),
    "can_fua-None": ("def can_fua(h): return None", "can_fua: error: returned None"),
    "can_fua-str": ("def can_fua(h): return 'x'", "can_fua: error: returned 'x'"),
    "can_fua-negative": ("def can_fua(h): return -2", "returned -2 .int.; expected 0"),
    "can_fua-huge": ("def can_fua(h): return 1 << 40", "expected 0 .none."),
    "can_cache-None": ("def can_cache(h): return None", "can_cache: error: returned"),
    "block_size-list": ("def block_size(h): return [1, 512, 512]", "block_size: error"),
    "block_size-two": ("def block_size(h): return (1, 512)", "three integers"),
    "block_size-negative": ("def block_size(h): return (1, 512, -1)", "three integers"),
    "block_size-3": ("def block_size(h): return (3, 512, 1024)", "minimum must be"),
    "preconnect-raises": ("def preconnect(r): raise ValueError('p')", "preconnect: er"),
    "default-None": ("def default_export(r, t): return None", "returned None"),
    "default-surrogate": (
        r"def default_export(r, t): return '\udc80'",
        "without lone surrogates",
    ),
    "default-NUL": (r"def default_export(r, t): return 'a\0b'", "NUL"),
    "default-long": ("def default_export(r, t): return 'x' * 4097", "longer than 4096"),
}


@pytest.mark.parametrize("way", REFUSED)
def test_refused_at_the_beginning(place: Path, way: str) -> None:
    text, words = REFUSED[way]
    with serve(place, GOOD + text + "\n") as server:
        with pytest.raises(nbd.Error):
            connect(server)
        assert re.search(words, server.log(), re.DOTALL), server.log()
        assert server.stop() == 0, server.log()


TAKEN = {
    "can_write-1": ("def can_write(h): return 1", "is_read_only", False),
    "can_write-0": ("def can_write(h): return 0", "is_read_only", True),
    "can_write-None": ("def can_write(h): return None", "is_read_only", True),
    "can_flush-str": ("def can_flush(h): return 'yes'", "can_flush", True),
    "can_trim-float": ("def can_trim(h): return 0.0", "can_trim", False),
    "can_multi_conn-object": (
        "def can_multi_conn(h): return object()",
        "can_multi_conn",
        True,
    ),
}


@pytest.mark.parametrize("way", TAKEN)
def test_truth(place: Path, way: str) -> None:
    text, question, answer = TAKEN[way]
    with serve(place, GOOD + text + "\n") as server:
        assert getattr(connect(server), question)() is answer
        connect(server)
        name = text.split("(")[0].split()[1]
        warning = f"{name}: returned "
        assert server.log().count(warning) == 1, server.log()


@pytest.mark.parametrize("way", TAKEN)
def test_truth_as_in_nbdkit(place: Path, way: str) -> None:
    """Only True is true there."""
    text, question, _ = TAKEN[way]
    expected = question == "is_read_only"  # nothing is offered
    with serve(place, GOOD + text + "\n", "--nbdkit-compat") as server:
        assert getattr(connect(server), question)() is expected


LISTS = {
    "None": ("return None", "returned None"),
    "int-element": ("return [5]", "returned 5 .int."),
    "list-element": ("return [['a', 'b']]", "expected str or bytes"),
    "triple": ("return [('a', 'b', 'c')]", "a tuple of a name and a description"),
    "None-description": ("return [('a', None)]", "returned None"),
    "surrogate": (r"return ['\udc80']", "without lone surrogates"),
    "bytes-not-utf8": (r"return [b'\xff']", "not UTF-8"),
    "late": ("yield 'a'\n    raise ValueError('late')", "ValueError: late"),
    "endless": ("return __import__('itertools').repeat('a')", "more than 10000"),
    "raises": ("raise ValueError('at once')", "at once"),
}


@pytest.mark.parametrize("way", LISTS)
def test_lists_of_exports(place: Path, way: str) -> None:
    body, words = LISTS[way]
    text = GOOD + f"def list_exports(readonly, is_tls):\n    {body}\n"
    with serve(place, text) as server:
        h = nbd.NBD()
        h.set_opt_mode(True)
        h.connect_uri(f"nbd+unix:///?socket={server.socket}")
        with pytest.raises(nbd.Error):
            h.opt_list(lambda name, description: 0)
        h.opt_go()
        h.shutdown()
        check_alive(server)
        assert re.search(f"plugin.py: list_exports: error: .*{words}", server.log(),
                         re.DOTALL), server.log()


def test_a_bad_description_is_left_out(place: Path) -> None:
    text = GOOD + r"def export_description(h): return '\ud800'" + "\n"
    with serve(place, text) as server:
        h = connect(server)
        with pytest.raises(nbd.Error):
            h.get_export_description()
        assert "export_description: error: returned '\\ud800' (str)" in server.log()
        h.shutdown()
        check_alive(server)


def test_close_that_raises(place: Path) -> None:
    with serve(place, GOOD + "def close(h): raise ValueError('c')\n") as server:
        connect(server).shutdown()
        check_alive(server)
        assert server.log().count("plugin.py: close: error: Traceback") == 2
