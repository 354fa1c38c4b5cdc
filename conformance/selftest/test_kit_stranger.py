# SPDX-License-Identifier: BSD-3-Clause
"""The real cases against a server that nobody has heard of, near and far away."""

from __future__ import annotations

import json
import shlex
import os
import subprocess
import sys
from pathlib import Path

from kit import HERE, NBDSPEC

SECTIONS = ["handshake", "info-go", "read", "write", "termination", "errors"]
STRANGER = shlex.join([sys.executable, str(HERE / "stranger.py"), "{socket}"])
FAR = shlex.join([sys.executable, str(HERE / "far_away.py"), "0.05", "{socket}", "--"])
FAR += " " + STRANGER


def run(tmp_path: Path, command: str, *sections: str) -> dict[str, str]:
    words = [word for section in sections for word in ("--section", section)]
    out = tmp_path / "out.json"
    argv = [sys.executable, str(NBDSPEC), "server", "--cmd", command, "--quick"]
    argv += ["--json", str(out), "--replay-dir", str(tmp_path), "--known", "none"]
    done = subprocess.run(
        [*argv, *words], env=dict(os.environ), capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {case["id"]: case["verdict"] for case in json.loads(out.read_text())["cases"]}


def test_stranger(tmp_path: Path) -> None:
    """It is judged on what it offers: the baseline passes, the rest is N/A."""
    verdicts = run(tmp_path, STRANGER, *SECTIONS)
    assert verdicts["read.cookie-opaque"] == "PASS"
    assert verdicts["write.glued"] == "PASS"
    assert verdicts["handshake.option-unknown-in-step"] == "PASS"
    assert verdicts["read.structured-error"] == "N/A"
    # What it does get wrong: it takes any client flags, and any GO.
    assert verdicts["handshake.unknown-client-flag"] == "FAIL"
    assert verdicts["go.malformed"] == "WARN"


def test_fifty_milliseconds_away(tmp_path: Path) -> None:
    """Time limits grow with the round trip: the verdicts are the same from afar."""
    near = run(tmp_path, STRANGER, "handshake", "termination")
    far = run(tmp_path, FAR, "handshake", "termination")
    assert far == near


def test_end_of_the_connection_at_no_bytes(tmp_path: Path) -> None:
    """What a server should not do is WARN, though a connection ends by it."""
    fake = shlex.join([sys.executable, str(HERE / "fake_server.py"), "{socket}"])
    verdicts = run(tmp_path, fake + " nothing-closes", "read", "write")
    assert verdicts["read.length-0"] == "WARN"
    assert verdicts["write.length-0"] == "WARN"
    assert verdicts["read.cookie-opaque"] == "PASS"
    # and a WRITE that is longer than this disk is asked of no server
    assert verdicts["write.read-back"] == "PASS"
