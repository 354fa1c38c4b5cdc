# SPDX-License-Identifier: BSD-3-Clause
"""What people use: whole programs that are NBD clients."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from nbdspec.case import Mode, case
from nbdspec.payloads import pattern
from nbdspec.verdict import Breach, NotApplicable

SECTION = "tools"


def run(argv: list[str]) -> str:
    """Runs a client program that has to succeed."""
    if shutil.which(argv[0]) is None:
        raise NotApplicable(f"{argv[0]} is not installed")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise Breach(f"{' '.join(argv)} to succeed", done.stderr.strip())
    return done.stdout


@case("tool.qemu-img-reads", req=["COMPAT-02"],
      mode=Mode(size=1 << 20, content="pattern"))
@pytest.mark.parametrize("convert", ["convert", "dd"])
def test_qemu_img_reads(server, tmp_path, convert):
    """qemu-img copies an export into a file, byte for byte."""
    out = tmp_path / "out"
    if convert == "convert":
        run(["qemu-img", "convert", "-f", "raw", "-O", "raw", server.uri, str(out)])
    else:
        words = [f"if={server.uri}", f"of={out}", "bs=64k"]
        run(["qemu-img", "dd", "-f", "raw", "-O", "raw", *words])
    assert out.read_bytes() == pattern(0, 1 << 20), "the copy differs"


@case("tool.qemu-img-writes", req=["COMPAT-02"],
      needs="stores writable", mode=Mode(size=1 << 20))
def test_qemu_img_writes(server, connect, tmp_path):
    """qemu-img convert -n puts an image into an export, byte for byte."""
    image = tmp_path / "image"
    image.write_bytes(pattern(0, 1 << 20))
    run(["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", str(image), server.uri])
    wire = connect()
    wire.greet()
    wire.transmit()
    assert wire.read(1 << 20, 0) == pattern(0, 1 << 20), "the export differs"


@case("tool.nbdinfo", req=["COMPAT-02"])
def test_nbdinfo(server, lease):
    """nbdinfo tells the size that the server told the kit."""
    # without file(1), nbdinfo 1.14 tells what was in its memory as the content
    told = json.loads(run(["nbdinfo", "--no-content", "--json", server.uri]))
    assert told["exports"][0]["export-size"] == lease.profile.size


@case("tool.nbdcopy", req=["COMPAT-02"], mode=Mode(size=8 << 20, content="sparse"))
def test_nbdcopy(server, tmp_path):
    """nbdcopy copies data and holes with many requests in flight."""
    out = tmp_path / "out"
    run(["nbdcopy", server.uri, str(out)])
    want = b"".join(
        pattern(at, 1 << 20) if at % (2 << 20) == 0 else bytes(1 << 20)
        for at in range(0, 8 << 20, 1 << 20)
    )
    assert out.read_bytes() == want, "the copy differs"
