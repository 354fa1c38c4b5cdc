# SPDX-License-Identifier: BSD-3-Clause
"""What both clients can say, in the same words: the raw wire and libnbd."""

from __future__ import annotations

import abc
import contextlib
from typing import Iterator, Mapping

from . import nbd
from .verdict import Breach, Finding, Level
from .wire import Wire

Extents = dict[str, list[tuple[int, int]]]


class Refused(Breach):
    """The server answered a command with an error."""

    def __init__(self, what: str, error: int) -> None:
        super().__init__(f"success for {what}", nbd.error_name(error))
        self.error = error


class Client(abc.ABC):
    """A connection in transmission. Commands either succeed or raise Refused."""

    name = ""
    size = 0
    flags = 0
    minimum = 1
    maximum = nbd.DEFAULT_MAXIMUM

    def __init__(self, findings: list[Finding]) -> None:
        self._findings = findings

    @property
    def block(self) -> int:
        """A length that is served, at its multiples, whatever the minimum is."""
        return max(512, self.minimum)

    @abc.abstractmethod
    def pread(self, length: int, offset: int, flags: int = 0) -> bytes: ...

    @abc.abstractmethod
    def pwrite(self, data: bytes, offset: int, flags: int = 0) -> None: ...

    @abc.abstractmethod
    def flush(self) -> None: ...

    @abc.abstractmethod
    def trim(self, length: int, offset: int, flags: int = 0) -> None: ...

    @abc.abstractmethod
    def zero(self, length: int, offset: int, flags: int = 0) -> None: ...

    @abc.abstractmethod
    def cache(self, length: int, offset: int, flags: int = 0) -> None: ...

    @abc.abstractmethod
    def block_status(self, length: int, offset: int, flags: int = 0) -> Extents: ...

    @abc.abstractmethod
    def close(self) -> None: ...

    @contextlib.contextmanager
    def refuses(
        self, error: int, *, also: Mapping[int, Level] | None = None
    ) -> Iterator[None]:
        """What is done inside has to be refused with this error.

        `also`: other errors, and what they would break, as in Wire.expect_errno.
        """
        others = dict(also or {})
        try:
            yield
        except Refused as refused:
            if refused.error in others:
                level = others[refused.error]
                if level is not Level.MUST:
                    text = (
                        f"{nbd.error_name(refused.error)} came where "
                        f"{nbd.error_name(error)} is the fitting error"
                    )
                    self._findings.append(Finding(level, text))
            elif refused.error != error:
                names = (nbd.error_name(e) for e in (error, *others))
                raise Breach(" or ".join(names), refused.came) from None
            return
        raise Breach(nbd.error_name(error), "success")

    def in_step(self) -> None:
        """Proves that the stream is in step: one more round trip that makes sense."""
        if self.size >= self.minimum:
            self.pread(self.minimum, 0)


class WireClient(Client):
    name = "wire"

    def __init__(self, wire: Wire, findings: list[Finding]) -> None:
        super().__init__(findings)
        self.wire = wire
        self.size = wire.export.size
        self.flags = wire.export.flags
        self.minimum = wire.export.minimum
        self.maximum = wire.export.maximum

    def _run(self, command: int, length: int, offset: int, flags: int, data=b""):
        wire = self.wire
        cookie = wire.request(command, offset, length, flags=flags, data=data)
        asked = wire.pending[cookie]
        wire.conn.expect(f"the reply to {asked}", f"67446698 ........ {cookie:016x}")
        reply = wire.wait(cookie)
        if reply.error:
            raise Refused(str(asked), reply.error)
        return reply

    def pread(self, length: int, offset: int, flags: int = 0) -> bytes:
        return bytes(self._run(nbd.READ, length, offset, flags).data)

    def pwrite(self, data: bytes, offset: int, flags: int = 0) -> None:
        self._run(nbd.WRITE, len(data), offset, flags, data)

    def flush(self) -> None:
        self._run(nbd.FLUSH, 0, 0, 0)

    def trim(self, length: int, offset: int, flags: int = 0) -> None:
        self._run(nbd.TRIM, length, offset, flags)

    def zero(self, length: int, offset: int, flags: int = 0) -> None:
        self._run(nbd.WRITE_ZEROES, length, offset, flags)

    def cache(self, length: int, offset: int, flags: int = 0) -> None:
        self._run(nbd.CACHE, length, offset, flags)

    def block_status(self, length: int, offset: int, flags: int = 0) -> Extents:
        reply = self._run(nbd.BLOCK_STATUS, length, offset, flags)
        return {self.wire.contexts[i]: list(e) for i, e in reply.extents.items()}

    def close(self) -> None:
        self.wire.leave()
