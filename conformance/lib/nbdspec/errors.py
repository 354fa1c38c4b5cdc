# SPDX-License-Identifier: BSD-3-Clause
"""What stops the kit itself, as against what a server does wrong."""

from __future__ import annotations


class KitError(Exception):
    """The kit or the target cannot run: one line, exit status 2."""


class UsageError(KitError):
    """What the user asked for makes no sense."""


class BadFile(KitError):
    """A file that was handed in cannot be read or does not parse; exit status 2.

    The text names the file, the key or line at fault, and what was expected.
    """


class NothingSelected(KitError):
    """What was asked for leaves no case to run; exit status 3."""
