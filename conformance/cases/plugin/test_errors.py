# SPDX-License-Identifier: BSD-3-Clause
"""Exceptions and results that are no good: what the client is told of them."""

from __future__ import annotations

import errno

import pytest

from nbdspec import nbd
from nbdspec.case import SHOULD, case
from nbdspec.nbd import EIO

SECTION = "plugin.errors"


@case("plugin.pread-v1-types", req=["RES-01"])
@pytest.mark.parametrize(
    "expression",
    [
        "bytes(count)",
        "bytearray(count)",
        "memoryview(bytes(count))",
        "array.array('I', bytes(count))",
        "bytes(count + 1)",
    ],
)
def test_pread_v1_types(plugin, expression):
    """By version 1 pread may return anything with the buffer interface."""
    host = plugin(f"""
        import array
        def pread(h, count, offset):
            return {expression}
        """)
    assert host.wire().read(512, 0) == bytes(512)


@case("plugin.pread-v1-wrong", req=["RES-02"])
@pytest.mark.parametrize(
    "expression",
    ["bytes(count - 1)", "b''", "None", "'x' * count", "count", "[0] * count"],
)
def test_pread_v1_wrong(plugin, expression):
    """What is too short or no buffer gives EIO, and the next READ is served."""
    host = plugin(f"""
        def pread(h, count, offset):
            if offset == 0:
                return {expression}
            return bytes(count)
        """)
    wire = host.wire()
    wire.expect_errno(wire.request(nbd.READ, 0, 512), EIO)
    assert wire.read(512, 512) == bytes(512)


@case("plugin.exception-is-eio", req=["FAIL-01", "FAIL-03"], level=SHOULD)
@pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
def test_exception_is_eio(plugin, version):
    """An exception without set_error gives EIO, and its traceback is logged."""
    head = "API_VERSION = 2" if version == 2 else ""
    host = plugin(f"""
        {head}
        def pwrite(*args):
            raise ValueError("the words of the exception")
        """)
    wire = host.wire()
    wire.expect_errno(wire.request(nbd.WRITE, 0, data=b"w" * 4096), EIO)
    wire.in_step()
    assert "the words of the exception" in host.log
    assert "in pwrite" in host.log, "no traceback in the log"


@case("plugin.set-error", req=["FAIL-02"])
@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("EPERM", nbd.EPERM),
        ("EROFS", nbd.EPERM),
        ("EIO", nbd.EIO),
        ("ENOMEM", nbd.ENOMEM),
        ("EINVAL", nbd.EINVAL),
        ("ENOSPC", nbd.ENOSPC),
        ("EDQUOT", nbd.ENOSPC),
        ("EFBIG", nbd.ENOSPC),
        ("ESHUTDOWN", nbd.ESHUTDOWN),
        ("ENOENT", nbd.EINVAL),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_set_error(plugin, name, sent):
    """nbdkit.set_error names the error that the client gets."""
    number = getattr(errno, name)
    host = plugin(f"""
        API_VERSION = 2
        def pread(h, buf, offset, flags):
            if offset == 0:
                nbdkit.set_error({number})
                raise RuntimeError("refused")
        """)
    wire = host.wire()
    wire.expect_errno(wire.request(nbd.READ, 0, 512), sent)
    assert wire.read(512, 512) == bytes(512)
