# SPDX-License-Identifier: Apache-2.0
"""Generated networks have the structure of the official ones, and run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.generators import dcgan, dcgan_int8, pix2pix_int8, super_resolution_int8
from benchmarks.network import Network
from benchmarks.networks import (
    RESOLUTIONS,
    WIDTHS,
    mobilenet_edgetpu,
    mobilenet_v1,
    mobilenet_v2,
    shufflenet_v2,
    squeezenet,
    ssd_mobilenet_v1,
)
from delegate import DeviceInfo, OpenCLDelegate
from delegate.graph.partition import products
from delegate.inspect import Graph, read_model, write_model
from tests.support.compare import interpreter
from tests.support.nets import assert_runs_exactly
from tests.support.shared import model_path
from tests.support.tiers import slow


def structure(graph: Graph) -> Iterator[Any]:
    for node in graph.nodes:
        weights = node.inputs[1] if node.op.endswith("CONV_2D") else None
        options = {
            name: node.options.get(name)
            for name in ("padding", "stride_w", "stride_h", "fused_activation_function")
        }
        shapes = node.outputs[0].shape, weights and weights.shape
        yield node.op, shapes, options, node.outputs[0].dtype


@pytest.mark.model
@pytest.mark.parametrize(("width", "resolution"), [(0.25, 128), (0.75, 192), (1.0, 224)])
def test_structure_of_official_networks(width: float, resolution: int) -> None:
    official = read_model(model_path(f"mobilenet_v1_{width}_{resolution}_quant"))
    whole = read_model(write_model(mobilenet_v1(width, resolution)))
    assert list(structure(whole)) == list(structure(official))


@pytest.mark.parametrize("width", WIDTHS)
def test_cost_grows_with_area(width: float) -> None:
    small, large = (
        sum(map(products, mobilenet_v1(width, side).nodes)) for side in RESOLUTIONS[::3]
    )
    assert 2.8 < large / small < 3.1  # (224 / 128) ** 2, except for the last layer


def test_multiply_adds_of_the_paper() -> None:
    # MobileNets (arXiv 1704.04861), table 8: 569 million multiply-adds; 1000 classes there.
    work = sum(map(products, mobilenet_v1(1.0, 224).nodes))
    assert round(work / 1e6) == 569


@pytest.mark.model
def test_runs_and_uses_range() -> None:
    graph = mobilenet_v1(0.25, 128)
    invoke = interpreter(write_model(graph))
    invoke.allocate_tensors()
    picture = np.random.default_rng(0).integers(0, 256, graph.inputs[0].shape).astype(np.uint8)
    invoke.set_tensor(graph.inputs[0].index, picture)
    invoke.invoke()
    assert 0 < invoke.get_tensor(graph.outputs[0].index).sum() < 300  # probabilities in 1/256


def test_fully_connected_layer() -> None:
    network = Network()
    network.fully_connected(network.tensor((1, 8), "picture"), 5)
    (node,) = read_model(write_model(network.graph("one layer"))).nodes
    assert (node.op, node.outputs[0].shape, products(node)) == ("FULLY_CONNECTED", (1, 5), 40)


def test_odd_resolution() -> None:
    with pytest.raises(ValueError, match="resolution 100"):
        mobilenet_v1(1.0, 100)


def _parameters(graph: Graph) -> int:
    return sum(
        tensor.data.size
        for node in graph.nodes
        if node.op.endswith("CONV_2D")
        for tensor in node.inputs[1:]
    )


def _scores(graph: Graph) -> NDArray[Any]:
    """Return a network's scores for a random picture."""
    interp = interpreter(write_model(graph))
    source = graph.inputs[0]
    picture = np.random.default_rng(1).integers(0, 255, source.shape)
    if source.dtype == "float32":
        picture = picture / 128 - 1
    interp.set_tensor(interp.get_input_details()[0]["index"], picture.astype(source.dtype))
    interp.invoke()
    (scores,) = (interp.get_tensor(each["index"]) for each in interp.get_output_details())
    return np.asarray(scores)


# Published numbers.
@pytest.mark.parametrize(("version", "parameters"), [("1.0", 1_248_424), ("1.1", 1_235_496)])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_squeezenet(version: str, parameters: int, dtype: str) -> None:
    graph = read_model(write_model(squeezenet(224, version, dtype)))
    assert _parameters(graph) == parameters
    scores = _scores(squeezenet(64, version, dtype))
    assert scores.shape == (1, 1, 1, 1000)
    assert scores.any()
    assert dtype == "uint8" or scores.sum() == pytest.approx(1, abs=1e-4)


def test_mobilenet_v2() -> None:
    graph = read_model(write_model(mobilenet_v2()))
    # torchvision's with 1000 classes: 3,504,872, of which its batch norms hold 17,056 more.
    assert _parameters(graph) == 3_504_872 - 17_056 + 1281
    assert round(sum(map(products, graph.nodes)) / 1e6) == 301  # arXiv 1801.04381: 300
    scores = _scores(mobilenet_v2(64))
    assert scores.shape == (1, 1001)
    assert scores.sum() == pytest.approx(1, abs=1e-4)


def test_boxes_of_ssd() -> None:
    graph = read_model(write_model(ssd_mobilenet_v1()))
    codes, scores, anchors = graph.nodes[-1].inputs
    # 3 anchors on 19x19, 6 on 10x10, 5x5, 3x3, 2x2 and 1x1.
    assert [each.shape for each in (codes, scores, anchors)] == [
        (1, 1917, 4),
        (1, 1917, 91),
        (1917, 4),
    ]
    places = anchors.data * anchors.quantization.scale[0]
    assert places[0] == pytest.approx([0.5 / 19, 0.5 / 19, 0.1, 0.1], abs=0.004)
    assert places[-1] == pytest.approx([0.5, 0.5, 0.975, 0.975], abs=0.004)


@slow
@pytest.mark.model
def test_ssd_is_exact(device: DeviceInfo) -> None:
    model = write_model(ssd_mobilenet_v1())
    graph = read_model(model)
    delegate = OpenCLDelegate(model, device.index, tune="off")
    assert_runs_exactly(model, graph, delegate)
    assert all(verdict.is_taken for verdict in delegate.verdicts)


def test_multiply_adds_of_shufflenet() -> None:
    # ShuffleNet V2 (arXiv 1807.11164), table 5: 146 million at width 1.
    work = sum(map(products, shufflenet_v2().nodes))
    assert work == pytest.approx(146e6, rel=0.01)
    ops = [node.op for node in shufflenet_v2().nodes]
    assert (ops.count("SPLIT"), ops.count("TRANSPOSE"), ops.count("CONCATENATION")) == (13, 16, 16)


def test_mobilenet_edgetpu_has_fused_expansions() -> None:
    nodes = mobilenet_edgetpu().nodes
    weights = [node.inputs[1] for node in nodes if node.op == "CONV_2D"]
    dense = [each.shape for each in weights if each and each.shape[1:3] == (3, 3)]
    assert dense[:3] == [(24, 3, 3, 3), (24, 3, 3, 24), (128, 3, 3, 16)]
    assert (len(dense), sum(node.op == "ADD" for node in nodes)) == (10, 15)


@pytest.mark.parametrize(
    "graph",
    [
        shufflenet_v2(32),
        mobilenet_edgetpu(32),
        dcgan(),
        dcgan_int8(),
        pix2pix_int8(64),
        super_resolution_int8(16),
    ],
)
def test_networks_run_on_cpu(graph: Graph) -> None:
    interp = interpreter(write_model(graph))
    (given,) = interp.get_input_details()
    interp.set_tensor(given["index"], np.ones(given["shape"], given["dtype"]))
    interp.invoke()
    (details,) = interp.get_output_details()
    assert details["shape"].tolist() == list(graph.outputs[0].shape)
    assert interp.get_tensor(details["index"]).any()
