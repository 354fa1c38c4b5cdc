# SPDX-License-Identifier: BSD-3-Clause
"""The sample plugins, and those of the benchmarks: the same under both servers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import nbd
import pytest

ROOT = Path(__file__).resolve().parents[2]
PYPLUGINS = ROOT / "pyplugins"
BENCH_PLUGINS = ROOT / "regress" / "scenarios" / "plugins"
MIB = 1 << 20


def program(host: str) -> str:
    if host == "nbdspecd":
        return os.environ.get("NBDSPECD", str(ROOT / "build" / "nbdspecd"))
    path = shutil.which("nbdkit")
    if path is None:
        pytest.skip("nbdkit is not installed")
    return path


@pytest.fixture(params=["nbdspecd", "nbdkit"])
def host(request: pytest.FixtureRequest) -> str:
    return program(request.param)


def serve(host: str, script: Path, *parameters: str) -> nbd.NBD:
    """A connection to a server of its own, which ends with the connection."""
    handle = nbd.NBD()
    handle.connect_command([host, "-s", "python", str(script), *parameters])
    return handle


def refused(host: str, script: Path, *parameters: str) -> str:
    """What a server says that must not start."""
    done = subprocess.run(
        [host, "-U", "-", "python", str(script), *parameters, "--run", "true"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    return done.stderr


def data_survives(h: nbd.NBD) -> None:
    """Writes, zeroes and trims at odd places, read back in one piece."""
    expected = bytearray(3 * MIB)
    for offset, count in ((0, 1), (511, 1026), (MIB - 1, MIB + 3), (3 * MIB - 7, 7)):
        block = bytes((offset + i) % 251 for i in range(count))
        h.pwrite(block, offset)
        expected[offset : offset + count] = block
    h.zero(5000, MIB + 100)
    expected[MIB + 100 : MIB + 5100] = bytes(5000)
    h.pwrite(b"fua", 600, nbd.CMD_FLAG_FUA)
    expected[600:603] = b"fua"
    h.flush()
    assert h.pread(3 * MIB, 0) == expected


@pytest.mark.parametrize("name", ["zero.py", "memory.py", "file.py"])
def test_a_lesson_is_short_and_says_what_it_teaches(name: str) -> None:
    lines = (PYPLUGINS / name).read_text().splitlines()
    assert len(lines) <= 80
    assert lines[1].startswith('"""'), "a docstring right below the licence line"


def test_memory_keeps_data(host: str) -> None:
    h = serve(host, PYPLUGINS / "memory.py", "size=3M")
    assert h.get_size() == 3 * MIB
    assert h.can_multi_conn() and h.can_fua() and h.can_trim()
    data_survives(h)
    h.trim(512, 0)
    assert h.pread(3, 600) == b"fua"
    h.shutdown()


def test_memory_serial_is_the_same_plugin(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERIAL_PLUGIN", str(PYPLUGINS / "memory.py"))
    h = serve(host, BENCH_PLUGINS / "serial.py", "size=3M")
    data_survives(h)
    h.shutdown()


def test_file_keeps_data(host: str, tmp_path: Path) -> None:
    path = tmp_path / "disk.img"
    path.write_bytes(bytes(3 * MIB))
    h = serve(host, PYPLUGINS / "file.py", f"file={path}")
    data_survives(h)
    assert path.read_bytes() == h.pread(3 * MIB, 0)
    h.shutdown()


def test_file_that_shrinks_is_an_error_and_no_hang(host: str, tmp_path: Path) -> None:
    path = tmp_path / "disk.img"
    path.write_bytes(bytes(MIB))
    h = serve(host, PYPLUGINS / "file.py", f"file={path}")
    os.truncate(path, 1000)
    with pytest.raises(nbd.Error) as error:
        h.pread(2000, 0)
    assert error.value.errno == "EIO"
    assert h.pread(1000, 0) == bytes(1000)
    h.shutdown()


def test_zero_takes_writes_and_refuses_reads(host: str) -> None:
    h = serve(host, PYPLUGINS / "zero.py")
    assert h.get_size() == 1 << 30
    h.pwrite(b"U" * (2 * MIB), 0)
    with pytest.raises(nbd.Error):
        h.pread(512, 0)
    h.pwrite(b"U" * 512, (1 << 30) - 512)
    h.shutdown()


def test_sleeper_answers_both_exports(host: str) -> None:
    script = BENCH_PLUGINS / "sleeper.py"
    for name in ("", "compute"):
        h = nbd.NBD()
        h.set_export_name(name)
        h.connect_command([host, "-s", "python", str(script), "sleep=0", "compute=0"])
        h.pwrite(b"x", 0)
        assert len(h.pread(512, 0)) == 512
        h.shutdown()


@pytest.mark.parametrize(
    ("script", "parameters", "message"),
    [
        ("memory.py", [], "parameter size=SIZE is missing"),
        ("memory.py", ["size=0"], "size=0: a disk has at least one byte"),
        ("memory.py", ["size=1x"], "unknown suffix"),
        ("memory.py", ["size=7E"], "size=7E: more memory than there is"),
        ("memory.py", ["colour=red"], "unknown parameter 'colour': memory.py takes"),
        ("file.py", [], "parameter file=PATH is missing"),
        ("file.py", ["file=/"], "file=/: there is no such regular file"),
        ("file.py", ["path=x"], "unknown parameter 'path': file.py takes file=PATH"),
    ],
)
def test_bad_parameters(
    host: str, script: str, parameters: list[str], message: str
) -> None:
    assert message in refused(host, PYPLUGINS / script, *parameters)


@pytest.mark.parametrize("value", ["1x", "-1", "nan", "61"])
def test_bad_seconds(host: str, value: str) -> None:
    message = refused(host, BENCH_PLUGINS / "sleeper.py", f"sleep={value}")
    assert f"sleep={value}: expected " in message
