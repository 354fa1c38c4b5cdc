# SPDX-License-Identifier: BSD-3-Clause
"""The URI by which tools are sent to a server."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from nbdspec.mode import Mode
from nbdspec.targets.base import Server
from nbdspec.targets.uri import Address


@pytest.mark.parametrize("verify", [None, True, False])
@pytest.mark.parametrize("unix", [None, Path("/tmp/a+b &c=d%20#?")])
@pytest.mark.parametrize("export", ["", "disk", "a b/c?d#e%41&\u00fc"])
def test_uri_leads_to_the_same_place(
    export: str, unix: Path | None, verify: bool | None
) -> None:
    tcp = ("::1", 10810) if unix is None else None
    server = Server(Mode(), None, unix=unix, tcp=tcp, export=export)
    if verify is not None:
        server.always_tls = ssl.create_default_context()
        server.always_tls.check_hostname = False
        if not verify:
            server.always_tls.verify_mode = ssl.CERT_NONE
    found = Address(server.uri)
    assert (found.unix, found.tcp, found.export) == (unix, tcp, export)
    assert found.tls is (verify is not None)
    assert found.verify is (verify is not False)
