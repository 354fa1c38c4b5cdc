# SPDX-License-Identifier: BSD-3-Clause
"""Signals and pipes that a server inherits, or gets while it is not ready yet."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

import pytest
from server_process import GUARD, NBDSPECD, PLUGIN, needs_python, read_line

#: Blocks in after_fork until whoever holds the FIFO open for writing closes it.
SLOW = PLUGIN + """
def after_fork():
    import builtins, os
    with builtins.open(os.environ["FIFO"]) as f:
        f.read()
"""


def children_ignored() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


@pytest.mark.parametrize("status", [0, 3])
def test_status_where_children_were_ignored(status: int) -> None:
    """SIGCHLD that is ignored would take the command's status away."""
    argv = [NBDSPECD, "--run", f"exit {status}", "null", "1M"]
    done = subprocess.run(argv, preexec_fn=children_ignored, timeout=GUARD)
    assert done.returncode == status


@needs_python
def test_failed_daemon_where_children_were_ignored(place: Path) -> None:
    (place / "plugin.py").write_text(PLUGIN + "def after_fork(): raise ValueError")
    argv = [NBDSPECD, "-U", str(place / "sock"), "python", str(place / "plugin.py")]
    with (place / "log").open("w") as log:
        done = subprocess.run(
            argv, preexec_fn=children_ignored, stderr=log, timeout=GUARD
        )
    assert done.returncode == 1


@needs_python
def test_two_signals_to_the_starter_of_a_daemon(place: Path) -> None:
    """The terminal's signals reach the starter alone: the daemon gets them from it."""
    (place / "plugin.py").write_text(SLOW)
    os.mkfifo(place / "fifo")
    argv = [NBDSPECD, "-U", str(place / "sock"), "python", str(place / "plugin.py")]
    env = {**os.environ, "FIFO": str(place / "fifo")}
    starter = subprocess.Popen(argv, env=env, stderr=subprocess.DEVNULL)
    fifo = os.open(place / "fifo", os.O_WRONLY)  # the daemon is in after_fork
    try:
        assert (place / "sock").exists()
        starter.send_signal(signal.SIGINT)
        starter.send_signal(signal.SIGTERM)
        assert starter.wait(GUARD) == 1
        assert not (place / "sock").exists()
        gone = select.poll()
        gone.register(fifo, 0)
        assert gone.poll(GUARD * 1000), "the daemon lives on"
    finally:
        os.close(fifo)


def test_reader_of_the_pid_sees_its_end(place: Path) -> None:
    """Only the server writes to a pipe that -P names, not who runs the command."""
    for name in ("pid", "hold"):
        os.mkfifo(place / name)
    argv = [NBDSPECD, "-P", str(place / "pid"), "--run", f"cat '{place}/hold'"]
    process = subprocess.Popen([*argv, "null", "1M"])
    try:
        pid = os.open(place / "pid", os.O_RDONLY)
        assert int(read_line(pid)) > 0
        assert select.select([pid], [], [], GUARD)[0], "another has the pipe open"
        assert os.read(pid, 1) == b""
        os.close(pid)
        (place / "hold").write_text("")
        assert process.wait(GUARD) == 0
    finally:
        process.kill()
        process.wait()
