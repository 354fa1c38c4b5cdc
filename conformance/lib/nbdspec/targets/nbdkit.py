# SPDX-License-Identifier: BSD-3-Clause
"""nbdkit: memory by default, its error and delay filters for back ends in trouble."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .. import HOME, pki, syncs
from ..mode import Mode
from ..process import Process, scratch
from .base import CannotDo, Options, Server, Target, fill, free_port, program

_ERROR_WORD = {
    "read": "error-pread-rate",
    "write": "error-pwrite-rate",
    "trim": "error-trim-rate",
    "zero": "error-zero-rate",
    "extents": "error-extents-rate",
    "cache": "error-cache-rate",
}


def tls_words(mode: Mode) -> list[str]:
    """--tls and what belongs to it; both hosts use what they find without it."""
    if not mode.tls:
        return ["--tls=off"]
    if mode.tls_mode == "selective":
        raise CannotDo("TLS is for all exports or for none")
    words = "require" if mode.tls_mode == "required" else "on"
    if mode.tls == "psk":
        return [f"--tls={words}", f"--tls-psk={pki.keys()}"]
    return [f"--tls={words}", f"--tls-certificates={pki.directory()}"]


class NbdkitTarget(Target):
    """Both hosts of Python plugins take nbdkit's command line."""

    name = "nbdkit"
    backends = ("memory", "null", "file", "python")

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.program = program("nbdkit", "NBDKIT")

    def version(self) -> str:
        out = subprocess.run(
            [self.program, "--version"], capture_output=True, text=True, check=False
        )
        return out.stdout.split()[1] if len(out.stdout.split()) > 1 else "?"

    def start(self, mode: Mode) -> Server:
        directory = scratch()
        plugin = self.plugin(mode, directory)
        return self.run(mode, directory, self.filters(mode), plugin)

    # The parts of the command line

    def plugin(self, mode: Mode, directory: Path) -> list[str]:
        """The plugin and its parameters."""
        if len(mode.exports) > 1:
            return self.several(mode, directory)
        if mode.syncs:
            fill(directory / "image", mode)
            return self.on_disk(directory / "image")
        if mode.without or mode.bad or mode.errnos or mode.content == "striped":
            return self.troubled(mode)
        backend = self.backend or "memory"
        if backend == "null":
            if mode.content not in ("any", "zero"):
                raise CannotDo("the null back end has no content")
            return ["null", f"size={mode.size}"]
        if backend == "python":
            if mode.size > 1 << 30:
                raise CannotDo("the sample plugin takes all of its memory at once")
            script = HOME.parent / "pyplugins" / "memory.py"
            return ["python", str(script), f"size={mode.size}"]
        if mode.content in ("pattern", "sparse"):
            image = directory / "image"
            fill(image, mode)
            return ["file", str(image)]
        if backend == "file":
            image = directory / "image"
            fill(image, mode)
            return ["file", str(image)]
        return ["memory", str(mode.size)]

    def on_disk(self, image: Path) -> list[str]:
        return ["file", str(image)]

    def troubled(self, mode: Mode) -> list[str]:
        """What no filter does, a plugin of the kit."""
        words = [f"size={mode.size}"]
        if mode.without:
            words.append("without=" + ",".join(mode.without))
        if mode.content == "striped":
            words.append("striped=1")
        if mode.bad:
            words.append("bad=" + ",".join(map(str, mode.bad)))
        if mode.errnos:
            words.append("errnos=1")
        return ["python", str(HOME / "plugins" / "modes.py"), *words]

    def several(self, mode: Mode, directory: Path) -> list[str]:
        exports = directory / "exports"
        exports.mkdir()
        for name in mode.exports:
            fill(exports / name, mode)
        return ["file", f"dir={exports}"]

    def filters(self, mode: Mode) -> tuple[list[str], list[str]]:
        """Filters, and the parameters that they take."""
        names: list[str] = []
        words: list[str] = []
        if mode.fail:
            names.append("--filter=error")
            for command in mode.fail:
                word = _ERROR_WORD.get(command)
                if word is None:
                    raise CannotDo(f"nbdkit has no filter that fails {command}")
                words.append(f"{word}=100%")
        if mode.block_size:
            names.append("--filter=blocksize-policy")
            words += [
                f"blocksize-{which}={value}"
                for which, value in zip(("minimum", "preferred", "maximum"),
                                        mode.block_size)
            ]
            words.append("blocksize-error-policy=error")
        if mode.delay:
            names.append("--filter=delay")
            milliseconds = round(mode.delay * 1000)
            words += [f"rdelay={milliseconds}ms", f"wdelay={milliseconds}ms"]
        return names, words

    def run(
        self,
        mode: Mode,
        directory: Path,
        filters: tuple[list[str], list[str]],
        plugin: list[str],
        *,
        options: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> Server:
        """Starts it and waits until it listens."""
        argv = [self.program, "-f", "-v", *options, *self.more_options(mode)]
        unix, tcp = None, None
        if mode.transport == "tcp":
            tcp = ("127.0.0.1", free_port())
            argv += ["-i", tcp[0], "-p", str(tcp[1])]
        else:
            unix = directory / "s"
            argv += ["-U", str(unix)]
        if mode.readonly:
            argv.append("-r")
        if mode.simple:
            argv.append("--no-sr")
        if mode.handshake != 3:
            argv.append(f"--mask-handshake={mode.handshake}")
        if mode.oldstyle:
            argv.append("-o")
        if len(mode.exports) == 1:
            argv += ["-e", mode.exports[0]]
        argv += tls_words(mode)
        argv += [*filters[0], *mode.args, *plugin, *filters[1]]
        counter = syncs.Counter(directory) if mode.syncs else None
        if counter:
            env = {**(env or {}), **counter.env}
        process = Process(argv, directory, env=env)
        server = Server(mode, process, unix=unix, tcp=tcp)
        if mode.exports:
            server.export = mode.exports[0]
        server.let_in()
        server.syncs = counter
        process.wait_until(server.listens, "connection")
        if plugin[0] == "file" and not plugin[1].startswith("dir="):
            server.image = Path(plugin[1])
        elif mode.syncs:
            server.image = directory / "image"
        return server

    def more_options(self, mode: Mode) -> list[str]:
        return [*self.options.args]
