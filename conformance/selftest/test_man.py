# SPDX-License-Identifier: BSD-3-Clause
"""The manual page of nbdspecd says what the program says of itself."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from server_process import NBDSPECD, ROOT

PAGE = ROOT / "docs/man/nbdspecd.1"


def described() -> dict[str, str]:
    """The options that have an entry of their own, with the entry's first line."""
    text = PAGE.read_text().replace("\\\n", "")
    found = {}
    for line in text.splitlines():
        if not line.startswith(".It Fl "):
            continue
        for word in re.findall(r"Fl (\S+)", line):
            found["-" + word] = line
    return found


def printed() -> dict[str, str]:
    """Options in --help, with what is written behind them as an argument."""
    text = subprocess.check_output([NBDSPECD, "--help"], text=True)
    found = {}
    for line in text.splitlines():
        head = re.match(r"  (?:(-\w), |    )(--[a-z0-9-]+)(?:[ =](\S+))?", line)
        if head and line[2:6].strip() != "also":
            letter, name, argument = head.groups()
            found[name] = argument or ""
            if letter:
                found[letter] = argument or ""
        elif line.strip().startswith("also --"):
            for other in re.findall(r"--[a-z0-9-]+", line):
                found[other] = argument or ""
    return found


def test_each_option_is_described_and_each_description_is_of_an_option() -> None:
    assert len(printed()) > 70
    assert sorted(described()) == sorted(printed())


def test_arguments_agree() -> None:
    page = described()
    for option, argument in printed().items():
        shown = page[option]
        if not argument:
            assert " Ar " not in shown and " Cm " not in shown, option
        elif "|" in argument:
            for choice in re.findall(r"[a-z]+", argument.split("/")[0]):
                assert re.search(rf"\b{choice}\b", shown + following(option)), option
        else:
            assert " Ar " in shown, option


def following(option: str) -> str:
    """The text under an entry."""
    text = PAGE.read_text().replace("\\\n", "")
    entry = described()[option]
    return text.split(entry, 1)[1].split("\n.It ", 1)[0]


@pytest.mark.parametrize("name", ["SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGPIPE"])
def test_signals_are_described(name: str) -> None:
    assert re.search(rf"\.It Dv .*\b{name}\b", PAGE.read_text())


@pytest.mark.parametrize(
    "constant, source, words",
    [
        (r"MAX_REQUEST_SIZE \(UINT32_C \(64\) << 20\)", "wire.h", "WRITE up to 64 MiB"),
        (r"MAX_PAYLOAD_SKIPPED \(UINT32_C \(128\) << 20\)", "wire.h", "up to 128 MiB"),
        (r"OPTIONS_AT_MOST 1024U", "options.c", "1024 options"),
        (r"MAX_OPTION_READ \(UINT32_C \(1\) << 20\)", "options.c", "over 1 MiB is"),
        (r"MAX_OPTION_SKIPPED \(UINT32_C \(64\) << 20\)", "options.c", "most 64 MiB"),
        (r"NBD_MAX_STRING 4096U", "wire.h", "4096 bytes"),
        (r"DEFAULT_TIMEOUT 30", "cmdline.c", "30\nseconds unless said otherwise"),
        (r"DEFAULT_THREADS 16", "cmdline.c", "16 unless said otherwise"),
        (r"MAX_SOCKETS 16", "activation.c", "1 to 16"),
        (r"CLIENT_ERRORS_PER_SECOND 5U", "log.c", "at will five a second"),
        (r"MAX_QUEUED \(1U << 20\)", "log_output.c", "1 MiB of messages"),
        (r"FLUSH_SECONDS 5", "log_output.c", "for five seconds"),
        (r"GRACE_MS 2000", "connection.c", "cut off after two\nto four seconds"),
        (r"READ_AHEAD \(256U << 10\)", "intake.c", "a buffer of 256 KiB"),
        (r"OUTGO_LIMIT \(\(size_t\) 1 << 20\)", "outgo.h", "1 MiB or one request"),
    ],
)  # fmt: skip
def test_limits_are_those_of_the_source(constant: str, source: str, words: str) -> None:
    assert re.search(constant, (ROOT / "server" / source).read_text()), constant
    assert words in PAGE.read_text()


def test_sections_are_there_in_their_order() -> None:
    sections = re.findall(r"^\.Sh (.*)$", PAGE.read_text(), re.M)
    wanted = [
        "NAME", "SYNOPSIS", "DESCRIPTION", "START AND END", "LIMITS", "ENVIRONMENT",
        "FILES", "EXIT STATUS", "EXAMPLES", "DIFFERENCES FROM NBDKIT", "SEE ALSO",
        "SECURITY",
    ]  # fmt: skip
    assert sections == wanted


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_page_is_formatted_without_complaint() -> None:
    r = subprocess.run(
        ["groff", "-mdoc", "-Tascii", "-ww", PAGE], capture_output=True, text=True
    )
    assert (r.returncode, r.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_page_passes_the_linter() -> None:
    r = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", PAGE], capture_output=True, text=True
    )
    assert (r.returncode, r.stdout) == (0, "")
