# SPDX-License-Identifier: BSD-3-Clause
"""A disk for each export name, with logging and a class as handle."""

import collections
import logging
import sys

import nbdkit

API_VERSION = 2
logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
log = logging.getLogger("exports")

disks = collections.defaultdict(lambda: bytearray(1 << 20))


class Connection:
    def __init__(self, readonly):
        self.name = nbdkit.export_name()
        self.disk = disks[self.name]
        log.info("open %s readonly=%s", self.name, readonly)


def list_exports(readonly, is_tls):
    return [("one", "the first"), "two"]


def default_export(readonly, is_tls):
    return "one"


def export_description(h):
    return f"disk {h.name}"


open = Connection


def get_size(h):
    return len(h.disk)


def pread(h, buf, offset, flags):
    buf[:] = h.disk[offset : offset + len(buf)]


def pwrite(h, buf, offset, flags):
    h.disk[offset : offset + len(buf)] = buf
