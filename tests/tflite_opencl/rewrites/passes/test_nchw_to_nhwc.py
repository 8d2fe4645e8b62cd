# SPDX-License-Identifier: Apache-2.0
"""Elimination of TRANSPOSE: fewer of them, equal outputs, and no change without gain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate.inspect import Graph, Node, Tensor
from tests.support.convolution import Convolution
from tests.support.model import const, graph_of, op, t
from tests.support.rewrites import assert_exact_rewrite, left_by, whole
from tests.support.tiers import slow
from tflite_opencl.rewrites.passes.nchw_to_nhwc import inverse_of, rewrite

TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
NHWC, NCHW = (1, 4, 5, 3), (1, 3, 4, 5)


def number(*shape: int) -> Tensor:
    return t(shape, "int8", 0.5, 3)


def turned(source: Tensor, order: tuple[int, ...]) -> Node:
    shape = [source.shape[i] for i in order]
    result = replace(source, shape=tuple(shape))
    return op("TRANSPOSE", [source, const(np.array(order, np.int32))], [result], version=2)


def relu(source: Tensor) -> Node:
    return op("RELU", [source], [replace(source)], version=2)


def add(one: Tensor, other: Tensor, shape: tuple[int, ...]) -> Node:
    return op("ADD", [one, other], [number(*shape)], version=2)


def pad(source: Tensor, rows: list[list[int]]) -> Node:
    wide = [size + sum(row) for size, row in zip(source.shape, rows, strict=True)]
    amounts = const(np.array(rows, np.int32))
    return op("PAD", [source, amounts], [number(*wide)], version=2)


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def test_function_between_two_is_transposed() -> None:
    there = turned(number(*NHWC), TO_NCHW)
    middle = relu(there.outputs[0])
    back = turned(middle.outputs[0], TO_NHWC)
    after, notes = assert_exact_rewrite(whole(graph_of([there, middle, back])), rewrite)
    assert ops(after) == ["RELU"]
    assert [record.treated for record in notes] == [True, True]


def test_block_of_converted_model() -> None:
    # A converter's output for conv -> relu -> pad -> conv, and a sum with another branch.
    first = Convolution(size=(8, 8, 3), out_c=4, dtype="int8").node()
    there = turned(first.outputs[0], TO_NCHW)
    result = there.outputs[0]
    bias = const(np.arange(4, dtype=np.int8).reshape(4, 1, 1), 0.5, 0)
    clamped = op("RELU", [result], [replace(result)], version=2)
    moved = op("MUL", [clamped.outputs[0], bias], [number(1, 4, 8, 8)], version=2)
    summed = add(moved.outputs[0], clamped.outputs[0], (1, 4, 8, 8))
    wide = pad(summed.outputs[0], [[0, 0], [0, 0], [1, 2], [3, 0]])
    both = op(
        "CONCATENATION", [wide.outputs[0]] * 2, [number(1, 8, 11, 11)], {"axis": -3}, version=2
    )
    back = turned(both.outputs[0], TO_NHWC)
    pool = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "filter_width": 2, "filter_height": 2}
    last = op("MAX_POOL_2D", [back.outputs[0]], [replace(back.outputs[0])], pool, version=2)
    nodes = [first, there, clamped, moved, summed, wide, both, back, last]
    after, _ = assert_exact_rewrite(whole(graph_of(nodes)), rewrite)
    assert ops(after) == [node.op for node in nodes if node.op != "TRANSPOSE"]
    assert after.nodes[5].options["axis"] == 3


def test_transposed_branches_are_one_region() -> None:
    left, right = (turned(number(*NHWC), TO_NCHW) for _ in range(2))
    one, other = relu(left.outputs[0]), relu(right.outputs[0])
    both = add(one.outputs[0], other.outputs[0], NCHW)
    back = turned(both.outputs[0], TO_NHWC)
    after, _ = assert_exact_rewrite(whole(graph_of([left, right, one, other, both, back])), rewrite)
    assert ops(after) == ["RELU", "RELU", "ADD"]


def test_one_new_transpose_can_save_two() -> None:
    left = turned(number(*NHWC), TO_NCHW)
    both = add(left.outputs[0], number(*NCHW), NCHW)
    back = turned(both.outputs[0], TO_NHWC)
    after, _ = assert_exact_rewrite(whole(graph_of([left, both, back])), rewrite)
    assert ops(after) == ["TRANSPOSE", "ADD"]
    # An output in the old order keeps its name, and gets a TRANSPOSE.
    shown = graph_of([left, both, back], outputs=[both.outputs[0], back.outputs[0]])
    assert left_by(rewrite, shown) == ["there would be as many elsewhere"] * 2


def test_consecutive_transposes_are_merged() -> None:
    first = turned(number(*NHWC), TO_NCHW)
    again = turned(first.outputs[0], TO_NCHW)
    after, _ = assert_exact_rewrite(whole(graph_of([first, again])), rewrite)
    assert ops(after) == ["TRANSPOSE"]
    back = turned(first.outputs[0], TO_NHWC)
    head, tail = relu(number(*NHWC)), relu(number(*NHWC))
    start = replace(first, inputs=(head.outputs[0], first.inputs[1]))
    for nodes in (
        [head, start, back],
        [head, start, back, replace(tail, inputs=(back.outputs[0],))],
    ):
        after, _ = assert_exact_rewrite(whole(graph_of(nodes)), rewrite)
        assert set(ops(after)) == {"RELU"}


def test_identity_is_removed() -> None:
    head = relu(number(*NHWC))
    same = turned(head.outputs[0], (0, 1, 2, -1))
    after, _ = assert_exact_rewrite(whole(graph_of([head, same])), rewrite)
    assert ops(after) == ["RELU"]


@pytest.mark.parametrize("count", [1, 2])
def test_outputs_keep_names(count: int) -> None:
    there = turned(number(*NHWC), TO_NCHW)
    middle = relu(there.outputs[0])
    back = [turned(middle.outputs[0], TO_NHWC) for _ in range(count)]
    graph = whole(graph_of([there, middle, *back]))
    after, _ = assert_exact_rewrite(graph, rewrite)
    # Two equal outputs stay separate: the second keeps its TRANSPOSE and a source.
    assert ops(after).count("TRANSPOSE") == (0 if count == 1 else 2)


def test_reasons_of_unchanged_nodes() -> None:
    there = turned(number(*NHWC), TO_NCHW)
    computed = replace(there, inputs=(there.inputs[0], t((4,), "int32")))
    assert left_by(rewrite, graph_of([computed])) == ["its order is not known before a run"]
    middle = relu(there.outputs[0])
    assert left_by(rewrite, graph_of([there, middle])) == ["there would be as many elsewhere"]
    softmax = op("SOFTMAX", [there.outputs[0]], [number(*NCHW)], {"beta": 1.0}, version=2)
    back = turned(softmax.outputs[0], TO_NHWC)
    assert (
        left_by(rewrite, graph_of([there, softmax, back]))
        == ["there would be as many elsewhere"] * 2
    )
    assert rewrite(alone := graph_of([middle])) is alone


@st.composite
def drawn_graphs(draw: st.DrawFn) -> Graph:
    """Draw a graph of TRANSPOSE, clamps, sums, PAD and CONCATENATION, with distinct sizes."""
    orders = [TO_NCHW, TO_NHWC, (0, 2, 1, 3), (3, 1, 2, 0), (0, 1, 2, 3)]
    tensors = [number(2, 3, 4, 5)]
    nodes: list[Node] = []
    for _ in range(draw(st.integers(2, 9))):
        # Recent tensors are read most often.
        source = draw(st.sampled_from([*tensors, *tensors[-2:], tensors[-1], tensors[-1]]))
        kind = draw(st.integers(0, 7))
        alike = [each for each in tensors if each.shape == source.shape]
        if kind < 3:
            order = draw(st.sampled_from([*orders, inverse_of(TO_NCHW)]))
            nodes.append(turned(source, order))
        elif kind == 3:
            nodes.append(relu(source))
        elif kind == 4:
            nodes.append(add(source, draw(st.sampled_from(alike)), source.shape))
        elif kind == 5:
            size = source.shape[-1]
            row = const(np.arange(size, dtype=np.int8), 0.5, 0)
            nodes.append(add(source, row, source.shape))
        elif kind == 6 and max(source.shape) < 9:
            nodes.append(pad(source, [[0, 0], [1, 0], [0, 2], [0, 1]]))
        else:
            axis = draw(st.integers(-4, 3))
            other = draw(st.sampled_from(alike))
            shape = list(source.shape)
            shape[axis] *= 2
            joined = op(
                "CONCATENATION", [source, other], [number(*shape)], {"axis": axis}, version=2
            )
            nodes.append(joined)
        tensors.append(nodes[-1].outputs[0])
    shown = draw(st.lists(st.sampled_from(tensors[1:]), max_size=2, unique_by=id))
    read = {tensor for node in nodes for tensor in node.inputs}
    ends = [tensor for tensor in tensors[1:] if tensor not in read or tensor in shown]
    return whole(graph_of(nodes, outputs=ends))


@slow
@given(drawn_graphs())
@settings(max_examples=150)
def test_random_graphs_are_exact(graph: Graph) -> None:
    after, _ = assert_exact_rewrite(graph, rewrite)
    before = ops(graph).count("TRANSPOSE")
    assert ops(after).count("TRANSPOSE") <= before
    if len(after.nodes) != len(graph.nodes):
        assert ops(after).count("TRANSPOSE") < before
