# SPDX-License-Identifier: BSD-3-Clause
"""The bench's figures, files and messages; never how fast anything is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "conformance" / "lib"))

from nbdspec.bench import chart, summary, write  # noqa: E402
from nbdspec.bench.clients import fio_job  # noqa: E402
from nbdspec.bench.model import Column, Ratio, Results, Row, Sample  # noqa: E402


def results() -> Results:
    row = Row("read <4k>", "requests/s")
    cells = {
        (row.name, "new"): [Sample(20.0, real=1.0, server_cpu=3.0), Sample(60.0)],
        (row.name, "old"): [Sample(10.0, real=1.0, server_cpu=1.5), Sample(20.0)],
    }
    columns = [Column("new", "nbdspecd"), Column("old", "nbdkit")]
    return Results([row], columns, cells, {})


class Plain:
    """As much of a scenario as a report needs."""

    title, question = "plain", "How many?"
    ratios = (Ratio("new", "old"), Ratio("new", "old", of="server_cpu"))

    def notes(self, results: Results) -> list[str]:
        return ["The end."]


@pytest.mark.parametrize(
    ("n", "low", "high"), [(1, 1, 1), (5, 1, 5), (6, 1, 6), (9, 2, 8), (15, 4, 12)]
)
def test_interval_of_a_median(n: int, low: int, high: int) -> None:
    """The ranks that tables of the sign test give for 95 %."""
    assert summary.median_interval(list(range(n, 0, -1))) == (low, high)


def test_spread_is_relative_to_the_median() -> None:
    f = summary.figures([3.0, 1.0, 2.0])
    assert (f.median, f.minimum, f.maximum, f.spread) == (2.0, 1.0, 3.0, 1.0)


def test_ratios_pair_sample_with_sample() -> None:
    """Medians of ratios, not ratios of medians (which would be 40 / 15)."""
    value, cpu = summary.ratio_figures(results(), Plain.ratios)
    assert (value.median, value.low, value.high) == (2.5, 2.0, 3.0)
    assert (cpu.of, cpu.median) == ("server_cpu", 2.0)


def test_ratio_of_what_was_not_run_is_left_out() -> None:
    assert summary.ratio_figures(results(), [Ratio("new", "gone")]) == []
    assert summary.ratio_figures(results(), [Ratio("new", "old", rows="write*")]) == []


@pytest.mark.parametrize(
    ("client", "server", "foreign", "words"),
    [
        (0.95, 0.3, 0.0, "the client"),
        (0.3, 0.95, 0.0, "the server"),
        (0.2, 0.2, 0.0, "waiting"),
        (0.5, 0.4, 50.0, "other processes"),
    ],
)
def test_what_bounds(client: float, server: float, foreign: float, words: str) -> None:
    assert summary.bound(client, server, foreign).startswith(words)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (0.5, "0.500"),
        (1.5, "1.50"),
        (15, "15.0"),
        (150, "150"),
        (9999, "9999"),
        (15000, "15.0 k"),
        (2.5e6, "2.5 M"),
        (1.5e9, "1.5 G"),
    ],
)
def test_numbers_are_written_short(value: float | None, text: str) -> None:
    assert write.number(value) == text


def test_fio_output_after_its_warnings() -> None:
    idle, busy = {"total_ios": 0}, {"total_ios": 7}
    text = "fio: a warning\n" + json.dumps({"jobs": [{"read": idle, "write": busy}]})
    assert fio_job(text)[1] == busy


def test_markdown_has_medians_ratios_and_notes() -> None:
    text = write.markdown(Plain(), results(), "nbdspec bench plain", 2, "plain")
    assert "| read <4k> (requests/s) | 40.0 | 15.0 |" in text
    assert "| read <4k> | result | new | old | 2.500 | 2.000 | 3.000 |" in text
    assert "`nbdspec bench plain`" in text
    assert text.endswith("The end.\n")


def test_json_has_every_sample() -> None:
    document = write.document(Plain(), results(), "nbdspec bench plain", "plain")
    again = json.loads(write.to_json(document))
    assert [s["value"] for s in again["samples"]] == [20.0, 60.0, 10.0, 20.0]
    assert again["figures"]["read <4k>"]["old"]["median"] == 15.0


def test_chart_is_well_formed_and_longest_bar_is_the_largest() -> None:
    root = ElementTree.fromstring(chart.svg("a & b", results()))
    space = "{http://www.w3.org/2000/svg}"
    _, new, old = (float(r.get("width", "")) for r in root.iter(f"{space}rect"))
    assert new / old == pytest.approx(40 / 15, rel=0.01)
    assert any(text.text == "a & b" for text in root.iter(f"{space}text"))


def bench(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "conformance" / "nbdspec"), "bench", *words]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["no-such-bench"], 2, "invalid choice: 'no-such-bench'"),
        (["bulk", "--host", "apache"], 2, "no host 'apache'"),
        (["bulk", "--seconds", "-1"], 2, "'-1': expected a number"),
        (["bulk", "--repeat", "0"], 2, "--repeat: expected 1 or more"),
        (["bulk", "--row", "no such row"], 3, "no row or no server was selected"),
    ],
)
def test_bad_usage(words: list[str], status: int, message: str) -> None:
    done = bench(*words)
    assert done.returncode == status
    assert message in done.stderr.splitlines()[-1]


def test_a_server_that_is_not_there_is_named() -> None:
    done = bench("bulk", "--host", "nbdspecd", NBDSPECD="/no/such/program")
    assert done.returncode == 2
    assert done.stderr == (
        "nbdspec bench: nbdspecd: /no/such/program is not there or cannot run\n"
    )


def test_a_run_from_end_to_end(tmp_path: Path) -> None:
    """One row of one bench, as short as can be, against nbdspecd."""
    done = bench(
        *("connections", "--host", "nbdspecd", "--row", "connect*"),
        *("--seconds", "0.01", "--repeat", "2", "--out", str(tmp_path)),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "progress is for terminals only"
    document = json.loads((tmp_path / "connections.json").read_text())
    assert len(document["samples"]) == 4
    assert all(sample["requests"] >= 200 for sample in document["samples"])
    assert done.stdout == (tmp_path / "connections.md").read_text()
    assert (tmp_path / "connections.svg").exists()
