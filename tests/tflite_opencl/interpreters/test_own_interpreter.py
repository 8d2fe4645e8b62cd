# SPDX-License-Identifier: Apache-2.0
"""Commands without TFLite run models that OpenCL claims whole, compared with NumPy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import Graph, write_model
from tests.support.compare import interpreter
from tests.support.nets import conv_pool
from tests.support.tiers import slow
from tests.support.without_tflite import make_so
from tflite_opencl.command import main
from tflite_opencl.conformance.cases.chains import chain_graph
from tflite_opencl.console.errors import RunError
from tflite_opencl.interpreters.interpreter import invoke
from tflite_opencl.interpreters.own_interpreter import WholeInterpreter
from tflite_opencl.oracle.values import input_sets

Out = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model in the current folder."""
    (tmp_path / "model.tflite").write_bytes(write_model(conv_pool()))
    np.save(tmp_path / "x.npy", input_sets(conv_pool())[0][0])
    monkeypatch.chdir(tmp_path)
    make_so(monkeypatch)
    return tmp_path / "model.tflite"


@pytest.mark.parametrize("graph", [conv_pool(), chain_graph("deep", "int8", (1, 9, 8, 3))])
def test_whole_graph_equals_reference(graph: Graph, device: DeviceInfo) -> None:
    delegate = OpenCLDelegate(graph, device.index, tune="off")
    result, known = WholeInterpreter(graph, delegate, "no TFLite"), interpreter(write_model(graph))
    for inputs in input_sets(graph):
        for got, expected in zip(invoke(result, inputs), invoke(known, inputs), strict=True):
            assert (got.dtype, got.tobytes()) == (expected.dtype, expected.tobytes())
    assert delegate.partitions == [[node.index for node in graph.nodes]]
    assert delegate.alternatives
    delegate.close()
    with pytest.raises(RuntimeError, match="closed"):
        result.invoke()


def test_cpu_nodes_are_an_error(device: DeviceInfo) -> None:
    graph = conv_pool()
    op = graph.nodes[0].op
    delegate = OpenCLDelegate(graph, device.index, exclude_ops=[op])
    with pytest.raises(RunError, match=f"does not run the whole model .node 0, {op}: excluded"):
        WholeInterpreter(graph, delegate, "no TFLite")
    delegate.close()


def test_verify(model: Path, device: DeviceInfo, capsys: Out) -> None:
    assert main(["verify", "-m", str(model), "--tune", "off", "--device", str(device.index)]) == 0
    output = capsys.readouterr().out
    assert "compared with numpy's reference kernels" in output
    assert output.endswith("no node is wrong\n")


def test_run(model: Path, device: DeviceInfo, capsys: Out) -> None:
    words = ["run", str(model), "--input", "0=x.npy", "--device", str(device.index)]
    words += ["--tune", "off"]
    assert main([*words, "--output", "out", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [each["name"].split()[0] for each in report["paths"]] == ["opencl", "numpy"]
    assert [each["apart"] for each in report["outputs"]] == [0]


def test_model_unknown_to_numpy_runs_without_comparison(
    model: Path, device: DeviceInfo, capsys: Out
) -> None:
    model.write_bytes(write_model(chain_graph("deep", "float32", (1, 9, 8, 3))))
    np.save("x.npy", np.ones((1, 9, 8, 3), np.float32))
    words = ["run", str(model), "--input", "0=x.npy", "--device", str(device.index)]
    words += ["--tune", "off"]
    assert main([*words, "--output", "out"]) == 0
    output = capsys.readouterr().out
    assert "not compared" in output
    assert "nothing is beside it: no TFLite runtime" in output


@slow
def test_compare(model: Path, device: DeviceInfo, capsys: Out) -> None:
    words = ["compare", "-m", str(model), "-c", "2", "--tune", "off", "--json", "-"]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    (path,) = report["models"][0]["paths"]
    assert (path["path"], path["quanta"], path["failure"]) == ("opencl", 0, "")
    assert "no TFLite" in report["machine"]["versions"]
    assert main([*words, "--paths", "cpu,opencl"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["models"][0]["paths"][0]["failure"].startswith("no TFLite runtime")
