# SPDX-License-Identifier: BSD-3-Clause
"""Uploads to an imageio daemon over HTTP, as virt-v2v does to oVirt.

    nbdspecd -t 8 python upload.py url=https://host:54322/images/TICKET size=6G

or url=http+unix://%2FSOCKET/images/TICKET; cafile=FILE, insecure=yes (trust any
certificate), local=yes (through the Unix socket that the daemon names), connections=4,
timeout=60. The pool of connections is regress/imageio/client.py.

Lessons: PARALLEL pays where each request waits for somebody else; http.client
sends the memoryview itself, no copy is made; what the daemon cannot do is not
offered (flush, FUA) or left to the server (can_zero); one flush covers all that
was acknowledged on any connection, and only therefore can_multi_conn is true.
"""

import os
import sys
from urllib.parse import urlsplit

import nbdkit

_here = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(_here), "regress"))
from imageio.client import Client  # noqa: E402

API_VERSION = 2

settings = dict(url="", size="", cafile="", insecure="no", local="no")
settings |= dict(connections="4", timeout="60")


def config(key: str, value: str) -> None:
    if key not in settings:
        raise ValueError(f"unknown parameter {key!r}: expected {', '.join(settings)}")
    if key in ("insecure", "local") and value not in ("yes", "no"):
        raise ValueError(f"{key}={value}: expected yes or no")
    if key in ("connections", "timeout") and not (value.isdecimal() and int(value)):
        raise ValueError(f"{key}={value}: expected a number from 1")
    settings[key] = os.path.realpath(value) if key == "cafile" else value


def config_complete() -> None:
    url = urlsplit(settings["url"])
    schemes = ("http", "https", "http+unix")
    if url.scheme not in schemes or not url.hostname or len(url.path) < 2:
        raise ValueError(f"url={settings['url']}: expected http[s]://HOST[:PORT]/PATH")
    if not settings["size"] or nbdkit.parse_size(settings["size"]) == 0:
        raise ValueError("size= is missing or 0: expected the image's size, as in 6G")


def thread_model() -> int:
    return nbdkit.THREAD_MODEL_PARALLEL


def after_fork() -> None:
    global client
    yes = {key: settings[key] == "yes" for key in ("insecure", "local")}
    number = {key: int(settings[key]) for key in ("connections", "timeout")}
    client = Client(settings["url"], cafile=settings["cafile"] or None, **number, **yes)


def cleanup() -> None:
    client.close()


def open(readonly: bool) -> Client:
    return client


def get_size(h: Client) -> int:
    return nbdkit.parse_size(settings["size"])


def can_multi_conn(h: Client) -> bool:
    return True


def can_flush(h: Client) -> bool:
    return "flush" in h.features


def can_fua(h: Client) -> int:
    return nbdkit.FUA_NATIVE if can_flush(h) else nbdkit.FUA_NONE


def can_zero(h: Client) -> bool:
    return "zero" in h.features


def pread(h: Client, buf: memoryview, offset: int, flags: int) -> None:
    h.read(buf, offset)


def pwrite(h: Client, buf: memoryview, offset: int, flags: int) -> None:
    h.write(buf, offset, bool(flags & nbdkit.FLAG_FUA))


def zero(h: Client, count: int, offset: int, flags: int) -> None:
    h.zero(count, offset, bool(flags & nbdkit.FLAG_FUA))


def flush(h: Client, flags: int) -> None:
    h.flush()
