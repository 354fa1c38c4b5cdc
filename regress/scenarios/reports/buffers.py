# SPDX-License-Identifier: BSD-3-Clause
"""What memoryview-write reports beside its figures: the 2.7, and where it is from."""

from __future__ import annotations

from collections.abc import Sequence

from nbdspec.bench.model import Results, Sample
from nbdspec.bench.summary import field
from nbdspec.bench.write import number, table

ROWS = {"plain": "convert", "malloc checked": "convert, malloc checked"}
EXPLANATION = """\
The thread reports 1.284 s with the copy and 0.477 s without: 2.7 times. Plain, the
copy costs no such thing, because the allocator keeps the block of 2 MiB that one
request frees for the next one to use, warm in the cache. The figure comes with malloc
checking, which the script that starts nbdkit from its build tree switched on at the
time (`MALLOC_CHECK_`, `MALLOC_PERTURB_`): then every copy is a fresh mapping, whose
512 pages are faulted in one after the other, cleared, perturbed, and unmapped again.
That is about 263,000 minor faults for a GiB instead of some hundreds, and they can be
counted where times cannot be trusted. Since glibc 2.34 it takes a preloaded
`libc_malloc_debug.so.0` to have it."""


def as_time(results: Results) -> list[str]:
    """Real, user and sys of the client, in the form of the mail."""
    text = ["", "## As `time` prints them (medians)", ""]
    for row in ("convert", "convert, server with -v"):
        found = [c for c in results.columns if (row, c.name) in results.cells]
        if found:
            text += [f"{row}:", "", "```"]
        for column in found:
            cell = results.cells[row, column.name]
            text.append(column.name)
            for label, get in (
                ("real", lambda s: s.real),
                ("user", lambda s: s.client_user),
                ("sys", lambda s: s.client_system),
            ):
                seconds = field(cell, get) or 0.0
                text.append(f"    {label}\t{seconds // 60:.0f}m{seconds % 60:.3f}s")
        if found:
            text += ["```", ""]
    return text


def environments(
    results: Results, pairs: Sequence[tuple[str, str]], size: int
) -> list[str]:
    """The copy and the view, in both environments, beside the thread's figures."""
    lines = [
        ["thread, November 2019", "bytearray", "1.284", "", "", "", "2.69"],
        ["thread, November 2019", "memoryview", "0.477", "", "", "", "1"],
    ]
    for words, row in ROWS.items():
        for view, copy in pairs:
            cells = [results.cells.get((row, name)) for name in (copy, view)]
            if not cells[0] or not cells[1]:
                continue
            base = field(cells[1], lambda s: s.value) or 1.0
            lines += [
                line(words, name, cell, base, size)
                for name, cell in zip((copy, view), cells)
                if cell
            ]
    if len(lines) == 2:
        return []
    head = ["environment", "server", "wall s", "server CPU s", "minor faults"]
    head += ["copied per byte", "to the view's"]
    return ["", "## The copy, plain and with malloc checked", ""] + [
        *table(head, lines),
        *EXPLANATION.split("\n"),
    ]


def line(
    words: str, name: str, cell: list[Sample], base: float, size: int
) -> list[str]:
    wall = field(cell, lambda s: s.value) or 0.0
    copied = field(cell, lambda s: s.extra.get("bytes_copied"))
    return [
        words,
        name,
        number(wall),
        number(field(cell, lambda s: s.server_cpu)),
        f"{field(cell, lambda s: s.server_faults) or 0:,.0f}",
        f"{copied / size:.4f}" if copied is not None else "",
        f"{wall / base:.2f}",
    ]
