# SPDX-License-Identifier: BSD-3-Clause
"""Being told to end, by Ctrl-C or SIGTERM: what was found so far is not thrown away.

What pytest makes of the exception depends on where that comes; hence the flag.
"""

from __future__ import annotations

import signal

_came = False


def catch() -> None:
    """From here on either signal is a KeyboardInterrupt, and noted."""
    # A shell's background jobs ignore Ctrl-C, and go on doing so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    signal.signal(signal.SIGTERM, _end)


def came() -> bool:
    return _came


def _end(number: int, frame: object) -> None:
    global _came
    _came = True
    patient = number == signal.SIGTERM
    signal.signal(number, signal.SIG_IGN if patient else signal.default_int_handler)
    raise KeyboardInterrupt
