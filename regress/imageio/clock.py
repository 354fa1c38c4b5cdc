# SPDX-License-Identifier: BSD-3-Clause
"""Times the phases of one connection, and prints them as imageio does.

    [connection 1 ops, 3.561693 s] [write 470 ops, 2.482875 s, 316.06 MiB, 127.30 MiB/s]

Phases come in the order of their first use. A phase that failed has used its time,
but counts neither as an operation nor with its bytes. Times are of the wall, so
those of connections that overlap add up to more than has passed.
"""

from __future__ import annotations

import time
from types import TracebackType


class Phase:
    """One phase; a context manager, to be entered again and again but not nested."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.operations = 0
        self.seconds = 0.0
        self.bytes = 0
        self.size = 0  # what the operation under way will count for
        self.counts_failures = name == "dispatch"
        self._start = 0.0

    def __enter__(self) -> Phase:
        self.size = 0
        self._start = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds += time.perf_counter() - self._start
        if kind is None or self.counts_failures:
            self.operations += 1
            self.bytes += self.size

    def __str__(self) -> str:
        text = f"[{self.name} {self.operations} ops, {self.seconds:.6f} s"
        if self.bytes:
            rate = self.bytes / self.seconds if self.seconds else 0
            text += f", {humanized(self.bytes)}, {humanized(rate)}/s"
        return text + "]"


class Clock:
    def __init__(self) -> None:
        self._phases: dict[str, Phase] = {}

    def phase(self, name: str) -> Phase:
        phase = self._phases.get(name)
        if phase is None:
            phase = self._phases[name] = Phase(name)
        return phase

    def __str__(self) -> str:
        return " ".join(map(str, self._phases.values()))


def humanized(size: float) -> str:
    if size < 1024:
        return f"{size:.0f} bytes"
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.2f} {unit}"
    return f"{size / 1024:.2f} TiB"
