# SPDX-License-Identifier: Apache-2.0
"""The network's graph: folding, padding and quantisation, with fake weights of real shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate.inspect import Graph, Node, Quantization, Tensor, write_model
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.models.efficientnet_lite0 import float_graph, quantize

# Kernel size, expansion and channels of each block, as in the EfficientNet-Lite paper's table.
BLOCKS = (
    (3, 1, 16),
    *[(3, 6, 24)] * 2,
    *[(5, 6, 40)] * 2,
    *[(3, 6, 80)] * 3,
    *[(5, 6, 112)] * 3,
    *[(5, 6, 192)] * 4,
    (3, 6, 320),
)


def _made_up_weights() -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(7)
    weights: dict[str, NDArray[Any]] = {}

    def layer(name: str, norm: str, out_c: int, in_c: int, kernel: int) -> None:
        shape = (out_c, in_c, kernel, kernel)
        spread = (in_c * kernel * kernel) ** -0.5
        weights[f"{name}.weight"] = random.normal(0, spread, shape).astype(np.float32)
        for part in ("weight", "running_var"):
            weights[f"{norm}.{part}"] = random.uniform(0.5, 2, out_c).astype(np.float32)
        for part in ("bias", "running_mean"):
            weights[f"{norm}.{part}"] = random.normal(0, 1, out_c).astype(np.float32)

    layer("_conv_stem", "_bn0", 32, 3, 3)
    in_c = 32
    for number, (kernel, expansion, out_c) in enumerate(BLOCKS):
        block, wide = f"_blocks.{number}", in_c * expansion
        if expansion != 1:
            layer(f"{block}._expand_conv", f"{block}._bn0", wide, in_c, 1)
        layer(f"{block}._depthwise_conv", f"{block}._bn1", wide, 1, kernel)
        layer(f"{block}._project_conv", f"{block}._bn2", out_c, wide, 1)
        in_c = out_c
    layer("_conv_head", "_bn1", 1280, in_c, 1)
    weights["_fc.weight"] = random.normal(0, 0.05, (1000, 1280)).astype(np.float32)
    weights["_fc.bias"] = random.normal(0, 0.1, 1000).astype(np.float32)
    return weights


@pytest.fixture(scope="module")
def weights() -> dict[str, NDArray[Any]]:
    return _made_up_weights()


@pytest.fixture(scope="module")
def graph(weights: dict[str, NDArray[Any]]) -> Graph:
    return float_graph(weights)


def _constant(tensor: Tensor | None) -> NDArray[Any]:
    assert tensor is not None
    assert tensor.data is not None
    return tensor.data


def _named(graph: Graph, name: str) -> Node:
    (node,) = (node for node in graph.nodes if node.outputs[0].name == name)
    return node


def _quantization(tensor: Tensor | None) -> Quantization:
    assert tensor is not None
    assert tensor.quantization is not None
    return tensor.quantization


def _scales(tensor: Tensor | None) -> NDArray[np.float64]:
    """Return the tensor's scales, in a shape that multiplies its values."""
    quantization = _quantization(tensor)
    shape = [1] * _constant(tensor).ndim
    shape[quantization.axis] = -1
    return np.array(quantization.scale).reshape(shape)


def _dequantized(tensor: Tensor | None) -> NDArray[np.float64]:
    values: NDArray[np.float64] = _constant(tensor) * _scales(tensor)
    return values


def test_graph_has_the_networks_layers(graph: Graph) -> None:
    assert Counter(node.op for node in graph.nodes) == {
        "CONV_2D": 1 + 15 + 16 + 1,
        "DEPTHWISE_CONV_2D": 16,
        "ADD": 9,
        "AVERAGE_POOL_2D": 1,
        "RESHAPE": 1,
        "FULLY_CONNECTED": 1,
        "SOFTMAX": 1,
    }
    assert graph.inputs[0].shape == (1, 224, 224, 3)
    assert _named(graph, "block15/project").outputs[0].shape == (1, 7, 7, 320)
    assert graph.outputs[0].shape == (1, 1000)


def test_batch_normalisation_is_folded(weights: Mapping[str, Any], graph: Graph) -> None:
    # A 1x1 convolution of one pixel is a matrix product.
    _, kernel, bias = _named(graph, "head").inputs
    pixel = np.random.default_rng(3).normal(size=320)
    folded = _constant(kernel).reshape(1280, 320) @ pixel + _constant(bias)
    plain = weights["_conv_head.weight"].reshape(1280, 320) @ pixel
    deviation = np.sqrt(weights["_bn1.running_var"] + 0.001)
    normal = (plain - weights["_bn1.running_mean"]) / deviation
    expected = normal * weights["_bn1.weight"] + weights["_bn1.bias"]
    np.testing.assert_allclose(folded, expected, rtol=1e-5, atol=1e-5)


def test_kernels_are_in_tflites_order(weights: Mapping[str, Any], graph: Graph) -> None:
    _, stem, _ = _named(graph, "stem").inputs
    _, depthwise, _ = _named(graph, "block3/depthwise").inputs
    assert _constant(stem).shape == (32, 3, 3, 3)
    assert _constant(depthwise).shape == (1, 5, 5, 144)
    # Folding multiplies an output channel by one factor.
    ratio = _constant(stem)[5] / weights["_conv_stem.weight"][5].transpose(1, 2, 0)
    np.testing.assert_allclose(ratio, ratio[0, 0, 0], rtol=1e-5)
    original = weights["_blocks.3._depthwise_conv.weight"][9, 0]
    ratio = _constant(depthwise)[0, :, :, 9] / original
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-5)


def _ranges(graph: Graph) -> dict[str, tuple[float, float]]:
    ranges = {node.outputs[0].name: (-4.0, 4.0) for node in graph.nodes}
    return ranges | {"image": (-127 / 128, 1.0), "probabilities": (0.0, 255 / 256)}


def _weighted(graph: Graph) -> list[Node]:
    return [
        node
        for node in graph.nodes
        if node.op in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
    ]


def test_weights_are_within_half_a_quantum(graph: Graph) -> None:
    quantized = quantize(graph, _ranges(graph))
    for node, original in zip(_weighted(quantized), _weighted(graph), strict=True):
        for tensor, exact in list(zip(node.inputs, original.inputs, strict=True))[1:]:
            error = np.abs(_dequantized(tensor) - _constant(exact))
            assert np.all(error <= 0.5001 * _scales(tensor)), node.outputs[0].name


def test_quantisation_follows_tflites_rules(graph: Graph) -> None:
    quantized = quantize(graph, _ranges(graph))
    for node in _weighted(quantized):
        source, kernel, bias = (_quantization(tensor) for tensor in node.inputs)
        assert set(kernel.zero_point) == {0}
        assert set(bias.zero_point) == {0}
        assert kernel.axis == (3 if node.op == "DEPTHWISE_CONV_2D" else 0)
        channels = 1 if node.op == "FULLY_CONNECTED" else node.outputs[0].shape[-1]
        assert len(kernel.scale) == channels
        np.testing.assert_allclose(bias.scale, np.array(kernel.scale) * source.scale, rtol=1e-6)
        assert _constant(node.inputs[1]).min() >= -127
    pool, flat = (_named(quantized, name) for name in ("average", "flat"))
    assert _quantization(pool.inputs[0]) == _quantization(pool.outputs[0])
    assert _quantization(flat.inputs[0]) == _quantization(flat.outputs[0])


def test_dead_channel_keeps_its_bias(weights: dict[str, NDArray[Any]]) -> None:
    dying = {name: values.copy() for name, values in weights.items()}
    for channel, spread in ((4, 0.0), (5, 1e-9)):
        dying["_conv_head.weight"][channel] *= np.float32(spread)
        dying["_bn1.running_mean"][channel] = 0
        dying["_bn1.bias"][channel] = -3.25
    graph = float_graph(dying)
    _, kernel, bias = _named(quantize(graph, _ranges(graph)), "head").inputs
    np.testing.assert_allclose(_dequantized(bias)[4:6], -3.25, rtol=1e-5)
    assert not _constant(kernel)[4:6].any()
    assert np.abs(_constant(bias).astype(np.int64)).max() <= 2**20


def test_range_without_zero_is_widened_to_it(graph: Graph) -> None:
    ranges = _ranges(graph) | {"stem": (2.0, 6.0), "head": (-6.0, -2.0)}
    quantized = quantize(graph, ranges)
    for name, zero_point in (("stem", -128), ("head", 127)):
        quantization = _quantization(_named(quantized, name).outputs[0])
        assert quantization.scale[0] == pytest.approx(6 / 255)
        assert quantization.zero_point == (zero_point,)


def test_quantised_stem_computes_what_the_float_stem_does(graph: Graph) -> None:
    # Only the first layer, so that there is only one quantisation error.
    stem = _named(graph, "stem")
    first = Graph(graph.tensors[:4], (stem,), graph.inputs, stem.outputs)
    module = find_runtime().module
    pixels = np.random.default_rng(5).integers(-128, 128, (1, 224, 224, 3), np.int8)
    results = []
    for model, values in (
        (first, (pixels.astype(np.float32) + 1) / 128),
        (quantize(first, {"image": (-127 / 128, 1.0), "stem": (0.0, 6.0)}), pixels),
    ):
        interpreter = module.Interpreter(model_content=write_model(model))
        interpreter.allocate_tensors()
        interpreter.set_tensor(0, values)
        interpreter.invoke()
        results.append(interpreter.get_tensor(model.outputs[0].index))
    exact, codes = results
    assert exact.shape == (1, 112, 112, 32)
    error = np.abs((codes.astype(np.float64) + 128) * 6 / 255 - exact)
    assert error.max() < 2 * 6 / 255
    assert error.mean() < 0.3 * 6 / 255
