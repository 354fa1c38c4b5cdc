# SPDX-License-Identifier: BSD-3-Clause
"""Throws every write away, and shows what a write costs before it does so.

The plugin of a mailing-list thread of November 2019: whatever is written goes
on to /dev/zero, without a copy when the server hands over a memoryview.

    nbdspecd -f -v python zero.py
    qemu-img convert -p -f raw -O raw -n disk.img nbd://localhost/

Lessons: this is API version 1, which is what a script without API_VERSION gets;
a callback named open hides the builtin, which is reached through its module;
pread must exist even in a plugin that cannot read.
"""

import builtins
from typing import BinaryIO


def open(readonly: bool) -> BinaryIO:
    return builtins.open("/dev/zero", "r+b")


def get_size(h: BinaryIO) -> int:
    return 1024**3


def pread(h: BinaryIO, count: int, offset: int) -> bytes:
    raise NotImplementedError("zero.py is for writing only")


def pwrite(h: BinaryIO, buf: memoryview, offset: int) -> None:
    h.write(buf)


def close(h: BinaryIO) -> None:
    h.close()
