# SPDX-License-Identifier: BSD-3-Clause
"""A script's way from the file to its first client, and what ends it there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbd
import pytest
from server_process import GUARD, NBDSPECD, Server, needs_python, refused

pytestmark = needs_python

GOOD = """
import sys
import nbdkit
def open(readonly): return 1
def get_size(h): return 4096
def pread(h, count, offset): return bytes(count)
"""


def write(place: Path, text: str, name: str = "plugin.py") -> str:
    script = place / name
    script.write_text(text)
    return str(script)


def start(*args: str, **kwargs) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [NBDSPECD, *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=GUARD,
        **kwargs,
    )


def run(script: str, *args: str, command: str = "true", options: tuple[str, ...] = ()):
    return start("-f", *options, "--run", command, "python", script, *args)


# -------- One line, status 1

ONE_LINE = {
    "missing-file": (None, r"nosuch\.py: the script cannot be read: No such file"),
    "syntax": ("x = 1\ndef f(:\n", r"plugin\.py: line 2: SyntaxError: invalid syntax"),
    "indentation": ("if 1:\nx\n", r"plugin\.py: line 2: IndentationError: expected"),
    "empty": ("", r"not found, or not callable: open, get_size, pread"),
    "two-missing": ("def pread(): 0", r"not callable: open, get_size$"),
    "not-callable": (GOOD + "open = 5", r"not callable: open$"),
    "API-3": (GOOD + "API_VERSION = 3", r"API_VERSION is 3; this server knows 1 and 2"),
    "API-0": (GOOD + "API_VERSION = 0", r"API_VERSION is 0; this"),
    "API-negative": (GOOD + "API_VERSION = -1", r"API_VERSION is -1; this"),
    "API-str": (GOOD + "API_VERSION = '2'", r"must be the integer 1 or 2, not a str"),
    "API-None": (GOOD + "API_VERSION = None", r"integer 1 or 2, not a NoneType"),
    "API-huge": (GOOD + "API_VERSION = 1 << 99", r"API_VERSION is 6338253"),
    "thread_model-None": (
        GOOD + "def thread_model(): return None",
        r"thread_model: error: returned None; expected one of the constants",
    ),
    "thread_model-negative": (GOOD + "def thread_model(): return -5", r"returned -5;"),
    "thread_model-huge": (GOOD + "def thread_model(): return 1 << 40", r"returned 109"),
    "thread_model-str": (GOOD + "def thread_model(): return 'x'", r"returned 'x';"),
}


@pytest.mark.parametrize("way", ONE_LINE)
def test_one_line(place: Path, way: str) -> None:
    text, words = ONE_LINE[way]
    script = str(place / "nosuch.py") if text is None else write(place, text)
    line = refused("-f", "--run", "true", "python", script)
    assert re.search(words, line), line
    assert line.startswith("nbdspecd: python: error: " + script + ": "), line


def test_no_script() -> None:
    line = refused("python")
    assert "expected the file name of a script" in line


def test_another_first_word() -> None:
    line = refused("python", "file=x")
    assert "the first parameter must be the script" in line and "'file=x'" in line


def test_a_word_that_is_no_parameter(place: Path) -> None:
    line = refused("python", write(place, GOOD), "word")
    assert "expected a parameter of the form key=value, not 'word'" in line


def test_a_parameter_that_nothing_takes(place: Path) -> None:
    line = refused("python", write(place, GOOD), "key=value")
    assert "does not need command line configuration" in line


def test_text_that_is_no_utf8(place: Path) -> None:
    script = place / "plugin.py"
    script.write_bytes(b"x = '\xff'\n")
    r = start("python", str(script))
    assert r.returncode == 1
    assert "SyntaxError" in r.stderr and "utf-8" in r.stderr


def test_a_coding_line_and_a_mark(place: Path) -> None:
    script = place / "plugin.py"
    script.write_bytes(b"# coding: latin-1\nx = '\xe9'\nassert x == chr(233)\n"
                       + GOOD.encode())
    assert run(str(script)).returncode == 0
    script.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert run(str(script)).returncode == 0


# -------- An exception: its traceback, status 1

STAGES = {
    "load": "raise ValueError('here')",
    "config": "def config(key, value): raise ValueError('here')",
    "config_complete": "def config_complete(): raise ValueError('here')",
    "thread_model": "def thread_model(): raise ValueError('here')",
    "get_ready": "def get_ready(): raise ValueError('here')",
    "after_fork": "def after_fork(): raise ValueError('here')",
}


@pytest.mark.parametrize("stage", STAGES)
def test_an_exception(place: Path, stage: str) -> None:
    text = GOOD + "def config(key, value): pass\nprint('said before')\n" + STAGES[stage]
    r = run(write(place, text), "a=b")
    assert r.returncode == 1, r.stderr
    assert "ValueError: here" in r.stderr and "Traceback" in r.stderr
    label = "running this script" if stage == "load" else stage
    assert f"plugin.py: {label}: error: Traceback" in r.stderr
    if stage != "after_fork":
        assert r.stdout == "said before\n"


@pytest.mark.parametrize("code", ["0", "3", "'words'", ""])
def test_exit_at_load(place: Path, code: str) -> None:
    """A silent end, with any status, is no start."""
    r = run(write(place, GOOD + f"sys.exit({code})"))
    assert r.returncode == 1
    assert "plugin.py: the script called sys.exit: error: Traceback" in r.stderr


def test_dump_plugin(place: Path) -> None:
    text = GOOD + "def dump_plugin():\n    print('mine=1')\n"
    r = start("--dump-plugin", "python", write(place, text))
    assert r.returncode == 0, r.stderr
    keys = dict(line.split("=", 1) for line in r.stdout.splitlines())
    assert keys["mine"] == "1"
    assert keys["nbdkit_python_maximum_api_version"] == "2"
    assert re.fullmatch(r"3\.\d+\.\d+\S*", keys["python_version"])
    assert os.path.exists(keys["python_executable"])
    assert keys["python_api_version"] == "1"


def test_dump_plugin_that_raises(place: Path) -> None:
    text = GOOD + "def dump_plugin(): raise ValueError('dump')\n"
    r = start("--dump-plugin", "python", write(place, text))
    assert r.returncode in (0, 1)
    assert "plugin.py: dump_plugin: error: Traceback" in r.stderr
    assert "python_version=" in r.stdout


def test_help_shows_the_docstring(place: Path) -> None:
    """Without running the script."""
    text = '"""What it serves.\n\n    Parameters: none.\n"""\nraise ValueError\n'
    r = start("--help", "python", write(place, text))
    assert r.returncode == 0, r.stderr
    assert "What it serves.\n\nParameters: none." in r.stdout
    assert r.stderr == ""


def test_help_for_what_cannot_be_read(place: Path) -> None:
    r = start("--help", "python", str(place / "nosuch.py"))
    assert r.returncode == 0 and "python SCRIPT" in r.stdout


# -------- What a script finds

SHOW = """
def config(key, value): print("config", key, ascii(value))
print("argv", sys.argv)
print("path", sys.path[0])
print("name", __name__)
print("file", __file__)
print("main", sys.modules["__main__"].get_size is get_size)
"""


def test_the_world_of_a_script(place: Path) -> None:
    write(place, "value = 7\n", "sibling.py")
    script = write(place, GOOD + SHOW + "import sibling\n")
    r = run(script, "a=b=c", "d=")
    assert r.returncode == 0, r.stderr
    assert r.stdout.splitlines() == [
        f"argv ['{script}', 'a=b=c', 'd=']",
        f"path {place.resolve()}",
        "name __main__",
        f"file {script}",
        "main True",
        "config a 'b=c'",
        "config d ''",
    ]


def test_the_world_of_a_script_in_nbdkit(place: Path) -> None:
    script = write(place, GOOD + SHOW + "print(hasattr(nbdkit, 'error'))\n")
    r = run(script, options=("--nbdkit-compat",))
    assert r.returncode == 0, r.stderr
    lines = r.stdout.splitlines()
    assert lines[0] == "argv ['']"
    assert lines[1] != f"path {place.resolve()}"
    assert lines[-1] == "False"


def test_bytes_in_a_value(place: Path) -> None:
    """A file name need not be UTF-8, and comes back as it was."""
    text = GOOD + "import os\ndef config(k, v): print(os.fsencode(v))\n"
    script = write(place, text)
    name = b"f=/tmp/\xff\xfe"
    r = subprocess.run(
        [NBDSPECD, "-f", "--run", "true", "python", script, name],
        capture_output=True,
        timeout=GUARD,
    )
    assert r.returncode == 0, r.stderr
    assert r.stdout == b"b'/tmp/\\xff\\xfe'\n"
    r = subprocess.run(
        [NBDSPECD, "--nbdkit-compat", "-f", "--run", "true", "python", script, name],
        capture_output=True,
        timeout=GUARD,
    )
    assert r.returncode == 1 and b"UnicodeDecodeError" in r.stderr


def test_script_as_a_key(place: Path) -> None:
    script = write(place, GOOD)
    assert run(f"script={script}").returncode == 0


def test_order_and_end(place: Path) -> None:
    names = (
        "config_complete thread_model get_ready after_fork preconnect cleanup unload"
    ).split()
    text = GOOD + "import atexit\natexit.register(print, 'atexit', file=sys.stderr)\n"
    for name in names:
        text += f"def {name}(*args):\n    print('{name}', file=sys.stderr); return 0\n"
    script = write(place, text)
    command = f"{sys.executable} -c \"import nbd; h = nbd.NBD(); "
    command += "h.connect_uri('$uri'); h.shutdown()\""
    r = run(script, command=command, options=("-U", "-"))
    assert r.returncode == 0, r.stderr
    assert r.stderr.split() == names + ["atexit"]


def test_print_and_warnings(place: Path) -> None:
    """After the start they go to stderr."""
    text = GOOD + (
        "import warnings\n"
        "print('at load')\n"
        "def pread(h, count, offset):\n"
        "    print('printed')\n"
        "    warnings.warn('warned')\n"
        "    return bytes(count)\n"
    )
    with Server(place, "python", write(place, text), stdout=subprocess.PIPE) as server:
        h = nbd.NBD()
        h.connect_uri(f"nbd+unix:///?socket={server.socket}")
        h.pread(512, 0)
        h.shutdown()
        assert server.stop() == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read() == b"at load\n"
        assert "printed\n" in server.log()
        assert "UserWarning: warned" in server.log()


def test_print_does_not_reach_the_stream(place: Path) -> None:
    """Under -s stdout is the client's, before the script is read."""
    text = (
        "import os, sys\n"
        "print('at load', flush=True)\n"
        "os.write(1, b'straight\\n')\n" + GOOD +
        "def pread(h, count, offset):\n"
        "    print('printed', flush=True)\n"
        "    return bytes(count)\n"
    )
    h = nbd.NBD()
    h.connect_command([NBDSPECD, "-s", "python", write(place, text)])
    assert h.pread(512, 0) == bytes(512)
    h.shutdown()
