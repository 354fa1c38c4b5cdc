# SPDX-License-Identifier: BSD-3-Clause
"""A file that is made, opened by the builtin under another name, and sought in."""

import os
import tempfile

API_VERSION = 2
builtin_open = open

path = None


def config(key, value):
    global path
    if key == "path":
        path = os.path.abspath(value)
    else:
        raise RuntimeError("unknown parameter: " + key)


def config_complete():
    global path
    if path is None:
        fd, path = tempfile.mkstemp()
        os.ftruncate(fd, 1 << 20)
        os.close(fd)


def open(readonly):
    return {"f": builtin_open(path, "rb" if readonly else "r+b")}


def get_size(h):
    return os.stat(path).st_size


def pread(h, buf, offset, flags):
    h["f"].seek(offset)
    if h["f"].readinto(buf) != len(buf):
        raise IOError("short read")


def pwrite(h, buf, offset, flags):
    h["f"].seek(offset)
    h["f"].write(buf)


def flush(h, flags):
    h["f"].flush()
    os.fsync(h["f"].fileno())


def close(h):
    h["f"].close()


def cleanup():
    os.unlink(path)
