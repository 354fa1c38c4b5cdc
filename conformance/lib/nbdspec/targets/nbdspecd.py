# SPDX-License-Identifier: BSD-3-Clause
"""The bundled server. It takes nbdkit's command line and has its own back ends."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .. import HOME
from ..mode import Mode
from ..process import scratch
from .base import CannotDo, NotInstalled, Options, Server, Target, fill, program
from .nbdkit import NbdkitTarget


class NbdspecdTarget(NbdkitTarget):
    name = "nbdspecd"
    backends = ("memory", "null", "python")

    def __init__(self, options: Options) -> None:
        Target.__init__(self, options)
        self.program = _find()

    def version(self) -> str:
        out = subprocess.run(
            [self.program, "--version"], capture_output=True, text=True, check=False
        )
        return out.stdout.split()[-1] if out.stdout.split() else "?"

    def built_with(self, what: str) -> bool:
        """Python and TLS can be left out."""
        out = subprocess.run(
            [self.program, "--dump-config"], capture_output=True, text=True, check=False
        )
        return f"{what}=no" not in out.stdout.split()

    def start(self, mode: Mode) -> Server:
        if mode.tls and not self.built_with("tls"):
            raise CannotDo("this nbdspecd was built without TLS")
        directory = scratch()
        plugin = self.plugin(mode, directory)
        return self.run(mode, directory, ([], []), plugin)

    def plugin(self, mode: Mode, directory: Path) -> list[str]:
        """Content, several exports and failures come from a plugin of the kit."""
        if mode.syncs:
            fill(directory / "image", mode)
            return self.on_disk(directory / "image")
        special = mode.fail or mode.delay or mode.block_size or mode.bad or mode.errnos
        special = special or mode.without
        special = special or mode.content in ("pattern", "sparse", "striped")
        backend = self.backend or "memory"
        # The sample plugin has at least a byte, and takes all of its memory at once.
        special = special or (backend == "python" and not 0 < mode.size <= 1 << 30)
        if special or len(mode.exports) > 1:
            return self.special(mode, directory)
        if backend == "python":
            script = HOME.parent / "pyplugins" / "memory.py"
            return ["python", str(script), f"size={mode.size}"]
        if backend == "null" and mode.content not in ("any", "zero"):
            raise CannotDo("the null back end has no content")
        if mode.size > 1 << 30 and _is_32_bit(self.program):
            raise CannotDo("a program of 32 bits has no room for so large a disk")
        return [backend, str(mode.size)]

    def on_disk(self, image: Path) -> list[str]:
        script = HOME.parent / "pyplugins" / "file.py"
        return ["python", str(script), f"file={image}"]

    def special(self, mode: Mode, directory: Path) -> list[str]:
        if not self.built_with("python"):
            raise CannotDo("this nbdspecd was built without Python")
        script = HOME / "plugins" / "modes.py"
        words = [f"size={mode.size}"]
        if mode.content in ("pattern", "sparse"):
            image = directory / "image"
            fill(image, mode)
            words.append(f"image={image}")
        if mode.fail:
            words.append("fail=" + ",".join(mode.fail))
        if mode.without:
            words.append("without=" + ",".join(mode.without))
        if mode.content == "striped":
            words.append("striped=1")
        if mode.bad:
            words.append("bad=" + ",".join(map(str, mode.bad)))
        if mode.errnos:
            words.append("errnos=1")
        if mode.delay:
            words.append(f"delay={mode.delay}")
        if mode.block_size:
            words.append("block_size=" + ",".join(map(str, mode.block_size)))
        if len(mode.exports) > 1:
            words.append("exports=" + ",".join(mode.exports))
        return ["python", str(script), *words]


def _is_32_bit(path: str) -> bool:
    """Whether it is an ELF file of 32 bits."""
    with open(path, "rb") as file:
        return file.read(5) == b"\x7fELF\x01"


def _find() -> str:
    """NBDSPECD, or what `make` built, or what is installed."""
    try:
        return program("nbdspecd", "NBDSPECD")
    except NotInstalled:
        built = HOME.parent / "build" / "nbdspecd"
        if built.exists():
            return str(built)
        raise
