# SPDX-License-Identifier: BSD-3-Clause
"""nbd-server, the reference implementation, with a configuration file."""

from __future__ import annotations

import re
import subprocess

from .. import pki, syncs
from ..mode import Mode
from ..process import Process, scratch
from .base import CannotDo, Options, Server, Target, fill, free_port, no_odd_ways, program


class NbdServerTarget(Target):
    name = "nbd-server"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.program = program("nbd-server", "NBD_SERVER")

    def version(self) -> str:
        out = subprocess.run(
            [self.program, "--version"], capture_output=True, text=True, check=False
        )
        found = re.search(r"version (\S+)", out.stdout + out.stderr)
        return found.group(1) if found else "?"

    def start(self, mode: Mode) -> Server:
        if mode.tls not in ("", "x509"):
            raise CannotDo("nbd-server knows TLS with certificates only")
        if mode.fail or mode.delay or mode.simple:
            raise CannotDo("nbd-server has no failing or slow back end")
        no_odd_ways(mode, self.name)
        if mode.size == 0:
            raise CannotDo("nbd-server refuses an empty image")
        directory = scratch()
        unix, tcp = None, None
        lines = ["[generic]", "allowlist = true"]
        if mode.transport == "tcp":
            tcp = ("127.0.0.1", free_port())
            lines += [f"listenaddr = {tcp[0]}", f"port = {tcp[1]}"]
        else:
            unix = directory / "s"
            # Without an address of its own it would listen on its TCP port as well.
            lines += [f"unixsock = {unix}", "listenaddr = 127.0.0.1"]
            lines.append(f"port = {free_port()}")
        if mode.tls:
            where = pki.directory()
            lines += [
                f"cacertfile = {where / 'ca-cert.pem'}",
                f"certfile = {where / 'server-cert.pem'}",
                f"keyfile = {where / 'server-key.pem'}",
                f"force_tls = {'true' if mode.tls_mode == 'required' else 'false'}",
            ]
        names = mode.exports or ("disk",)
        for number, name in enumerate(names):
            image = directory / f"image{number}"
            fill(image, mode)
            lines += [
                f"[{name}]",
                f"exportname = {image}",
                f"readonly = {'true' if mode.readonly else 'false'}",
                "flush = true",
                "fua = true",
                "trim = true",
            ]
            if mode.tls_mode == "selective" and number == 0:
                lines.append("force_tls = true")
        config = directory / "config"
        config.write_text("\n".join(lines) + "\n")
        pid_file = directory / "pid"
        argv = [self.program, "-C", str(config), "-p", str(pid_file)]
        counter = syncs.Counter(directory) if mode.syncs else None
        env = counter.env if counter else None
        process = Process(
            [*argv, *self.options.args, *mode.args], directory, env=env, daemon=pid_file
        )
        server = Server(mode, process, unix=unix, tcp=tcp, export=names[0])
        server.syncs = counter
        server.forks = True
        server.let_in()
        server.image = directory / "image0"
        process.wait_until(server.listens, "connection")
        # It listens, then makes a prime for TLS; that is a start, and not a hang.
        process.wait_until(server.greets, "greeting")
        return server
