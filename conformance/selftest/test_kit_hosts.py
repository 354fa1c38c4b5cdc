# SPDX-License-Identifier: BSD-3-Clause
"""What the kit does with hosts of plugins that do not do as they are told."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from kit import HERE, NBDSPEC

CARELESS = HERE / "careless_host.py"


def runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(
    "case",
    [
        "plugin.cli.unknown[-Z]",
        "plugin.cli.single",
        "plugin.cli.activation",
        "plugin.life.daemon",
        "plugin.life.docstring",
        "plugin.life.dump-plugin",
        "plugin.load.mixed",
    ],
)
def test_nothing_of_a_host_is_left(tmp_path: Path, case: str) -> None:
    """It takes every option, and goes into the background: it is ended all the same."""
    seen = tmp_path / "seen"
    seen.mkdir()
    out = tmp_path / "out.json"
    argv = [sys.executable, str(NBDSPEC), "server", "--case", case, "--known", "none"]
    argv += ["--cmd", shlex.join([str(CARELESS), "{script}", "{socket}"])]
    argv += ["--json", str(out), "--replay-dir", str(tmp_path / "replay")]
    env = {**os.environ, "CARELESS": str(seen), "NBDSPEC_TIME_FACTOR": "0.2"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    (verdict,) = [entry["verdict"] for entry in json.loads(out.read_text())["cases"]]
    assert verdict == "FAIL"
    hosts = list(seen.iterdir())
    assert hosts, "the host was not started"
    assert not [host.name for host in hosts if runs(int(host.name))]
    for host in hosts:
        words = host.read_text().split()
        activated = case == "plugin.cli.activation"
        assert activated or {"-s", "-U"} & set(words), f"listens everywhere: {words}"
