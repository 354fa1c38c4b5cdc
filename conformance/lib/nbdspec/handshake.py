# SPDX-License-Identifier: BSD-3-Clause
"""The haggling phase on the raw wire."""

from __future__ import annotations

import ssl
import struct
from dataclasses import dataclass
from typing import Iterable, Mapping

from . import nbd
from .conn import Conn
from .payloads import go_payload, meta_payload, option, text
from .verdict import Breach, Finding, Level, NotApplicable

Name = str | bytes | None

#: A reply this long is garbage: nothing in haggling needs more.
_SANE = 1 << 20
_STRING_MAX = 4096


@dataclass
class OptionReply:
    option: int
    type: int
    data: bytes

    @property
    def is_error(self) -> bool:
        return bool(self.type & nbd.ERR_BIT)

    @property
    def final(self) -> bool:
        return self.type == nbd.ACK or self.is_error

    def __str__(self) -> str:
        return (
            f"option reply {nbd.option_name(self.option)} {nbd.reply_name(self.type)}"
            f"{_reply_words(self)}"
        )


@dataclass
class Export:
    """What INFO, GO or EXPORT_NAME said about an export."""

    size: int = 0
    flags: int = 0
    name: str | None = None
    description: str | None = None
    block_size: tuple[int, int, int] | None = None
    infos: tuple[int, ...] = ()

    @property
    def minimum(self) -> int:
        return self.block_size[0] if self.block_size else 1

    @property
    def block(self) -> int:
        """A length that is served, at its multiples, whatever the minimum is."""
        return max(512, self.minimum)

    @property
    def maximum(self) -> int:
        return self.block_size[2] if self.block_size else nbd.DEFAULT_MAXIMUM


class Handshake:
    """Options out, option replies in. Every reply is held against the format."""

    def __init__(self, conn: Conn, findings: list[Finding], name: str = "") -> None:
        self.conn = conn
        self.findings = findings
        #: the export that is meant where a case names none
        self.name = name
        self.handshake_flags = 0
        self.structured = False
        self.extended = False
        self.contexts: dict[int, str] = {}
        self.export = Export()
        self.phase = "connected"
        #: where a running server is reached by nbds: TLS comes behind the greeting
        self.always_tls: ssl.SSLContext | None = None
        #: False: the data is somebody's, and no case may write there
        self.may_write = True

    def _named(self, name: Name) -> str | bytes:
        return self.name if name is None else name

    def finding(self, level: Level, words: str, row: str | None = None) -> None:
        """Something that does not end the case."""
        if not any(f.text == words for f in self.findings):
            self.findings.append(Finding(level, words, row))

    # The greeting

    def greeting(self) -> int:
        """Reads the server's greeting; returns its handshake flags."""
        what = "the greeting: NBDMAGIC, IHAVEOPT, 16 bits of flags"
        self.conn.expect(what, "4e42444d41474943 49484156454f5054 ....")
        data = self.conn.read(18, what)
        magic, opts, flags = struct.unpack(">QQH", data)
        self.conn.done(f"greeting, handshake flags {flags:#x}", "greeting")
        if (magic, opts) != (nbd.NBDMAGIC, nbd.IHAVEOPT):
            raise Breach(what, data.hex(" "), row="HS-07")
        self.handshake_flags = flags
        return flags

    def client_flags(self, flags: int) -> None:
        self.conn.send(struct.pack(">I", flags), f"client flags {flags:#x}")
        self.phase = "haggling"

    def greet(self, flags: int | None = None) -> int:
        """Greeting and client flags; by default both flags, where offered."""
        with self.conn.timed():
            offered = self.greeting()
        self.client_flags(offered & 3 if flags is None else flags)
        if self.always_tls is not None:
            self.starttls(self.always_tls)
        return offered

    def starttls(self, context: ssl.SSLContext) -> None:
        """STARTTLS that has to succeed; what was agreed on before is forgotten."""
        self.option(nbd.STARTTLS)
        self.expect_reply(nbd.STARTTLS, nbd.ACK, row="TLS-11")
        self.structured = self.extended = False
        self.contexts = {}
        self.conn.start_tls(context, None)

    # Options

    def option(
        self,
        number: int,
        data: bytes = b"",
        *,
        length: int | None = None,
        magic: int = nbd.IHAVEOPT,
    ) -> None:
        """Sends an option; length, where given, is announced in place of the real."""
        words = f"option {nbd.option_name(number)}{option_words(number, data)}"
        if length is not None and length != len(data):
            words += f", announcing {length} bytes but sending {len(data)}"
        elif data:
            words += f" ({len(data)} bytes)"
        if magic != nbd.IHAVEOPT:
            words += f", magic {magic:#x}"
        self.conn.send(option(number, data, length=length, magic=magic), words)

    def reply(self, expected: str = "an option reply") -> OptionReply:
        """Reads one option reply, whatever it is."""
        head = self.conn.read(20, expected)
        magic, number, kind, length = struct.unpack(">QIII", head)
        if magic != nbd.REPLY_MAGIC:
            self.conn.done("no option reply", "bytes")
            raise Breach(expected, f"bytes {head.hex(' ')}", row="HS-14")
        if length > _SANE:
            self.conn.done("option reply of absurd length", "bytes")
            raise Breach(expected, f"a reply of {length} bytes", row="HS-14")
        data = self.conn.read(length, expected) if length else b""
        answer = OptionReply(number, kind, data)
        self.conn.done(str(answer), "option-reply")
        self._check(answer)
        return answer

    def _check(self, answer: OptionReply) -> None:
        """What holds for every option reply, whoever asked."""
        if answer.type == nbd.ACK and answer.data:
            raise Breach("an ACK without data", str(answer), row="OPT-LIST-08")
        if answer.is_error:
            self.check_string(answer.data, "error text")

    def check_string(self, data: bytes, what: str) -> str:
        """A string from the server, held against the rules for strings."""
        try:
            value = data.decode("utf-8")
        except UnicodeDecodeError:
            raise Breach(f"{what} in UTF-8", data[:64].hex(" "), row="STR-04") from None
        if "\0" in value:
            raise Breach(f"{what} without a NUL byte", repr(value), row="STR-01")
        if len(data) > _STRING_MAX:
            raise Breach(
                f"{what} of at most 4096 bytes", f"{len(data)} bytes", row="STR-03"
            )
        if len(data) > 256:
            self.finding(Level.SHOULD, f"{what} of {len(data)} bytes", "STR-02")
        return value

    def expect_reply(
        self,
        number: int,
        kind: int,
        *,
        also: Mapping[int, Level] | None = None,
        row: str | None = None,
    ) -> OptionReply:
        """One reply of this type. `also`: other types, and what they would break.

        A type that is listed with MAY is noted (INFO), with SHOULD warned of (WARN),
        with MUST as good as the first.
        """
        others = dict(also or {})
        words = " or ".join(nbd.reply_name(k) for k in (kind, *others))
        what = f"option reply {nbd.option_name(number)} {words}"
        self.conn.expect(
            what,
            *(f"0003e889045565a9 {number:08x} {k:08x}" for k in (kind, *others)),
        )
        answer = self.reply(what)
        if answer.option != number:
            raise Breach(what, str(answer), row="HS-15")
        if answer.type in others:
            if others[answer.type] is not Level.MUST:
                self.finding(
                    others[answer.type],
                    f"{nbd.reply_name(answer.type)} came where "
                    f"{nbd.reply_name(kind)} is the fitting reply",
                    row,
                )
        elif answer.type != kind:
            raise Breach(what, str(answer), row=row)
        return answer

    def expect_error(
        self,
        number: int,
        kind: int | None = None,
        *,
        also: Mapping[int, Level] | None = None,
        row: str | None = None,
    ) -> OptionReply:
        """A refusal; without a kind any error will do."""
        if kind is not None:
            return self.expect_reply(number, kind, also=also, row=row)
        what = f"an error reply to {nbd.option_name(number)}"
        self.conn.expect(what, f"0003e889045565a9 {number:08x} 8.......")
        answer = self.reply(what)
        if answer.option != number:
            raise Breach(what, str(answer), row="HS-15")
        if not answer.is_error:
            raise Breach(what, str(answer), row=row)
        return answer

    def best_refused(self, number: int, row: str) -> bool:
        """Whether an option is refused, as a row asks that is a SHOULD.

        What a server takes in place of it is agreed on.
        """
        last = self.final(number)[1]
        if last.is_error:
            return True
        self.finding(Level.SHOULD, f"{last} where a refusal was due", row)
        if number == nbd.STRUCTURED_REPLY:
            self.structured = True
        elif number == nbd.GO:
            self.phase = "transmission"
        return False

    def final(self, number: int) -> tuple[list[OptionReply], OptionReply]:
        """All replies up to the final one, whatever it is."""
        what = f"replies to {nbd.option_name(number)} up to an ACK or an error"
        self.conn.expect(what, f"0003e889045565a9 {number:08x}")
        earlier: list[OptionReply] = []
        while True:
            answer = self.reply(what)
            if answer.option != number:
                raise Breach(what, str(answer), row="HS-15")
            if answer.final:
                return earlier, answer
            earlier.append(answer)

    # Whole exchanges

    def list(self) -> list[tuple[str, str]]:
        """LIST and what it answers: names and descriptions."""
        self.option(nbd.LIST)
        return self.expect_list()

    def expect_list(self) -> list[tuple[str, str]]:
        found, last = self.final(nbd.LIST)
        if last.type != nbd.ACK:
            raise Breach("LIST to end with ACK", str(last), row="OPT-LIST-01")
        return [self.parse_server(answer) for answer in found]

    def parse_server(self, answer: OptionReply) -> tuple[str, str]:
        if answer.type != nbd.REP_SERVER:
            raise Breach("REP_SERVER", str(answer), row="OPT-LIST-01")
        data = answer.data
        if len(data) < 4:
            raise Breach("a name length in REP_SERVER", str(answer), row="OPT-LIST-05")
        (length,) = struct.unpack(">I", data[:4])
        if length > len(data) - 4:
            raise Breach(
                f"a name of at most {len(data) - 4} bytes",
                f"a length of {length}",
                row="OPT-LIST-05",
            )
        name = self.check_string(data[4 : 4 + length], "export name")
        return name, self.check_string(data[4 + length :], "export description")

    def info(self, name: Name = None, infos: Iterable[int] = ()) -> Export:
        """INFO that has to succeed."""
        self.option(nbd.INFO, go_payload(self._named(name), infos))
        return self.expect_export(nbd.INFO, infos)

    def go(self, name: Name = None, infos: Iterable[int] = ()) -> Export:
        """GO that has to succeed; transmission begins."""
        self.option(nbd.GO, go_payload(self._named(name), infos))
        self.export = self.expect_export(nbd.GO, infos)
        self.phase = "transmission"
        return self.export

    def expect_export(
        self, number: int, infos: Iterable[int] = (nbd.INFO_BLOCK_SIZE,)
    ) -> Export:
        """What INFO or GO tells; infos: what it was asked for."""
        found, last = self.final(number)
        asked = nbd.INFO_BLOCK_SIZE in infos
        if last.type == nbd.ERR_BLOCK_SIZE_REQD and not asked:  # SIZE-09
            raise NotApplicable("the server refuses who does not ask for block sizes")
        if last.type != nbd.ACK:
            raise Breach(f"{nbd.option_name(number)} to succeed", str(last))
        return self.parse_export(found)

    def parse_export(self, found: Iterable[OptionReply]) -> Export:
        export = Export()
        for answer in found:
            self._parse_info(export, answer)
        if nbd.INFO_EXPORT not in export.infos:
            raise Breach("INFO_EXPORT ahead of ACK", "none", row="OPT-INFO-14")
        return export

    def _parse_info(self, export: Export, answer: OptionReply) -> None:
        data = answer.data
        if answer.type != nbd.REP_INFO or len(data) < 2:
            raise Breach("REP_INFO with its type", str(answer), row="OPT-INFO-14")
        (kind,) = struct.unpack(">H", data[:2])
        if kind in export.infos:
            self.finding(Level.SHOULD, f"{nbd.info_name(kind)} sent twice", "INFO-01")
        export.infos += (kind,)
        if kind == nbd.INFO_EXPORT:
            if len(data) != 12:
                raise Breach("12 bytes", f"{len(data)}", row="INFO-EXPORT-01")
            export.size, export.flags = struct.unpack(">QH", data[2:])
        elif kind == nbd.INFO_NAME:
            export.name = self.check_string(data[2:], "canonical name")
        elif kind == nbd.INFO_DESCRIPTION:
            export.description = self.check_string(data[2:], "description")
        elif kind == nbd.INFO_BLOCK_SIZE:
            if len(data) != 14:
                raise Breach("14 bytes", f"{len(data)}", row="INFO-BS-02")
            export.block_size = struct.unpack(">III", data[2:])

    def export_name(self, name: Name = None, *, zeroes: bool = False) -> Export:
        """EXPORT_NAME that has to succeed; zeroes: whether padding must follow."""
        self.option(nbd.EXPORT_NAME, text(self._named(name)))
        what = "size and transmission flags" + (", 124 zero bytes" if zeroes else "")
        self.conn.expect(what)
        data = self.conn.read(10 + (124 if zeroes else 0), what)
        size, flags = struct.unpack(">QH", data[:10])
        self.conn.done(f"size {size}, flags {nbd.flag_names(flags)}", "export")
        if any(data[10:]):
            raise Breach(what, data[10:].hex(" "), row="HSF-06")
        self.export = Export(size=size, flags=flags)
        self.phase = "transmission"
        return self.export

    def negotiate_structured(self) -> bool:
        """STRUCTURED_REPLY; False when the server does not have it."""
        self.option(nbd.STRUCTURED_REPLY)
        answer = self.final(nbd.STRUCTURED_REPLY)[1]
        self.structured = answer.type == nbd.ACK
        return self.structured

    def negotiate_extended(self) -> bool:
        """EXTENDED_HEADERS; False when the server does not have them."""
        self.option(nbd.EXTENDED_HEADERS)
        answer = self.final(nbd.EXTENDED_HEADERS)[1]
        if answer.type == nbd.ACK:
            self.structured = self.extended = True
        return self.extended

    def set_meta(self, queries: Iterable[str], name: Name = None) -> dict[int, str]:
        """SET_META_CONTEXT that has to succeed; ids and names."""
        payload = meta_payload(self._named(name), queries)
        self.option(nbd.SET_META_CONTEXT, payload)
        self.contexts = self.expect_contexts(nbd.SET_META_CONTEXT)
        return self.contexts

    def list_meta(self, queries: Iterable[str] = (), name: Name = None) -> list[str]:
        payload = meta_payload(self._named(name), queries)
        self.option(nbd.LIST_META_CONTEXT, payload)
        found, last = self.final(nbd.LIST_META_CONTEXT)
        if last.type != nbd.ACK:
            raise Breach("LIST_META_CONTEXT to succeed", str(last), row="OPT-META-08")
        return [self.parse_context(answer)[1] for answer in found]

    def expect_contexts(self, number: int) -> dict[int, str]:
        found, last = self.final(number)
        if last.type != nbd.ACK:
            raise Breach(f"{nbd.option_name(number)} to succeed", str(last))
        contexts: dict[int, str] = {}
        for answer in found:
            ident, name = self.parse_context(answer)
            if ident in contexts:
                raise Breach("ids all different", f"{ident} twice", row="OPT-META-24")
            contexts[ident] = name
        return contexts

    def parse_context(self, answer: OptionReply) -> tuple[int, str]:
        if answer.type != nbd.REP_META_CONTEXT or len(answer.data) < 4:
            raise Breach("REP_META_CONTEXT with its id", str(answer), row="OPT-META-31")
        (ident,) = struct.unpack(">I", answer.data[:4])
        name = self.check_string(answer.data[4:], "context name")
        if ":" not in name or name.startswith(":"):
            raise Breach("namespace:leaf", repr(name), row="OPT-META-16")
        return ident, name


def option_words(number: int, data: bytes) -> str:
    """The data of an option in words, as far as it parses."""
    if number == nbd.EXPORT_NAME:
        return f" {_quoted(data)}"
    if number in (nbd.INFO, nbd.GO, nbd.SET_META_CONTEXT, nbd.LIST_META_CONTEXT):
        if len(data) < 4:
            return ""
        (length,) = struct.unpack(">I", data[:4])
        if length > len(data) - 4:
            return f" name length {length}"
        return f" {_quoted(data[4 : 4 + length])}"
    return ""


def _quoted(data: bytes) -> str:
    words = data.decode("utf-8", "backslashreplace")
    return f'"{words}"' if len(words) <= 64 else f'"{words[:60]}..." ({len(data)})'


def _reply_words(answer: OptionReply) -> str:
    data = answer.data
    if answer.is_error:
        return f" {_quoted(data)}" if data else ""
    if answer.type == nbd.REP_INFO and len(data) >= 2:
        kind = int.from_bytes(data[:2], "big")
        if kind == nbd.INFO_EXPORT and len(data) == 12:
            size, flags = struct.unpack(">QH", data[2:])
            return f" EXPORT size {size} flags {nbd.flag_names(flags)}"
        if kind == nbd.INFO_BLOCK_SIZE and len(data) == 14:
            return " BLOCK_SIZE %d %d %d" % struct.unpack(">III", data[2:])
        return f" {nbd.info_name(kind)} {_quoted(data[2:])}"
    if answer.type == nbd.REP_META_CONTEXT and len(data) >= 4:
        return f" {int.from_bytes(data[:4], 'big')} {_quoted(data[4:])}"
    if answer.type == nbd.REP_SERVER and len(data) >= 4:
        return f" {_quoted(data[4:])}"
    return f" with {len(data)} bytes" if data else ""
