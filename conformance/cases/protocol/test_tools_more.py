# SPDX-License-Identifier: BSD-3-Clause
"""More client programs: how they look at an export, and put it under load."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from nbdspec.case import Mode, case
from nbdspec.payloads import pattern
from nbdspec.verdict import Breach, NotApplicable

SECTION = "tools"
HAS = "meta:base:allocation"
MIB = 1 << 20
SPARSE = Mode(size=8 * MIB, content="sparse")
SMALL = Mode(size=8 * MIB)


def run(argv: list[str], *, name: str = "") -> str:
    """Runs a client program that has to succeed."""
    path = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    if shutil.which(argv[0], path=path) is None:
        raise NotApplicable(f"{name or argv[0]} is not installed")
    env = {"PATH": path, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, env=env)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise Breach(f"{' '.join(argv)[:200]} to succeed", said[-500:])
    return done.stdout


def sparse() -> bytes:
    return b"".join(
        pattern(at, MIB) if at % (2 * MIB) == 0 else bytes(MIB)
        for at in range(0, SPARSE.size, MIB)
    )


@case("tool.qemu-img-map", req=["META-BASE-12"], needs=HAS, mode=SPARSE)
def test_qemu_img_map(server):
    """What qemu-img map calls zero is zero, and it covers all of the export."""
    told = run(["qemu-img", "map", "--output=json", "-f", "raw", server.uri])
    at, want = 0, sparse()
    for part in json.loads(told):
        assert part["start"] == at
        if part["zero"]:
            length = part["length"]
            assert want[at : at + length] == bytes(length), f"data at {at}"
        at += part["length"]
    assert at == SPARSE.size


@case("tool.nbdinfo-map", req=["META-BASE-12"], needs=HAS, mode=SPARSE)
def test_nbdinfo_map(server):
    """nbdinfo --map covers all of the export, and agrees with its data."""
    at, want = 0, sparse()
    for line in run(["nbdinfo", "--map", server.uri]).splitlines():
        start, length, status = (int(word) for word in line.split()[:3])
        assert start == at
        if status & 2:
            assert want[at : at + length] == bytes(length), f"data at {at}"
        at += length
    assert at == SPARSE.size


@case("tool.qemu-img-compare", req=["COMPAT-02"], mode=SPARSE)
def test_qemu_img_compare(server, tmp_path):
    """qemu-img compare finds an export equal to a file with the same bytes."""
    image = tmp_path / "image"
    image.write_bytes(sparse())
    run(["qemu-img", "compare", "-f", "raw", "-F", "raw", str(image), server.uri])


@case("tool.qemu-img-info", req=["COMPAT-02"], mode=SMALL)
def test_qemu_img_info(server):
    """qemu-img info tells the size."""
    told = run(["qemu-img", "info", "--output=json", "-f", "raw", server.uri])
    assert json.loads(told)["virtual-size"] == SMALL.size


@case("tool.qemu-img-bench", req=["TX-04"], needs="writable", mode=SMALL, quick=False)
@pytest.mark.parametrize("direction", ["read", "write"])
def test_qemu_img_bench(server, direction):
    """qemu-img bench keeps 16 requests in flight."""
    words = ["-w"] if direction == "write" else []
    run(["qemu-img", "bench", "-f", "raw", "-c", "500", "-d", "16", "-s", "4096",
         *words, server.uri])


@case("tool.qemu-io", req=["TX-ZERO-11", "TX-WRITE-04"], needs="stores writable write-zeroes",
      mode=SMALL)
def test_qemu_io(server):
    """qemu-io writes, zeroes, discards and verifies, at odd offsets too."""
    commands = [
        "write -P 7 1000 70000", "read -P 7 1000 70000",
        "write -z 2000 50000", "read -P 0 2000 50000", "read -P 7 1000 1000",
        "write -z -u 1M 1M", "read -P 0 1M 1M", "discard 2M 1M", "flush",
        "write -f -P 9 3M 64k", "read -P 9 3M 64k",
        "aio_write -P 1 4M 64k", "aio_write -P 2 5M 64k", "aio_flush",
        "read -P 1 4M 64k", "read -P 2 5M 64k",
    ]
    words = [word for command in commands for word in ("-c", command)]
    told = run(["qemu-io", "-f", "raw", *words, server.uri])
    wrong = re.findall(r".*(?:verification failed|error|failed).*", told)
    assert not wrong, wrong[0]


@case("tool.nbdcopy-writes", req=["COMPAT-02"], needs="stores writable", mode=SMALL)
def test_nbdcopy_writes(server, tmp_path):
    """nbdcopy puts a sparse file into an export and gets it back."""
    image, out = tmp_path / "image", tmp_path / "out"
    image.write_bytes(sparse())
    run(["nbdcopy", str(image), server.uri])
    run(["nbdcopy", server.uri, str(out)])
    assert out.read_bytes() == sparse(), "the copy differs"


@case("tool.nbdsh", req=["COMPAT-02"], needs="stores writable minimum=1", mode=SMALL,
      quick=False)
def test_nbdsh(server):
    """nbdsh writes and reads."""
    if importlib.util.find_spec("nbd") is None:
        raise NotApplicable("libnbd's Python module is not installed")
    script = "h.pwrite(b'sh' * 1000, 77); assert h.pread(2000, 77) == b'sh' * 1000"
    run([sys.executable, "-c", "import nbdsh; nbdsh.shell()", "-u", server.uri,
         "-c", script], name="nbdsh")


@case("tool.fio", req=["TX-04", "TX-READ-19"], needs="stores writable minimum<=4096",
      mode=SMALL, quick=False)
def test_fio(server):
    """fio's nbd engine writes and verifies with 16 requests in flight."""
    run(["fio", "--verify_state_save=0", "--name=nbd", "--ioengine=nbd", f"--uri={server.uri}", "--rw=randrw",
         "--bs=4k", "--size=4m", "--iodepth=16", "--verify=crc32c",
         "--verify_fatal=1", "--verify_state_save=0", "--thread"])


@case("tool.nbd-client-list", req=["OPT-LIST-01"], needs="list",
      mode=Mode(exports=("alpha", "beta")))
def test_nbd_client_list(server):
    """nbd-client -l lists the exports."""
    if server.unix is None:
        raise NotApplicable("nbd-client lists over TCP otherwise")
    told = run(["nbd-client", "-l", "-unix", str(server.unix)])
    assert {"alpha", "beta"} <= set(told.split()), told
