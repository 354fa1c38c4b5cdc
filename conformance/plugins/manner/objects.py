# SPDX-License-Identifier: BSD-3-Clause
"""Blocks as objects of a store, with a class for configuration and a lock."""

import errno
import threading
from contextlib import closing

import nbdkit

API_VERSION = 2


class Config:
    """What the command line gave."""

    def __init__(self) -> None:
        self.size = 1 << 20
        self.block = 64 << 10


class Store:
    """An object store; the real ones are a network away."""

    def __init__(self) -> None:
        self.objects: dict = {}
        self.lock = threading.Lock()

    def get(self, key):
        with self.lock:
            return self.objects.get(key, bytes(cfg.block))

    def put(self, key, data):
        with self.lock:
            self.objects[key] = data


cfg = Config()
store = Store()


class Handle:
    def close(self):
        pass


def config(key, value):
    if key == "size":
        cfg.size = nbdkit.parse_size(value)
    else:
        nbdkit.set_error(errno.EINVAL)
        raise RuntimeError(f"unknown parameter {key}")


def thread_model():
    return nbdkit.THREAD_MODEL_PARALLEL


def open(_readonly):
    return Handle()


def close(h):
    with closing(h):
        pass


def get_size(_h):
    return cfg.size


def can_multi_conn(_h):
    return True


def pieces(offset, length):
    while length > 0:
        start = offset % cfg.block
        n = min(cfg.block - start, length)
        yield offset // cfg.block, start, n
        offset, length = offset + n, length - n


def pread(_h, buf, offset, _flags):
    to_read = buf
    for key, start, n in pieces(offset, len(buf)):
        to_read[:n] = store.get(key)[start : start + n]
        to_read = to_read[n:]


def pwrite(_h, buf, offset, _flags):
    for key, start, n in pieces(offset, len(buf)):
        data = bytearray(store.get(key))
        data[start : start + n] = buf[:n]
        store.put(key, bytes(data))
        buf = buf[n:]


def flush(_h, _flags):
    pass
