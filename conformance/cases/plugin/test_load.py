# SPDX-License-Identifier: BSD-3-Clause
"""Loading a script, and its parameters."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.host import LIMIT, program_words
from nbdspec.nbd import EIO

SECTION = "plugin.load"

THREE = """import nbdkit
def open(readonly): return 1
def get_size(h): return 4096
def pread(h, count, offset): return bytes(count)
"""


def starts(hosts, source: str, *params: str, words=None, files=None, **how):
    """Runs --dump-plugin on the script: it is loaded and configured, and that is it."""
    all_files = {"p.py": source, **(files or {})}
    words = words or ["python", "p.py", *params]
    return hosts.command(["--dump-plugin", *words], files=all_files, **how)


def good(done) -> None:
    assert done.status == 0, done.words


def refused(done, *words: str) -> None:
    assert done.status == 1, done.words
    for word in words:
        assert word in done.err, f"{word!r} is not in the message: {done.err}"


@case("plugin.load.script", req=["PY-LOAD-01", "PY-LOAD-02"])
@pytest.mark.parametrize("word", ["p.py", "script=p.py", "./p.py"])
def test_script(hosts, word):
    """The script is named by a bare word, or by script=."""
    done = starts(hosts, THREE + "print('here')", words=["python", word])
    good(done)
    assert "here" in done.out


@case("plugin.load.first-key", req=["PY-LOAD-03"])
@pytest.mark.parametrize("word", ["file=p.py", "a=b", "Script=p.py"])
def test_first_key(hosts, word):
    """Another first key is refused."""
    refused(starts(hosts, THREE, words=["python", word]), "script")


@case("plugin.load.no-script", req=["PY-LOAD-26"])
def test_no_script(hosts):
    """No script at all: a message and status 1."""
    done = hosts.command(["-U", "s", "python"], options=("-f",))
    refused(done)
    assert done.err.strip(), "there is no message"


@case("plugin.load.unreadable", req=["PY-LOAD-27"])
def test_unreadable(hosts):
    """A script that is not there: a message with its name."""
    refused(starts(hosts, THREE, words=["python", "nowhere.py"]), "nowhere.py")


MAIN = """
import sys
from recording import note
note("main", __name__, __file__, sys.modules["__main__"].__dict__ is globals())
if __name__ == "__main__":
    note("block")
"""


@case("plugin.load.main", req=["PY-LOAD-04", "PY-LOAD-05", "PY-LOAD-33"])
@pytest.mark.parametrize("word", ["p.py", "./p.py", "script=p.py"])
def test_main(hosts, word):
    """The script is __main__, and __file__ is as it was typed."""
    done = starts(hosts, THREE + MAIN, words=["python", word])
    good(done)
    path = word.removeprefix("script=")
    assert done.calls("main")[0].args == ["'__main__'", f"'{path}'", "True"]
    assert done.names("block") == ["block"]


@case("plugin.load.import-nbdkit", req=["PY-LOAD-06"])
def test_import_nbdkit(hosts):
    """import nbdkit works in the script and in a module that it imports."""
    files = {"sub.py": "import nbdkit\nvalue = nbdkit.parse_size('1K')\n"}
    source = "import nbdkit, sys\nsys.path.insert(0, '.')\nimport sub\n" + THREE
    done = starts(hosts, source + "print(sub.value)", files=files)
    good(done)
    assert "1024" in done.out


@case("plugin.load.umask", req=["PY-LOAD-07"])
def test_umask(hosts):
    """The umask is 022."""
    old = os.umask(0o077)
    try:
        done = starts(hosts, THREE + "import os\nprint('umask', os.umask(0))")
    finally:
        os.umask(old)
    assert f"umask {0o022}" in done.out, done.out


@case("plugin.load.stdin", req=["PY-LOAD-08"])
def test_stdin(hosts):
    """The script can be read from /dev/stdin."""
    words = ["python", "/dev/stdin"]
    done = starts(hosts, "", words=words, stdin=(THREE + "print('piped')").encode())
    good(done)
    assert "piped" in done.out


@case("plugin.load.required", req=["PY-LOAD-09", "PY-LOAD-10"])
@pytest.mark.parametrize("name", ["open", "get_size", "pread"])
@pytest.mark.parametrize("how", ["missing", "not-callable"])
def test_required(hosts, name, how):
    """Without one of the three: a message that names all of them."""
    end = f"del {name}\n" if how == "missing" else f"{name} = 5\n"
    refused(starts(hosts, THREE + end), "open", "get_size", "pread")


VERSIONS = {
    "": 1,
    "API_VERSION = 1": 1,
    "API_VERSION = 2": 2,
    "API_VERSION = True": 1,
}


@case("plugin.load.api-version", req=["PY-LOAD-11", "PY-LOAD-12"])
@pytest.mark.parametrize("line", VERSIONS)
def test_api_version(hosts, line):
    """No API_VERSION is 1; 1, 2 and True are what they say."""
    source = THREE.replace("count, offset): return bytes(count)", "*a): return None")
    source += f"{line}\ndef pwrite(h, *a): note('pwrite', len(a))\n"
    plugin = hosts.start("from recording import note\n" + source)
    plugin.client().pwrite(b"x", 0)
    assert plugin.calls("pwrite")[0].args == [str(VERSIONS[line] + 1)]


@case("plugin.load.api-version-wrong", req=["PY-LOAD-13", "PY-LOAD-14"])
@pytest.mark.parametrize("value", ["0", "3", "-1", "2**40", "'2'", "None", "2.0"])
def test_api_version_wrong(hosts, value):
    """Another API_VERSION is refused."""
    refused(starts(hosts, THREE + f"API_VERSION = {value}\n"), "API_VERSION")


@case("plugin.load.api-version-type", req=["PY-LOAD-15"])
@pytest.mark.parametrize("value", ["'two'", "None", "2.0"])
def test_api_version_type(hosts, value):
    """The message does not say -1 where a str, None or a float stood."""
    done = starts(hosts, THREE + f"API_VERSION = {value}\n")
    refused(done)
    assert "-1" not in done.err, done.err


@case("plugin.load.api-version-once", req=["PY-LOAD-16"])
def test_api_version_once(hosts):
    """A change of API_VERSION at run time has no effect."""
    plugin = hosts.load("def pwrite(h, *a): note('got', len(a))", record=False)
    plugin.exec("API_VERSION = 1")
    plugin.client().pwrite(b"x", 0)
    assert plugin.calls("got")[0].args == ["3"]


CONFIG = THREE + """
from recording import note
def config(key, value): note("config", key, value)
"""


@case("plugin.load.config", req=["PY-CONF-01", "PY-SIG-01", "PY-CONF-02"])
@pytest.mark.parametrize("api", [1, 2])
def test_config(hosts, api):
    """config is called for each parameter, in order, with two strings."""
    source = CONFIG + f"API_VERSION = {api}\n"
    done = starts(hosts, source, "b=2", "a=1", "b=3", "x=", "y=p=q", "z==")
    good(done)
    found = [call.args for call in done.calls("config")]
    pairs = [("b", "2"), ("a", "1"), ("b", "3"), ("x", ""), ("y", "p=q"), ("z", "=")]
    assert found == [[repr(k), repr(v)] for k, v in pairs]


@case("plugin.load.second-script", req=["PY-LOAD-17"])
def test_second_script(hosts):
    """A second script= is a parameter like any other."""
    done = starts(hosts, CONFIG, "script=other.py")
    good(done)
    assert done.calls("config")[0].args == ["'script'", "'other.py'"]


@case("plugin.load.no-config", req=["PY-CONF-03"])
def test_no_config(hosts):
    """A parameter for a script without config is refused."""
    refused(starts(hosts, THREE, "a=b"), "p.py")


BARE = ["bare", "=value", "1=2", "a/b=c", "-", "a b=c", "ä=b"]


@case("plugin.load.bare", req=["PY-CONF-04", "PY-CONF-05"])
@pytest.mark.parametrize("word", BARE)
def test_bare(hosts, word):
    """A second word that is not key=value is refused."""
    refused(starts(hosts, CONFIG, word))


@case("plugin.load.keys", req=["PY-CONF-05"])
@pytest.mark.parametrize("key", ["a", "Z", "a1", "a.b", "a-b", "a_b", "a.b-c_d.9"])
def test_keys(hosts, key):
    """A key begins with a letter; letters, digits and . _ - follow."""
    done = starts(hosts, CONFIG, f"{key}=v")
    good(done)
    assert done.calls("config")[0].args[0] == repr(key)


@case("plugin.load.config-utf-8", req=["PY-CONF-10"])
def test_config_utf_8(hosts):
    """A value in UTF-8 is the text that it is."""
    done = starts(hosts, CONFIG, "a=päth/名前/🐍")
    good(done)
    assert done.calls("config")[0].args[1] == repr("päth/名前/🐍")


@case("plugin.load.superset-bytes", req=["PY-CONF-06"])
def test_superset_bytes(hosts):
    """A value that is not UTF-8 comes with surrogate escapes."""
    source = CONFIG.replace('note("config", key, value)', "print(os.fsencode(value))")
    done = starts(hosts, "import os\n" + source, os.fsdecode(b"a=\xff/x"))
    good(done)
    assert r"b'\xff/x'" in done.out


@case("plugin.load.config-raises", req=["PY-CONF-07", "PY-ERR-25"])
def test_config_raises(hosts):
    """An exception in config: its traceback, and status 1."""
    source = THREE + "def config(key, value): raise ValueError('not ' + value)\n"
    refused(starts(hosts, source, "a=this"), "not this", "ValueError", "config")


@case("plugin.load.mixed", req=["PY-CONF-08"])
def test_mixed(hosts):
    """Options may stand between and behind parameters."""
    words = ["python", "p.py", "a=1", "--dump-plugin", "b=2", "-r"]
    done = hosts.command(words, files={"p.py": CONFIG})
    good(done)
    assert [c.args[0] for c in done.calls("config")] == ["'a'", "'b'"]


@case("plugin.load.odd-path", req=["PY-CONF-09"])
def test_odd_path(hosts):
    """A path that looks like key=value works behind ./ ."""
    done = starts(hosts, "", words=["python", "./a=b.py"], files={"a=b.py": THREE})
    good(done)


@case("plugin.load.redefined", req=["PY-LOAD-18"])
def test_redefined(hosts):
    """A function that is redefined at run time is called from then on."""
    plugin = hosts.load("def pwrite(h, *a): note('old')", record=False)
    client = plugin.client()
    client.pwrite(b"x", 0)
    plugin.exec("def pwrite(h, *a): note('new')")
    client.pwrite(b"x", 0)
    assert plugin.names() == ["old", "new"]


@case("plugin.load.deleted", req=["PY-LOAD-19"])
@pytest.mark.parametrize("name", ["pread", "pwrite", "flush", "trim"])
def test_deleted(hosts, name):
    """A function that is deleted at run time: EIO, and life goes on."""
    source = "".join(f"def {n}(h, *a): pass\n" for n in ("pwrite", "flush", "trim"))
    plugin = hosts.load(source, record=False)
    wire = plugin.go()
    plugin.exec(f"kept = {name}; del {name}")
    command = {
        "pread": (nbd.READ, 512, b""),
        "pwrite": (nbd.WRITE, 0, b"x"),
        "flush": (nbd.FLUSH, 0, b""),
        "trim": (nbd.TRIM, 512, b""),
    }[name]
    number, length, data = command
    wire.expect_errno(wire.request(number, 0, length, data=data), EIO)
    plugin.exec(f"{name} = kept")
    wire.expect_ok(wire.request(number, 0, length, data=data))


CALLABLES = {
    "method": "trim = Object().method",
    "class-method": "trim = Object.static",
    "partial": "trim = functools.partial(lambda x, h, c, o, f: note('called'), 1)",
    "instance": "trim = Object()",
    "lambda": "trim = lambda h, c, o, f: note('called')",
    "c-function": "trim = print",
    "class": "trim = Made",
}


@case("plugin.load.callables", req=["PY-LOAD-20"])
@pytest.mark.parametrize("what", CALLABLES)
def test_callables(hosts, what):
    """Whatever can be called is a callback."""
    plugin = hosts.load(
        f"""
import functools
def pwrite(h, *a): pass
class Object:
    def method(self, h, c, o, f): note("called")
    __call__ = method
    @staticmethod
    def static(h, c, o, f): note("called")
class Made:
    def __init__(self, h, c, o, f): note("called")
{CALLABLES[what]}
""",
        record=False,
    )
    plugin.client().trim(512, 0)
    if what != "c-function":
        assert plugin.names("called"), "it was not called"


@case("plugin.load.not-callable", req=["PY-LOAD-21"])
@pytest.mark.parametrize("value", ["True", "5", "None", "'text'", "[]"])
def test_not_callable(hosts, value):
    """A global that cannot be called is no callback."""
    source = "def pwrite(h, *a): pass\n"
    source += f"flush = trim = cache = zero = extents = can_flush = {value}\n"
    flags = hosts.load(source, record=False).go().export.flags
    expected = nbd.HAS_FLAGS | nbd.SEND_WRITE_ZEROES | nbd.SEND_FAST_ZERO
    assert flags == expected, nbd.flag_names(flags)


@case("plugin.load.builtin-open", req=["PY-LOAD-22"])
def test_builtin_open(hosts):
    """builtins.open is there although the script has an open of its own."""
    source = THREE + "import builtins\nprint(len(builtins.open('p.py').read()))\n"
    good(starts(hosts, source))


@case("plugin.load.raises", req=["PY-LOAD-23"])
def test_raises(hosts):
    """An exception at module level: traceback and status 1."""
    refused(starts(hosts, THREE + "raise ValueError('at the top')"), "at the top", "p.py")


@case("plugin.load.syntax", req=["PY-LOAD-24"])
@pytest.mark.parametrize("text", ["def f(:\n", "x = = 1\n", "  x\n", "'unclosed"])
def test_syntax(hosts, text):
    """A syntax error: a message with the file, and status 1."""
    refused(starts(hosts, THREE + text), "p.py")


@case("plugin.load.exit", req=["PY-LOAD-25"])
@pytest.mark.parametrize("status", ["3", "0", "'words'", ""])
def test_exit(hosts, status):
    """sys.exit at module level: a message and status 1."""
    done = starts(hosts, THREE + f"import sys\nsys.exit({status})\n")
    refused(done)
    assert done.err.strip(), "there is no message"


@case("plugin.load.superset-argv", req=["PY-LOAD-28"])
def test_superset_argv(hosts):
    """sys.argv and sys.path[0] are as when python runs the script."""
    source = CONFIG + "import sys, beside\nprint(sys.argv)\n"
    files = {"beside.py": ""}
    done = starts(hosts, source, "a=b", files=files)
    good(done)
    assert "['p.py', 'a=b']" in done.out


@case("plugin.load.extensions", req=["PY-LOAD-29"])
@pytest.mark.parametrize("name", ["ctypes", "_socket", "sqlite3", "ssl", "zlib", "_json"])
def test_extensions(hosts, name):
    """Extension modules can be imported."""
    good(starts(hosts, THREE + f"import {name}\n"))


@case("plugin.load.descriptor", req=["PY-LOAD-30"])
def test_descriptor(hosts):
    """Processes that the script starts inherit no descriptor of its file."""
    source = THREE + """
import subprocess
print(subprocess.run("ls -l /proc/self/fd", shell=True, close_fds=False,
      capture_output=True, text=True).stdout)
"""
    done = starts(hosts, source)
    good(done)
    assert "p.py" not in done.out, done.out


@case("plugin.load.shebang", req=["PY-LOAD-31"])
def test_shebang(hosts):
    """A script that names the host in its first line can be run."""
    directory = hosts.directory({"p.py": f"#!/usr/bin/env -S ./host python\n{THREE}"})
    # A link, because a path with a space in it cannot stand in that line.
    (directory / "host").symlink_to(shutil.which(program_words(hosts.pool.target)[0]))
    (directory / "p.py").chmod(0o755)
    argv = ["./p.py", "-f", "-U", "s", "--dump-plugin"]
    with hosts.spawn(argv, directory, stdout=subprocess.PIPE) as process:
        out = process.communicate(timeout=LIMIT)[0]
    assert process.returncode == 0
    assert b"python_version" in out


@case("plugin.load.print-single", req=["PY-LOAD-32"])
def test_print_single(hosts):
    """Under -s what a script prints, even flushed, is not in the client's stream."""
    source = THREE + "print('in the way', flush=True)\n"
    source += "def config_complete(): print('again', flush=True)\n"
    done = hosts.command(["-s", "python", "p.py"], files={"p.py": source})
    assert done.out.startswith("NBDMAGIC"), f"the stream begins {done.out[:30]!r}"
