# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl run`: outputs of frames, carried state, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from delegate import DeviceInfo
from tests.support.model import chain_model, op, t
from tflite_opencl.command import main


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    """Return a model that sums its inputs: seen = -(x + total), next = x + total."""
    x, total, seen = (t((1, 4), "float32", name=name) for name in ("x", "total", "a/seen"))
    after = t((1, 4), "float32", name="next")
    nodes = [op("ADD", [x, total], [after]), op("NEG", [after], [seen])]
    path = tmp_path / "sums.tflite"
    path.write_bytes(chain_model(nodes, [x, total], [seen, after]))
    return path


def run_command(model: Path, device: DeviceInfo, *arguments: str) -> int:
    words = ["run", str(model), "--device", str(device.index), "--tune", "off", *arguments]
    return main([*words, "--output", str(model.parent / "out")])


def test_state_is_carried_between_frames(
    sums: Path, device: DeviceInfo, capsys: pytest.CaptureFixture[str]
) -> None:
    values = sums.parent / "x.txt"
    values.write_text("1 2, 3 4\n10 20 30 40\n100")
    document = sums.parent / "found.json"
    flags = ["--input", f"x={values}", "--frames", "--carry", "next=total", "--json", str(document)]
    assert run_command(sums, device, *flags) == 0
    shown = capsys.readouterr().out
    assert "2 of 2" in shown
    assert shown.count("equal") == 4
    assert "3 zeros are behind the last frame" in shown
    result = np.load(sums.parent / "out/next.npy")
    np.testing.assert_array_equal(result[:, 0], [[1, 2, 3, 4], [11, 22, 33, 44], [111, 22, 33, 44]])
    np.testing.assert_array_equal(np.load(sums.parent / "out/a_seen.npy"), -result)
    facts = json.loads(document.read_text())
    assert [len(each["times_ms"]) for each in facts["paths"]] == [3, 3]
    assert [(each["apart"], each["off"]) for each in facts["outputs"]] == [(0.0, 0.0)] * 2


def test_file_of_one_input_is_one_run(sums: Path, device: DeviceInfo) -> None:
    values = np.float32([[1, 2, 3, 4]])
    np.save(sums.parent / "x.npy", values)
    path = sums.parent / "x.npy"
    assert run_command(sums, device, "--input", f"0={path}", "--input", f"total={path}") == 0
    np.testing.assert_array_equal(np.load(sums.parent / "out/next.npy"), 2 * values)


REFUSED = {
    "no input is given: --input NAME=FILE": [],
    "--input x: there is no file nowhere.npy": ["--input", "x=nowhere.npy"],
    "--input x: x.csv is no .npy, .wav or .txt file": ["--input", "x=x.csv"],
    "--input: there is no input y; the model has the inputs x, total": ["--input", "y=x.npy"],
    "--input 0: this input is given twice": ["--input", "x=x.npy", "--input", "0=x.npy"],
    "--carry: there is no output far; the model has a/seen, next": [
        *("--input", "x=x.npy", "--carry", "far=total")
    ],
}


@pytest.mark.parametrize("words", REFUSED)
def test_errors(
    words: str, sums: Path, device: DeviceInfo, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(sums, device, *REFUSED[words]) > 0
    assert capsys.readouterr().err == f"ERROR: {words}\n"


def test_non_finite_results_are_failures(
    tmp_path: Path, device: DeviceInfo, capsys: pytest.CaptureFixture[str]
) -> None:
    model, values = tmp_path / "log.tflite", tmp_path / "x.txt"
    model.write_bytes(chain_model([op("LOG", [t((1, 4), name="x")], [t((1, 4), name="y")])]))
    values.write_text("1 0 2 -1")
    document = tmp_path / "found.json"
    assert run_command(model, device, "--input", f"x={values}", "--json", str(document)) == 1
    why = "output 0 y: 2 of 4 values are not finite (NaN or infinite)"
    assert f"no result: {why}" in capsys.readouterr().out
    assert json.loads(document.read_text())["failure"] == why
    values.write_text("1 3 2 1")
    assert run_command(model, device, "--input", f"x={values}") == 0
