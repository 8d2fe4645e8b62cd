# SPDX-License-Identifier: Apache-2.0
"""Fusion of clamps into the preceding node, and removal of redundant clamps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate.inspect import Graph, Node, Tensor
from tests.support.cases import zero_points
from tests.support.model import const, graph_of, op, t
from tests.support.rewrites import assert_exact_rewrite, drawn_convolutions, left_by, whole
from tflite_opencl.rewrites.passes.fuse_activations import rewrite

CLAMPS = ("RELU", "RELU6", "RELU_N1_TO_1")


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def fused(node: Node) -> str:
    return str(node.options["fused_activation_function"])


def clamped(*clamps: str, own: str = "NONE", scale: float = 0.05, zero: int = 100) -> Graph:
    """Return (x, x) -ADD-> y0 -clamp-> y1 ..., all with one scale."""
    x = t((2, 3), "uint8", 0.03, 120)
    tensors = [t((2, 3), "uint8", scale, zero, name=f"y{n}") for n in range(len(clamps) + 1)]
    nodes = [op("ADD", [x, x], [tensors[0]], {"fused_activation_function": own})]
    nodes += [op(name, [tensors[n]], [tensors[n + 1]]) for n, name in enumerate(clamps)]
    return whole(graph_of(nodes))


@pytest.mark.parametrize("clamp", CLAMPS)
def test_clamp_is_fused(clamp: str) -> None:
    after, notes = assert_exact_rewrite(clamped(clamp), rewrite)
    assert ops(after) == ["ADD"]
    assert fused(after.nodes[0]) == clamp
    assert after.outputs[0].name == "y1"
    assert [(note.op, note.text) for note in notes] == [(clamp, "joins ADD")]


def test_two_clamps_are_merged() -> None:
    for pair in (("RELU", "RELU6"), ("RELU6", "RELU"), ("RELU", "RELU")):
        after, _ = assert_exact_rewrite(clamped(*pair), rewrite)
        assert ops(after) == ["ADD"]
        assert fused(after.nodes[0]) == ("RELU6" if "RELU6" in pair else "RELU")


def test_different_clamp_stays() -> None:
    assert left_by(rewrite, clamped("RELU_N1_TO_1", own="RELU")) == ["ADD clamps by RELU already"]


def test_redundant_fused_clamp_is_removed() -> None:
    graph = clamped(own="RELU6", scale=6 / 255, zero=0)
    after, notes = assert_exact_rewrite(graph, rewrite)
    assert fused(after.nodes[0]) == "NONE"
    assert notes[0].text == "RELU6 goes: the output's range implies it"


def test_fused_clamp_one_quantum_inside_range_stays() -> None:
    assert left_by(rewrite, clamped(own="RELU6", scale=6 / 254.4, zero=0)) == []
    assert left_by(rewrite, clamped(own="RELU", zero=1)) == []


def test_redundant_clamp_is_removed() -> None:
    x, y, z, w = (t((1, 4), "uint8", 0.02, 0, name=name) for name in "xyzw")
    shape = const(np.int32([1, 4]))
    graph = whole(graph_of([op("RELU", [x], [y]), op("RESHAPE", [y, shape], [z])]))
    after, _ = assert_exact_rewrite(graph, rewrite)
    assert ops(after) == ["RESHAPE"]
    # The clamp of a graph output stays, because the output keeps its name.
    graph = whole(graph_of([op("RESHAPE", [x, shape], [w]), op("RELU", [w], [y])]))
    assert left_by(rewrite, graph) == ["RESHAPE has no clamp of its own"]


def test_tensor_with_other_readers_stays() -> None:
    graph = clamped("RELU")
    add, relu = graph.nodes
    both = replace(graph, outputs=(add.outputs[0], relu.outputs[0]))
    assert left_by(rewrite, both) == ["its input is read elsewhere, too"]


def test_clamp_that_rescales_stays() -> None:
    x, y = t((2, 3), "int8", 0.1, 3), t((2, 3), "int8", 0.05, -8)
    z = t((2, 3), "int8", 0.04, -8)
    graph = whole(graph_of([op("ADD", [x, x], [y]), op("RELU", [y], [z])]))
    assert left_by(rewrite, graph) == ["it changes the scale or the zero point"]
    alone = whole(graph_of([op("RELU", [x], [t((2, 3), "int8", 0.1, 3)])]))
    assert left_by(rewrite, alone) == ["no node makes its input"]


def test_hybrid_weights_stay() -> None:
    weights = const(np.ones((4, 3), np.int8), 0.1)
    x, y, z = t((2, 3)), t((2, 4)), t((2, 4))
    nodes = [op("FULLY_CONNECTED", [x, weights, None], [y]), op("RELU", [y], [z])]
    assert left_by(rewrite, whole(graph_of(nodes))) == ["hybrid weights"]


@pytest.mark.parametrize("clamp", CLAMPS)
@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL", "FULLY_CONNECTED", "MAX_POOL_2D"])
def test_floats(name: str, clamp: str) -> None:
    y, z = (t((1, 4, 4, 3)) for _ in range(2))
    x, options = t((1, 4, 4, 3)), {}
    inputs: list[Tensor | None] = [x, x]
    if name == "FULLY_CONNECTED":
        x, y, z = t((2, 3)), t((2, 4)), t((2, 4))
        inputs = [x, const(np.linspace(-9, 9, 12, dtype=np.float32).reshape(4, 3)), None]
    if name == "MAX_POOL_2D":
        inputs = [x]
        options = {"padding": "SAME", "filter_width": 2, "filter_height": 3}
        options |= {"stride_w": 1, "stride_h": 1}
    graph = whole(graph_of([op(name, inputs, [y], options), op(clamp, [y], [z])]))
    after, _ = assert_exact_rewrite(graph, rewrite)
    assert ops(after) == [name]


@given(drawn_convolutions(), st.sampled_from(CLAMPS), st.sampled_from(CLAMPS))
@settings(max_examples=40)
def test_random_convolutions(case: object, first: str, second: str) -> None:
    node = case.node()  # type: ignore[attr-defined]
    result = node.outputs[0]
    middle, last = (replace(result, name=name) for name in ("middle", "last"))
    nodes = [
        replace(node, outputs=(middle,)),
        op(first, [middle], [last]),
        op(second, [last], [result]),
    ]
    assert_exact_rewrite(whole(graph_of(nodes)), rewrite)


@given(
    st.sampled_from(["int8", "uint8", "int16"]),
    st.sampled_from(CLAMPS),
    st.floats(-12, 2).map(lambda power: 2**power),
    st.data(),
)
@settings(max_examples=60)
def test_random_ranges(dtype: str, clamp: str, scale: float, data: st.DataObject) -> None:
    zero = 0 if dtype == "int16" else data.draw(zero_points(dtype))
    x, y, z = (t((5, 7), dtype, scale, zero) for _ in range(3))
    options = {"fused_activation_function": clamp, "pot_scale_int16": False}
    nodes = [op("ADD", [x, x], [y], options), op("RELU", [y], [z])]
    assert_exact_rewrite(whole(graph_of(nodes)), rewrite)
