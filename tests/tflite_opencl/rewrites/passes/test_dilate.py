# SPDX-License-Identifier: Apache-2.0
"""A convolution between SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND as a dilated one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate.graph.edit import with_tensors
from delegate.inspect import Graph, Node
from tests.support.convolution import Convolution
from tests.support.model import const, graph_of, op, t
from tests.support.rewrites import assert_exact_rewrite, drawn_convolutions, left_by, whole
from tests.support.tiers import slow
from tflite_opencl.rewrites.passes.dilate import rewrite

Pairs = list[tuple[int, int]]


def paddings_and_crops(case: Convolution, blocks: tuple[int, int]) -> tuple[Pairs, Pairs]:
    """Return the paddings and crops of TensorFlow's with_space_to_batch."""
    paddings, crops = [], []
    for size, kernel, block in zip(case.size[:2], case.kernel, blocks, strict=True):
        total = (kernel - 1) * block if case.padding == "SAME" else 0
        begin = total // 2
        more = -(size + total) % block
        paddings.append((begin, total - begin + more))
        crops.append((0, more))
    return paddings, crops


def between_moves(
    case: Convolution,
    blocks: tuple[int, int],
    pairs: tuple[Pairs, Pairs] | None = None,
    inner: str = "VALID",
) -> list[Node]:
    """Return the three nodes for a dilated convolution `case`, as TensorFlow decomposes it."""
    paddings, crops = pairs or paddings_and_crops(case, blocks)
    sizes = [
        (size + sum(pair)) // block
        for size, pair, block in zip(case.size[:2], paddings, blocks, strict=True)
    ]
    count = blocks[0] * blocks[1]
    node = replace(
        case, size=(*sizes, case.size[2]), batch=case.batch * count, padding=inner
    ).node()
    inside, ends = node.inputs[0], node.outputs[0]
    assert inside is not None
    height, width = (
        size * block - sum(crop)
        for size, block, crop in zip(ends.shape[1:3], blocks, crops, strict=True)
    )
    source = replace(inside, shape=(case.batch, *case.size))
    result = replace(ends, shape=(case.batch, height, width, ends.shape[3]))
    block = const(np.array(blocks, np.int32))
    return [
        op(
            "SPACE_TO_BATCH_ND",
            [source, block, const(np.array(paddings, np.int32))],
            [inside],
            {},
            2,
        ),
        node,
        op("BATCH_TO_SPACE_ND", [ends, block, const(np.array(crops, np.int32))], [result], {}, 2),
    ]


@slow
@given(drawn_convolutions(), st.tuples(st.integers(1, 3), st.integers(1, 3)))
@settings(max_examples=50)
def test_decomposition_of_tensorflow_is_exact(case: Convolution, blocks: tuple[int, int]) -> None:
    case = replace(case, stride=(1, 1), dilation=(1, 1))
    if min(replace(case, dilation=blocks).out_size()) > 0:
        after, _ = assert_exact_rewrite(whole(graph_of(between_moves(case, blocks))), rewrite)
        (node,) = after.nodes
        assert node.options["dilation_h_factor"] == blocks[0]
        assert node.options["dilation_w_factor"] == blocks[1]


@slow
@given(drawn_convolutions(), st.lists(st.integers(0, 3), min_size=8, max_size=8))
@settings(max_examples=50)
def test_random_paddings_and_crops_are_exact(case: Convolution, numbers: list[int]) -> None:
    case = replace(case, stride=(1, 1), dilation=(1, 1))
    pairs = [(numbers[i], numbers[i + 1]) for i in range(0, 8, 2)]
    paddings = [
        (before, after + (size + before + after) % 2)
        for size, (before, after) in zip(case.size[:2], pairs[:2], strict=True)
    ]
    for inner in ("SAME", "VALID"):
        nodes = between_moves(case, (2, 2), (paddings, pairs[2:]), inner)
        if min(min(node.outputs[0].shape) for node in nodes) > 0:
            assert_exact_rewrite(whole(graph_of(nodes)), rewrite)


@pytest.mark.parametrize("depth", [0, 2])
def test_floats_are_exact(depth: int) -> None:
    case = Convolution(size=(9, 8, 3), depth_multiplier=depth)
    graph = on_floats(graph_of(between_moves(case, (2, 2))))
    after, _ = assert_exact_rewrite(whole(graph), rewrite)
    assert len(after.nodes) == 1


def on_floats(graph: Graph) -> Graph:
    """Return the graph in float32."""
    new = {}
    for tensor in graph.tensors:
        if tensor.quantization is not None:
            data = None if tensor.data is None else np.asarray(tensor.data, np.float32) / 64
            new[tensor] = replace(tensor, dtype="float32", quantization=None, data=data)
    return with_tensors(graph, new)


def test_reasons_of_unchanged_nodes() -> None:
    case = Convolution(size=(8, 8, 3), dtype="int8")
    nodes = between_moves(case, (2, 2))
    to_batch, node, to_space = nodes
    result = node.outputs[0]
    relu = op("RELU", [result], [replace(result)])
    computed = replace(
        to_batch, inputs=(to_batch.inputs[0], to_batch.inputs[1], t((2, 2), "int32"))
    )
    strided = between_moves(replace(case, stride=(2, 2)), (2, 2))
    cases: dict[str, Graph] = {
        "the convolution's result is an output, or not read by one node alone": graph_of(
            nodes, outputs=[result, to_space.outputs[0]]
        ),
        "RELU reads the convolution, and no BATCH_TO_SPACE_ND": graph_of([to_batch, node, relu]),
        "RELU reads it, and no convolution": graph_of(
            [to_batch, op("RELU", [to_batch.outputs[0]], [replace(to_batch.outputs[0])])]
        ),
        "its result is an output, or not read by one node alone": graph_of([to_batch]),
        "SPACE_TO_BATCH_ND has sizes that are computed or that a caller may set": graph_of(
            [computed, node, to_space]
        ),
        "the convolution has strides": graph_of(strided),
        "paddings [[2, 4], [2, 2]] and crops [[0, 0], [0, 0]] are neither SAME's nor VALID's": (
            graph_of(between_moves(case, (2, 2), ([(2, 4), (2, 2)], [(0, 0), (0, 0)])))
        ),
    }
    for reason, graph in cases.items():
        assert left_by(rewrite, graph) == [reason]
