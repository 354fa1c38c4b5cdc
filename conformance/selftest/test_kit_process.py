# SPDX-License-Identifier: BSD-3-Clause
"""Server processes as the kit sees them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kit import HERE

#: A program is over before Popen returns: on an idle machine that is how it goes.
AT_ONCE = """
import os, signal, subprocess, sys
from pathlib import Path
from nbdspec.process import Process

class SlowPopen(subprocess.Popen):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

subprocess.Popen = SlowPopen
here = Path(sys.argv[1])
daemon = "sleep 600 <&- >&- 2>&- & echo $! >pid"
process = Process(["sh", "-c", f"cd '{here}'; {daemon}"], here, daemon=here / "pid")
assert process.status is None, process.end_in_words()
process.send(signal.SIGTERM)
assert process.wait() == -signal.SIGTERM
"""


def test_daemon_of_a_program_that_is_over(tmp_path: Path) -> None:
    """The daemon is this process's orphan however soon its parent was over."""
    env = {**os.environ, "PYTHONPATH": str(HERE.parent / "lib")}
    subprocess.run(
        [sys.executable, "-c", AT_ONCE, str(tmp_path)], env=env, check=True, timeout=60
    )
