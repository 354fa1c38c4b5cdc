# SPDX-License-Identifier: BSD-3-Clause
"""Blocks in SQLite, with a connection that belongs to the thread that made it."""

import sqlite3

API_VERSION = 2
BLOCK, COUNT = 4096, 256


def open(readonly):
    h = sqlite3.connect(":memory:")
    h.execute("CREATE TABLE disk (block INTEGER PRIMARY KEY, data BLOB)")
    return h


def close(h):
    h.close()


def get_size(h):
    return BLOCK * COUNT


def get(h, block):
    row = h.execute("SELECT data FROM disk WHERE block = ?", (block,)).fetchone()
    return row[0] if row else bytes(BLOCK)


def pread(h, buf, offset, flags):
    first = offset // BLOCK
    last = (offset + len(buf) - 1) // BLOCK
    data = b"".join(get(h, block) for block in range(first, last + 1))
    start = offset - first * BLOCK
    buf[:] = data[start : start + len(buf)]


def pwrite(h, buf, offset, flags):
    while len(buf) > 0:
        block, start = divmod(offset, BLOCK)
        n = min(BLOCK - start, len(buf))
        data = bytearray(get(h, block))
        data[start : start + n] = buf[:n]
        h.execute("REPLACE INTO disk VALUES (?, ?)", (block, data))
        buf = buf[n:]
        offset += n


def flush(h, flags):
    h.commit()
