# SPDX-License-Identifier: Apache-2.0
"""Figures from times, and when they are judged, with invented numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.results import Goal
from benchmarks.rows import ROWS
from benchmarks.setup import Setup
from benchmarks.versus import difference, ratios, too_few
from delegate import DeviceInfo
from tests.support.report import times
from tflite_opencl.interpreters.runtime import find_runtime

GOAL = Goal("of the faster one's time", 0.95, against=("A", "B"))


def test_fastest_of_several_counts() -> None:
    paths = {"OpenCL": times(1.0, 1.0), "A": times(2.0, 1.0), "B": times(1.25, 1.0)}
    (figure,) = ratios([GOAL], paths, "", {})
    assert (figure.value, figure.verdict) == (0.8, "reached")


def test_missing_competitor_is_not_judged() -> None:
    paths = {"OpenCL": times(1.0, 1.0), "A": times(2.0, 1.0)}
    (figure,) = ratios([GOAL], paths, "", {"B": "not installed"})
    assert (figure.value, figure.not_judged) == (0.5, "without B")


def test_no_figure_without_competitors() -> None:
    assert ratios([GOAL], {"OpenCL": times(1, 1)}, "", {"A": "", "B": ""}) == []


def test_no_figure_with_few_runs() -> None:
    assert too_few(100) == ""
    assert too_few(99) == "99 runs: a figure needs 100"


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        (np.array([1, 2, 255], np.uint8), "equal to the reference kernels"),
        (np.array([1, 2, 0], np.uint8), "NOT equal to the reference kernels: 255 apart"),
    ],
    ids=["equal", "not equal"],
)
def test_integers_must_be_equal(ours: np.ndarray, words: str) -> None:
    assert difference([ours], [np.array([1, 2, 255], np.uint8)]) == words


def test_floats_may_differ() -> None:
    reference = [np.array([1, 2], np.float32)]
    assert difference([np.array([1, 2], np.float32)], reference).startswith("equal")
    output = difference([np.array([1, 2.25], np.float32)], reference)
    assert output == "within 0.2 of the reference kernels"


def test_run_is_split_into_kernel_and_rest(device: DeviceInfo, tmp_path: Path) -> None:
    setup = Setup(find_runtime(), tmp_path, str(device.index), runs=1, tune="off")
    result = ROWS["calls"].result(setup)
    (figure,), (note,) = result.figures, result.notes
    kernel_ms = float(note.split()[3]) / 1e3
    assert kernel_ms >= 0  # rusticl 22.3 reports 0 for all kernels
    assert figure.value == pytest.approx(result.paths["OpenCL"].min_ms - kernel_ms, abs=1e-4)
    assert "runs: a figure needs" in figure.not_judged or "PoCL" in figure.not_judged
