# SPDX-License-Identifier: BSD-3-Clause
"""Running servers, shared by the cases that want the same mode."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from .mode import Mode
from .probe import probe
from .profile import Profile
from .targets import Server, Target

#: As many stay up at once; a mode that was not used for long makes room.
KEEP = 6


@dataclass
class Lease:
    server: Server
    profile: Profile
    #: descriptors when nobody is connected
    descriptors: int | None


class Pool:
    def __init__(self, target: Target) -> None:
        self.target = target
        self._leases: OrderedDict[Mode, Lease] = OrderedDict()

    def get(self, mode: Mode) -> Lease:
        """A server in that mode; CannotDo, or CannotStart when it does not come up."""
        lease = None if mode.private else self._leases.get(mode)
        if lease is not None:
            self._leases.move_to_end(mode)
            return lease
        server = self.target.start(mode)
        lease = Lease(server, probe(server), None)
        lease.profile.stores = self.target.stores
        if not mode.private:
            self._leases[mode] = lease
            while len(self._leases) > KEEP:
                self._leases.popitem(last=False)[1].server.stop()
        return lease

    def drop(self, lease: Lease) -> str | None:
        """Ends a server for good; the next case gets a fresh one."""
        for mode, other in list(self._leases.items()):
            if other is lease:
                del self._leases[mode]
        return lease.server.stop()

    def close(self) -> list[str]:
        """Ends all; what was wrong with how they ended."""
        troubles = []
        while self._leases:
            trouble = self._leases.popitem()[1].server.stop()
            if trouble:
                troubles.append(trouble)
        return troubles
