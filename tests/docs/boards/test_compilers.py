# SPDX-License-Identifier: Apache-2.0
"""docs/boards/compilers.md is the output of its script for .ci/board-compilers.csv."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

from tflite_opencl.compilers.rows import compared, read_csv

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / ".ci" / "board-compilers.csv"


def script() -> Any:
    """Return docs/boards/compilers.py as a module."""
    spec = importlib.util.spec_from_file_location("page", ROOT / "docs/boards/compilers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_matches_table() -> None:
    page = script()
    text = page.text_of(read_csv(str(TABLE)), page.paper_of(page.PAPER))
    assert (ROOT / "docs/boards/compilers.md").read_text() == text


def test_spilling_kernel_is_counted() -> None:
    page = script()
    rows, paper = read_csv(str(TABLE)), page.paper_of(page.PAPER)
    at = next(n for n, row in enumerate(rows) if row.expected and not row.spills)
    before = page.text_of(rows, paper)
    after = page.text_of([*rows[:at], replace(rows[at], spills=7), *rows[at + 1 :]], paper)
    assert before != after
    assert "| 7, " in after


def test_expected_alternatives_do_not_spill() -> None:
    rows = read_csv(str(TABLE))
    assert len({row.device for row in rows}) == 5
    assert [row for row in rows if row.expected and row.scratch] == []
    assert compared(rows, rows).changes == []
