# SPDX-License-Identifier: BSD-3-Clause
"""nbdspec compare: what changed from one result to another."""

from __future__ import annotations

import argparse
from pathlib import Path

from .result import COUNTS_AT, read
from .verdict import Verdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--fail-on", choices=("must", "should", "any"), default="must")


def run(arguments: argparse.Namespace) -> int:
    before, after = read(arguments.before), read(arguments.after)
    for data in (before, after):
        print(f"{data['target']} {data.get('version', '?')}: {_sums(data)}")
    old = {case["id"]: case for case in before["cases"]}
    new = {case["id"]: case for case in after["cases"]}
    bad = {verdict.value for verdict in COUNTS_AT[arguments.fail_on]}
    worse = 0
    for id in sorted(old.keys() | new.keys()):
        was = old[id]["verdict"] if id in old else "-"
        now = new[id]["verdict"] if id in new else "-"
        if was != now:
            if now in bad and was not in bad:
                worse += 1
            words = new[id]["message"] if id in new else ""
            tail = f"  {words.splitlines()[0]}" if words else ""
            print(f"{was:>5} -> {now:<5} {id}{tail}")
    print("nothing got worse" if not worse else f"{worse} got worse")
    return 1 if worse else 0


def _sums(data: dict) -> str:
    totals = data.get("totals", {})
    order = [verdict.value for verdict in Verdict]
    return ", ".join(f"{totals[v]} {v}" for v in order if totals.get(v))
