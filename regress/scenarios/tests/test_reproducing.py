# SPDX-License-Identifier: BSD-3-Clause
"""The scenario in docs/reproducing.md, which readers start from, is one that runs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from nbdspec.bench import runner
from nbdspec.bench.model import Options

ROOT = Path(__file__).resolve().parents[3]


def test_the_scenario_in_the_guide() -> None:
    text = (ROOT / "docs" / "reproducing.md").read_text()
    code = text.partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(compile(code, "docs/reproducing.md", "exec"), names)
    scenario = names["Scenario"]()
    with tempfile.TemporaryDirectory(prefix="rp.") as name:
        options = Options(1.0, 1, False, Path(name))
        row = scenario.rows(options)[-1]
        pool = runner.Pool(options)
        sample = runner.measure(scenario, row, scenario.columns[0], pool, options)
    assert sample.value > 0 and sample.foreign is not None
