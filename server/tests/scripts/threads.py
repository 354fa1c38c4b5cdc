# SPDX-License-Identifier: BSD-3-Clause
"""What a script sees of the server's threads."""

import contextvars
import os
import threading
import time

API_VERSION = 2

local = threading.local()
variable = contextvars.ContextVar("variable", default=0)
names = []
forks = []
ticks = 0
action = ""

os.register_at_fork(
    before=lambda: forks.append("before"),
    after_in_child=lambda: forks.append("child"),
    after_in_parent=lambda: forks.append("parent"),
)


def after_fork():
    def tick():
        global ticks
        while True:
            ticks += 1
            time.sleep(0.001)

    threading.Thread(target=tick, daemon=True).start()


def open(readonly):
    return 1


def get_size(h):
    return 1 << 20


def pread(h, buf, offset, flags):
    local.calls = getattr(local, "calls", 0) + 1
    variable.set(variable.get() + 1)
    names.append(threading.current_thread().name)
    buf[0] = local.calls
    buf[1] = variable.get()


def flush(h, flags):
    if os.fork() == 0:
        return  # a mistake: the child must end itself
    os.wait()
