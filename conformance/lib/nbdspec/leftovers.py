# SPDX-License-Identifier: BSD-3-Clause
"""What a host left running when its case is over: found by its environment, ended.

A daemon leaves its parent, its session and its directory behind; what it does not
leave is the environment that it was started with, in which the record has its place.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Iterable, Iterator

from .watch import ended

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)

#: What was killed has ended within this time.
_GONE = 10.0


def off_the_net() -> None:
    """For a child before exec: a network of its own, where the machine allows that.

    A host that takes no notice of where it is told to listen listens everywhere.
    """
    if _libc.unshare(_CLONE_NEWNET):
        _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)


def end(directories: Iterable[Path]) -> None:
    """Kills every process that was started with its record in one of these."""
    marks = [f"NBDSPEC_RECORD={directory}/".encode() for directory in directories]
    # Again, for one that was just being forked.
    while marks and (found := list(_marked(marks))):
        for pidfd in found:
            _kill(pidfd)


def _marked(marks: list[bytes]) -> Iterator[int]:
    """A pidfd for each; who the number belongs to is seen behind the opening."""
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with suppress(OSError):
            pidfd = os.pidfd_open(int(name))
            if _has(name, marks):
                yield pidfd
            else:
                os.close(pidfd)


def _has(name: str, marks: list[bytes]) -> bool:
    try:
        variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(v.startswith(mark) for v in variables for mark in marks)


def _kill(pidfd: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    ended(pidfd, _GONE)
    # Where this process takes orphans in, they are its to wait for.
    with suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    os.close(pidfd)
