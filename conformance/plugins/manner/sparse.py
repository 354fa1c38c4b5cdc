# SPDX-License-Identifier: BSD-3-Clause
"""Says what is hole and what is data; trim, zero, cache, FUA and fast zero."""

import nbdkit

API_VERSION = 2
BLOCK, SIZE = 4096, 1 << 20
blocks: dict = {}


def open(readonly):
    return None


def get_size(h):
    return SIZE


def can_fua(h):
    return nbdkit.FUA_NATIVE


def can_cache(h):
    return nbdkit.CACHE_EMULATE


def can_fast_zero(h):
    return True


def is_rotational(h):
    return False


def spread(offset, count):
    end = offset + count
    while offset < end:
        block, start = divmod(offset, BLOCK)
        n = min(BLOCK - start, end - offset)
        yield block, start, n
        offset += n


def pread(h, buf, offset, flags):
    at = 0
    for block, start, n in spread(offset, len(buf)):
        data = blocks.get(block)
        buf[at : at + n] = data[start : start + n] if data else bytes(n)
        at += n


def pwrite(h, buf, offset, flags):
    at = 0
    for block, start, n in spread(offset, len(buf)):
        blocks.setdefault(block, bytearray(BLOCK))[start : start + n] = buf[at : at + n]
        at += n


def zero(h, count, offset, flags):
    for block, start, n in spread(offset, count):
        if n == BLOCK:
            blocks.pop(block, None)
        elif block in blocks:
            blocks[block][start : start + n] = bytes(n)


def trim(h, count, offset, flags):
    zero(h, count, offset, flags)


def flush(h, flags):
    pass


def extents(h, count, offset, flags):
    hole = nbdkit.EXTENT_HOLE | nbdkit.EXTENT_ZERO
    for block, _, _ in spread(offset - offset % BLOCK, count + offset % BLOCK):
        yield block * BLOCK, BLOCK, 0 if block in blocks else hole
