# SPDX-License-Identifier: BSD-3-Clause
"""Time limits that grow from a measured round trip."""

from __future__ import annotations

import os

#: A server on this machine gets this long before it counts as hung.
FLOOR = 5.0
#: A remote one as many of its own round trips, where that is more.
ROUND_TRIPS = 30


class Clock:
    """The time limit for one server. Nothing waits this long but a failing case."""

    def __init__(self) -> None:
        self._round_trip = 0.0
        self._factor = float(os.environ.get("NBDSPEC_TIME_FACTOR", "1"))

    def measured(self, seconds: float) -> None:
        """Takes the slowest round trip seen: a limit never shrinks."""
        self._round_trip = max(self._round_trip, seconds)

    @property
    def round_trip(self) -> float:
        return self._round_trip

    @property
    def limit(self) -> float:
        return self._factor * max(FLOOR, ROUND_TRIPS * self._round_trip)
