# SPDX-License-Identifier: BSD-3-Clause
"""What pwrite and pread are handed: type, properties, content."""

from __future__ import annotations

import pytest

from nbdspec.case import case
from nbdspec.nbd import EIO
from nbdspec.payloads import pattern

SECTION = "plugin.buffers"

both = pytest.mark.parametrize("api", [1, 2], ids=["v1", "v2"])

PWRITE = """
def pwrite(h, buf, offset, *flags):
    pass
"""


@case("plugin.buffers.pwrite-memoryview", req=["PY-BUF-01", "PY-BUF-02", "PY-BUF-03"])
@both
def test_pwrite_memoryview(hosts, api):
    """pwrite is handed a read-only memoryview of bytes."""
    plugin = hosts.load(PWRITE, api=api)
    data = pattern(0, 4096)
    plugin.client().pwrite(data, 0)
    buf = plugin.calls("pwrite")[0].args[1]
    assert buf["type"] == "memoryview", f"the buffer is a {buf['type']}"
    assert buf["readonly"] is True, "the buffer can be written to"
    assert (buf["format"], buf["itemsize"], buf["ndim"]) == ("B", 1, 1)
    assert buf["strides"] == [1] and buf["contiguous"]
