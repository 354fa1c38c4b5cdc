# SPDX-License-Identifier: BSD-3-Clause
"""What a case says about itself, and the registry of all cases."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Callable, Iterable, TypeVar

from .errors import KitError
from .mode import Mode
from .needs import Need, parse_needs
from .verdict import MAY, MUST, SHOULD, Level

__all__ = ["MAY", "MUST", "SHOULD", "Case", "case", "cases", "Mode"]

CLIENTS = ("wire", "libnbd")
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9]+(-[a-z0-9]+)*)+")

Function = TypeVar("Function", bound=Callable[..., None])
_registry: dict[str, list["Case"]] = {}


@dataclass(frozen=True)
class Case:
    """One claim about a server: its id never changes and never depends on a place."""

    id: str
    req: tuple[str, ...]
    level: Level
    needs: tuple[Need, ...]
    clients: tuple[str, ...]
    mode: Mode
    quick: bool
    hostile: bool
    slow: bool
    section: str
    doc: str
    file: str
    line: int
    function: str

    @property
    def group(self) -> str:
        """"protocol" or "plugin": which of the two suites it belongs to."""
        return group_of(self.section)


#: The two suites, which are directories of cases, too.
GROUPS = ("protocol", "plugin")


def group_of(section: str) -> str:
    return "plugin" if section.startswith("plugin") else "protocol"


def case(
    id: str,
    *,
    req: Iterable[str],
    level: Level = MUST,
    needs: str | Iterable[str] = (),
    clients: Iterable[str] | None = None,
    mode: Mode | None = None,
    quick: bool = True,
    hostile: bool = False,
    slow: bool = False,
) -> Callable[[Function], Function]:
    """Makes a test function a case.

    ``req`` names the ledger rows that it checks, ``needs`` what the server has to
    offer ("trim", "structured", "size>=1024" ...: needs.py), ``mode`` how the server
    has to be started, ``clients`` who can play it. ``quick=False`` keeps it out of
    ``--quick``; ``hostile`` marks malformed or flooding input, which no running
    server gets to see unless its owner agrees; ``slow`` marks what runs for seconds.
    """
    if not _ID.fullmatch(id):
        raise KitError(f"case id {id!r}: expected words such as go.unknown-export")

    def register(function: Function) -> Function:
        wanted = inspect.signature(function).parameters
        found = _clients(id, set(wanted)) if clients is None else tuple(clients)
        source = inspect.getsourcefile(function) or "?"
        doc = inspect.getdoc(function) or ""
        if not doc:
            raise KitError(f"case {id}: expected a docstring that states the claim")
        entry = Case(
            id=id,
            req=tuple(req),
            level=level,
            needs=parse_needs(needs, f"case {id}"),
            clients=found,
            mode=mode or Mode(),
            quick=quick,
            hostile=hostile,
            slow=slow,
            section=getattr(inspect.getmodule(function), "SECTION", "?"),
            doc=doc,
            file=source,
            line=function.__code__.co_firstlineno,
            function=function.__name__,
        )
        others = [c for c in _registry.get(id, []) if not _same_place(c, entry)]
        for other in others:
            if set(other.clients) & set(entry.clients):
                raise KitError(f"case id {id} twice: {other.file} and {entry.file}")
        _registry[id] = others + [entry]
        function.nbdspec = entry  # type: ignore[attr-defined]
        return function

    return register


def _same_place(a: Case, b: Case) -> bool:
    """True when a module was merely imported a second time."""
    return a.file == b.file and a.function == b.function


def _clients(id: str, wanted: set[str]) -> tuple[str, ...]:
    """The clients a case runs with, by the fixture that it asks for."""
    if "client" in wanted:
        return CLIENTS
    if "h" in wanted:
        return ("libnbd",)
    return ("wire",)


def cases() -> dict[str, list[Case]]:
    """All cases that have been imported, by id."""
    return dict(sorted(_registry.items()))
