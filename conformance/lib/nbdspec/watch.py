# SPDX-License-Identifier: BSD-3-Clause
"""Waiting for a file to appear and for a process to end, without sleeping."""

from __future__ import annotations

import ctypes
import os
import select
import time
from pathlib import Path

_IN_MODIFY = 0x2
_IN_CLOSE_WRITE = 0x8
_IN_MOVED_TO = 0x80
_IN_CREATE = 0x100
_IN_CLOEXEC = 0o2000000

_libc = ctypes.CDLL(None, use_errno=True)


class Directory:
    """Tells when something changes in a directory (inotify)."""

    def __init__(self, path: Path) -> None:
        self.fd = _libc.inotify_init1(_IN_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        mask = _IN_CREATE | _IN_CLOSE_WRITE | _IN_MOVED_TO | _IN_MODIFY
        if _libc.inotify_add_watch(self.fd, os.fsencode(path), mask) < 0:
            code = ctypes.get_errno()
            os.close(self.fd)
            raise OSError(code, f"inotify_add_watch {path}")

    def close(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> "Directory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def wait_for(fds: list[int], seconds: float) -> list[int]:
    """Those descriptors that became readable within the time."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(max(0.0, seconds) * 1000)]


def ended(pidfd: int, seconds: float) -> bool:
    """True when the process behind a pidfd ended within the time."""
    return bool(wait_for([pidfd], seconds))


class Deadline:
    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    @property
    def passed(self) -> bool:
        return self.left == 0.0
