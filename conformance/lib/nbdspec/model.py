# SPDX-License-Identifier: BSD-3-Clause
"""An executable model of the plugin contract: what a plugin makes a host do.

A Spec says which callbacks a plugin has and what they return or raise. From it the
model tells the plugin's source, what the host advertises, which callbacks it calls
and what it answers. It knows nothing of any host.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

from . import nbd

#: What a callback does in place of returning something.
RAISE = "raise"
#: A data callback that raises after nbdkit.set_error with this number: ("error", n).
Behaviour = object

DATA = ("pread", "pwrite", "flush", "trim", "zero", "cache", "extents")
#: may_trim of zero counts as this flag.
FLAG_MAY_TRIM, FLAG_FUA, FLAG_REQ_ONE, FLAG_FAST_ZERO = 1, 2, 4, 8
NONE, EMULATE, NATIVE = 0, 1, 2

_WIRE = {
    errno.EPERM: nbd.EPERM,
    errno.EROFS: nbd.EPERM,
    errno.EIO: nbd.EIO,
    0: nbd.EIO,
    errno.ENOMEM: nbd.ENOMEM,
    errno.ENOSPC: nbd.ENOSPC,
    errno.EFBIG: nbd.ENOSPC,
    errno.EDQUOT: nbd.ENOSPC,
    errno.ESHUTDOWN: nbd.ESHUTDOWN,
}


def wire_error(number: int, *, fast: bool = False, df: bool = False) -> int:
    """The error on the wire for an errno value of nbdkit.set_error."""
    if number == errno.EOPNOTSUPP and fast:
        return nbd.ENOTSUP
    if number == errno.EOVERFLOW and df:
        return nbd.EOVERFLOW
    return _WIRE.get(number, nbd.EINVAL)


class Refused(Exception):
    """The export is not served."""


@dataclass
class Spec:
    """A plugin: callbacks by name, and what each does."""

    api: int = 2
    size: object = 1 << 20
    #: can_NAME and is_rotational: a result or RAISE; not there: no such function
    asks: dict[str, object] = field(default_factory=dict)
    #: data callbacks: None succeeds, RAISE, or ("error", number)
    data: dict[str, object] = field(default_factory=dict)

    def source(self) -> str:
        """The plugin's source; open, close and pread are there in any case."""
        lines = [f"def get_size(h): {_body(self.size)}"]
        lines += [f"def {n}(h): {_body(v)}" for n, v in self.asks.items()]
        for name, does in self.data.items():
            lines.append(f"def {name}(h, *args):")
            lines += [f"    {line}" for line in self._data_body(name, does)]
        return "\n".join(lines) + "\n"

    def _data_body(self, name: str, does: object) -> list[str]:
        if does == RAISE:
            return ["raise RuntimeError('by request')"]
        if isinstance(does, tuple):
            return [f"nbdkit.set_error({does[1]})", "raise RuntimeError('by request')"]
        if name == "extents":
            return ["return [(args[1], args[0], 3)]"]
        if name == "pread" and self.api == 1:
            return ["return bytes(args[0])"]
        return ["pass"]


def _body(result: object) -> str:
    if result == RAISE:
        return "raise RuntimeError('by request')"
    return f"return {result!r}"


@dataclass
class Answer:
    """What a request brings."""

    error: int
    #: (name, count, offset, flags); None where a function has no such argument
    calls: list[tuple] = field(default_factory=list)
    fast: bool = False


class Model:
    """The host's side of one connection to a plugin."""

    def __init__(self, spec: Spec, readonly: bool = False) -> None:
        self.spec = spec
        self.asked: list[str] = []
        self.size = self._get_size()
        self.writable = not readonly and self._ask("can_write", self._has("pwrite"))
        zero = fast = trim = False
        self.fua = NONE
        if self.writable:
            zero = self._ask("can_zero", self._has("zero"))
            fast = self._ask("can_fast_zero", not zero)
            trim = self._ask("can_trim", self._has("trim"))
            self.fua = self._level("can_fua", EMULATE if self._has("flush") else NONE)
        self.can_zero, self.fast, self.trim = zero, fast, trim
        self.flush = self._ask("can_flush", self._has("flush"))
        self.rotational = self._ask("is_rotational", False)
        self.multi_conn = self._ask("can_multi_conn", False)
        self.cache = self._level("can_cache", NATIVE if self._has("cache") else NONE)
        self.extents = self._ask("can_extents", self._has("extents"))
        if self.fua == NATIVE and spec.api == 1:
            # Functions of version 1 are not told: the host has to flush.
            self.fua = EMULATE if self._has("flush") else NONE

    # What is asked

    def _has(self, name: str) -> bool:
        return name in self.spec.data

    def _get_size(self) -> int:
        size = self.spec.size
        self.asked.append("get_size")
        if not isinstance(size, int) or not 0 <= size < 1 << 63:
            raise Refused("get_size")
        return int(size)

    def _result(self, name: str) -> object:
        self.asked.append(name)
        result = self.spec.asks[name]
        if result == RAISE:
            raise Refused(name)
        return result

    def _ask(self, name: str, default: bool) -> bool:
        if name not in self.spec.asks:
            return default
        return bool(self._result(name))

    def _level(self, name: str, default: int) -> int:
        if name not in self.spec.asks:
            return default
        result = self._result(name)
        if not isinstance(result, int) or result < 0:
            raise Refused(name)
        if result > NATIVE:
            return EMULATE if name == "can_fua" else NATIVE
        return int(result)

    # What is advertised

    @property
    def flags(self) -> int:
        """Transmission flags, without structured replies."""
        found = nbd.HAS_FLAGS
        pairs = {
            nbd.READ_ONLY: not self.writable,
            nbd.SEND_FLUSH: self.flush,
            nbd.SEND_FUA: self.fua != NONE,
            nbd.ROTATIONAL: self.rotational,
            nbd.SEND_TRIM: self.trim,
            nbd.SEND_WRITE_ZEROES: self.writable,
            nbd.CAN_MULTI_CONN: self.multi_conn,
            nbd.SEND_CACHE: self.cache != NONE,
            nbd.SEND_FAST_ZERO: self.writable and self.fast,
        }
        return found | sum(flag for flag, there in pairs.items() if there)

    # What is answered

    def request(self, command: int, offset: int, length: int, flags: int) -> Answer:
        refused = self._refusal(command, offset, length, flags)
        if refused:
            return Answer(refused)
        answer = Answer(0)
        fua = bool(flags & nbd.FUA)
        if command == nbd.READ:
            self._call(answer, "pread", length, offset, 0)
        elif command == nbd.FLUSH:
            self._call(answer, "flush", None, None, 0)
        elif command == nbd.CACHE:
            name = "cache" if self.cache == NATIVE else "pread"
            self._call(answer, name, length, offset, 0)
        elif command == nbd.BLOCK_STATUS:
            self._block_status(answer, length, offset, flags)
        elif command == nbd.WRITE_ZEROES:
            self._zero(answer, length, offset, flags)
        else:
            name = "pwrite" if command == nbd.WRITE else "trim"
            native = FLAG_FUA if fua and self.fua == NATIVE else 0
            self._call(answer, name, length, offset, native)
            self._flush_after(answer, fua)
        return answer

    def _refusal(self, command: int, offset: int, length: int, flags: int) -> int:
        """The error for what does not reach the plugin; 0: it does."""
        writes = (nbd.WRITE, nbd.TRIM, nbd.WRITE_ZEROES)
        if command in writes and not self.writable:
            return nbd.EPERM
        if command == nbd.FLUSH:
            if offset or length:
                return nbd.EINVAL
        elif length == 0 or offset > self.size or length > self.size - offset:
            full = command in (nbd.WRITE, nbd.WRITE_ZEROES)
            return nbd.ENOSPC if full else nbd.EINVAL
        if flags & nbd.FUA and self.fua == NONE:
            return nbd.EINVAL
        offered = {
            nbd.FLUSH: self.flush,
            nbd.TRIM: self.trim,
            nbd.CACHE: self.cache != NONE,
        }
        if not offered.get(command, True):
            return nbd.EINVAL
        if flags & nbd.FAST_ZERO and not self.fast:
            return nbd.EINVAL
        return 0

    def _call(
        self,
        answer: Answer,
        name: str,
        length: int | None,
        offset: int | None,
        flags: int,
        fast: bool = False,
    ) -> int | None:
        """Calls a data callback; the errno value that it set, None: it succeeded."""
        if not self._has(name) and name != "pread":
            answer.error = nbd.EIO
            return 0
        answer.calls.append((name, length, offset, flags))
        does = self.spec.data.get(name)
        if does is None:
            return None
        number = does[1] if isinstance(does, tuple) else 0
        answer.error = wire_error(number, fast=fast)
        return number

    def _flush_after(self, answer: Answer, fua: bool) -> None:
        if fua and self.fua == EMULATE and not answer.error:
            self._call(answer, "flush", None, None, 0)

    def _block_status(self, answer, length: int, offset: int, flags: int) -> None:
        # A claim without the function: all of it is data.
        if self.extents and self._has("extents"):
            one = FLAG_REQ_ONE if flags & nbd.REQ_ONE else 0
            self._call(answer, "extents", length, offset, one)

    def _zero(self, answer: Answer, length: int, offset: int, flags: int) -> None:
        fua, fast = bool(flags & nbd.FUA), bool(flags & nbd.FAST_ZERO)
        native = FLAG_FUA if fua and self.fua == NATIVE else 0
        if self.can_zero and self._has("zero"):
            told = native
            told |= 0 if flags & nbd.NO_HOLE else FLAG_MAY_TRIM
            if fast and self.spec.api == 2:
                told |= FLAG_FAST_ZERO
            number = self._call(answer, "zero", length, offset, told, fast)
            if number != errno.EOPNOTSUPP:
                self._flush_after(answer, fua)
                return
            answer.error = 0
        if fast:
            answer.error = nbd.ENOTSUP
            return
        self._call(answer, "pwrite", length, offset, native)
        self._flush_after(answer, fua)
