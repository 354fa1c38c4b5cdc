# SPDX-License-Identifier: BSD-3-Clause
"""The raw-wire client: one connection from greeting to end."""

from __future__ import annotations

from . import nbd
from .transmission import Transmission
from .verdict import MUST, Breach, Closed, Finding


class Wire(Transmission):
    """What a case talks to. It can say anything, and believes nothing it is told."""

    def transmit(
        self,
        name: str | None = None,
        *,
        structured: bool = False,
        extended: bool = False,
        contexts: tuple[str, ...] = (),
    ) -> "Wire":
        """From haggling to transmission; structured: negotiate structured replies."""
        if extended:
            if not self.negotiate_extended():
                raise Breach("ACK to EXTENDED_HEADERS", "a refusal")
        elif structured or contexts:
            if not self.negotiate_structured():
                raise Breach("ACK to STRUCTURED_REPLY", "a refusal")
        if contexts:
            self.set_meta(contexts, name)
        self.go(name, [nbd.INFO_BLOCK_SIZE])
        return self

    def in_step(self) -> None:
        """Proves that the stream is in step: one more round trip that makes sense."""
        if self.phase == "transmission":
            self._in_step_transmission()
        else:
            self._in_step_haggling()

    def _in_step_haggling(self) -> None:
        """LIST is part of the baseline; a refusal of it is an answer too."""
        try:
            self.option(nbd.LIST)
            self.final(nbd.LIST)
        except Breach as breach:
            raise _out_of_step(breach) from None

    def _in_step_transmission(self) -> None:
        length = min(self.export.minimum, self.export.size)
        try:
            cookie = self.request(nbd.READ, 0, length)
            self.conn.expect(f"the reply to READ {length} at 0: the stream is in step")
            self.wait(cookie)
        except Breach as breach:
            raise _out_of_step(breach) from None

    def leave(self) -> None:
        """Ends the session in order; nothing unasked may have been left in the stream.

        What DISC and ABORT themselves have to bring is left to the cases about them.
        """
        conn = self.conn
        if not conn.is_open:
            return
        if self.phase == "transmission":
            asked = self.request(nbd.DISC)
            conn.shut()
            rest = conn.drain()
            if rest and f"{asked:016x}" not in rest.hex() and not self.pending:
                self.findings.append(
                    Finding(MUST, f"bytes nobody asked for: {rest[:64].hex(' ')}")
                )
        else:
            conn.shut()
            conn.drain()
        conn.close()


def _out_of_step(breach: Breach) -> Breach:
    kind = Closed if isinstance(breach, Closed) else Breach
    found = kind("the stream to be in step: " + breach.expected, breach.came)
    found.level = MUST
    return found
