# SPDX-License-Identifier: Apache-2.0
"""Proven ranges of channels: no run leaves them, and they are narrow for known layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings

from delegate.graph.ir import Graph
from delegate.inspect import read_model, write_model
from tests.support.compare import inputs_for, interpreter, invoke
from tests.support.convolution import Convolution
from tests.support.model import const, graph_of, op, t
from tests.support.rewrites import CHAINS, chain, whole
from tests.support.tiers import slow
from tflite_opencl.rewrites.passes.layers import channel_ranges


def assert_within(graph: Graph) -> None:
    """Assert that outputs of all convolutions are in their ranges, for several inputs."""
    seen = tuple(node.outputs[0] for node in graph.nodes)
    shown = replace(graph, outputs=seen)
    ranges = channel_ranges(shown)
    assert set(ranges) == set(seen)
    interp = interpreter(write_model(shown))
    for given_values in inputs_for(graph):
        for tensor, codes in zip(seen, invoke(interp, given_values), strict=True):
            quantization = tensor.quantization
            assert quantization is not None
            real = (codes.astype(np.float64) - quantization.zero_point[0]) * quantization.scale[0]
            low, high = ranges[tensor]
            close = quantization.scale[0] * 1e-6
            assert (real.min(axis=(0, 1, 2)) >= low - close).all()
            assert (real.max(axis=(0, 1, 2)) <= high + close).all()


@slow
@given(CHAINS)
@settings(max_examples=30)
def test_no_run_leaves_the_ranges(cases: list[Convolution]) -> None:
    assert_within(chain(cases))


def test_ranges_are_tight() -> None:
    # Input of 0 to 25.5; sums of one tap and a bias, then RELU6.
    weights = np.array([[0], [1], [2], [-1]], np.int8).reshape(4, 1, 1, 1)
    bias = np.array([-5, 10, 0, 30], np.int32)
    graph = graph_of(
        [
            op(
                "CONV_2D",
                [t((1, 2, 2, 1), "int8", 0.1, -128), const(weights, 0.1), const(bias, 0.01)],
                [t((1, 2, 2, 4), "int8", 0.05, -128)],
                {
                    "padding": "VALID",
                    "stride_h": 1,
                    "stride_w": 1,
                    "fused_activation_function": "RELU6",
                },
            )
        ]
    )
    low, high = channel_ranges(graph)[graph.nodes[0].outputs[0]]
    np.testing.assert_allclose(low, [0, 0.1, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(high, [0, 2.65, 5.1, 0.3], rtol=1e-6)
    assert_within(whole(graph))
    assert read_model(write_model(graph)).nodes[0].op == "CONV_2D"
