# SPDX-License-Identifier: BSD-3-Clause
"""An uploader of API version 1: one object as handle, dump_plugin, atexit."""

import atexit
import builtins
import json
import sys

params = {}


def dump_plugin():
    print("upload=1")


def config(key, value):
    if key == "params":
        with builtins.open(value, "r") as fp:
            params.update(json.load(fp))
    else:
        raise RuntimeError("unknown configuration key '%s'" % key)


def debug(message):
    if params.get("verbose"):
        print(message)
        sys.stdout.flush()


def open(readonly):
    h = {"failed": False, "disk": bytearray(1 << 20), "canflush": True}
    atexit.register(lambda: debug("at exit"))
    return h


def get_size(h):
    return len(h["disk"])


def can_trim(h):
    return False


def can_flush(h):
    return h["canflush"]


def pread(h, count, offset):
    return h["disk"][offset : offset + count]


def pwrite(h, buf, offset):
    count = len(buf)
    h["disk"][offset : offset + count] = buf


def zero(h, count, offset, may_trim):
    h["disk"][offset : offset + count] = b"\0" * count


def flush(h):
    debug("flush")


def close(h):
    if h["failed"]:
        raise RuntimeError("the upload failed")
