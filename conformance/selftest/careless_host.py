#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A host of plugins that takes every word, and becomes a daemon unless there is "-f".

Each process of it leaves a file, named by its number, in $CARELESS: its words.
"""

import os
import signal
import sys


def leave_words() -> None:
    with open(os.path.join(os.environ["CARELESS"], str(os.getpid())), "w") as file:
        file.write(" ".join(sys.argv[1:]))


if "-f" not in sys.argv and os.fork():
    os._exit(0)
leave_words()
if "-f" not in sys.argv:
    os.setsid()
    os.chdir("/")
    for number in range(3):
        os.dup2(os.open("/dev/null", os.O_RDWR), number)
signal.alarm(60)  # whatever the kit does, it is gone by then
signal.pause()
