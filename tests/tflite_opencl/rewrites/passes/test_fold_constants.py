# SPDX-License-Identifier: Apache-2.0
"""Folding of shape computations, stored weights and QUANTIZE of constants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate.inspect import Graph, Tensor
from tests.support.cases import zero_points
from tests.support.model import const, graph_of, op, t
from tests.support.rewrites import assert_exact_rewrite, left_by, whole
from tflite_opencl.rewrites.passes.fold_constants import rewrite


def shaped(signature: tuple[int, ...] = ()) -> Graph:
    """Return x -SHAPE-> s -STRIDED_SLICE-> n -PACK-> r, (x, r) -RESHAPE-> y: Flatten."""
    x = t((2, 3, 4), name="x", shape_signature=signature)
    s, n, r, y = t((3,), "int32"), t((), "int32"), t((2,), "int32"), t((2, 12), name="y")
    at = [const(np.int32([number])) for number in (0, 1, 1)]
    nodes = [
        op("SHAPE", [x], [s], {"out_type": "int32"}),
        op("STRIDED_SLICE", [s, *at], [n], {"shrink_axis_mask": 1}),
        op("PACK", [n, const(np.int32(12))], [r], {"values_count": 2, "axis": 0}),
        op("RESHAPE", [x, r], [y]),
    ]
    return whole(graph_of(nodes))


def test_shape_computation_is_folded() -> None:
    after, notes = assert_exact_rewrite(shaped(), rewrite)
    assert [node.op for node in after.nodes] == ["RESHAPE"]
    shape = after.nodes[0].inputs[1]
    assert shape is not None
    assert shape.data is not None
    assert shape.data.tolist() == [2, 12]
    assert [note.op for note in notes] == ["SHAPE", "STRIDED_SLICE", "PACK"]


def test_dynamic_shape_stays() -> None:
    assert left_by(rewrite, shaped((-1, 3, 4))) == [
        "an input of the graph has a size that may change",
        "it follows from a node that is left",
        "it follows from a node that is left",
    ]


def test_constant_graph_output_stays() -> None:
    graph = shaped()
    shape = graph.nodes[2].outputs[0]
    new = rewrite(replace(graph, outputs=(*graph.outputs, shape)))
    assert [node.op for node in new.nodes] == ["PACK", "RESHAPE"]


def weighted(weights: Tensor) -> Graph:
    x, y = t((2, 3)), t((2, 4))
    w = t((4, 3), name="w")
    nodes = [op("DEQUANTIZE", [weights], [w]), op("FULLY_CONNECTED", [x, w, None], [y])]
    return whole(graph_of(nodes))


def test_float16_weights_become_float32() -> None:
    values = np.linspace(-3, 70000, 12).clip(-65504, 65504).astype(np.float16).reshape(4, 3)
    after, _ = assert_exact_rewrite(weighted(const(values)), rewrite)
    assert [node.op for node in after.nodes] == ["FULLY_CONNECTED"]
    weights = after.nodes[0].inputs[1]
    assert weights is not None
    assert weights.name == "w"
    assert np.array_equal(np.asarray(weights.data), values.astype(np.float32))


def test_8_bit_weights_stay() -> None:
    weights = const(np.arange(12, dtype=np.int8).reshape(4, 3), 0.1)
    assert left_by(rewrite, weighted(weights)) == [
        "weights of int8 would take four times the bytes"
    ]


def quantised(values: Any, dtype: str, scale: float, zero_point: int) -> Graph:
    data = np.asarray(values, np.float32)
    x, c, y = (t(data.shape, dtype, scale, zero_point) for _ in range(3))
    nodes = [op("QUANTIZE", [const(data)], [c]), op("MAXIMUM", [x, c], [y])]
    return whole(graph_of(nodes))


def test_quantize_of_constant_is_folded() -> None:
    after, _ = assert_exact_rewrite(quantised([0.25, -0.25, 900, -900], "int8", 0.5, 3), rewrite)
    assert [node.op for node in after.nodes] == ["MAXIMUM"]
    constant = after.nodes[0].inputs[1]
    assert constant is not None
    assert np.asarray(constant.data).tolist() == [4, 2, 127, -128]


def test_non_finite_constants_stay() -> None:
    assert left_by(rewrite, quantised([np.nan, 1], "int8", 0.5, 3)) == []


@given(
    st.lists(st.floats(-1000, 1000, width=32), min_size=1, max_size=20),
    st.sampled_from(["int8", "uint8", "int16"]),
    st.floats(-6, 4).map(lambda power: 2**power),
    st.data(),
)
@settings(max_examples=60)
def test_random_quantize(
    values: list[float], dtype: str, scale: float, data: st.DataObject
) -> None:
    zero = 0 if dtype == "int16" else data.draw(zero_points(dtype))
    # With ties: halves of a quantum.
    exact = float(np.float32(scale))
    values = [*values, *(exact * (n + 0.5) for n in range(-3, 3))]
    after, _ = assert_exact_rewrite(quantised(values, dtype, scale, zero), rewrite)
    assert len(after.nodes) == 1


@pytest.mark.parametrize("name", ["SHAPE", "DEQUANTIZE"])
def test_constant_input_of_graph_stays(name: str) -> None:
    graph = weighted(const(np.ones((4, 3), np.float16)))
    stored = graph.nodes[0].inputs[0]
    assert stored is not None
    changeable = replace(graph, inputs=(*graph.inputs, stored))
    assert rewrite(changeable) is changeable
