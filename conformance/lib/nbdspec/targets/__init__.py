# SPDX-License-Identifier: BSD-3-Clause
"""The servers that the kit knows how to start."""

from __future__ import annotations

from ..errors import UsageError
from .base import Options, Server, Target
from .command import CommandTarget
from .nbdkit import NbdkitTarget
from .nbdserver import NbdServerTarget
from .nbdspecd import NbdspecdTarget
from .qemu import QemuNbdTarget, QemuStorageDaemonTarget
from .uri import UriTarget

__all__ = ["NAMES", "Options", "Server", "Target", "make"]

_TARGETS: dict[str, type[Target]] = {
    "nbdspecd": NbdspecdTarget,
    "nbdkit": NbdkitTarget,
    "qemu-nbd": QemuNbdTarget,
    "qemu-storage-daemon": QemuStorageDaemonTarget,
    "nbd-server": NbdServerTarget,
}
NAMES = tuple(_TARGETS)


def make(options: Options) -> Target:
    """The target that the options ask for; it may turn out not to be installed."""
    if options.uri:
        return UriTarget(options)
    if options.cmd:
        return CommandTarget(options)
    name, _, backend = options.target.partition(":")
    kind = _TARGETS.get(name)
    if kind is None:
        known = ", ".join(NAMES)
        raise UsageError(f"--target {options.target}: expected one of {known}")
    if backend and backend not in kind.backends:
        known = ", ".join(f"{name}:{b}" for b in kind.backends) or name
        raise UsageError(f"--target {options.target}: expected one of {known}")
    return kind(options)
