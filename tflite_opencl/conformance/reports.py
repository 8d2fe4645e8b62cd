# SPDX-License-Identifier: Apache-2.0
"""A report as other programs read it: JUnit, KTAP, LAVA's signals, JSON, a page."""

from __future__ import annotations

import dataclasses
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tflite_opencl.common.errors import OneLineError
from tflite_opencl.common.words import stamped
from tflite_opencl.conformance.coverage import Cell, cells, kinds_of
from tflite_opencl.conformance.expectations import EXPECTED_FAIL, KNOWN_FLAKE
from tflite_opencl.conformance.outcome import NOT_DELEGATED, SKIP
from tflite_opencl.conformance.results import Report, Row

_LIMIT = 500  # unexpected results on the page
_PASSED_OVER = (SKIP, EXPECTED_FAIL, KNOWN_FLAKE)
# XML 1.0 has no other control characters.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """Return JUnit's XML, a test suite a family."""
    root = ElementTree.Element("testsuites", name="tflite-delegate-test")
    families: dict[str, list[Row]] = {}
    for row in report.rows:
        families.setdefault(row.case.name.split("/")[0], []).append(row)
    for family, rows in families.items():
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=family,
            tests=str(len(rows)),
            failures=str(sum(not row.is_expected for row in rows)),
            errors="0",
            skipped=str(sum(_is_skipped(row) for row in rows)),
            time=f"{sum(row.result.seconds for row in rows):.3f}",
        )
        for row in rows:
            case = ElementTree.SubElement(
                suite,
                "testcase",
                name=_xml(row.case.name),
                classname=f"{family}.{row.case.kind}",
                time=f"{row.result.seconds:.3f}",
            )
            words = _xml(f"{row.status}: {row.result.detail}".removesuffix(": "))
            if not row.is_expected:
                failure = ElementTree.SubElement(case, "failure", message=words, type=row.status)
                failure.text = words
            elif _is_skipped(row):
                ElementTree.SubElement(case, "skipped", message=words)
            if row.result.stderr:
                ElementTree.SubElement(case, "system-err").text = _xml(row.result.stderr)
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{body}\n'


def ktap(report: Report) -> str:
    """Return the kernel's TAP, version 1."""
    lines = ["KTAP version 1", f"1..{len(report.rows)}"]
    for number, row in enumerate(report.rows, 1):
        name = row.case.name
        if not row.is_expected:
            lines.append(f"not ok {number} {name}")
            lines.append(f"# {row.status}: {' '.join(row.result.detail.split())}")
        elif _is_skipped(row):
            lines.append(f"ok {number} {name} # SKIP {row.status} {row.result.detail}".rstrip())
        else:
            lines.append(f"ok {number} {name}")
    return "\n".join(lines) + "\n"


def lava_signal(row: Row) -> str:
    """Return the line on the serial console that LAVA takes for a result."""
    word = "skip" if _is_skipped(row) else "pass" if row.is_expected else "fail"
    name = re.sub(r"[^\w.+-]", "_", row.case.name)
    return (
        f"<LAVA_SIGNAL_TESTCASE TEST_CASE_ID={name} RESULT={word} UNITS=seconds "
        f"MEASUREMENT={row.result.seconds:.4f}>"
    )


def lava(report: Report) -> str:
    """Return all signals, in a set."""
    lines = [lava_signal(row) for row in report.rows]
    start, stop = (f"<LAVA_SIGNAL_TESTSET {word}>" for word in ("START delegate_test", "STOP"))
    return "\n".join([start, *lines, stop]) + "\n"


def as_json(report: Report) -> str:
    """Return everything, for programs of one's own."""
    cases = [
        {
            "name": row.case.name,
            **dataclasses.asdict(row.result),
            "op": row.case.op,
            "type": row.case.kind,
            "status": row.status,
            "is_expected": row.is_expected,
        }
        for row in report.rows
    ]
    facts = {
        "delegate": report.delegate,
        "device": report.device,
        "runtime": report.runtime,
        "seconds": round(report.seconds, 3),
        "counts": report.counts(),
        "unexpected": len(report.unexpected),
        "cases": cases,
    }
    return json.dumps(stamped(facts), indent=1) + "\n"


def html(report: Report) -> str:
    """Return one page of HTML: the matrix of ops and types, and what went wrong.

    Raises: OneLineError: there is no jinja2.
    """
    try:
        import jinja2
    except ImportError:
        raise OneLineError("--html needs jinja2 (pip install tflite-opencl[suite])") from None
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    matrix = cells(report)
    text = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
    return environment.from_string(text).render(
        report=report,
        matrix=matrix,
        kinds=kinds_of(matrix),
        # What is not delegated has its place in the matrix; wrong results come first here.
        unexpected=sorted(report.unexpected, key=lambda row: row.status == NOT_DELEGATED),
        limit=_LIMIT,
        mark=_mark,
    )


def _mark(cell: Cell) -> str:
    if cell.counts[NOT_DELEGATED] == cell.ran:
        return "refused"
    if cell.passed == cell.ran:
        return "all"
    return "some" if cell.passed else "none"


def _is_skipped(row: Row) -> bool:
    return row.is_expected and row.status in (*_PASSED_OVER, NOT_DELEGATED)


def _xml(text: str) -> str:
    return _NOT_XML.sub("?", text)
