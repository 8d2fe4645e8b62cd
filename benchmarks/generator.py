# SPDX-License-Identifier: Apache-2.0
"""A network of floats that makes pictures, its weights random, for its speed: DCGAN's generator."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.family import FloatNetwork
from delegate.inspect import Graph, Tensor

_CODE = 100
_FIRST = (4, 512)  # side and channels of what the code becomes
# Channels after each TRANSPOSE_CONV of stride 2, and its window.
# Source: DCGAN (arXiv 1511.06434), figure 1, at half its width.
_LAYERS = ((256, 5), (128, 5), (64, 5), (3, 5))
_NONE = {"fused_activation_function": "NONE"}


def dcgan() -> Graph:
    """Return a generator as converters write it: batch normalisation is a MUL and an ADD.

    Shapes: code (1, 100) -> picture (1, 64, 64, 3)
    """
    network = FloatNetwork("DCGAN's generator, random weights")
    code = network.tensor((1, _CODE), None)
    side, channels = _FIRST
    dense = network.fully_connected(code, side * side * channels)
    x = network.reshaped(dense, (1, side, side, channels))
    for out_c, window in _LAYERS:
        x = _normalised(network, x)
        _, height, width, in_c = x.shape
        shape = (1, 2 * height, 2 * width, out_c)
        weights = _values(network, (out_c, window, window, in_c), window * window * in_c / 4)
        options = {"padding": "SAME", "stride_w": 2, "stride_h": 2}
        inputs = [_ints(network, shape), weights, x]
        x = network.node("TRANSPOSE_CONV", inputs, network.tensor(shape, None), options)
    x = _with(network, "ADD", x, _NONE)
    return network.graph(code, network.node("TANH", [x], network.tensor(x.shape, None), {}))


def _normalised(network: FloatNetwork, x: Tensor) -> Tensor:
    x = _with(network, "ADD", _with(network, "MUL", x, _NONE), _NONE)
    return network.node("LEAKY_RELU", [x], network.tensor(x.shape, None), {"alpha": 0.2})


def _with(network: FloatNetwork, op: str, x: Tensor, options: dict[str, Any]) -> Tensor:
    """Add an op of a tensor and a number for each of its channels."""
    inputs = [x, _values(network, (x.shape[3],), 1)]
    return network.node(op, inputs, network.tensor(x.shape, None), options)


def _values(network: FloatNetwork, shape: tuple[int, ...], terms: float) -> Tensor:
    factors = network.rng.standard_normal(shape) / np.sqrt(terms)
    return network.tensor(shape, None, factors.astype(np.float32))


def _ints(network: FloatNetwork, numbers: tuple[int, ...]) -> Tensor:
    return network.tensor((len(numbers),), None, np.array(numbers, np.int32))
