# SPDX-License-Identifier: BSD-3-Clause
"""Asks a server what it can do."""

from __future__ import annotations

from . import nbd
from .profile import Profile
from .targets.base import Server
from .transcript import Transcript
from .verdict import Breach, Finding
from .wire import Wire


def open_wire(
    server: Server, transcript: Transcript | None = None, findings=None
) -> Wire:
    """A connection on which nothing was said yet."""
    notes: list[Finding] = [] if findings is None else findings
    conn = server.connect(transcript or Transcript())
    wire = Wire(conn, notes, server.export)
    wire.always_tls = server.always_tls
    return wire


def probe(server: Server) -> Profile:
    """The profile. What a server refuses or gets wrong, it does not have.

    Each question is asked on its own connection: a server that falls over one still
    answers the others.
    """
    profile = Profile()
    _ask(server, profile, _greeting)
    _ask(server, profile, _list)
    _ask(server, profile, _info)
    _ask(server, profile, _go if profile.info else _export_name)
    _ask(server, profile, _structured)
    _ask(server, profile, _extended)
    _ask(server, profile, _starttls)
    return profile


def _ask(server: Server, profile: Profile, question) -> None:
    wire = open_wire(server)
    if server.mode.tls_mode == "required":
        wire.always_tls = server.tls
    try:
        question(wire, profile)
    except Breach:
        return
    finally:
        wire.conn.close()


def _greeting(wire: Wire, profile: Profile) -> None:
    with wire.conn.timed():
        profile.handshake_flags = wire.greeting()


def _list(wire: Wire, profile: Profile) -> None:
    wire.greet()
    profile.exports = [name for name, _ in wire.list()]
    profile.list = True


def _info(wire: Wire, profile: Profile) -> None:
    wire.greet()
    export = wire.info(None, [nbd.INFO_BLOCK_SIZE])
    profile.info = True
    profile.size, profile.flags = export.size, export.flags
    if export.block_size:
        profile.block_size = True
        profile.minimum, profile.preferred, profile.maximum = export.block_size


def _go(wire: Wire, profile: Profile) -> None:
    """The size is the one that transmission will have; INFO may err (OPT-INFO-24)."""
    wire.greet()
    profile.size = wire.go(None, [nbd.INFO_BLOCK_SIZE]).size


def _export_name(wire: Wire, profile: Profile) -> None:
    wire.greet()
    zeroes = not wire.handshake_flags & nbd.NO_ZEROES
    export = wire.export_name(zeroes=zeroes)
    profile.size, profile.flags = export.size, export.flags


def _structured(wire: Wire, profile: Profile) -> None:
    """Flags such as SEND_DF show up only after structured replies (TF-10)."""
    wire.greet()
    profile.structured = wire.negotiate_structured()
    if profile.structured:
        profile.flags = wire.info(None, [nbd.INFO_BLOCK_SIZE]).flags
        profile.contexts = wire.list_meta()


def _extended(wire: Wire, profile: Profile) -> None:
    wire.greet()
    profile.extended = wire.negotiate_extended()


def _starttls(wire: Wire, profile: Profile) -> None:
    """In the clear, where a server that demands TLS says so of every option."""
    wire.always_tls = None
    wire.greet()
    wire.option(nbd.LIST)
    required = wire.final(nbd.LIST)[1].type == nbd.ERR_TLS_REQD
    wire.option(nbd.STARTTLS)
    if wire.final(nbd.STARTTLS)[1].type == nbd.ACK:
        profile.tls = "required" if required else "offered"
