# SPDX-License-Identifier: BSD-3-Clause
"""The profile: what a server said at first, or was declared to say, stays so."""

from __future__ import annotations

from nbdspec.case import case
from nbdspec.probe import probe

SECTION = "profile"


@case("profile.stays-so", req=["OPT-INFO-24", "TF-02"])
def test_stays_so(lease):
    """Asked again, the server gives the answers of its profile."""
    again = probe(lease.server)
    again.stores = lease.profile.stores
    changed = lease.profile.differences(again)
    assert not changed, "; ".join(changed)
