# SPDX-License-Identifier: BSD-3-Clause
"""The manual page of nbdspec says what the command says of itself."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest
from kit import HERE, NBDSPEC

PAGE = HERE.parents[1] / "docs/man/nbdspec.1"
COMMANDS = ("server", "probe", "list", "explain", "compare", "replay", "bench")


def printed(*words: str) -> str:
    argv = [sys.executable, str(NBDSPEC), *words, "--help"]
    return subprocess.check_output(argv, text=True)


def test_each_option_is_described_and_each_description_is_of_an_option() -> None:
    texts = [printed()] + [printed(command) for command in COMMANDS]
    there = {"-" + name for text in texts for name in re.findall(r" -(-?[a-z-]+)", text)}
    told = set()
    for line in PAGE.read_text().splitlines():
        if line.startswith(".It Fl "):
            words = line[7:].replace(" , ", " ").split()
            told.add("-" + words[0])
            told |= {"-" + word for word in words[1:] if word.startswith("-")}
    options = {o for o in there if re.fullmatch(r"-[a-z]|--[a-z-]+", o)}
    assert told == options


def test_each_command_and_each_help_has_words() -> None:
    commands = re.findall(r"^    ([a-z]+)  ", printed(), re.M)
    assert sorted(commands) == sorted(COMMANDS)
    for command in commands:
        assert f".Cm {command}" in PAGE.read_text()
        bare = re.findall(r"^  (--[a-z-]+ ?[A-Z]*)$(?!\n {10,}\S)", printed(command), re.M)
        assert bare == [], f"{command}: no words for {bare}"


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_format() -> None:
    done = subprocess.run(
        ["mandoc", "-Tlint", "-Wwarning", str(PAGE)], capture_output=True, text=True
    )
    assert done.stdout == ""
