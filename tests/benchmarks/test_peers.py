# SPDX-License-Identifier: Apache-2.0
"""Competitors: installed ones run the same network, others have a reason."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import ncnn, peers
from benchmarks.measure import Skipped, imported
from benchmarks.networks import mobilenet_v1
from benchmarks.onnx_model import onnx_model
from benchmarks.peers import Peers, Workload
from delegate.inspect import write_model
from tests.support.model import chain_model, const, graph_of, op, t
from tflite_opencl.interpreters.runtime import find_runtime


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    """The smallest of the family, on one thread."""
    path = tmp_path_factory.mktemp("peers") / "v1.tflite"
    path.write_bytes(write_model(mobilenet_v1(0.25, 32)))
    return Workload(str(path), find_runtime(), 1)


def test_missing_peer_has_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("ncnn", "onnx", "onnxruntime", "openvino", "tflite_runtime", "tinygrad"):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(Skipped, match=rf"^{module} (does not load|is not installed)"):
            imported(module)


def test_missing_module() -> None:
    with pytest.raises(
        Skipped, match=r"^its-package is not installed \(pip install its-package\)$"
    ):
        imported("no_such_module", "its-package")


def test_tflite_is_always_a_peer(workload: Workload) -> None:
    result = peers.peers(workload, with_tinygrad=False)
    names = [contender.name for contender in result.contenders]
    assert names[0] == workload.runtime.kernels("auto")
    assert "built-in kernels" in names
    # Each one runs or is reported as missing.
    rest = {
        "ncnn in floats",
        "ncnn in floats, Vulkan",
        "ONNX Runtime",
        "OpenVINO",
        "OpenVINO on the .tflite",
        "tflite-runtime",
    }
    assert rest <= {*names, *result.missing, workload.runtime.name}
    assert not set(names) & set(result.missing)


def test_other_exceptions_propagate() -> None:
    available = Peers()

    def broken() -> None:
        raise KeyError("a mistake of ours")

    with pytest.raises(KeyError):
        available.add("broken", lambda: broken)


def test_planar_picture(workload: Workload) -> None:
    (values,) = workload.inputs
    assert workload.picture.shape == (1, 3, 32, 32)
    assert np.array_equal(workload.picture[0, 2], values[0, :, :, 2])


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("is_quantized", [True, False], ids=["int8", "float"])
def test_onnx_network(workload: Workload, batch: int, is_quantized: bool) -> None:
    onnx = pytest.importorskip("onnx", reason="the extra bench is not installed")
    model = onnx.load_model_from_string(onnx_model(workload.graph, batch, is_quantized))
    onnx.checker.check_model(model, full_check=True)
    shapes = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    results = {
        value.name: [size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in shapes.graph.value_info
    }
    expected = [n.outputs[0].shape for n in workload.graph.nodes if n.op.endswith("CONV_2D")]
    assert [results[node.output[0]] for node in convolutions] == [
        [batch, shape[3], shape[1], shape[2]] for shape in expected
    ]


def test_onnx_runtimes_agree(workload: Workload) -> None:
    pytest.importorskip("onnx", reason="the extra bench is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="the extra bench is not installed")
    assert runtime
    ours = peers.onnx_runtime(workload.onnx, workload.picture, 1)()
    assert isinstance(ours, list)
    (scores,) = ours
    assert scores.shape == (1, 1001)
    assert scores.sum() == pytest.approx(1, abs=1e-3)
    # Different values: the network is not constant.
    assert scores.std() > 0


def test_ncnn_paths_run_network(workload: Workload) -> None:
    pytest.importorskip("onnx", reason="the extra bench is not installed")
    pytest.importorskip("ncnn", reason="the extra bench is not installed")
    model = onnx_model(workload.graph, is_quantized=False)
    picture = workload.picture.astype(np.float32) / 255
    for is_vulkan in (False, True):
        try:
            scores = ncnn.ncnn(model, picture, 1, is_vulkan)()
        except Skipped as reason:
            pytest.skip(str(reason))
        assert scores.shape == (1001,)
        assert scores.std() > 0


def test_unsupported_op(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the extra bench is not installed")
    path = tmp_path / "tanh.tflite"
    path.write_bytes(chain_model([op("TANH", [t((1, 2, 2, 1))], [t((1, 2, 2, 1))])]))
    with pytest.raises(Skipped, match="op TANH has no ONNX translation"):
        onnx_model(Workload(str(path), find_runtime(), 1).graph)
    source, result = t((1, 2, 2, 1)), t((1, 2, 2, 1))
    second = op("TANH", [const(np.zeros((1, 2, 2, 1), np.float32))], [result])
    with pytest.raises(Skipped, match="op TANH has no ONNX translation"):
        onnx_model(graph_of([second], [source], [result]))
    with pytest.raises(Skipped, match="several inputs or outputs"):
        onnx_model(graph_of([second], [source, source], [result]))
