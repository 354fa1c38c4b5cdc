# SPDX-License-Identifier: BSD-3-Clause
"""Builds mutants: only what a patch touches is compiled, without optimisation."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from . import HOME
from .errors import BadFile, KitError
from .mutants import Mutant
from .patching import apply, parse

TREE = HOME.parent
#: What the server's build reads.
SOURCES = ("Makefile", "server", "ci", "conformance/lib/nbdspec/version.py")
PROGRAM = "build/nbdspecd"


def patched(mutant: Mutant) -> dict[str, str]:
    """File -> its text with the patch applied."""
    where = mutant.path.name
    texts = {}
    for name, hunks in parse(mutant.diff, where).items():
        path = TREE / name
        if not path.exists():
            raise BadFile(f"{where}: {name} is not there any more")
        texts[name] = apply(path.read_text("utf-8"), hunks, f"{where}: {name}")
    return texts


class Builder:
    """A built copy of the tree, whose objects mutants are linked with."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._base = directory / "base"
        self._compile: list[str] = []
        self._link: list[str] = []

    def build_base(self) -> Path:
        """Brings the copy up to date; what did not change is not compiled again."""
        self._base.mkdir(parents=True, exist_ok=True)
        for name in SOURCES:
            _copy_newer(TREE / name, self._base / name)
        program = _make(self._base)
        self._compile = shlex.split((self._base / "build/obj/flags").read_text())
        self._link = self._link_command()
        return program

    def _link_command(self) -> list[str]:
        """As make would run it."""
        words = ["make", "-n", "SETUP=no", "V=1", "-W", "server/main.c", PROGRAM]
        told = _run(words, self._base)
        for line in told.splitlines():
            command = shlex.split(line)
            if "-o" in command and command[command.index("-o") + 1] == PROGRAM:
                return command
        raise KitError(f"make does not say how it links {PROGRAM}")

    def build(self, mutant: Mutant) -> Path:
        place = self._directory / "work" / mutant.name
        shutil.rmtree(place, ignore_errors=True)
        texts = patched(mutant)
        if not all(name.endswith(".c") for name in texts):
            return self._build_whole(place, texts)
        link = list(self._link)
        for name, text in texts.items():
            source = place / name
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(text)
            object = source.with_suffix(".o")
            # its own headers: a quoted name is looked for beside the file first
            beside = ["-iquote", str(Path(name).parent), "-O0", "-w"]
            out = ["-c", "-o", str(object), str(source)]
            _run(self._compile + beside + out, self._base)
            built = "build/obj/" + name.removeprefix("server/")[:-2] + ".o"
            if built not in link:
                raise KitError(f"{mutant.path.name}: {name} is no part of {PROGRAM}")
            link[link.index(built)] = str(object)
        program = place / "nbdspecd"
        link[link.index("-o") + 1] = str(program)
        _run(link, self._base)
        return program

    def _build_whole(self, place: Path, texts: dict[str, str]) -> Path:
        """A header reaches other files: make knows which."""
        shutil.copytree(self._base, place, symlinks=True)
        for name, text in texts.items():
            (place / name).write_text(text)
        return _make(place)

    def done(self, mutant: Mutant) -> None:
        shutil.rmtree(self._directory / "work" / mutant.name, ignore_errors=True)


def _make(place: Path) -> Path:
    _run(["make", "-s", "SETUP=no", PROGRAM], place)
    return place / PROGRAM


def _run(command: list[str], place: Path) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    done = subprocess.run(
        command, cwd=place, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        raise KitError("does not compile: " + (lines or [done.stderr[-300:]])[0])
    return done.stdout


def _copy_newer(source: Path, target: Path) -> None:
    """Copies what is newer or gone, keeping times, so that make sees what changed."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        names = {entry.name for entry in source.iterdir()}
        for entry in target.iterdir():
            if entry.name not in names:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        for name in names - {"__pycache__"}:
            _copy_newer(source / name, target / name)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists() or target.stat().st_mtime_ns != source.stat().st_mtime_ns:
        shutil.copy2(source, target)
