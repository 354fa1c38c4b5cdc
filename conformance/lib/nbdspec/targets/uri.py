# SPDX-License-Identifier: BSD-3-Clause
"""A server that is running already, and that belongs to somebody."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from ..errors import KitError, UsageError
from ..mode import Mode
from .base import CannotDo, Options, Server, Target

SCHEMES = ("nbd", "nbds", "nbd+unix", "nbds+unix")


class Address:
    """Where an NBD URI leads to (URI-04, URI-13, URI-15)."""

    def __init__(self, uri: str) -> None:
        try:
            parts = urlsplit(uri)
        except ValueError as error:
            raise UsageError(f"URI {uri}: {error}") from None
        if parts.scheme not in SCHEMES:
            raise UsageError(f"URI {uri}: expected one of " + ", ".join(SCHEMES))
        query = parse_qs(parts.query.replace("+", "%2B"))  # which is no blank here
        self.tls = parts.scheme.startswith("nbds")
        self.verify = query.get("tls-verify-peer", ["1"]) != ["0"]
        self.export = unquote(parts.path[1:])
        self.unix: Path | None = None
        self.tcp: tuple[str, int] | None = None
        if parts.scheme.endswith("+unix"):
            where = query.get("socket")
            if not where:
                raise UsageError(f"URI {uri}: expected socket=PATH")
            self.unix = Path(where[0])
        else:
            try:
                port = parts.port or 10809
            except ValueError as error:
                raise UsageError(f"URI {uri}: {error}") from None
            self.tcp = (parts.hostname or "localhost", port)


class UriTarget(Target):
    name = "uri"
    disposable = False

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._address = Address(options.uri)

    @property
    def label(self) -> str:
        return self.options.uri

    def version(self) -> str:
        return "?"

    def start(self, mode: Mode) -> Server:
        wanted = mode.but(private=False)
        if not wanted.default:
            raise CannotDo(f"a running server is as it is; wanted: {mode.describe()}")
        where = self._address
        server = Server(
            mode, None, unix=where.unix, tcp=where.tcp, export=where.export
        )
        if where.tls:
            server.always_tls = server.tls = _context(where.verify)
        try:
            server.socket().close()
        except OSError as error:
            raise KitError(f"{self.options.uri}: {error.strerror or error}") from None
        return server


def _context(verify: bool) -> ssl.SSLContext:
    """The system's authorities vouch for the server, unless that is not wanted."""
    context = ssl.create_default_context()
    # The name is the host's; what is checked here is who signed the certificate.
    context.check_hostname = False
    if not verify:
        context.verify_mode = ssl.CERT_NONE
    return context
