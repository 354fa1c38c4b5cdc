# SPDX-License-Identifier: BSD-3-Clause
"""Every request takes a set time: asleep, or in the export "compute" at work.

    nbdspecd -t 16 python sleeper.py sleep=0.010 compute=0.100

A sleeping callback has let go of the interpreter's lock; one that computes in
pure Python holds it but for a switch every few milliseconds.
"""

import time

import nbdkit

API_VERSION = 2

seconds = {"sleep": 0.010, "compute": 0.100}


def config(key: str, value: str) -> None:
    if key not in seconds:
        names = " or ".join(f"{name}=SECONDS" for name in seconds)
        raise ValueError(f"unknown parameter {key!r}: sleeper.py takes {names}")
    try:
        seconds[key] = float(value)
    except ValueError:
        raise ValueError(f"{key}={value}: expected seconds, as in 0.010") from None
    if not 0 <= seconds[key] <= 60:
        raise ValueError(f"{key}={value}: expected from 0 to 60 seconds")


def thread_model() -> int:
    return nbdkit.THREAD_MODEL_PARALLEL


def open(readonly: bool) -> bool:
    return nbdkit.export_name() == "compute"


def get_size(computes: bool) -> int:
    return 1024**3


def can_multi_conn(computes: bool) -> bool:
    return True


def work(computes: bool) -> None:
    if not computes:
        time.sleep(seconds["sleep"])
        return
    end = time.thread_time() + seconds["compute"]
    while time.thread_time() < end:
        pass


def pread(computes: bool, buf: memoryview, offset: int, flags: int) -> None:
    work(computes)


def pwrite(computes: bool, buf: memoryview, offset: int, flags: int) -> None:
    work(computes)
