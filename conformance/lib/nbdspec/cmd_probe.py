# SPDX-License-Identifier: BSD-3-Clause
"""nbdspec probe: what a server says it can do, as a profile."""

from __future__ import annotations

import argparse

from .cmd_server import add_target, target_options
from .mode import Mode
from .probe import probe
from .targets import make


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)


def run(arguments: argparse.Namespace) -> int:
    target = make(target_options(arguments))
    server = target.start(Mode())
    try:
        profile = probe(server)
    finally:
        server.stop()
    print(f"# {target.label} {target.version()}, export {server.export!r}")
    print(profile.to_toml(), end="")
    return 0
