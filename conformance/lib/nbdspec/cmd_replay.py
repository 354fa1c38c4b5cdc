# SPDX-License-Identifier: BSD-3-Clause
"""nbdspec replay: a recorded conversation once more."""

from __future__ import annotations

import argparse
from pathlib import Path

from .errors import BadFile, KitError, UsageError
from .mode import Mode
from .replay import Player, Replay, read
from .targets import Options, make


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="a replay file of nbdspec server")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--uri", help="the server to talk to")
    where.add_argument("--target", help="start one (else the recorded target)")
    where.add_argument("--cmd", help="start any program")


def run(arguments: argparse.Namespace) -> int:
    replay = read(arguments.file)
    if any(step["dir"] == "tls" for step in replay.steps):
        show(replay)
        raise KitError(
            f"{arguments.file}: a conversation over TLS is only shown, not sent again"
        )
    asked = arguments.uri or arguments.cmd or arguments.target
    target = str(replay.head.get("target", "")) if not asked else arguments.target
    if not asked and not target:
        raise UsageError(f"{arguments.file}: recorded elsewhere; say --uri or --target")
    options = Options(
        target=target or "", uri=arguments.uri or "", cmd=arguments.cmd or ""
    )
    mode = Mode()
    if not arguments.uri and "mode" in replay.head:
        try:
            mode = Mode.from_json(replay.head["mode"])
        except BadFile as error:
            raise BadFile(f"{arguments.file}:1: {error}") from None
    server = make(options).start(mode)
    print(f"case {replay.head.get('case')}, server {server.uri}")
    try:
        misses = Player(server, print).play(replay)
    finally:
        trouble = server.stop()
    if trouble:
        print(f"server: {trouble}")
        misses += 1
    print("as it has to be" if not misses else f"{misses} not as they have to be")
    return 1 if misses else 0


def show(replay: Replay) -> None:
    """What went to and fro, for whom it cannot be sent again."""
    print(f"case {replay.head.get('case')}, as it went")
    for step in replay.steps:
        print(f"{step['conn']} {step['dir']:<7} {step['text']}")
