# SPDX-License-Identifier: BSD-3-Clause
"""Counts how often a server puts data on stable storage (plugins/syncs.c)."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
from pathlib import Path

from . import HOME
from .process import scratch
from .targets.base import CannotDo


@functools.cache
def library() -> Path:
    """The shared object, compiled when first needed."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise CannotDo("there is no C compiler to make the counter of syncs with")
    made = scratch()
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    target = made / "syncs.so"
    source = HOME / "plugins" / "syncs.c"
    flags = ["-shared", "-fPIC", "-O1", "-D_GNU_SOURCE"]
    subprocess.run([compiler, *flags, "-o", target, source, "-ldl"], check=True)
    return target


class Counter:
    def __init__(self, directory: Path) -> None:
        self._path = directory / "syncs"
        self._path.write_bytes(bytes(8))
        #: what the server's environment needs
        self.env = {
            "LD_PRELOAD": str(library()),
            "NBDSPEC_SYNCS": str(self._path),
        }

    @property
    def value(self) -> int:
        return int.from_bytes(self._path.read_bytes()[:8], "little")
