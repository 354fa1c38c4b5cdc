# SPDX-License-Identifier: BSD-3-Clause
"""Where images go: beside the sockets, or in memory; and whether they fit."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .model import BenchError


def free_space(directory: Path) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def need(directory: Path, size: int) -> None:
    """Better now than in the middle of a measurement."""
    there = free_space(directory)
    if there < size:
        raise BenchError(
            f"{directory}: {there >> 20} MiB are free, {size >> 20} are needed "
            "(TMPDIR names another place)"
        )


def in_memory(size: int) -> tempfile.TemporaryDirectory[str]:
    """For what servers write: how fast a disk is, is another question.

    TMPDIR, when it is set, is obeyed; and so is a shortage of memory.
    """
    shm = Path("/dev/shm")
    fits = shm.is_dir() and os.access(shm, os.W_OK) and free_space(shm) > 2 * size
    place = shm if fits and "TMPDIR" not in os.environ else None
    answer = tempfile.TemporaryDirectory(prefix="nbdbench-", dir=place)
    need(Path(answer.name), size)
    return answer
