# SPDX-License-Identifier: BSD-3-Clause
"""Where the log goes, and what is in front of its lines."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest
from server_process import PLUGIN, READ, Server, connected, needs_python, refused

COMPLAINING = PLUGIN.replace('return b"p" * count', "raise RuntimeError('oh dear')")


def complain(place: Path, *args: str) -> Server:
    """A server whose client has made it log an error."""
    (place / "plugin.py").write_text(COMPLAINING)
    s = Server(place, *args, "python", str(place / "plugin.py"))
    with connected(s) as c:
        c.request(READ, 0, 512)
        assert c.simple_reply(512)[0] == errno.EIO
    assert s.stop() == 0
    return s


@needs_python
@pytest.mark.parametrize("args", [(), ("--log=stderr",)])
def test_log_to_stderr(args: tuple[str, ...], place: Path) -> None:
    with complain(place, *args) as s:
        start = f"nbdspecd: python[1]: error: {place}/plugin.py: pread: error:"
        assert start in s.log()
        assert "oh dear" in s.log()


@needs_python
@pytest.mark.parametrize("form", ["null", "syslog"])
def test_log_elsewhere(form: str, place: Path) -> None:
    with complain(place, f"--log={form}") as s:
        assert s.log() == ""


@needs_python
def test_log_to_a_file_appends(place: Path) -> None:
    (place / "errors").write_text("before\n")
    with complain(place, f"--log={place}/errors", "-v") as s:
        assert "oh dear" not in s.log()
        assert "debug: " in s.log()  # debugging lines are for stderr
    text = (place / "errors").read_text()
    assert text.startswith("before\n") and "oh dear" in text
    assert "debug: " not in text


@needs_python
def test_name_in_front_of_lines(place: Path) -> None:
    with complain(place, "--name", "disk seven") as s:
        assert s.log().startswith("disk seven: python[1]: error: ")


def test_debug_flags(place: Path) -> None:
    args = ("-D", "nbdkit.backend.datapath=0", "-D", "some.flag=1", "null", "1M")
    with Server(place, *args) as s:
        assert s.log() == "nbdspecd: warning: debug flag -D some.flag was not used\n"


@needs_python
def test_stderr_that_nobody_reads_stops_nobody(place: Path) -> None:
    """The pipe is full, yet each request is answered; no line is lost."""
    r, w = os.pipe()
    (place / "plugin.py").write_text(
        PLUGIN.replace(
            'return b"p" * count',
            "raise RuntimeError('%d %s' % (offset // 512, 'x' * 8000))",
        )
    )
    with Server(place, "python", str(place / "plugin.py"), stderr=w) as s:
        os.close(w)
        with connected(s) as c:
            for i in range(100):  # 64 KiB are in the pipe after eight
                c.request(READ, i * 512, 512)
                assert c.simple_reply(512)[0] == errno.EIO
        s.process.send_signal(signal.SIGTERM)
        got = b""
        while piece := os.read(r, 65536):
            got += piece
        os.close(r)
        assert s.wait() == 0
    for i in range(100):
        assert b"RuntimeError: %d xxx" % i in got


@pytest.mark.parametrize("form", ["null", "syslog", "file"])
def test_errors_of_the_start_are_for_the_starter(form: str, place: Path) -> None:
    """Whoever starts a server that cannot start is told why, once."""
    form = f"{place}/errors" if form == "file" else form
    said = refused(f"--log={form}", "-f", "memory", "99E")
    assert "size '99E' is too large" in said
