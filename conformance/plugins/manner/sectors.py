# SPDX-License-Identifier: BSD-3-Clause
"""Sectors of 520 bytes shown as 512, by struct and ctypes; a block size."""

import ctypes
import struct
import zlib

import nbdkit

API_VERSION = 2

PHYSICAL, LOGICAL, COUNT = 520, 512, 2048
raw = ctypes.create_string_buffer(PHYSICAL * COUNT)


def open(readonly):
    return 1


def get_size(h):
    return LOGICAL * COUNT


def block_size(h):
    return (LOGICAL, 4096, 0xFFFFFFFF)


def check(buf, offset):
    if offset % LOGICAL or len(buf) % LOGICAL:
        nbdkit.set_error(22)
        raise ValueError("not aligned")


def pread(h, buf, offset, flags):
    check(buf, offset)
    for i in range(len(buf) // LOGICAL):
        at = (offset // LOGICAL + i) * PHYSICAL
        data = raw[at : at + LOGICAL]
        (crc,) = struct.unpack_from("<Q", raw, at + LOGICAL)
        if crc and crc != zlib.crc32(data):
            raise IOError("bad sector")
        buf[i * LOGICAL : (i + 1) * LOGICAL] = data


def pwrite(h, buf, offset, flags):
    check(buf, offset)
    for i in range(len(buf) // LOGICAL):
        at = (offset // LOGICAL + i) * PHYSICAL
        data = bytes(buf[i * LOGICAL : (i + 1) * LOGICAL])
        raw[at : at + LOGICAL] = data
        struct.pack_into("<Q", raw, at + LOGICAL, zlib.crc32(data))
