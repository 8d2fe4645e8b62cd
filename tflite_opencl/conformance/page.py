# SPDX-License-Identifier: Apache-2.0
"""A report as one HTML page: the matrix of ops and types, and what went wrong."""

from __future__ import annotations

from pathlib import Path

from tflite_opencl.common.errors import OneLineError
from tflite_opencl.conformance.coverage import Cell, cells, kinds_of
from tflite_opencl.conformance.outcome import NOT_DELEGATED
from tflite_opencl.conformance.results import Report

_LIMIT = 500  # unexpected results on the page


class PageError(OneLineError):
    """The page cannot be made; the text says what to install."""


def html(report: Report) -> str:
    """Return the page; raises PageError without jinja2."""
    try:
        import jinja2
    except ImportError:
        raise PageError("--html needs jinja2 (pip install tflite-opencl[suite])") from None
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
