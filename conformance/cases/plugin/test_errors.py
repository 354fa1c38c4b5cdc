# SPDX-License-Identifier: BSD-3-Clause
"""Exceptions: what the client is told, what is logged, and that life goes on."""

from __future__ import annotations

import errno

import pytest

from nbdspec import nbd
from nbdspec.case import case
from nbdspec.model import wire_error
from nbdspec.nbd import EINVAL, EIO
from nbdspec.sources import WITH_EXTENTS

SECTION = "plugin.errors"

both = pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])

#: data callback: command, payload
COMMANDS = {
    "pread": nbd.READ,
    "pwrite": nbd.WRITE,
    "flush": nbd.FLUSH,
    "trim": nbd.TRIM,
    "zero": nbd.WRITE_ZEROES,
    "cache": nbd.CACHE,
    "extents": nbd.BLOCK_STATUS,
}


def send(wire, name: str, flags: int = 0) -> int:
    """The request that calls the data callback of that name."""
    data = {"data": b"x" * 512} if name == "pwrite" else {}
    length = 0 if name in ("flush", "pwrite") else 512
    return wire.request(COMMANDS[name], 0, length, flags=flags, **data)


def failing(name: str, body: str) -> str:
    return WITH_EXTENTS + f"import errno, os, sys\ndef {name}(h, *args):\n    {body}\n"


def go(plugin):
    return plugin.go(contexts=("base:allocation",))


@case("plugin.errors.exception", req=["PY-ERR-01", "PY-ERR-39", "PY-ERR-34"])
@both
@pytest.mark.parametrize("name", COMMANDS)
def test_exception(hosts, api, name):
    """An exception: EIO, and the next request is served."""
    plugin = hosts.load(failing(name, "raise ValueError('no')"), api=api)
    wire = go(plugin)
    wire.expect_errno(send(wire, name), EIO)
    other = "trim" if name != "trim" else "cache"
    wire.expect_ok(send(wire, other))
    assert "ValueError" in plugin.wait_log("ValueError")


KINDS = {
    "base": "raise BaseException('b')",
    "exit": "sys.exit(3)",
    "system-exit": "raise SystemExit",
    "interrupt": "raise KeyboardInterrupt",
    "generator-exit": "raise GeneratorExit",
    "stop-iteration": "raise StopIteration",
    "assertion": "assert False",
    "string": "raise 'text'",
    "not-implemented": "raise NotImplementedError",
}


@case("plugin.errors.kinds", req=["PY-ERR-02", "PY-ERR-12"])
@both
@pytest.mark.parametrize("kind", KINDS)
def test_kinds(hosts, api, kind):
    """Whatever is raised, SystemExit included: EIO, and the host lives."""
    plugin = hosts.load(failing("pwrite", KINDS[kind]), api=api)
    wire = go(plugin)
    for _ in range(2):
        wire.expect_errno(send(wire, "pwrite"), EIO)
    wire.expect_ok(send(wire, "flush"))


NUMBERS = [
    0,
    errno.EPERM,
    errno.EROFS,
    errno.EIO,
    errno.ENOMEM,
    errno.ENOSPC,
    errno.EFBIG,
    errno.EDQUOT,
    errno.ESHUTDOWN,
    errno.EOPNOTSUPP,
    errno.EOVERFLOW,
    errno.EINVAL,
    errno.ENOENT,
    errno.EACCES,
    errno.EAGAIN,
    errno.EBUSY,
    errno.ETIMEDOUT,
    4000,
    2**31 - 1,
]


@case(
    "plugin.errors.set-error",
    req=[f"PY-ERR-{n:02}" for n in (3, 4, 5, 6, 7, 8, 9, 10)]
    + ["PY-MOD-07", "PY-MOD-12"],
)
@both
@pytest.mark.parametrize("name", ["pread", "pwrite", "flush", "trim", "cache"])
def test_set_error(hosts, api, name):
    """set_error chooses the error, as far as the protocol has one for it."""
    body = "nbdkit.set_error(number); raise RuntimeError"
    plugin = hosts.load("number = 0\n" + failing(name, body), api=api, record=False)
    wire = go(plugin)
    for number in NUMBERS:
        plugin.exec(f"number = {number}")
        wire.expect_errno(send(wire, name), wire_error(number))


@case("plugin.errors.set-error-extents", req=["PY-ERR-10", "PY-ERR-06"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOENT, errno.EPERM])
def test_set_error_extents(hosts, number):
    """The same for extents and zero."""
    for name in ("extents", "zero"):
        body = f"nbdkit.set_error({number}); raise RuntimeError"
        wire = go(hosts.load(failing(name, body)))
        wire.expect_errno(send(wire, name), wire_error(number))


@case("plugin.errors.overflow-df", req=["PY-ERR-09"])
def test_overflow_df(hosts):
    """EOVERFLOW is passed on for a read that must not be fragmented."""
    body = f"nbdkit.set_error({errno.EOVERFLOW}); raise RuntimeError"
    wire = go(hosts.load(failing("pread", body)))
    wire.expect_errno(send(wire, "pread", nbd.DF), nbd.EOVERFLOW)
    wire.expect_errno(send(wire, "pread"), EINVAL)


@case("plugin.errors.set-error-true", req=["PY-MOD-12"])
def test_set_error_true(hosts):
    """set_error (True) is EPERM."""
    body = "nbdkit.set_error(True); raise RuntimeError"
    wire = go(hosts.load(failing("pwrite", body)))
    wire.expect_errno(send(wire, "pwrite"), nbd.EPERM)


@case("plugin.errors.set-error-negative", req=["PY-MOD-13"])
@pytest.mark.parametrize("number", [-1, -5, -(2**31)])
def test_set_error_negative(hosts, number):
    """A negative number: an error, and the host lives."""
    body = f"nbdkit.set_error({number}); raise RuntimeError"
    wire = go(hosts.load(failing("pwrite", body)))
    assert wire.wait(send(wire, "pwrite")).error
    wire.in_step()


@case("plugin.errors.set-error-alone", req=["PY-MOD-08"])
@both
@pytest.mark.parametrize("name", ["pread", "pwrite", "flush", "trim", "cache"])
def test_set_error_alone(hosts, api, name):
    """set_error without an exception is success."""
    result = "return bytes(512)" if name == "pread" and api == 1 else "return None"
    body = f"nbdkit.set_error({errno.ENOSPC}); {result}"
    wire = go(hosts.load(failing(name, body), api=api))
    wire.expect_ok(send(wire, name))


@case("plugin.errors.set-error-forgotten", req=["PY-MOD-09", "PY-ERR-34"])
@both
def test_set_error_forgotten(hosts, api):
    """What a request set is forgotten before the next."""
    source = failing("pwrite", f"nbdkit.set_error({errno.ENOSPC})")
    source += "def trim(h, *args): raise RuntimeError\n"
    wire = go(hosts.load(source, api=api))
    wire.expect_ok(send(wire, "pwrite"))
    wire.expect_errno(send(wire, "trim"), EIO)


@case("plugin.errors.set-error-thread", req=["PY-MOD-10"])
def test_set_error_thread(hosts):
    """set_error in another thread does not touch the request."""
    body = (
        f"t = threading.Thread(target=nbdkit.set_error, args=({errno.ENOSPC},)); "
        "t.start(); t.join(); raise RuntimeError"
    )
    wire = go(hosts.load(failing("pwrite", body)))
    wire.expect_errno(send(wire, "pwrite"), EIO)


OS_ERRORS = {
    "EPERM": nbd.EPERM,
    "EACCES": nbd.EPERM,
    "EROFS": nbd.EPERM,
    "ENOMEM": nbd.ENOMEM,
    "ENOSPC": nbd.ENOSPC,
    "EDQUOT": nbd.ENOSPC,
    "EFBIG": nbd.ENOSPC,
}


@case("plugin.errors.superset-oserror", req=["PY-ERR-11"])
@both
@pytest.mark.parametrize("name", OS_ERRORS)
def test_superset_oserror(hosts, api, name):
    """Without set_error, the errno of an OSError says which error."""
    body = f"raise OSError(errno.{name}, 'as the system says')"
    wire = go(hosts.load(failing("pwrite", body), api=api))
    wire.expect_errno(send(wire, "pwrite"), OS_ERRORS[name])


@case("plugin.errors.oserror-other", req=["PY-ERR-12"])
@pytest.mark.parametrize(
    "what",
    ["errno.ENOENT, 'x'", "errno.EAGAIN, 'x'", "'text'", "None, 'x'", "-1, 'x'"],
)
def test_oserror_other(hosts, what):
    """Another errno of an OSError is EIO."""
    wire = go(hosts.load(failing("pwrite", f"raise OSError({what})")))
    wire.expect_errno(send(wire, "pwrite"), EIO)


@case("plugin.errors.oserror-foreign", req=["PY-ERR-12", "PY-ERR-11"])
@pytest.mark.parametrize(
    "what", ["ssl.SSLError(1, 'x')", "socket.herror(1, 'x')", "socket.gaierror(1, 'x')"]
)
def test_oserror_foreign(hosts, what):
    """The number of an ssl or resolver error is no errno: EIO."""
    wire = go(hosts.load("import socket, ssl\n" + failing("pwrite", f"raise {what}")))
    wire.expect_errno(send(wire, "pwrite"), EIO)


@case("plugin.errors.oserror-overruled", req=["PY-ERR-13"])
def test_oserror_overruled(hosts):
    """set_error beats the errno of an OSError."""
    body = f"nbdkit.set_error({errno.ENOMEM}); raise OSError(errno.ENOSPC, 'x')"
    wire = go(hosts.load(failing("pwrite", body)))
    wire.expect_errno(send(wire, "pwrite"), nbd.ENOMEM)


@case("plugin.errors.superset-text", req=["PY-ERR-16", "PY-MOD-39"])
@pytest.mark.parametrize("how", ["oserror", "error"])
def test_superset_text(hosts, how):
    """Words for the client: OSError's strerror, or what nbdkit.error was given."""
    body = {
        "oserror": "raise OSError(errno.ENOSPC, 'the words')",
        "error": "nbdkit.error('the words'); raise RuntimeError('others')",
    }[how]
    plugin = hosts.load(failing("pread", body))
    wire = go(plugin)
    reply = wire.wait(send(wire, "pread"))
    assert reply.message == "the words", f"the text is {reply.message!r}"
    plugin.wait_log("the words")


@case("plugin.errors.secret", req=["PY-ERR-17"])
@pytest.mark.parametrize("name", ["pread", "extents"])
def test_secret(hosts, name):
    """The text of an exception is not for clients."""
    wire = go(hosts.load(failing(name, "raise RuntimeError('token=secret')")))
    reply = wire.wait(send(wire, name))
    assert reply.error and "secret" not in reply.message


@case("plugin.errors.error-text", req=["PY-ERR-17"])
def test_superset_error_text(hosts):
    """With --error-text it is."""
    source = failing("pread", "raise RuntimeError('in full')")
    wire = go(hosts.load(source, options=("--error-text",)))
    assert "in full" in wire.wait(send(wire, "pread")).message


# The log


@case("plugin.errors.log", req=["PY-ERR-27", "PY-ERR-28"])
@both
def test_log(hosts, api):
    """The log has script, callback, traceback, and the exceptions chained to it."""
    plugin = hosts.load(
        """
def inner():
    raise KeyError("the first")
def pwrite(h, *args):
    try:
        inner()
    except KeyError as error:
        raise ValueError("the second") from error
""",
        api=api,
    )
    wire = plugin.go()
    wire.expect_errno(send(wire, "pwrite"), EIO)
    log = plugin.wait_log("the second")
    for words in ("recorder.py", "pwrite: error:", "Traceback", "in inner", "the first"):
        assert words in log, f"{words!r} is not in the log"


@case("plugin.errors.percent", req=["PY-ERR-29"])
def test_percent(hosts):
    """A % in the text is safe."""
    plugin = hosts.load(failing("pwrite", "raise ValueError('%s %n %d 100%')"))
    wire = plugin.go()
    wire.expect_errno(send(wire, "pwrite"), EIO)
    plugin.wait_log("%s %n %d 100%")


TEXTS = {
    "surrogate": r"raise ValueError('\udcff')",
    "surrogate-file": r"open(b'\xff/\xfe')",
    "nul": r"raise ValueError('a\0b')",
    "str-raises": "raise Broken()",
    "str-not-str": "raise Wrong()",
    "huge": "raise ValueError('x' * 1000000)",
    "empty": "raise ValueError",
}


@case("plugin.errors.texts", req=["PY-ERR-30", "PY-ERR-31"])
@pytest.mark.parametrize("what", TEXTS)
def test_texts(hosts, what):
    """Texts that cannot be shown as they are: EIO, a line in the log, no crash."""
    plugin = hosts.load(
        """
from builtins import open as built_in
class Broken(Exception):
    def __str__(self): raise RuntimeError("cannot be told")
    __repr__ = __str__
class Wrong(Exception):
    def __str__(self): return 5
"""
        + failing("pwrite", TEXTS[what].replace("open(", "built_in("))
    )
    wire = plugin.go()
    wire.expect_errno(send(wire, "pwrite"), EIO)
    wire.in_step()
    plugin.wait_log("pwrite")


DEEP = {
    "recursion": "def deep(): return deep()\n",
    "memory": "def deep(): return bytes(1 << 60)\n",
    "memory-error": "def deep(): raise MemoryError\n",
}


@case("plugin.errors.exhausted", req=["PY-ERR-32"])
@pytest.mark.parametrize("what", DEEP)
def test_exhausted(hosts, what):
    """RecursionError and MemoryError: EIO, and the host lives."""
    plugin = hosts.load(DEEP[what] + failing("pwrite", "deep()"))
    wire = plugin.go()
    wire.expect_errno(send(wire, "pwrite"), EIO)
    wire.in_step()


@case("plugin.errors.broken-traceback", req=["PY-ERR-33"])
def test_broken_traceback(hosts):
    """Without a working traceback module the exception is logged all the same."""
    plugin = hosts.start(
        """
import traceback
def nothing(*args, **kwargs): raise RuntimeError("broken")
for name in ("format_exception", "TracebackException", "print_exception"):
    setattr(traceback, name, nothing)
def open(r): return 1
def get_size(h): return 4096
def pread(h, c, o): raise ValueError("the reason")
"""
    )
    wire = plugin.go()
    wire.expect_errno(wire.request(nbd.READ, 0, 512), EIO)
    plugin.wait_log("the reason")
    wire.in_step()


@case("plugin.errors.apart", req=["PY-ERR-35", "PY-ERR-34"])
def test_apart(hosts):
    """Errors of requests that run side by side do not mix."""
    plugin = hosts.load(
        """
def pread(h, buf, offset, flags):
    if offset % 2:
        nbdkit.set_error(offset)
    hold()
    if offset:
        raise RuntimeError
""",
        model=3,
        options=("-t", "8"),
        record=False,
    )
    wires = [plugin.go(), plugin.go()]
    numbers = [errno.EPERM, 0, errno.EIO, errno.ENODEV]
    asked = [(w, n, w.request(nbd.READ, n, 64)) for w in wires for n in numbers]
    plugin.inside(len(asked))
    plugin.open_gate()
    for wire, number, cookie in asked:
        expected = wire_error(number) if number else 0
        found = wire.wait(cookie).error
        assert found == expected, f"{number}: {nbd.error_name(found)}"


@case("plugin.errors.fork-returns", req=["PY-ERR-36"])
def test_fork_returns(hosts):
    """A forked child that returns from its callback does not answer the client."""
    plugin = hosts.start(
        """
import os
API_VERSION = 2
def open(r): return 1
def get_size(h): return 4096
def pread(h, buf, offset, flags):
    if offset == 0:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            buf[:] = b"parent.." * (len(buf) // 8)
        else:
            buf[:] = b"child..." * (len(buf) // 8)
"""
    )
    wire = plugin.go()
    assert wire.read(512, 0)[:8] == b"parent.."
    assert wire.read(512, 512) == bytes(512)


@case("plugin.errors.fork", req=["PY-ERR-37"])
def test_fork(hosts):
    """os.fork with waitpid, and subprocess, work in callbacks."""
    plugin = hosts.load(
        """
import os, subprocess
def pwrite(h, *args):
    child = os.fork()
    if not child:
        os._exit(7)
    note("fork", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    done = subprocess.run(["sh", "-c", "echo out; exit 3"], capture_output=True)
    note("run", done.returncode, done.stdout)
""",
        record=False,
    )
    plugin.client().pwrite(b"x", 0)
    notes = {call.name: call.args for call in plugin.calls()}
    assert notes == {"fork": ["7"], "run": ["3", "b'out\\n'"]}


@case("plugin.errors.kept-nowhere", req=["PY-ERR-38", "PY-LIFE-25"])
def test_kept_nowhere(hosts):
    """After a failed request nothing of its frame is alive."""
    plugin = hosts.load(
        """
import gc, sys, weakref
class Local: pass
dead = []
def pwrite(h, *args):
    local = Local()
    weakref.finalize(local, dead.append, 1)
    raise ValueError("with a local")
def kept(): return [hasattr(sys, n) for n in ("last_traceback", "last_value")]
""",
        record=False,
    )
    wire = plugin.go()
    for _ in range(3):
        wire.expect_errno(send(wire, "pwrite"), EIO)
    assert plugin.eval("dead") == [1, 1, 1], "locals of failed requests are alive"
    assert plugin.eval("kept()") == [False, False]


@case("plugin.errors.warnings", req=["PY-ERR-40"])
def test_warnings(hosts):
    """A warning goes to stderr and changes nothing."""
    source = failing("pwrite", "import warnings; warnings.warn('look here')")
    plugin = hosts.load(source)
    plugin.client().pwrite(b"x", 0)
    plugin.wait_log("look here")
