# SPDX-License-Identifier: BSD-3-Clause
"""How a script can make the interpreter's end hard: how=WAY."""

import atexit
import sys
import threading
import time

API_VERSION = 2

kept = []
how = ""


def say(word):
    sys.stderr.write(word + "\n")


def config(key, value):
    global how
    how = value
    atexit.register(say, "atexit")


def after_fork():
    def forever():
        while True:
            time.sleep(0.0001)

    def busy():
        while True:
            pass

    def a_while():
        time.sleep(0.3)
        say("thread ended")

    if how == "daemon":
        for target in (forever, forever, busy):
            threading.Thread(target=target, daemon=True).start()
    if how == "thread":
        threading.Thread(target=a_while).start()


def open(readonly):
    return 1


def get_size(h):
    return 1 << 20


class Late:
    """Looks at what it keeps when the interpreter takes it down."""

    def __init__(self, buf):
        self.buf = buf
        self.say = say

    def __del__(self):
        self.say("last look: " + chr(self.buf[0]))


def pwrite(h, buf, offset, flags):
    if how == "view":
        kept.append(buf)
    if how == "late":
        kept.append(Late(buf))


def pread(h, buf, offset, flags):
    if how == "view":
        kept.append(buf)


def cleanup():
    say("cleanup")
    if how == "raise":
        raise RuntimeError("in cleanup")


def unload():
    say("unload")
