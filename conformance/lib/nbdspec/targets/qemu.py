# SPDX-License-Identifier: BSD-3-Clause
"""QEMU's two servers, over raw images."""

from __future__ import annotations

import subprocess

from .. import pki, syncs
from ..mode import Mode
from ..process import Process, scratch
from .base import CannotDo, Options, Server, Target, fill, free_port, no_odd_ways, program


class QemuNbdTarget(Target):
    name = "qemu-nbd"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.program = program("qemu-nbd", "QEMU_NBD")

    def version(self) -> str:
        return _version(self.program)

    def start(self, mode: Mode) -> Server:
        _no_trouble(mode, self.name)
        if len(mode.exports) > 1:
            raise CannotDo("qemu-nbd serves one export")
        directory = scratch()
        image = directory / "image"
        fill(image, mode)
        argv = [self.program, "--persistent", "--shared=0", "--format=raw"]
        argv += ["--discard=unmap", "--cache=writeback"]
        unix, tcp = None, None
        if mode.transport == "tcp":
            tcp = ("127.0.0.1", free_port())
            argv += [f"--bind={tcp[0]}", f"--port={tcp[1]}"]
        else:
            unix = directory / "s"
            argv.append(f"--socket={unix}")
        if mode.readonly:
            argv.append("--read-only")
        if mode.exports:
            argv.append(f"--export-name={mode.exports[0]}")
        if mode.tls:
            where = f"id=tls,endpoint=server,verify-peer=no,dir={pki.directory()}"
            argv += ["--object", f"tls-creds-{mode.tls},{where}", "--tls-creds=tls"]
        argv += [*self.options.args, *mode.args, str(image)]
        counter = syncs.Counter(directory) if mode.syncs else None
        process = Process(argv, directory, env=counter.env if counter else None)
        export = mode.exports[0] if mode.exports else ""
        server = Server(mode, process, unix=unix, tcp=tcp, export=export)
        server.syncs = counter
        server.let_in()
        server.image = image
        process.wait_until(server.listens, "connection")
        return server


class QemuStorageDaemonTarget(Target):
    name = "qemu-storage-daemon"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.program = program("qemu-storage-daemon", "QEMU_STORAGE_DAEMON")

    def version(self) -> str:
        return _version(self.program)

    def start(self, mode: Mode) -> Server:
        _no_trouble(mode, self.name)
        if mode.syncs:
            raise CannotDo("the kit does not count qemu-storage-daemon's syncs")
        directory = scratch()
        unix, tcp = None, None
        argv = [self.program]
        if mode.transport == "tcp":
            tcp = ("127.0.0.1", free_port())
            argv += [
                "--nbd-server",
                f"addr.type=inet,addr.host={tcp[0]},addr.port={tcp[1]}"
                ",max-connections=0",
            ]
        else:
            unix = directory / "s"
            argv += ["--nbd-server", f"addr.type=unix,addr.path={unix}"]
        writable = "off" if mode.readonly else "on"
        # The daemon has no default export: its name is always given.
        names = mode.exports or ("disk",)
        for number, name in enumerate(names):
            image = directory / f"image{number}"
            fill(image, mode)
            argv += [
                "--blockdev",
                f"driver=file,node-name=n{number},filename={image},discard=unmap",
                "--export",
                f"type=nbd,id=e{number},node-name=n{number},name={name},"
                f"writable={writable}",
            ]
        process = Process([*argv, *self.options.args, *mode.args], directory)
        server = Server(mode, process, unix=unix, tcp=tcp, export=names[0])
        server.image = directory / "image0"
        process.wait_until(server.listens, "connection")
        return server


def _version(program_path: str) -> str:
    out = subprocess.run(
        [program_path, "--version"], capture_output=True, text=True, check=False
    )
    words = out.stdout.split()
    return words[words.index("version") + 1] if "version" in words else words[1]


def _no_trouble(mode: Mode, name: str) -> None:
    if mode.tls and name != "qemu-nbd":
        raise CannotDo(f"the kit starts {name} without TLS")
    if mode.tls and mode.tls_mode != "required":
        raise CannotDo(f"{name} has no optional TLS: with it, all have to use it")
    if mode.fail or mode.delay:
        raise CannotDo(f"{name} has no failing or slow back end here")
    if mode.simple:
        raise CannotDo(f"{name} cannot leave structured replies out")
    no_odd_ways(mode, name)
