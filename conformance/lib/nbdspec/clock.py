# SPDX-License-Identifier: BSD-3-Clause
"""Time limits that grow from a measured round trip."""

from __future__ import annotations

import contextlib
import math
import os

from . import nbd
from .errors import UsageError

#: A server on this machine gets this long before it counts as hung.
FLOOR = 5.0
#: A remote one as many of its own round trips, where that is more.
ROUND_TRIPS = 30
#: A large reply gets longer: a second for so many bytes, of which no more count than
#: the longest request of most servers has.
BYTES_A_SECOND = 4 << 20
MOST = 64 << 20
#: An extent is to find before it is to send, and takes as long as so many bytes.
EXTENT = 64
#: SR-35: no chunk holds more extents.
EXTENTS = 1 << 20


#: A server that hung so often will hang again; waiting as long each time tells nothing.
PATIENCE = 3
IMPATIENT = 0.5
#: The next run of a case that hung has its verdict already: it fails.
AGAIN = 0.2


def weight(command: int, length: int) -> int:
    """What a request adds to the bytes that a server is given time for."""
    if command in (nbd.BLOCK_STATUS, nbd.TRIM):
        return min(length // 512, EXTENTS) * EXTENT
    return min(length, MOST)


def time_factor() -> float:
    """What $NBDSPEC_TIME_FACTOR multiplies all limits by: 1 unless it is set."""
    text = os.environ.get("NBDSPEC_TIME_FACTOR", "1")
    with contextlib.suppress(ValueError):
        if 0 < (factor := float(text)) < math.inf:
            return factor
    raise UsageError(f"NBDSPEC_TIME_FACTOR={text}: expected a number above 0")


class Clock:
    """The time limit for one server. Nothing waits this long but a failing case."""

    #: hangs in this run, of whatever server
    hangs = 0
    #: the cases that hung, and whether the one at work is among them
    hung: set[str] = set()
    again = False

    def __init__(self) -> None:
        self._round_trip: float | None = None
        self._factor = time_factor()

    def measured(self, seconds: float) -> None:
        """Takes the quickest round trip: others waited for more than the way."""
        before = self._round_trip
        self._round_trip = seconds if before is None else min(before, seconds)

    @property
    def round_trip(self) -> float:
        return self._round_trip or 0.0

    @property
    def limit(self) -> float:
        return self.limit_for(0)

    def limit_for(self, size: int) -> float:
        """The limit while so many bytes are due.

        A server that is far away needs its round trips; all else sinks with patience.
        """
        away = ROUND_TRIPS * self.round_trip
        size_time = self._patience * min(size, MOST) / BYTES_A_SECOND
        return self._factor * (max(self._patience * FLOOR, away) + size_time)

    @property
    def _patience(self) -> float:
        if Clock.again:
            return AGAIN
        return IMPATIENT if Clock.hangs >= PATIENCE else 1.0

    @classmethod
    def case_starts(cls, id: str) -> None:
        cls.again = id in cls.hung

    @classmethod
    def case_hung(cls, id: str) -> None:
        cls.hangs += 1
        cls.hung.add(id)
