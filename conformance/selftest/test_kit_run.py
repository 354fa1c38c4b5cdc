# SPDX-License-Identifier: BSD-3-Clause
"""How a run is asked for, what it leaves behind, and how it ends."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from kit import CASES, HERE, Kit

JUNIT = HERE / "junit.xsd"


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    made = Kit(tmp_path)
    made.write(CASES)
    return made


# Selection


def test_selection_by_glob_and_row(kit: Kit) -> None:
    run = kit.server("", "--case", "self.r*")
    assert set(run.verdicts) == {"self.read"}
    run = kit.server("", "--row", "HS-20")
    assert set(run.verdicts) == {"self.option"}
    run = kit.server("", "--level", "should")
    assert set(run.verdicts) == {"self.flags"}


def test_nothing_selected(kit: Kit) -> None:
    run = kit.server("", "--case", "no.such-case")
    assert run.status == 3
    assert "no case was selected" in run.err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--row", "NO-ROW"], 2, "no such row"),
        (["--repeat", "0"], 2, "expected 1 or more"),
        (["--json", "/no/such/dir/out.json"], 2, "/no/such/dir/out.json"),
        (["--junit", "/proc/self/nope"], 2, "/proc/self/nope"),
        (["--profile", "missing.toml"], 2, "missing.toml"),
        (["--known", "missing.toml"], 2, "missing.toml"),
        (["--last-failed"], 2, "nothing ran yet"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_bad_words(kit: Kit, words: list[str], status: int, said: str) -> None:
    argv = ["server", "--cmd", kit.fake(), "--jobs", "1", "--replay-dir", "r", *words]
    run = kit.run(*argv)
    assert run.status == status, run.out + run.err
    assert said in run.err
    assert len(run.err.strip().splitlines()) == 1, "more than a line"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--target", "apache"], "expected one of nbdspecd, nbdkit"),
        (["--target", "nbdkit:floppy"], "expected one of nbdkit:memory"),
        (["--cmd", "server {sockte}"], "{sockte} is unknown"),
        (["--cmd", "server"], "expected {socket} or {port}"),
        (["--uri", "http://localhost/"], "expected one of nbd, nbds"),
        (["--uri", "nbd+unix:///"], "expected socket=PATH"),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else "",
)
def test_bad_targets(kit: Kit, words: list[str], said: str) -> None:
    run = kit.run("server", *words)
    assert run.status == 2
    assert said in run.err
    assert len(run.err.strip().splitlines()) == 1


def test_server_not_installed(kit: Kit) -> None:
    run = kit.run("server", "--target", "qemu-nbd", QEMU_NBD="/no/such/qemu-nbd")
    assert run.status == 2
    assert "QEMU_NBD=/no/such/qemu-nbd: no such program" in run.err


def test_uri_where_nobody_listens(kit: Kit) -> None:
    run = kit.run("server", "--uri", f"nbd+unix:///?socket={kit.directory}/none")
    assert run.status == 2
    assert f"{kit.directory}/none" in run.err
    assert "Traceback" not in run.err


# How cases are run


def test_repeat(kit: Kit) -> None:
    run = kit.server("", "--case", "self.read", "--repeat", "3")
    (case,) = run.result["cases"]
    assert [v["variant"] for v in case["variants"]] == ["run1", "run2", "run3"]


@pytest.mark.parametrize("chop", ["bytes", "segment", "random", "slow-read"])
def test_chop_changes_no_verdict(kit: Kit, chop: str) -> None:
    run = kit.server("", "--chop", chop, "--seed", "7")
    assert set(run.verdicts.values()) == {"PASS"}, run.out


def test_last_failed(kit: Kit) -> None:
    kit.server("wrong-data")
    run = kit.server("", "--last-failed")
    assert run.verdicts == {"self.read": "PASS"}
    run = kit.server("", "--last-failed")
    assert run.status == 3
    assert "nothing failed in the last run" in run.err


def test_workers_and_order(kit: Kit) -> None:
    """Two processes find what one finds, and leave one result."""
    one = kit.server("wrong-data")
    two = kit.server("wrong-data", "--jobs", "2")
    assert two.status == one.status == 1
    assert two.verdicts == one.verdicts


def test_two_runs_at_the_same_time(kit: Kit) -> None:
    argv = kit.argv("server", "--cmd", kit.fake(), "--jobs", "1", "--replay-dir")
    runs = [
        subprocess.Popen(
            [*argv, f"replay{n}"],
            cwd=kit.directory,
            env=kit.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(2)
    ]
    for run in runs:
        out = run.communicate(timeout=120)[0]
        assert run.returncode == 0 and "4 PASS" in out


# What it leaves


def test_nothing_is_left_running(kit: Kit) -> None:
    run = kit.server("", NBDSPEC_TMPDIR=str(kit.directory))
    assert run.status == 0
    assert not list(kit.directory.glob("nbds.*")), "a directory is left"


def test_junit_is_valid(kit: Kit) -> None:
    if shutil.which("xmllint") is None:
        pytest.skip("xmllint is not installed")
    run = kit.server("wrong-data", "--junit", "out.xml")
    assert run.status == 1
    done = subprocess.run(
        ["xmllint", "--noout", "--schema", str(JUNIT), str(kit.directory / "out.xml")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    text = (kit.directory / "out.xml").read_text()
    assert 'name="self.read"' in text and 'failures="1"' in text


def test_plain_lines_in_a_pipe(kit: Kit) -> None:
    run = kit.server()
    assert "\033" not in run.out and "\r" not in run.out
    assert "PASS  self.read" in run.out.splitlines()


def test_interrupt_keeps_what_it_has(kit: Kit) -> None:
    """Ctrl-C in the middle: what was found is reported, and nothing stays behind."""
    kit.write("""
        import os, signal

        @case("self.first", req=["TX-READ-05"])
        def test_a(wire):
            \"\"\"Passes.\"\"\"
            wire.transmit()

        @case("self.second", req=["TX-READ-05"])
        def test_b(wire):
            \"\"\"The user presses Ctrl-C.\"\"\"
            os.kill(os.getpid(), signal.SIGINT)

        @case("self.third", req=["TX-READ-05"])
        def test_c(wire):
            \"\"\"Is not reached.\"\"\"
        """)
    run = kit.server("", NBDSPEC_TMPDIR=str(kit.directory))
    assert run.status == 2
    assert run.verdicts == {"self.first": "PASS"}
    assert run.result["interrupted"] is True
    assert "interrupted" in run.out + run.err
    assert "Traceback" not in run.out + run.err
    assert not list(kit.directory.glob("nbds.*")), "a directory is left"


# A server that belongs to somebody


@pytest.fixture
def running(kit: Kit):
    """A fake server that the kit did not start, and its URI."""
    socket = kit.directory / "sock"
    words = [word.format(socket=socket) for word in shlex.split(kit.fake())]
    process = subprocess.Popen(words)
    path = kit.directory / "sock"
    kit_process = process
    while not path.exists():
        assert process.poll() is None
        os.sched_yield()
    yield f"nbd+unix:///?socket={path}"
    kit_process.send_signal(signal.SIGTERM)
    kit_process.wait()


def test_nothing_is_written_unasked(kit: Kit, running: str) -> None:
    kit.write("""
        @case("self.write", req=["TX-WRITE-04"], needs="writable")
        def test_write(wire):
            \"\"\"Writes.\"\"\"
            wire.transmit()
            wire.write(b"x" * 512, 0)

        @case("self.sneaks", req=["TX-WRITE-04"])
        def test_sneaks(wire):
            \"\"\"Writes, and does not say so.\"\"\"
            wire.transmit()
            wire.write(b"x" * 512, 0)

        @case("self.other", req=["TX-WRITE-04"], clients=("libnbd",))
        def test_other(client):
            \"\"\"Writes by the other client.\"\"\"
            client.pwrite(b"x" * 512, 0)

        @case("self.hostile", req=["HS-14"], hostile=True)
        def test_hostile(wire):
            \"\"\"Is hostile.\"\"\"
            wire.in_step()

        @case("self.zero", req=["TX-READ-05"])
        def test_zero(wire):
            \"\"\"Sees what is there.\"\"\"
            wire.transmit()
            assert wire.read(512, 0) == bytes(512)
        """)
    words = ["server", "--uri", running, "--json", "out.json", "--jobs", "1"]
    run = kit.run(*words)
    assert run.verdicts == {
        "self.write": "N/A",
        "self.sneaks": "N/A",
        "self.other": "N/A",
        "self.hostile": "N/A",
        "self.zero": "PASS",
    }
    for writes in ("self.write", "self.sneaks", "self.other"):
        assert "--write was not given" in run.message(writes)
    assert "--hostile was not given" in run.message("self.hostile")
    run = kit.run(*words, "--write", "--hostile")
    assert run.verdicts["self.write"] == run.verdicts["self.hostile"] == "PASS"


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("file", ["conftest.py", "test_self.py"])
def test_interrupt_while_cases_are_collected(
    kit: Kit, file: str, name: str, jobs: str
) -> None:
    """One line says so, wherever the signal comes."""
    kit.write(f"""
        import os, signal
        starter = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
        os.kill(starter, signal.{name})
        """, file)
    run = kit.run("server", "--cmd", kit.fake(), "--jobs", jobs, "--replay-dir", "r")
    assert run.status == 2
    assert run.err == "nbdspec: interrupted\n"
    assert "Interrupt" not in run.out and "Traceback" not in run.out
