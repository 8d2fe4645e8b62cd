# SPDX-License-Identifier: Apache-2.0
"""Charts of invented numbers: each is drawn, labelled and small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from benchmarks import chart
from tests.support.report import report
from tests.support.tiers import slow

pytest.importorskip("matplotlib")
LIMIT_BYTES = 120_000


def drawn(path: Path) -> Image.Image:
    assert 0 < path.stat().st_size < LIMIT_BYTES
    picture = Image.open(path)
    picture.load()
    # A transparent background, and some content.
    assert picture.getpixel((0, 0))[3] == 0  # type: ignore[index]
    assert picture.getextrema()[3][1] == 255  # type: ignore[index]
    return picture


@slow
def test_figures_and_limits(tmp_path: Path) -> None:
    path = tmp_path / "figures.png"
    chart.write_report(report(), path)
    colours = {colour for _, colour in drawn(path).getcolors(1 << 20) or ()}
    for verdict in ("#3a9d62", "#3b82c4", "#c94f4f", "#8a8a8a"):
        assert (*bytes.fromhex(verdict[1:]), 255) in colours


def test_times_without_figures(tmp_path: Path) -> None:
    whole = report()
    rows = [replace(row, figures=()) for row in whole.rows]
    chart.write_report(replace(whole, rows=rows), tmp_path / "times.png")
    chart.write_times(whole.rows, tmp_path / "same.png")
    drawn(tmp_path / "times.png")
    assert (tmp_path / "times.png").read_bytes() == (tmp_path / "same.png").read_bytes()


def test_output_is_deterministic(tmp_path: Path) -> None:
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    chart.write_report(report(), first)
    chart.write_report(report(), second)
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size < LIMIT_BYTES
