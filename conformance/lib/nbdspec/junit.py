# SPDX-License-Identifier: BSD-3-Clause
"""The result as JUnit XML: a suite a section, a test case a run."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from .result import COUNTS_AT, Result
from .verdict import Outcome, Verdict

#: What XML 1.0 cannot hold, escaped or not.
_UNSAYABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(result: Result, path: Path, fail_on: str) -> None:
    root = ET.Element("testsuites")
    sections: dict[str, list[Outcome]] = {}
    for entry in result.cases.values():
        sections.setdefault(entry.section, []).extend(entry.runs)
    for section, runs in sorted(sections.items()):
        root.append(_suite(section, runs, result, fail_on))
    ET.indent(root)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _suite(section: str, runs: list[Outcome], result: Result, fail_on: str):
    bad = [run for run in runs if run.verdict in COUNTS_AT[fail_on]]
    skipped = [run for run in runs if run.verdict is Verdict.NA]
    suite = ET.Element(
        "testsuite",
        name=section,
        tests=str(len(runs)),
        failures=str(len(bad)),
        errors="0",
        skipped=str(len(skipped)),
        time=f"{sum(run.seconds for run in runs):.3f}",
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (("target", result.target), ("version", result.version)):
        ET.SubElement(properties, "property", name=name, value=_say(value))
    for run in runs:
        suite.append(_case(run, run in bad))
    return suite


def _case(run: Outcome, bad: bool) -> ET.Element:
    element = ET.Element(
        "testcase",
        classname=f"nbdspec.{run.section}",
        name=_say(run.name),
        time=f"{run.seconds:.3f}",
    )
    first = _say(run.message.splitlines()[0] if run.message else run.verdict.value)
    if bad:
        found = ET.SubElement(
            element, "failure", type=run.verdict.value, message=first
        )
        found.text = _say(run.message)
    elif run.verdict is Verdict.NA:
        ET.SubElement(element, "skipped", message=first)
    elif run.verdict is not Verdict.PASS:
        out = ET.SubElement(element, "system-out")
        out.text = _say(f"{run.verdict.value}\n{run.message}")
    return element


def _say(text: str) -> str:
    return _UNSAYABLE.sub("\N{REPLACEMENT CHARACTER}", text)
