# SPDX-License-Identifier: BSD-3-Clause
"""A disk to upload: data, runs of zeroes that are stored, and holes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNIT = 64 << 10  # everything is aligned to it, as a guest's clusters would be
LARGEST = 32 << 20


@dataclass(frozen=True)
class Disk:
    size: int
    data: int
    zeroes: int
    seed: int = 20210122

    def runs(self) -> Iterator[tuple[int, int, bool]]:
        """(offset, length, whether it is data); what is between them is a hole.

        The lengths are log-normal: many small runs, and most of the data in few
        large ones.
        """
        rng = random.Random(self.seed)
        pieces = [
            (length, is_data)
            for is_data, total in ((True, self.data), (False, self.zeroes))
            for length in _lengths(rng, total)
        ]
        rng.shuffle(pieces)
        holes = self.size - self.data - self.zeroes
        offset = 0
        for i, (length, is_data) in enumerate(pieces):
            # what is left of the holes, shared out among the gaps that are left
            gap = int(holes * rng.uniform(0, 2 / (len(pieces) - i))) // UNIT * UNIT
            gap = min(gap, holes)
            holes -= gap
            yield offset + gap, length, is_data
            offset += gap + length

    def make(self, path: Path) -> None:
        rng = random.Random(self.seed)
        with open(path, "wb") as f:
            f.truncate(self.size)
            for offset, length, is_data in self.runs():
                f.seek(offset)
                for start in range(0, length, 1 << 20):
                    step = min(1 << 20, length - start)
                    f.write(rng.randbytes(step) if is_data else bytes(step))


def _lengths(rng: random.Random, total: int) -> Iterator[int]:
    while total:
        length = int(rng.lognormvariate(15.2, 1.1)) // UNIT * UNIT
        length = min(max(length, UNIT), LARGEST, total)
        yield length
        total -= length
