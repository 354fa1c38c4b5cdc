# SPDX-License-Identifier: BSD-3-Clause
"""What can be set about the daemon, and the faults it commits when asked to."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, field

FEATURES = ("extents", "flush", "zero")
KINDS = ("OPTIONS", "GET", "PUT", "zero", "flush", "extents")
ACTIONS = ("close", "hang", "full")
HOLD_LIMIT = 30.0  # seconds


@dataclass
class Knobs:
    max_readers: int = 8  # 0: OPTIONS does not say
    max_writers: int = 8
    features: tuple[str, ...] = FEATURES
    options_status: int = 200  # 204 and 405 are those of very old daemons
    advertise_socket: bool = True
    put_latency: float = 0.0
    hold_puts: int = 0  # until so many are under way at once
    idle_timeout: float | None = None  # instead of the ticket's
    remove_timeout: float = 60.0  # how long DELETE waits for what is under way
    faults: list[Fault] = field(default_factory=list)
    bandwidth: Bandwidth | None = None


class Bandwidth:
    """A line that all connections share: so many bytes a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free = 0.0  # when it will have carried all that was given to it

    def carry(self, size: int) -> None:
        with self._lock:
            now = time.monotonic()
            self._free = max(now, self._free) + size / self._rate
            wait = self._free - now
        time.sleep(wait)


class Fault:
    """KIND:WHEN:ACTION, as in PUT:3:500, zero:2-:close, GET:1:hang, PUT:9-:full."""

    def __init__(self, text: str) -> None:
        match = re.fullmatch(r"(\w+):(\d+)(-?):(\w+)", text)
        kind, first, onwards, action = match.groups() if match else ("",) * 4
        if kind not in KINDS or not (
            action in ACTIONS or re.fullmatch("[45][0-9][0-9]", action)
        ):
            raise ValueError(
                f"fault {text!r}: expected KIND:N:ACTION or KIND:N-:ACTION, with "
                f"{', '.join(KINDS)} and {', '.join(ACTIONS)} or a status from 400"
            )
        self.kind, self.first, self.onwards = kind, int(first), bool(onwards)
        self.action = action
        self._seen = 0

    def applies(self, kind: str) -> bool:
        """Whether this request, counted from 1 for its kind, is one to spoil."""
        if kind != self.kind:
            return False
        self._seen += 1  # the caller's lock is held
        return self._seen == self.first or (self.onwards and self._seen > self.first)


class Gauge:
    """How many requests are under way, by kind and in all; and the most there were."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._now: dict[str, int] = {}
        self.most: dict[str, int] = {}

    def change(self, kind: str, by: int) -> None:
        with self._changed:
            for name in (kind, "all"):
                now = self._now[name] = self._now.get(name, 0) + by
                self.most[name] = max(now, self.most.get(name, 0))
            self._changed.notify_all()

    def hold(self, kind: str, until: int) -> None:
        """Returns when there have been so many at once, or will not be."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.most.get(kind, 0) >= until, HOLD_LIMIT
            )
