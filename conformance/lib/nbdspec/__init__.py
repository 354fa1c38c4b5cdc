# SPDX-License-Identifier: BSD-3-Clause
"""nbdspec: conformance and regression kit for NBD servers and their plugins."""

from __future__ import annotations

from pathlib import Path

from .version import VERSION as __version__

__all__ = ["HOME", "__version__"]

#: The directory that holds lib, cases, ledger, known, plugins and mutants: the same
#: shape in the source tree and where the kit is installed.
HOME = Path(__file__).resolve().parents[2]
