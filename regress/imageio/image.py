# SPDX-License-Identifier: BSD-3-Clause
"""One connection's way to an image: a file, a buffer, and the phases it takes."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator

from .clock import Clock
from .protocol import Request
from .tickets import Ticket

BUFFER = 1 << 20
ZERO_STEP = 128 << 20
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16  # of fallocate(2)

_libc = ctypes.CDLL(None, use_errno=True)
_fallocate = getattr(_libc, "fallocate64", _libc.fallocate)
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class Image:
    def __init__(self, ticket: Ticket, clock: Clock) -> None:
        self.ticket, self.clock = ticket, clock
        access = os.O_RDWR if ticket.may_write else os.O_RDONLY
        self._fd = os.open(ticket.path, access | os.O_CLOEXEC)
        self._buffer = memoryview(bytearray(BUFFER))

    def close(self) -> None:
        os.close(self._fd)

    @property
    def size(self) -> int:
        """What can be read: no more than the ticket's size."""
        return min(self.ticket.size, os.fstat(self._fd).st_size)

    def write(
        self, request: Request, offset: int, arrived: Callable[[int], None] | None
    ) -> int:
        """The request's body into the image, piece by piece; how many bytes.

        `arrived` is told of each piece, and may take its time.
        """
        read, write = self.clock.phase("write.read"), self.clock.phase("write.write")
        total = 0
        while request.unread:
            with read:
                read.size = size = request.read_into(self._buffer)
            if arrived is not None:
                arrived(size)
            self.ticket.check("write")  # it can be canceled meanwhile
            with write:
                self._write_all(self._buffer[:size], offset + total)
                write.size = size
            total += size
        return total

    def _write_all(self, data: memoryview, offset: int) -> None:
        while data:
            done = os.pwrite(self._fd, data, offset)
            data, offset = data[done:], offset + done

    def read(self, offset: int, length: int) -> Iterator[memoryview]:
        phase = self.clock.phase("read.read")
        while length:
            with phase:
                view = self._buffer[: min(length, BUFFER)]
                done = os.preadv(self._fd, [view], offset)
                if done == 0:
                    raise OSError(errno.EIO, "the image has shrunk")
                phase.size = done
            yield view[:done]
            offset, length = offset + done, length - done

    def zero(self, offset: int, length: int) -> None:
        while length:
            step = min(length, ZERO_STEP)
            self.ticket.check("write")
            with self.clock.phase("zero.zero") as phase:
                self._zero(offset, step)
                phase.size = step
            offset, length = offset + step, length - step

    def _zero(self, offset: int, length: int) -> None:
        if os.fstat(self._fd).st_size < offset + length:
            os.ftruncate(self._fd, offset + length)
        how = (PUNCH_HOLE if self.ticket.sparse else ZERO_RANGE) | KEEP_SIZE
        if _fallocate(self._fd, how, offset, length) == 0:
            return
        error = ctypes.get_errno()
        if error not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise OSError(error, os.strerror(error))
        zeroes = memoryview(bytes(min(length, BUFFER)))
        while length:
            step = min(length, BUFFER)
            self._write_all(zeroes[:step], offset)
            offset, length = offset + step, length - step

    def flush(self, phase: str | None = None) -> None:
        """Everything acknowledged on any connection is on the disk after this."""
        if phase is None:
            os.fdatasync(self._fd)
            return
        with self.clock.phase(phase):
            os.fdatasync(self._fd)

    def extents(self) -> list[dict[str, object]]:
        """Data and holes, alternating."""
        answer: list[dict[str, object]] = []
        start, size = 0, self.size
        while start < size:
            try:
                data = min(os.lseek(self._fd, start, os.SEEK_DATA), size)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                data = size  # nothing but a hole follows
            if data > start:
                answer.append(_extent(start, data - start, True))
            if data < size:
                start = min(os.lseek(self._fd, data, os.SEEK_HOLE), size)
                answer.append(_extent(data, start - data, False))
            else:
                start = size
        return answer


def _extent(start: int, length: int, hole: bool) -> dict[str, object]:
    return {"start": start, "length": length, "zero": hole, "hole": hole}
