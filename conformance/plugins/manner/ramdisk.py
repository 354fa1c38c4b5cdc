# SPDX-License-Identifier: BSD-3-Clause
"""A disk in a bytearray, global; the first plugin that everybody writes."""

import nbdkit

API_VERSION = 2

disk = bytearray(1024 * 1024)


def open(readonly):
    nbdkit.debug("open: readonly=%d" % readonly)
    return 1


def get_size(h):
    return len(disk)


def pread(h, buf, offset, flags):
    end = offset + len(buf)
    buf[:] = disk[offset:end]


def pwrite(h, buf, offset, flags):
    end = offset + len(buf)
    disk[offset:end] = buf


def zero(h, count, offset, flags):
    if flags & nbdkit.FLAG_MAY_TRIM:
        disk[offset : offset + count] = bytearray(count)
    else:
        nbdkit.set_error(95)  # EOPNOTSUPP
        raise Exception
