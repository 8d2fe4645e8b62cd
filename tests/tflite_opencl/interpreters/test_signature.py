# SPDX-License-Identifier: Apache-2.0
"""--signature: each subcommand runs the named graph, and lists the existing ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tflite_opencl.command
from delegate import DeviceInfo
from delegate.inspect import read_model
from tests.support.subgraphs import two_signatures
from tests.support.tiers import slow
from tflite_opencl.harness.feeds import names_of, place_of
from tflite_opencl.interpreters.interpreter import allocated, invoke
from tflite_opencl.interpreters.runtime import find_runtime

WRONG = "ERROR: there is no signature 'decode'; the model has 'graph 0', 'graph 1'"
PICTURE = np.random.default_rng(2).integers(0, 256, (1, 4, 4, 3)).astype(np.uint8)


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "two.tflite"
    path.write_bytes(two_signatures())
    np.save(tmp_path / "x.npy", PICTURE)
    return str(path)


def expected(model: str, picture: np.ndarray = PICTURE) -> np.ndarray:
    """Return the outputs of TFLite's runner of the second signature."""
    runner = allocated(find_runtime(), model, "reference").get_signature_runner("graph 1")
    return np.asarray(runner(x0=picture)["y0"])


def test_interpreter_of_signature_equals_tflites_runner(model: str) -> None:
    graph = read_model(model, "graph 1")
    result = allocated(find_runtime(), model, "reference", graph=graph)
    assert [each["name"] for each in result.get_input_details()] == ["picture"]
    assert [each["name"] for each in result.get_output_details()] == ["scores"]
    (got,) = invoke(result, [PICTURE])
    assert got.tobytes() == expected(model).tobytes()
    result.resize_tensor_input(result.get_input_details()[0]["index"], (2, 4, 4, 3))
    result.allocate_tensors()
    (got,) = invoke(result, [np.concatenate([PICTURE, PICTURE])])
    assert got.shape == (2, 1, 1, 8)
    assert got[1].tobytes() == expected(model)[0].tobytes()


@pytest.mark.parametrize("name", ["0", "x0", "picture"])
def test_run_writes_outputs_of_signature(
    model: str, tmp_path: Path, device: DeviceInfo, name: str
) -> None:
    command = ["run", model, "--signature", "graph 1", "--input", f"{name}={tmp_path / 'x.npy'}"]
    command += ["--output", str(tmp_path / "out"), "--device", str(device.index), "--tune", "off"]
    assert tflite_opencl.command.main(command) == 0
    assert np.load(tmp_path / "out" / "scores.npy").tobytes() == expected(model).tobytes()


def test_unknown_input_lists_names_of_signature(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", model, "--signature", "graph 1", "--input", "far=x.npy", "--output", "out"]
    assert tflite_opencl.command.main(command) == 64
    message = "there is no input far; the model has one input: x0"
    assert message in capsys.readouterr().err


def test_names_of_signature_precede_tensor_names() -> None:
    graph = read_model(two_signatures(), "graph 1")
    assert (names_of(graph.inputs, graph.input_names), graph.subgraph) == (["x0"], 1)
    both = (*graph.outputs, *graph.outputs)
    (index,) = graph.output_names.values()
    assert names_of(both, {"b": index, "a": index}) == ["b", "a"]
    assert names_of(both, {"b": index}) == ["b", "scores"]
    assert [place_of(name, both, {"scores": 99, "b": index}) for name in ("b", "1", "c")] == [
        0, 1, None,
    ]  # fmt: skip
    assert read_model(two_signatures()).input_names == {}


@pytest.mark.parametrize("name", ["graph", "verify"])
def test_nodes_belong_to_signature(
    model: str, device: DeviceInfo, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [name, model, "--signature", "graph 1", "--device", str(device.index)]
    assert tflite_opencl.command.main([*command, "--tune", "off"]) == 0
    out = capsys.readouterr().out
    message = "2 of 2 nodes on OpenCL" if name == "graph" else "2 tensors compared"
    assert message in out, out


def test_cut_uses_nodes_of_signature(model: str, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    command = ["cut", model, "--signature", "graph 1", "--output", str(folder), "--inputs"]
    assert tflite_opencl.command.main(command) == 0
    (given, result) = (np.load(folder / name) for name in ("000_input_0.npy", "001_output_0.npy"))
    assert result.tobytes() == expected(model, given).tobytes()


@slow
def test_compare_uses_signature_on_each_path(
    model: str, device: DeviceInfo, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", model, "--signature", "graph 1", "--paths", f"opencl:{device.index}"]
    assert tflite_opencl.command.main([*command, "--count", "1", "--tune", "off"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "nodes taken 2 of 2 off the reference, quanta 0" in words, words


@pytest.mark.parametrize("name", ["graph", "verify", "run", "cut", "compare", "benchmark"])
def test_unknown_signature_is_one_line(
    model: str, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--output", str(tmp_path / "out")] if name in ("run", "cut") else []
    assert tflite_opencl.command.main([name, model, "--signature", "decode", *more]) == 64
    assert capsys.readouterr().err.splitlines() == [WRONG]
