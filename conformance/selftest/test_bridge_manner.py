# SPDX-License-Identifier: BSD-3-Clause
"""Plugins in the manner of those that people publish load and serve.

The same bytes come from nbdkit, where it is installed.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import nbd
import pytest
from server_process import NBDSPECD, ROOT, Server, needs_python

pytestmark = needs_python

PLUGINS = sorted((ROOT / "conformance/plugins/manner").glob("*.py"))
SIZE = 1 << 20

nbdkit = pytest.mark.skipif(not shutil.which("nbdkit"), reason="nbdkit is missing")


def exercise(h: nbd.NBD) -> list[str]:
    """Reads, writes and zeroes by a fixed random sequence; held against a model."""
    chance = random.Random(7)
    model = bytearray(SIZE)
    done = []
    assert h.get_size() == SIZE
    writable = not h.is_read_only()
    for _ in range(60):
        length = 512 * chance.randint(1, 200)
        offset = 512 * chance.randint(0, (SIZE - length) // 512)
        what = chance.choice(["read", "write", "zero"] if writable else ["read"])
        if what == "write":
            data = chance.randbytes(length)
            h.pwrite(data, offset)
            model[offset : offset + length] = data
        elif what == "zero":
            h.zero(length, offset)
            model[offset : offset + length] = bytes(length)
        got = h.pread(length, offset)
        assert got == model[offset : offset + length], (what, offset, length)
        done.append(what)
    if h.can_flush():
        h.flush()
    assert h.pread(SIZE, 0) == model
    return done


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda p: p.stem)
@pytest.mark.parametrize("options", [(), ("--nbdkit-compat",)], ids=["", "compat"])
def test_served(place: Path, plugin: Path, options: tuple[str, ...]) -> None:
    with Server(place, *options, "python", str(plugin)) as server:
        h = nbd.NBD()
        h.connect_unix(server.socket)
        exercise(h)
        h.shutdown()
        assert server.stop() == 0
        assert "error" not in server.log(), server.log()


@nbdkit
@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda p: p.stem)
def test_served_by_nbdkit(plugin: Path) -> None:
    h = nbd.NBD()
    h.connect_command(["nbdkit", "-s", "--exit-with-parent", "python", str(plugin)])
    exercise(h)
    h.shutdown()


@nbdkit
@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda p: p.stem)
def test_the_same_is_offered(place: Path, plugin: Path) -> None:
    """What a client may ask for is what nbdkit lets it ask for."""

    def offered(h: nbd.NBD) -> dict[str, object]:
        questions = (
            "is_read_only is_rotational can_flush can_fua can_trim can_zero"
            " can_fast_zero can_cache can_multi_conn get_size"
        ).split()
        return {name: getattr(h, name)() for name in questions}

    ours, theirs = nbd.NBD(), nbd.NBD()
    ours.connect_command([NBDSPECD, "-s", "python", str(plugin)])
    theirs.connect_command(["nbdkit", "-s", "--exit-with-parent", "python", str(plugin)])
    assert offered(ours) == offered(theirs)
    ours.shutdown()
    theirs.shutdown()


def test_the_dump_of_an_uploader() -> None:
    upload = ROOT / "conformance/plugins/manner/upload.py"
    r = subprocess.run(
        [NBDSPECD, "--dump-plugin", "python", upload],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "upload=1\n" in r.stdout
