# SPDX-License-Identifier: BSD-3-Clause
"""Measurements of a bench that was interrupted, for the next one to go on from.

One line of JSON each, after a head that says what they are measurements of. Those
of another command line, another build or another scenario are of no use and make
room for new ones.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from .model import Sample


class Journal:
    def __init__(self, path: Path, head: dict[str, Any]) -> None:
        self.path = path
        self._samples: dict[tuple[str, str, int], Sample] = {}
        lines = self._read(head)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w") as f:
            f.writelines(line + "\n" for line in [json.dumps(head), *lines])

    def _read(self, head: dict[str, Any]) -> list[str]:
        if not self.path.exists():
            return []
        first, *lines = self.path.read_text(errors="replace").split("\n")
        if first != json.dumps(head):
            return []
        good = []
        for line in lines:
            try:
                row, column, turn, values = json.loads(line)
                self._samples[row, column, turn] = Sample(**values)
            except (ValueError, TypeError):
                break  # the one that was being written
            good.append(line)
        return good

    def __len__(self) -> int:
        return len(self._samples)

    def find(self, row: str, column: str, turn: int) -> Sample | None:
        return self._samples.get((row, column, turn))

    def add(self, row: str, column: str, turn: int, sample: Sample) -> None:
        self._samples[row, column, turn] = sample
        with open(self.path, "a") as f:
            f.write(json.dumps([row, column, turn, dataclasses.asdict(sample)]) + "\n")

    def remove(self) -> None:
        self.path.unlink()
