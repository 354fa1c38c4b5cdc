# SPDX-License-Identifier: BSD-3-Clause
"""Any program: a command line with places for what the kit chooses."""

from __future__ import annotations

import re
import shlex

from ..errors import UsageError
from ..mode import Mode
from ..process import Process, scratch
from .base import CannotDo, Options, Server, Target, fill, free_port, no_odd_ways

PLACES = ("socket", "port", "image", "size", "export", "script", "args")


class CommandTarget(Target):
    """--cmd 'PROG ... {socket} {port} {image} {size} {export} {script} {args}'"""

    name = "cmd"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        try:
            self._words = shlex.split(options.cmd)
        except ValueError as error:
            raise UsageError(f"--cmd {options.cmd!r}: {error}") from None
        found = set(re.findall(r"\{(\w*)\}", options.cmd))
        unknown = found - set(PLACES)
        if unknown:
            known = ", ".join("{%s}" % place for place in PLACES)
            raise UsageError(f"--cmd: {{{unknown.pop()}}} is unknown, expected {known}")
        if not self._words:
            raise UsageError("--cmd: expected a program")
        if not found & {"socket", "port"}:
            raise UsageError("--cmd: expected {socket} or {port} in it")
        if {"socket", "port"} <= found:
            raise UsageError("--cmd: expected {socket} or {port} in it, not both")
        self._places = found

    @property
    def words(self) -> list[str]:
        """The command line, its places not filled."""
        return list(self._words)

    @property
    def label(self) -> str:
        return self._words[0].rpartition("/")[2]

    def version(self) -> str:
        return "?"

    def start(self, mode: Mode) -> Server:
        self._check(mode)
        directory = scratch()
        values = {
            "socket": str(directory / "s"),
            "image": str(directory / "image"),
            "size": str(mode.size),
            "export": mode.exports[0] if mode.exports else "",
            "script": "",
            "args": "",
        }
        if "image" in self._places:
            fill(directory / "image", mode)
        unix = directory / "s" if "socket" in self._places else None
        tcp = None
        if unix is None:
            tcp = ("127.0.0.1", free_port())
            values["port"] = str(tcp[1])
        argv = [_put(word, values) for word in self._words]
        process = Process([*argv, *self.options.args], directory)
        server = Server(mode, process, unix=unix, tcp=tcp, export=values["export"])
        if "image" in self._places:
            server.image = directory / "image"
        process.wait_until(server.listens, "connection")
        return server

    def _check(self, mode: Mode) -> None:
        """What a command line cannot say it cannot do."""
        no_odd_ways(mode, "--cmd")
        special = mode.tls or mode.fail or mode.delay or mode.simple
        if special or mode.syncs or mode.readonly:
            raise CannotDo(f"--cmd has no place for: {mode.describe()}")
        if len(mode.exports) > 1 or (mode.exports and "export" not in self._places):
            raise CannotDo("--cmd has no place for these exports")
        sized = {"image", "size"} & self._places
        if mode.size != Mode().size and not sized:
            raise CannotDo("--cmd has neither {image} nor {size}")
        if mode.content not in ("any",) and "image" not in self._places:
            raise CannotDo("--cmd has no {image}")
        if mode.transport == "tcp" and "port" not in self._places:
            raise CannotDo("--cmd has no {port}")


def _put(word: str, values: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda m: values.get(m.group(1), ""), word)
