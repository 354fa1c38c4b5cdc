# SPDX-License-Identifier: BSD-3-Clause
"""How a case wants its server to be started."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace

from .errors import BadFile

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

DEFAULT_SIZE = 64 * MIB


@dataclass(frozen=True)
class Mode:
    """A way to run a server, in words that every target translates into its options.

    A target that has no such way says so, and the case is N/A. Cases with equal modes
    share one server, unless the mode is ``private``.
    """

    size: int = DEFAULT_SIZE
    readonly: bool = False
    #: what the export holds: "any", "zero", "pattern" (each 8 bytes hold their own
    #: offset, big-endian), "sparse" (data at each even MiB, holes between), "striped"
    #: (zeroes, of which every second sector is said to be a hole)
    content: str = "any"
    #: names of the exports; the first one is the default as well
    exports: tuple[str, ...] = ()
    #: "", "x509", "psk": what TLS the server offers
    tls: str = ""
    #: with TLS: "optional", "required", or "selective": for the first export only
    tls_mode: str = "optional"
    #: commands that the back end answers with an error: "read", "write", ...
    fail: tuple[str, ...] = ()
    #: offsets of sectors (512 bytes) that the back end cannot read
    bad: tuple[int, ...] = ()
    #: what the back end does not offer: "fua", "trim", "cache", "fast-zero"
    without: tuple[str, ...] = ()
    #: a file on disk, and a count of how often it is synced
    syncs: bool = False
    #: a command at offset 4096 n fails with the machine's error number n
    errnos: bool = False
    #: seconds that the back end takes for a command
    delay: float = 0.0
    #: no structured replies on offer
    simple: bool = False
    #: which of the handshake flags are on offer (FIXED_NEWSTYLE 1, NO_ZEROES 2)
    handshake: int = 3
    #: the oldstyle greeting, which leaves nothing to haggle over
    oldstyle: bool = False
    #: minimum, preferred and maximum block size; what breaks them is refused
    block_size: tuple[int, ...] = ()
    #: "unix" or "tcp"
    transport: str = "unix"
    #: a server that no other case uses
    private: bool = False
    #: more words for one target, where a case is about that target alone
    args: tuple[str, ...] = ()

    def but(self, **changes: object) -> "Mode":
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def default(self) -> bool:
        """True when any running server will do."""
        return self == Mode()

    def to_json(self) -> dict[str, object]:
        """Only what differs from the plain mode."""
        plain = asdict(Mode())
        return {k: v for k, v in asdict(self).items() if v != plain[k]}

    @classmethod
    def from_json(cls, data: dict[str, object]) -> "Mode":
        values: dict[str, object] = {}
        for field in fields(cls):
            if field.name not in data:
                continue
            value = data[field.name]
            value = tuple(value) if isinstance(value, list) else value
            kinds = (float, int) if field.name == "delay" else (type(field.default),)
            if type(value) not in kinds:
                kind = kinds[0].__name__
                raise BadFile(f"key mode: {field.name}: expected a {kind}")
            values[field.name] = value
        return cls(**values)  # type: ignore[arg-type]

    def describe(self) -> str:
        words = []
        if self.size != DEFAULT_SIZE:
            words.append(f"size {self.size}")
        if self.readonly:
            words.append("read-only")
        if self.content != "any":
            words.append(f"content {self.content}")
        if self.exports:
            words.append("exports " + ", ".join(self.exports))
        if self.tls:
            words.append(f"TLS {self.tls} {self.tls_mode}")
        if self.fail:
            words.append("failing " + ", ".join(self.fail))
        if self.bad:
            words.append("bad sectors " + ", ".join(map(str, self.bad)))
        if self.without:
            words.append("without " + ", ".join(self.without))
        if self.syncs:
            words.append("syncs counted")
        if self.errnos:
            words.append("each error number")
        if self.delay:
            words.append(f"delay {self.delay:g} s")
        if self.simple:
            words.append("simple replies only")
        if self.handshake != 3:
            words.append(f"handshake flags {self.handshake}")
        if self.oldstyle:
            words.append("oldstyle")
        if self.block_size:
            words.append("block sizes " + "/".join(map(str, self.block_size)))
        if self.transport != "unix":
            words.append(self.transport)
        return ", ".join(words) or "plain"
