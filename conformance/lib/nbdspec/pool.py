# SPDX-License-Identifier: BSD-3-Clause
"""Running servers, shared by the cases that want the same mode."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from .health import Health
from .mode import Mode
from .needs import Need
from .probe import probe
from .profile import Profile, read_profile
from .targets import Server, Target

#: As many stay up at once; a mode that was not used for long makes room.
KEEP = 6


@dataclass
class Lease:
    server: Server
    profile: Profile
    health: Health


class Pool:
    def __init__(self, target: Target) -> None:
        self.target = target
        self._leases: OrderedDict[Mode, Lease] = OrderedDict()
        self._plain: Profile | None = None
        #: how the servers ended: their modes, and what was wrong
        self.ends: list[tuple[Mode, str]] = []

    def get(self, mode: Mode) -> Lease:
        """A server in that mode; CannotDo, or CannotStart when it does not come up."""
        lease = None if mode.private else self._leases.get(mode)
        if lease is not None:
            self._leases.move_to_end(mode)
            return lease
        server = self.target.start(mode)
        server.may_write = self.may_write
        health = Health(server.process)
        lease = Lease(server, self._profile(server), health)
        health.baseline()
        if mode.default:
            self._plain = lease.profile
        if not mode.private:
            self._leases[mode] = lease
            while len(self._leases) > KEEP:
                self._stop(self._leases.popitem(last=False)[1])
        return lease

    @property
    def may_write(self) -> bool:
        return self.target.disposable or self.target.options.write

    def lacks(self, need: Need) -> str | None:
        """What the plain server says it has not, no other way to start one adds.

        Some take seconds to start, and that would be all they do.
        """
        if self._plain is None or not need.of_the_program:
            return None
        return need.missing(self._plain)

    def _profile(self, server: Server) -> Profile:
        """What the server says, or for the plain mode what it is declared to say."""
        declared = self.target.options.profile
        if declared and server.mode.default:
            return read_profile(Path(declared))
        profile = probe(server)
        profile.stores = self.target.stores  # which no server tells
        return profile

    def _stop(self, lease: Lease) -> None:
        """Ends a server that served in order; how it ends is judged as well."""
        trouble = lease.server.stop()
        self.ends.append((lease.server.mode, trouble or ""))

    def drop(self, lease: Lease) -> str | None:
        """Ends a server for good; the next case gets a fresh one."""
        for mode, other in list(self._leases.items()):
            if other is lease:
                del self._leases[mode]
        return lease.server.stop()

    def close(self) -> None:
        """Ends all servers."""
        while self._leases:
            self._stop(self._leases.popitem()[1])
