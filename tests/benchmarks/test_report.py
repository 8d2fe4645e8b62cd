# SPDX-License-Identifier: Apache-2.0
"""Tables of invented numbers."""

from __future__ import annotations

from dataclasses import replace

from rich.table import Table

from benchmarks.page import results_table
from benchmarks.report import markdown, summary, tables
from tests.support.report import report, row, times


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|\n").split("|")]


def text() -> str:
    return "\n".join(
        markdown(part) if isinstance(part, Table) else part for part in tables(report())
    )


def test_all_kinds_of_lines() -> None:
    rows = [cells(line) for line in text().splitlines()]
    for expected in (
        ["best", "OpenCL", "100", "1.000", "1.100", "1.00", "1.10", "0.90 to 1.20"],
        ["", "XNNPACK", "100", "5.000", "5.500", "0.20", "0.22", "0.18 to 0.24"],
        ["best", "", "1.000", "", "0.500", "80%", "0.50"],
        ["best", "30 of 31", "1", "29", "150528", "1001", "equal to the reference kernels"],
        ["best", "of XNNPACK's time", "0.20", "0.5", "0.25", "aim reached"],
        ["bad", "of XNNPACK's time", "0.60", "0.5", "0.25", "missed"],
        ["rate", "throughput", "1,500 pictures/s", "at least 1,000 pictures/s",
         "2,000 pictures/s", "reached"],
        ["OpenCL", "3.000", "1.600"],
        ["CONV_2D", "150.0", "75.0%", "140", "33.3"],
        ["0", "CONV_2D", "1x4x4x8", "vnni 14x32", "100.0", "50.0%", "200", "10.0", "50%"],
        ["2", "SOFTMAX", "1x1001", "plain", "50.0", "25.0%", "", "0.0", "0%"],
    ):  # fmt: skip
        assert expected in rows
    lines = text().splitlines()
    assert "absent: skipped: there is no such device" in lines
    assert "broken: FAILED: it broke" in lines
    assert "without tinygrad: not installed (best, good, bad, elsewhere)" in lines
    assert "Cost against batch: skipped: there is no such device" in lines
    assert any("not judged: the figure is for another machine" in line for line in lines)
    assert any(line.startswith("Roofline: 400 Gmultiply-adds/s and 100 GB/s") for line in lines)


def test_fastest_peer_is_named() -> None:
    whole = row("best", 0.5)
    faster = {"OpenVINO": times(0.5, 1.0), "OpenCL before": times(0.1, 1.0)}
    alone = {"OpenCL": times(1.0, 1.0)}
    rows = [
        replace(whole, paths={**whole.paths, **faster}),
        replace(whole, paths=alone, delegation=None),
    ]
    assert [cells(line) for line in markdown(results_table(rows)).splitlines()][2:] == [
        ["best", "1.000 / 1.100", "2.000 / 2.200", "0.50", "OpenVINO: 0.500", "0.500"],
        ["best", "1.000 / 1.100", "", "", "", ""],
    ]


def test_sums_by_op() -> None:
    (layers,) = report().layers
    assert summary(layers) == {
        "CONV_2D": (150.0, 21_000_000, 5_000_000),
        "SOFTMAX": (50.0, 0, 2002),
    }
