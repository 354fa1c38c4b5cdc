# SPDX-License-Identifier: BSD-3-Clause
"""The servers of small-io and bulk: a disk in memory, in Python and in C."""

from __future__ import annotations

from dataclasses import replace

from .model import PYPLUGINS, SCENARIOS, Column, Ratio
from .server import ServerSpec

SIZE = 1 << 30
PYTHON, SERIAL, MEMORY = "python PARALLEL", "python serial", "memory"
LIMIT = "limit"

COLUMNS = (
    *(
        Column(f"{host} {kind}", host)
        for host in ("nbdspecd", "nbdkit")
        for kind in (PYTHON, SERIAL, MEMORY)
    ),
    Column(LIMIT, "limit"),
)

RATIOS = (
    Ratio(f"nbdspecd {PYTHON}", f"nbdkit {PYTHON}"),
    Ratio(f"nbdspecd {PYTHON}", f"nbdkit {SERIAL}"),
    Ratio(f"nbdspecd {PYTHON}", f"nbdkit {MEMORY}"),
    Ratio(f"nbdspecd {SERIAL}", f"nbdkit {SERIAL}"),
    Ratio(f"nbdspecd {MEMORY}", f"nbdkit {MEMORY}"),
    Ratio(f"nbdspecd {PYTHON}", LIMIT),
    Ratio(f"nbdspecd {MEMORY}", LIMIT),
)


def python_server(column: Column, name: str, *parameters: str) -> ServerSpec:
    """A plugin of pyplugins/, as it is or made serial, as the column says."""
    script = PYPLUGINS / name
    if not column.name.endswith(SERIAL):
        return ServerSpec(column.host, ("python", str(script), *parameters))
    serial = SCENARIOS / "plugins" / "serial.py"
    return ServerSpec(
        column.host,
        ("python", str(serial), *parameters),
        environment=(("SERIAL_PLUGIN", str(script)),),
    )


def disk_server(column: Column) -> ServerSpec:
    """1 GiB in memory, all of it written once."""
    if column.host == "limit":
        spec = ServerSpec("limit")
    elif column.name.endswith(f" {MEMORY}"):
        spec = ServerSpec(column.host, (MEMORY, "1G"))
    else:
        spec = python_server(column, "memory.py", "size=1G")
    return replace(spec, prefill=SIZE)
