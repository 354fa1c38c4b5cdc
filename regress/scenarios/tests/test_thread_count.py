# SPDX-License-Identifier: BSD-3-Clause
"""thread-count: what limits how many uploads are under way, and its report.

Times are never looked at: what is gated on is what the daemon saw.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from imageio.disk import Disk
from imageio.process import Daemon, most_at_once, phases
from nbdspec.bench import load, places
from nbdspec.bench.model import BenchError, Options
from nbdspec.bench.server import Server, ServerSpec, program

ROOT = Path(__file__).resolve().parents[3]
UPLOAD = ROOT / "pyplugins" / "upload.py"
LIMIT = 120.0  # seconds; a guard against hanging
DISK = Disk(64 << 20, 16 << 20, 2 << 20, seed=7)

pytestmark = pytest.mark.skipif(
    shutil.which("qemu-img") is None, reason="qemu-img is not installed"
)


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tc.") as name:
        yield Path(name)


@pytest.fixture(params=["nbdspecd", pytest.param("nbdkit", marks=pytest.mark.slow)])
def host(request: pytest.FixtureRequest) -> str:
    if shutil.which("nbdkit") is None and request.param == "nbdkit":
        pytest.skip("nbdkit is not installed")
    return str(request.param)


@pytest.fixture
def source(directory: Path) -> Path:
    path = directory / "disk.img"
    DISK.make(path)
    return path


def qemu_img(*words: str) -> None:
    subprocess.run(["qemu-img", *words], check=True, timeout=LIMIT)


def same(source: Path, copy: Path) -> None:
    qemu_img("compare", "-f", "raw", "-F", "raw", str(source), str(copy))


@pytest.mark.parametrize(
    ("threads", "connections", "coroutines", "order", "expected"),
    [
        (1, 16, 8, ["-W"], 1),
        (4, 16, 8, ["-W"], 4),
        (16, 4, 8, ["-W"], 4),
        (16, 16, 8, ["-W"], 8),
        (16, 16, 16, ["-W"], 16),
        (16, 16, 8, [], 1),
    ],
    ids=["threads-1", "threads-4", "pool-4", "coroutines-8", "all-16", "in-order"],
)
def test_puts_at_once(
    directory: Path,
    host: str,
    threads: int,
    connections: int,
    coroutines: int,
    order: list[str],
    expected: int,
) -> None:
    """min(threads, pool, coroutines) reach the daemon together; without -W one."""
    image, source = directory / "image", directory / "disk.img"
    # no holes: their coroutines would be busy otherwise; qemu-img writes 2 MiB each
    source.write_bytes(b"".join(bytes([n]) * (2 << 20) for n in range(1, 25)))
    size = source.stat().st_size
    daemon = Daemon(
        directory,
        *["--image", str(image), "--size", str(size)],
        *["--max-readers", "16", "--max-writers", "16"],
        # none is answered before there are as many as there have to be; from then on
        # the latency gives more of them the time to show up, if there can be more
        *["--hold-puts", str(expected), "--put-latency", "0.05"],
    )
    words = [f"url={daemon.image}", f"size={size}", f"connections={connections}"]
    spec = ServerSpec(
        host, ("python", str(UPLOAD), *words, "local=yes"), threads=threads
    )
    server = Server(spec, directory)
    convert = ["convert", "-n", "-f", "raw", "-O", "raw", *order]
    qemu_img(*convert, "-m", str(coroutines), str(source), server.uri)
    server.stop()
    log = daemon.stop()
    assert most_at_once(log)["PUT"] == expected
    same(source, image)
    flushes = [p.operations for c in phases(log) for p in c if p.name == "flush"]
    assert flushes == [1] * connections  # qemu-img flushes once


def virt_v2v_line(directory: Path, daemon: Daemon) -> list[str]:
    """How virt-v2v of early 2021 starts nbdkit for this plugin, option by option."""
    label = []
    if Path("/sys/fs/selinux/enforce").exists():
        label = ["--selinux-label", "system_u:object_r:svirt_socket_t:s0"]
    return [
        *["--exit-with-parent", "--foreground", "--newstyle"],
        *["--pidfile", str(directory / "pid"), "--unix", str(directory / "sock")],
        *["--threads", "8", "-D", "nbdkit.backend.datapath=0"],
        *["--exportname", "/", *label, "--verbose", "python"],
        *[f"script={UPLOAD}", f"url={daemon.image}", f"size={DISK.size}"],
    ]


def test_the_command_line_of_virt_v2v(directory: Path, source: Path, host: str) -> None:
    """Started as virt-v2v does, written to by its qemu-img command."""
    image = directory / "image"
    daemon = Daemon(directory, "--image", str(image), "--size", str(DISK.size))
    environment = os.environ | {"PATH": "/usr/bin:" + os.environ["PATH"]}
    environment.pop("PYTHONUNBUFFERED", None)
    log = directory / "log"
    with open(log, "wb") as f:
        server = subprocess.Popen(
            [program(host), *virt_v2v_line(directory, daemon)],
            env=environment,
            stdout=f,
            stderr=f,
        )
    pid = directory / "pid"
    while not (pid.exists() and pid.read_text().endswith("\n")):
        assert server.poll() is None, log.read_text()
    assert int(pid.read_text()) == server.pid
    target = {
        "file.driver": "nbd",
        "file.path": str(directory / "sock"),
        "file.export": "/",
    }
    options = ["-p", "-n", "-f", "raw", "-O", "raw", "-S", "64k", "-W"]
    qemu_img("convert", *options, str(source), f"json:{json.dumps(target)}")
    server.terminate()
    assert server.wait(LIMIT) in (0, -signal.SIGTERM)
    daemon.stop()
    same(source, image)
    # datapath=0: verbose, and yet no line for each write
    assert "debug:" in log.read_text() and "pwrite" not in log.read_text()


def test_read_only(directory: Path, host: str) -> None:
    """--readonly, the option of that line which an upload cannot use."""
    daemon = Daemon(directory, "--image", str(directory / "image"), "--size", "1M")
    words = (f"url={daemon.image}", "size=1M")
    server = Server(
        ServerSpec(host, ("python", str(UPLOAD), *words), ("--readonly",)), directory
    )
    done = subprocess.run(["nbdinfo", "--is", "read-only", server.uri])
    assert done.returncode == 0
    server.stop()
    daemon.stop()


@pytest.mark.parametrize(
    ("over", "under", "expected"),
    [
        ([1.3, 1.31, 1.32], [1.0, 1.01, 1.02], "holds"),
        ([0.8, 0.81, 0.82], [1.0, 1.01, 1.02], "the opposite holds"),
        ([1.0, 1.2, 1.4], [0.9, 1.0, 1.1], "cannot be told from the noise"),
        # apart, but by less than each of them varies
        ([1.11, 1.2, 1.5], [0.8, 1.0, 1.1], "cannot be told from the noise"),
        ([1.3, 1.31], [1.0, 1.01], "not with 2 runs"),
    ],
)
def test_verdicts_on_claims(
    over: list[float], under: list[float], expected: str
) -> None:
    load("thread-count")  # makes the report's module known
    uploads = sys.modules["uploads"]
    claim = uploads.Claim("slower", "a", "b", thread=1.32)
    times = (uploads.figures(over), uploads.figures(under))
    assert uploads.verdict(claim, *times, len(over)) == expected


def test_the_disk_is_the_same_each_time(directory: Path) -> None:
    first, second, other = (directory / name for name in ("a", "b", "c"))
    DISK.make(first)
    DISK.make(second)
    Disk(DISK.size, DISK.data, DISK.zeroes, seed=8).make(other)
    assert first.read_bytes() == second.read_bytes() != other.read_bytes()
    runs = list(DISK.runs())
    ends = [offset + length for offset, length, _ in runs]
    assert all(end <= run[0] for end, run in zip(ends, runs[1:]))
    assert ends[-1] <= DISK.size == first.stat().st_size
    assert sum(length for _, length, is_data in runs if is_data) == DISK.data


def bench(*words: str) -> list[str]:
    command = [sys.executable, str(ROOT / "conformance" / "nbdspec"), "bench"]
    return [*command, *words, "--repeat", "1", "--data", "20"]


def left_behind(temporary: Path) -> list[str]:
    return [p.name for p in temporary.iterdir()]


@pytest.fixture
def temporary(directory: Path) -> Path:
    path = directory / "t"
    path.mkdir()
    return path


def test_one_command_makes_the_report(directory: Path, temporary: Path) -> None:
    """The statistics of the mail, the claims, the commands; and nothing else stays."""
    out = directory / "out"
    words = ["thread-count", "--host", "nbdspecd", "--row", "free*step*"]
    words += ["--out", str(out), "--report", str(out / "more.md")]
    done = subprocess.run(
        bench(*words),
        env=os.environ | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert left_behind(temporary) == []
    text = (out / "thread-count.md").read_text()
    assert text == done.stdout == (out / "more.md").read_text()
    assert sorted(p.name for p in out.iterdir()) == [
        "more.md",
        "thread-count.json",
        "thread-count.md",
        "thread-count.svg",
    ]
    connections = phases(text)
    assert len(connections) == 4
    names = [{p.name for p in c} for c in connections]
    assert all({"connection", "dispatch", "flush"} <= phase for phase in names)
    assert set().union(*names) == {"connection", "dispatch", "write", "zero", "flush"}
    assert text.count("| not with 1 runs |") == 4
    for options in ("-t 16 ", "-t 8 ", "qemu-img convert -n -f raw -O raw -W -m 8"):
        assert options in text
    samples = json.loads((out / "thread-count.json").read_text())["samples"]
    extra = {s["row"].split(",")[0]: s["extra"] for s in samples}
    written = {e["write_ops"] for e in extra.values()}
    assert len(written) == 1  # the same requests in all steps
    assert extra["free-running: step 1"]["plugin_in_flight_most"] == 1
    assert extra["free-running: step 4"]["plugin_in_flight_most"] > 1


@pytest.mark.slow
def test_interrupted_and_gone_on(directory: Path, temporary: Path) -> None:
    """Ctrl-C keeps what was measured, leaves nothing else, and the next run uses it."""
    out = directory / "out"
    words = ["thread-count", "--host", "nbdspecd", "--row", "free*step [34]*"]
    words += ["--out", str(out)]
    environment = os.environ | {"TMPDIR": str(temporary)}
    partial = out / "thread-count.partial"
    first = subprocess.Popen(
        bench(*words),
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not (partial.exists() and partial.read_text().count("\n") == 2):
        assert first.poll() is None
    os.killpg(first.pid, signal.SIGINT)  # a terminal sends it to all of them
    _, said = first.communicate(timeout=LIMIT)
    assert first.returncode == 2
    assert "interrupted; 1 measurements are kept" in said
    assert left_behind(temporary) == []
    kept = json.loads(partial.read_text().splitlines()[1])
    done = subprocess.run(
        bench(*words), env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0
    assert "going on after 1 measurements" in done.stderr
    samples = json.loads((out / "thread-count.json").read_text())["samples"]
    assert samples[0]["value"] == kept[3]["value"]
    assert len(samples) == 2 and not partial.exists()


def scenario_in(directory: Path, **settings: Any) -> Any:
    scenario = load("thread-count")
    options = Options(1.0, 1, False, directory, **settings)
    return scenario, options, scenario.rows(options)


def test_too_little_space(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, _, _ = scenario_in(directory)
    monkeypatch.setattr(places, "free_space", lambda path: 200 << 20)
    with pytest.raises(BenchError, match="200 MiB are free, 264 are needed"):
        scenario._source(delayed=False)


@pytest.mark.slow
def test_another_daemon(directory: Path) -> None:
    """--imageio: whatever serves the URL, by TCP or by a Unix socket."""
    image = directory / "image"
    daemon = Daemon(
        directory, "--image", str(image), "--size", "100M", "--ops", "read,write"
    )
    quoted = daemon.unix_socket.replace("/", "%2F")
    for number, url in enumerate(
        [daemon.image, f"http+unix://{quoted}/images/image"]
    ):
        out = directory / f"out{number}"
        words = ["thread-count", "--host", "nbdspecd", "--row", "free*step 4*"]
        words += ["--out", str(out), "--imageio", url]
        done = subprocess.run(
            bench(*words), capture_output=True, text=True, timeout=LIMIT
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert f"--imageio {shlex.quote(url)}" in done.stdout
    log = daemon.stop()
    assert "listener=local" in log and "listener=remote" in log
    assert most_at_once(log)["PUT"] > 1


def test_a_copy_that_fails(directory: Path) -> None:
    """No report is made of it, and what the daemon said is said again."""
    size = ["--image", str(directory / "i"), "--size", "100M"]
    daemon = Daemon(directory, *size, "--ops", "read,write", "--fault", "PUT:3:full")
    out = directory / "out"
    words = ["thread-count", "--row", "free*step 4*", "--out", str(out)]
    words += ["--host", "nbdspecd", "--imageio", daemon.image]
    done = subprocess.run(bench(*words), capture_output=True, text=True, timeout=LIMIT)
    daemon.stop()
    assert done.returncode == 2
    assert "No space left on device" in done.stderr.splitlines()[-1]
    assert [p.name for p in out.iterdir()] == ["thread-count.partial"]


@pytest.mark.parametrize(
    ("size", "path", "words"),
    [
        ("1M", "/images/image", "its image has 1048576 bytes, 1073741824 are needed"),
        ("1G", "/images/other", "403 Forbidden: No such ticket 'other'"),
        ("1G", None, "Connection refused"),
    ],
)
def test_a_daemon_that_is_of_no_use(
    directory: Path, size: str, path: str | None, words: str
) -> None:
    daemon = Daemon(
        directory, *["--image", str(directory / "i"), "--size", size, "--ops", "read"]
    )
    url = daemon.url + path if path else "http://127.0.0.1:1/images/x"
    with pytest.raises(BenchError, match=words):
        scenario_in(directory, imageio=url)
    daemon.stop()
