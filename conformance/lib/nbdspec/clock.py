# SPDX-License-Identifier: BSD-3-Clause
"""Time limits that grow from a measured round trip."""

from __future__ import annotations

import os

#: A server on this machine gets this long before it counts as hung.
FLOOR = 5.0
#: A remote one as many of its own round trips, where that is more.
ROUND_TRIPS = 30


#: A server that hung so often will hang again; waiting as long each time tells nothing.
PATIENCE = 3
IMPATIENT = 0.5


class Clock:
    """The time limit for one server. Nothing waits this long but a failing case."""

    #: hangs in this run, of whatever server
    hangs = 0

    def __init__(self) -> None:
        self._round_trip: float | None = None
        self._factor = float(os.environ.get("NBDSPEC_TIME_FACTOR", "1"))

    def measured(self, seconds: float) -> None:
        """Takes the quickest round trip: others waited for more than the way."""
        before = self._round_trip
        self._round_trip = seconds if before is None else min(before, seconds)

    @property
    def round_trip(self) -> float:
        return self._round_trip or 0.0

    @property
    def limit(self) -> float:
        factor = self._factor * (IMPATIENT if Clock.hangs >= PATIENCE else 1.0)
        return factor * max(FLOOR, ROUND_TRIPS * self.round_trip)
