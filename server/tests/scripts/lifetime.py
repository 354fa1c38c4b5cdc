# SPDX-License-Identifier: BSD-3-Clause
"""Keeps what it is handed, in the way that the parameter keep=WAY names."""

import gc
import sys
import threading

API_VERSION = 1 if "api=1" in sys.argv else 2

gc.disable()  # a cycle shall last until the test collects it
ways = {}
way = ""
kept = []


def config(key, value):
    global way
    way = value


def keeper(f):
    ways[f.__name__.rstrip("_")] = f
    return f


@keeper
def nothing(buf):
    buf[1:].tobytes()


@keeper
def view(buf):
    kept.append(buf)


@keeper
def slice_(buf):
    kept.append(buf[100:])
    buf.release()


@keeper
def cast(buf):
    kept.append(buf.cast("I"))


@keeper
def toreadonly(buf):
    kept.append(buf.toreadonly())


@keeper
def obj(buf):
    kept.append(buf.obj)


@keeper
def iterator(buf):
    kept.append(iter(buf))


@keeper
def exception(buf):
    try:
        raise ValueError
    except ValueError as e:
        kept.append(e)


@keeper
def raised(buf):
    e = RuntimeError("kept by the script and raised, too")
    kept.append(e)
    raise e


@keeper
def cycle(buf):
    loop = [buf]
    loop.append(loop)


@keeper
def generator(buf):
    def look():
        yield buf[0]
        yield buf[1]

    g = look()
    next(g)
    kept.append(g)


@keeper
def closure(buf):
    kept.append(lambda: buf)


@keeper
def thread(buf):
    looked = threading.Event()

    def look():
        looked.wait()
        kept.append(bytes(buf))

    t = threading.Thread(target=look)
    t.start()
    kept.append((t, looked))


def open(readonly):
    return 1


def get_size(h):
    return 1 << 30


def pread(h, buf, offset, flags):
    buf[:] = b"A" * len(buf)
    ways[way](buf)


def pwrite(h, buf, offset, flags=0):
    ways[way](buf)


def content():
    """The bytes that what was kept shows now."""
    if way == "thread":
        t, looked = kept[0]
        looked.set()
        t.join()
        return kept[1]
    if way in ("exception", "raised"):
        trace = kept[0].__traceback__
        while trace.tb_next:
            trace = trace.tb_next
        return bytes(trace.tb_frame.f_locals["buf"])
    if way == "cycle":
        return bytes(next(o for o in gc.get_objects() if type(o) is memoryview))
    if way == "generator":
        return bytes([next(kept[0])])
    if way == "closure":
        return bytes(kept[0]())
    return bytes(kept[0])


def shows(byte):
    return set(content()) == {byte}


def forget():
    for item in kept:
        if type(item) is tuple:
            item[1].set()
    kept.clear()
    gc.collect()
