# SPDX-License-Identifier: BSD-3-Clause
"""memoryview-write: copies and page faults, which do not depend on who else works."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nbdspec.bench import load, runner
from nbdspec.bench.model import Options, Sample
from nbdspec.bench.server import (
    Server,
    ServerError,
    ServerSpec,
    program,
    sanitizer,
)

ROOT = Path(__file__).resolve().parents[3]
SINK = ROOT / "regress" / "scenarios" / "plugins" / "sink.py"

pytestmark = pytest.mark.skipif(
    shutil.which("qemu-img") is None, reason="qemu-img is not installed"
)


@pytest.fixture
def scenario() -> Iterator[Any]:
    answer = load("memoryview-write")
    with tempfile.TemporaryDirectory(prefix="mv.") as name:
        answer.rows(Options(1.0, 1, False, Path(name)))
        yield answer
        answer.finish()


def measured(scenario: Any, row_name: str, column_name: str) -> Sample:
    """One sample, as the bench takes it; with nbdspecd's own count of copies."""
    rows = {row.name: row for row in scenario.rows(scenario.options)}
    columns = {column.name: column for column in scenario.columns}
    if sanitizer(program("nbdspecd")) and rows[row_name].params.get("checked"):
        pytest.skip("a sanitizer's allocator takes the place of the one that checks")
    if columns[column_name].host == "nbdkit" and shutil.which("nbdkit") is None:
        pytest.skip("nbdkit is not installed")
    pool = runner.Pool(scenario.options)
    row, column = rows[row_name], columns[column_name]
    return runner.measure(scenario, row, column, pool, scenario.options)


@pytest.mark.parametrize("environment", ["convert", "convert, malloc checked"])
@pytest.mark.parametrize(
    ("kind", "copies"), [("memoryview", 0), ("bytearray", 1), ("bytes", 1)]
)
def test_bytes_copied(
    scenario: Any, environment: str, kind: str, copies: int
) -> None:
    """None with a memoryview but for what comes along with a header; else each once."""
    size = 256 << 20
    scenario.options = Options(1.0, 1, False, scenario.options.directory, data=size)
    sample = measured(scenario, environment, f"nbdspecd {kind}")
    copied = sample.extra["bytes_copied"] / size
    assert copies <= copied <= copies + 0.02
    assert sample.extra["views_kept"] == 0


@pytest.mark.parametrize(
    ("copy", "view"),
    [
        ("nbdspecd bytearray", "nbdspecd memoryview"),
        pytest.param("nbdspecd bytes", "nbdspecd memoryview", marks=pytest.mark.slow),
        pytest.param("nbdkit, a plugin that copies", "nbdkit", marks=pytest.mark.slow),
    ],
)
def test_minor_faults_with_malloc_checked(scenario: Any, copy: str, view: str) -> None:
    """The thread's 2.7: each copy is a mapping of its own, faulted in page by page."""
    row = "convert, malloc checked"
    assert (measured(scenario, row, copy).server_faults or 0) >= 200_000
    assert (measured(scenario, row, view).server_faults or 0) <= 5_000


@pytest.mark.parametrize("column", ["nbdspecd bytearray", "nbdspecd memoryview"])
def test_minor_faults_plain(scenario: Any, column: str) -> None:
    """Without the checking the copy's block is used again."""
    if sanitizer(program("nbdspecd")):
        pytest.skip("a sanitizer keeps freed blocks from being used again")
    assert (measured(scenario, "convert", column).server_faults or 0) <= 5_000


VARIANTS = [
    "convert, server with -v",
    "convert over TCP",
    "nbdcopy",
    "convert, all zeroes",
    "convert, random data",
    *(
        f"plugin: {to}, v{api}"
        for to in ("null", "file", "pwrite", "socket", "slice")
        for api in (1, 2)
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("row", VARIANTS)
@pytest.mark.parametrize("column", ["nbdspecd memoryview", "nbdkit"])
def test_variants_run(scenario: Any, row: str, column: str) -> None:
    """Small here: each client writes all of its image, and what a file got is it."""
    size = 64 << 20  # a quarter of the data
    scenario.options = Options(1.0, 1, False, scenario.options.directory, data=4 * size)
    sample = measured(scenario, row, column)
    assert sample.value > 0
    if row.startswith(("plugin: file", "plugin: pwrite")):
        assert scenario._file(size).read_bytes() == b"U" * size
    if column == "nbdspecd memoryview" and row.startswith("plugin"):
        assert sample.extra["bytes_copied"] < 2 << 20
        assert sample.extra["views_kept"] == 0


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        ("to=tape", "to=tape: expected zero, null, copy"),
        ("to=file", "file=PATH goes with to=file"),
        ("file=/tmp/x", "file=PATH goes with to=file"),
        ("from=x", "unknown parameter 'from': expected to, file, size"),
    ],
)
def test_sink_parameters(parameter: str, words: str) -> None:
    with tempfile.TemporaryDirectory(prefix="mv.") as name:
        with pytest.raises(ServerError, match=words):
            Server(ServerSpec("nbdspecd", ("python", str(SINK), parameter)), Path(name))
