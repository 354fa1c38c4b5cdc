# SPDX-License-Identifier: BSD-3-Clause
"""The same in API version 1, without the module nbdkit."""

disk = bytearray(1024 * 1024)


def open(readonly):
    return 1


def get_size(h):
    global disk
    return len(disk)


def pread(h, count, offset):
    global disk
    return disk[offset : offset + count]


def pwrite(h, buf, offset):
    global disk
    end = offset + len(buf)
    disk[offset:end] = buf


def zero(h, count, offset, may_trim=False):
    global disk
    disk[offset : offset + count] = bytearray(count)
