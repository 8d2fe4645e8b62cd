# SPDX-License-Identifier: Apache-2.0
"""LoadGen with a small classifier, and the files that it writes."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from benchmarks.loadgen import Samples, accuracy, loadgen, samples_of
from benchmarks.measure import Skipped
from tests.support.tiers import slow


class Reddest:
    """A fake Model: the class is the channel with the highest mean."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.runs = 0
        self.input_details = (SimpleNamespace(shape=(batch, 4, 4, 3), dtype="uint8"),)
        self.output_details = (SimpleNamespace(shape=(batch, 3), dtype="uint8"),)

    def run(self, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
        self.runs += 1
        return [inputs[0].mean((1, 2)).astype(np.uint8)]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number, name in enumerate(("red", "green", "blue", "unknown")):
        colour = [10, 10, 10]
        colour[number % 3] = 200
        Image.new("RGB", (9, 7), tuple(colour)).save(folder / f"{name}.png")
    return folder


@pytest.fixture
def expected(tmp_path: Path) -> Path:
    path = tmp_path / "labels.csv"
    # One is wrong, one has another right class, and one is missing.
    path.write_text("file,index,also_ok\nred.png,0,\na/green.png,2,0 1\nblue.png,0,\nno.png,1,\n")
    return path


@slow
def test_accuracy_of_labelled_pictures(pictures: Path, expected: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlperf_loadgen")
    (tmp_path / "model.tflite").touch()
    model, folder = tmp_path / "model.tflite", tmp_path / "files"
    text = loadgen(
        model, 0.2, folder, lambda batch: nullcontext(Reddest(batch)), pictures, expected
    )
    assert text.startswith("No official MLPerf result")
    for scenario in ("SingleStream", "Offline"):
        assert f"{scenario}: top-1 66.7% of 3 pictures" in text
        summary = folder / scenario / "performance/run_1/mlperf_log_summary.txt"
        assert f"Scenario : {scenario}" in summary.read_text()
        assert "Result is VALID" in text
        logged = json.loads((folder / scenario / "accuracy/mlperf_log_accuracy.json").read_text())
        assert {entry["qsl_idx"] for entry in logged} == {0, 1, 2}
    assert "Samples per second" in text


def test_random_inputs_without_accuracy() -> None:
    result = samples_of(Reddest(8), None, None)  # type: ignore[arg-type]
    assert {each.shape for each in result.inputs} == {(1, 4, 4, 3)}
    assert result.right == ()


def test_no_labelled_picture_is_one_line(pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "none.csv").write_text("file,index\nx.png,1\n")
    with pytest.raises(Skipped, match="there is no picture"):
        samples_of(Reddest(1), pictures, tmp_path / "none.csv")  # type: ignore[arg-type]


def test_background_class_shifts_labels(pictures: Path, tmp_path: Path) -> None:
    model = Reddest(1)
    model.output_details = (SimpleNamespace(shape=(1, 1001), dtype="uint8"),)
    (tmp_path / "labels.csv").write_text("file,index\nred.png,7\n")
    assert samples_of(model, pictures, tmp_path / "labels.csv").right == [{8}]  # type: ignore[arg-type]


def test_duplicate_log_entries_count_once() -> None:
    samples = Samples([np.zeros(1)] * 2, [frozenset({1}), frozenset({0})])
    log = [{"qsl_idx": 0, "data": "0102"}, {"qsl_idx": 1, "data": "0102"}] * 2
    assert accuracy(json.dumps(log), samples, "uint8") == 0.5
