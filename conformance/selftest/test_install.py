# SPDX-License-Identifier: BSD-3-Clause
"""make install and uninstall, into a directory whose name has a space."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*words: str) -> str:
    inherited = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "NBDSPECD", "PYTHONPATH")
    env = {k: v for k, v in os.environ.items() if k not in inherited}
    done = subprocess.run(
        words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("a place") / "usr"
    run("make", "install", f"PREFIX={prefix}")
    return prefix


def test_both_commands_run_and_agree_on_the_version(prefix: Path) -> None:
    kit = run(str(prefix / "bin" / "nbdspec"), "--version").split()
    server = run(str(prefix / "bin" / "nbdspecd"), "--version").split()
    assert (kit[0], server[0]) == ("nbdspec", "nbdspecd")
    assert kit[1] == server[1]


def test_installed_bench_finds_its_servers_and_scenarios(
    prefix: Path, tmp_path: Path
) -> None:
    run(
        *(str(prefix / "bin" / "nbdspec"), "bench", "connections"),
        *("--host", "nbdspecd", "--row", "connect*", "--repeat", "1"),
        *("--seconds", "0.01", "--out", str(tmp_path)),
    )
    assert (tmp_path / "connections.json").exists()


def test_nothing_generated_is_installed(prefix: Path) -> None:
    share = prefix / "share" / "nbdspec"
    assert (share / "conformance" / "nbdspec").exists()
    # the runs above may have left compiled files, and nothing else
    names = {path.name for path in share.rglob("*")}
    assert not names & {".git", "build", ".pytest_cache"}


def test_installed_kit_can_make_certificates(prefix: Path, tmp_path: Path) -> None:
    run(
        *("env", f"PATH={prefix / 'bin'}:{os.environ['PATH']}"),
        *("nbdspec", "server", "--case", "starttls.works"),
        *("--target", "nbdspecd", "--json", str(tmp_path / "out.json")),
        *("--replay-dir", str(tmp_path / "replay")),
    )
    assert '"verdict": "PASS"' in (tmp_path / "out.json").read_text()


def test_uninstall_leaves_no_file(prefix: Path) -> None:
    run("make", "uninstall", f"PREFIX={prefix}")
    assert [path for path in prefix.rglob("*") if not path.is_dir()] == []
