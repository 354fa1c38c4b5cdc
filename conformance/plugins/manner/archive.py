# SPDX-License-Identifier: BSD-3-Clause
"""Something computed, read only: a member of an archive made in memory."""

import io
import zipfile

import nbdkit

API_VERSION = 2
SIZE = 1 << 20


def get_ready():
    global content
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("disk.img", bytes(SIZE))
    with zipfile.ZipFile(archive) as z:
        content = z.read("disk.img")
    nbdkit.debug("member of %d bytes" % len(content))


def open(readonly):
    return io.BytesIO(content)


def get_size(h):
    return h.getbuffer().nbytes


def can_write(h):
    return False


def can_multi_conn(h):
    return True


def pread(h, buf, offset, flags):
    h.seek(offset)
    h.readinto(buf)
