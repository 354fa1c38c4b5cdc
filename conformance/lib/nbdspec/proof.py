# SPDX-License-Identifier: BSD-3-Clause
"""docs/proof.md: which mutant is noticed by which case, and the other way round.

    PYTHONPATH=conformance/lib python3 -m nbdspec.proof docs/proof.md
"""

from __future__ import annotations

import sys
from pathlib import Path

from .collect import load_all
from .mutants import Mutant, load, spared

HEAD = """\
# Proof that cases can fail

Each mutant is the bundled server with one small change that a real server had, or could
have had. `make mutants` builds each of them and runs the cases that are named: every one
has to fail, for the reason that the mutant's file says. This page is generated from
`conformance/mutants/` by `python3 -m nbdspec.proof`.

"""


def page(mutants: list[Mutant], ids: list[str], reasons: dict[str, str]) -> str:
    killers: dict[str, list[str]] = {id: [] for id in ids}
    for mutant in mutants:
        for id, _ in mutant.kills:
            killers.setdefault(id.partition("[")[0], []).append(mutant.name)
    proved = [id for id in ids if killers[id]]
    lines = [HEAD, f"{len(mutants)} mutants; {len(proved)} of {len(ids)} cases.\n"]
    lines += ["## Mutants\n", "| mutant | source | rows | noticed by |", "|---|---|---|---|"]
    for mutant in mutants:
        kills = ", ".join(dict.fromkeys(id for id, _ in mutant.kills))
        source = mutant.source.replace("|", "\\|")
        lines.append(
            f"| {mutant.name} | {source} | {' '.join(mutant.breaks)} | {kills} |"
        )
    lines += ["\n## Cases\n", "| case | mutants |", "|---|---|"]
    for id in ids:
        names = ", ".join(dict.fromkeys(killers[id]))
        names = names or f"none: {reasons.get(id, 'to be written')}"
        lines.append(f"| {id} | {names} |")
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        print("usage: python3 -m nbdspec.proof FILE", file=sys.stderr)
        return 2
    Path(argv[0]).write_text(
        page(list(load().values()), list(load_all()), spared()), "utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
