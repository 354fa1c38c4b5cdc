# SPDX-License-Identifier: BSD-3-Clause
"""What a case did to its server: descriptors, memory, what the log says."""

from __future__ import annotations

import re

from .process import Process
from .watch import Deadline

#: Descriptors and buffers of a connection that was closed go a moment later.
SETTLE = 3.0
_ASK_AGAIN = 0.01
#: A case that makes a server this much larger, for good, found a leak.
GROWTH = 512 << 20

_ALARMS = re.compile(
    r"ERROR: (Address|Leak|Memory|Thread)Sanitizer"
    r"|WARNING: ThreadSanitizer"
    r"|runtime error: "
    r"|[Aa]ssertion .*failed"
    r"|\*\*\* (stack smashing|buffer overflow) detected"
)


class Health:
    """Of one server, taken when it stands idle."""

    def __init__(self, process: Process | None) -> None:
        self._process = process
        self._descriptors = 0
        self._resident = 0
        self._log_seen = 0

    def baseline(self) -> None:
        """To be called when the first connections have come and gone.

        What a server opens on first use it may keep, so the count is taken when it
        no longer changes.
        """
        process = self._process
        if process is None:
            return
        deadline = Deadline(SETTLE)
        count = process.descriptors() or 0
        while not deadline.passed and not process.ends_within(_ASK_AGAIN):
            now = process.descriptors() or 0
            if now == count:
                break
            count = now
        self._descriptors = count
        self._resident = process.resident() or 0
        self._log_seen = process.log_size()

    def check(self) -> list[str]:
        """What is wrong after a case, in words."""
        process = self._process
        if process is None:
            return []
        found = []
        alarm = self._alarm(process)
        if alarm:
            found.append(f"the server's log says: {alarm}")
        leak = self._left_over(process)
        if leak:
            found.append(leak)
        resident = process.resident() or 0
        if resident - self._resident > GROWTH:
            grown = (resident - self._resident) >> 20
            found.append(f"the server has grown by {grown} MiB")
        self._resident = max(self._resident, resident)
        return found

    def _alarm(self, process: Process) -> str:
        text = process.log_since(self._log_seen)
        self._log_seen = process.log_size()
        match = _ALARMS.search(text)
        return text[match.start() :].splitlines()[0] if match else ""

    def _left_over(self, process: Process) -> str:
        deadline = Deadline(SETTLE)
        count = process.descriptors() or 0
        while count > self._descriptors and not deadline.passed:
            if process.ends_within(_ASK_AGAIN):
                return ""
            count = process.descriptors() or 0
        if count <= self._descriptors:
            return ""
        before, self._descriptors = self._descriptors, count
        return (
            f"{count} descriptors are open in the server, {before} were before, "
            f"and {SETTLE:g} s after the last connection was closed"
        )
