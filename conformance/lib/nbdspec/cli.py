# SPDX-License-Identifier: BSD-3-Clause
"""The command line: each command is a module, imported when it is called."""

from __future__ import annotations

import argparse
import importlib
import sys

from . import __version__
from .errors import KitError, NothingSelected

#: command -> (module with add_arguments and run, one line for the help)
COMMANDS = {
    "server": ("cmd_server", "run the cases against an NBD server"),
    "probe": ("cmd_probe", "print what a server says it can do"),
    "list": ("cmd_list", "list the cases, or the rows of the ledgers"),
    "explain": ("cmd_explain", "tell about a case or a row"),
    "compare": ("cmd_compare", "say what changed between two results"),
    "replay": ("cmd_replay", "send a recorded conversation again"),
    "bench": ("bench", "measure the scenarios side by side"),
}


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(
        prog="nbdspec",
        description="Conformance and regression kit for NBD servers and plugins.",
    )
    parser.add_argument("--version", action="version", version=f"nbdspec {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = next((word for word in argv if not word.startswith("-")), None)
    for name, (module, text) in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text.capitalize() + ".")
        if name == wanted:
            command = importlib.import_module(f".{module}", __package__)
            command.add_arguments(sub)
            sub.set_defaults(run=command.run)
    arguments = parser.parse_args(argv)
    try:
        return arguments.run(arguments)
    except NothingSelected as error:
        print(f"nbdspec: {error}", file=sys.stderr)
        return 3
    except KitError as error:
        print(f"nbdspec: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("nbdspec: interrupted", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 2
