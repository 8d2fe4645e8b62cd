# SPDX-License-Identifier: Apache-2.0
"""Verdicts, the roofline, and stored reports, with invented numbers."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.results import Figure, Goal, load, save
from tests.support.report import RATE, report, row

AT_MOST = Goal("time", 0.5, 0.25)


@pytest.mark.parametrize(
    ("goal", "value", "verdict"),
    [
        (AT_MOST, 0.25, "aim reached"),
        (AT_MOST, 0.26, "reached"),
        (AT_MOST, 0.5, "reached"),
        (AT_MOST, 0.51, "missed"),
        (replace(AT_MOST, aim=None), 0.1, "reached"),
        (RATE, 2000, "aim reached"),
        (RATE, 1000, "reached"),
        (RATE, 999, "missed"),
    ],
)
def test_verdict(goal: Goal, value: float, verdict: str) -> None:
    assert Figure(goal, value).verdict == verdict
    assert Figure(goal, value, "another machine").verdict == "not judged"


def test_problems_of_rows() -> None:
    assert row("good", 0.4).misses == []
    assert row("bad", 0.6, "another machine").misses == []
    bad = replace(row("bad", 0.6), exact="NOT equal to the reference kernels: 1 apart")
    assert bad.misses == [
        "NOT equal to the reference kernels: 1 apart",
        "of XNNPACK's time: 0.60, not at most 0.5",
    ]
    slow = replace(row("slow", 0.6), figures=[Figure(RATE, 999.0)])
    assert slow.misses == ["throughput: 999.00 pictures/s, not at least 1,000"]


def test_report_round_trips(tmp_path: Path) -> None:
    path, again = tmp_path / "report.json", tmp_path / "again.json"
    save(report(), path)
    save(load(path), again)
    assert again.read_text() == path.read_text()
    first = load(path).rows[0]
    assert first.figures[0] == report().rows[0].figures[0]
    assert first.paths == report().rows[0].paths
    verdicts = [
        figure["verdict"]
        for each in json.loads(path.read_text())["rows"]
        for figure in each["figures"]
    ]
    assert verdicts == ["aim reached", "reached", "missed", "not judged", "reached"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"machine": {}, "rows": [{}]}'])
def test_other_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not what --json writes"):
        load(path)


def test_roofline() -> None:
    (layers,) = report().layers
    assert layers.total_us == 200
    # 20 M multiply-adds need 50 us at 4e11/s, 4 MB need 40 us at 1e11/s.
    fractions = [layers.roofline_fraction(layer) for layer in layers.layers]
    assert fractions == pytest.approx([50 / 100, 40 / 50, 0.02002 / 50])


def test_records_are_plain_values() -> None:
    json.dumps(asdict(report()))
