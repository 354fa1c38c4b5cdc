# SPDX-License-Identifier: BSD-3-Clause
"""The second client: libnbd, which says what real users say."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

from . import nbd as proto
from .client import Client, Extents, Refused
from .clock import weight
from .relay import Relay
from .targets.base import Server
from .transcript import Transcript
from .verdict import Breach, Closed, Finding, Hang, NotApplicable, may_write

try:
    import nbd as libnbd
except ImportError:
    libnbd = None  # the raw wire does without


def available() -> bool:
    return libnbd is not None


def handle(server: Server, contexts: tuple[str, ...] = ()):
    """A libnbd handle, not connected, that lets bad requests through."""
    if libnbd is None:
        raise NotApplicable("libnbd's Python module is not installed")
    h = libnbd.NBD()
    h.set_strict_mode(0)
    h.set_export_name(server.export)
    if server.always_tls is not None:
        h.set_tls(libnbd.TLS_REQUIRE)
        h.set_tls_verify_peer(server.always_tls.verify_mode == ssl.CERT_REQUIRED)
    for context in contexts:
        h.add_meta_context(context)
    return h


def connect(h, server: Server) -> None:
    if server.unix is not None:
        h.connect_unix(str(server.unix))
    else:
        assert server.tcp is not None
        h.connect_tcp(server.tcp[0], str(server.tcp[1]))


class LibnbdClient(Client):
    name = "libnbd"

    def __init__(
        self,
        server: Server,
        transcript: Transcript,
        findings: list[Finding],
        contexts: tuple[str, ...] = (),
        key: tuple[str, Path] | None = None,
    ) -> None:
        """key: a name and the file with its pre-shared key, for TLS."""
        super().__init__(findings)
        self.h = handle(server, contexts)
        if key is not None:
            self.h.set_tls(libnbd.TLS_REQUIRE)
            self.h.set_tls_username(key[0])
            self.h.set_tls_psk_file(str(key[1]))
        self._transcript = transcript
        self._clock = server.clock
        self._conn = transcript.connection()
        self._relay = Relay(server.socket(), server.clock.limit)
        self._relay.start()
        try:
            self.h.connect_socket(self._relay.client.detach())
        except libnbd.Error as error:
            self._tell()
            if self._relay.hung:
                raise Hang("libnbd to connect", "nothing") from None
            raise Breach("libnbd to connect", str(error)) from None
        self._relay.owed = None
        self._may_write = server.may_write
        self.size = self.h.get_size()
        self.flags = self._flags()
        sizes = (
            self.h.get_block_size(libnbd.SIZE_MINIMUM),
            self.h.get_block_size(libnbd.SIZE_MAXIMUM),
        )
        self.minimum = sizes[0] or 1
        self.maximum = sizes[1] or proto.DEFAULT_MAXIMUM

    def _tell(self) -> None:
        """What passed goes into the transcript: when something is wrong with it."""
        self._relay.tell(self._transcript, self._conn)

    def _flags(self) -> int:
        """Transmission flags, put together from what libnbd tells of them."""
        h = self.h
        asked = {
            proto.READ_ONLY: h.is_read_only,
            proto.SEND_FLUSH: h.can_flush,
            proto.SEND_FUA: h.can_fua,
            proto.ROTATIONAL: h.is_rotational,
            proto.SEND_TRIM: h.can_trim,
            proto.SEND_WRITE_ZEROES: h.can_zero,
            proto.SEND_DF: h.can_df,
            proto.CAN_MULTI_CONN: h.can_multi_conn,
            proto.SEND_CACHE: h.can_cache,
            proto.SEND_FAST_ZERO: h.can_fast_zero,
        }
        return proto.HAS_FLAGS | sum(flag for flag, ask in asked.items() if ask())

    def _run(self, words: str, function, *args, due: int = 0):
        self._relay.limit = self._clock.limit_for(due)
        self._relay.owed = time.monotonic()
        try:
            return function(*args)
        except libnbd.Error as error:
            if self._relay.hung:
                raise Hang(f"an answer to {words}", "nothing") from None
            if error.errnum is None or self.h.aio_is_dead():
                raise Closed(f"an answer to {words}", str(error)) from None
            raise Refused(words, error.errnum) from None
        finally:
            self._relay.owed = None

    def pread(self, length: int, offset: int, flags: int = 0) -> bytes:
        words = f"h.pread({length}, {offset}, {flags})"
        due = weight(proto.READ, length)
        return bytes(self._run(words, self.h.pread, length, offset, flags, due=due))

    def pwrite(self, data: bytes, offset: int, flags: int = 0) -> None:
        may_write(self._may_write)
        words = f"h.pwrite({len(data)} bytes, {offset}, {flags})"
        due = weight(proto.WRITE, len(data))
        self._run(words, self.h.pwrite, data, offset, flags, due=due)

    def flush(self) -> None:
        self._run("h.flush()", self.h.flush)

    def trim(self, length: int, offset: int, flags: int = 0) -> None:
        self._ranged(proto.TRIM, self.h.trim, length, offset, flags)

    def zero(self, length: int, offset: int, flags: int = 0) -> None:
        self._ranged(proto.WRITE_ZEROES, self.h.zero, length, offset, flags)

    def cache(self, length: int, offset: int, flags: int = 0) -> None:
        self._ranged(proto.CACHE, self.h.cache, length, offset, flags)

    def _ranged(self, command: int, method, length: int, offset: int, flags: int):
        """A command that names a range, and carries no data either way."""
        if command in proto.WRITING:
            may_write(self._may_write)
        words = f"h.{method.__name__}({length}, {offset}, {flags})"
        due = weight(command, length)
        self._run(words, method, length, offset, flags, due=due)

    def block_status(self, length: int, offset: int, flags: int = 0) -> Extents:
        found: Extents = {}

        def extent(context: str, _offset: int, flat: list[int], _error: int) -> None:
            found[context] = list(zip(flat[::2], flat[1::2]))

        words = f"h.block_status({length}, {offset}, {flags})"
        due = weight(proto.BLOCK_STATUS, length)
        self._run(words, self.h.block_status, length, offset, extent, flags, due=due)
        return found

    def close(self) -> None:
        if self.h.aio_is_ready():
            self.h.shutdown()
        self._tell()
        self._relay.join(self._clock.limit)
