# SPDX-License-Identifier: Apache-2.0
"""Strided convolutions on blocks of pixels: equal outputs, padding, and nodes that stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from delegate.inspect import Graph, read_model
from tests.support.convolution import Convolution
from tests.support.model import graph_of, op, t
from tests.support.rewrites import (
    CHAINS,
    assert_exact_rewrite,
    chain,
    drawn_convolutions,
    left_by,
    reasons,
    whole,
)
from tests.support.shared import model_path
from tests.support.tiers import slow
from tflite_opencl.rewrites.changes import Notes
from tflite_opencl.rewrites.passes import depthwise_to_conv
from tflite_opencl.rewrites.passes.unstride_convolutions import rewrite


def graph_for(**fields: Any) -> Graph:
    return whole(graph_of([Convolution(**{"stride": (2, 2), **fields}).node()]))


def strided(graph: Graph) -> list[str]:
    names = ("stride_h", "stride_w")
    nodes = [node for node in graph.nodes if "CONV" in node.op]
    return [node.op for node in nodes if any(node.options[name] != 1 for name in names)]


def both(graph: Graph, notes: Notes | None = None) -> Graph:
    return depthwise_to_conv.rewrite(rewrite(graph, notes), notes)


# As converters write: an even size with SAME needs no PAD for odd kernels.
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 5), (7, 7)], ids=str)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_even_picture_is_not_padded(kernel: tuple[int, int], depth: int) -> None:
    before = graph_for(size=(12, 8, 3), kernel=kernel, depth_multiplier=depth)
    after, _ = assert_exact_rewrite(before, rewrite)
    assert [node.op for node in after.nodes] == ["SPACE_TO_DEPTH", "CONV_2D"]
    convolution = after.nodes[1]
    blocks = {1: 1, 3: 2, 5: 3, 7: 4}[kernel[0]]
    out_c = before.nodes[0].outputs[0].shape[3]
    weights = convolution.inputs[1]
    assert weights is not None
    assert weights.shape == (out_c, blocks, blocks, 12)
    assert convolution.outputs[0].name == before.outputs[0].name


def test_odd_picture_is_padded_with_zero_point() -> None:
    before = graph_for(size=(9, 9, 2), zeros=(7, 3, 5))
    after, _ = assert_exact_rewrite(before, rewrite)
    assert [node.op for node in after.nodes] == ["PAD", "SPACE_TO_DEPTH", "CONV_2D"]
    amounts = after.nodes[0].inputs[1]
    assert amounts is not None
    assert np.asarray(amounts.data).tolist() == [[0, 0], [1, 2], [1, 2], [0, 0]]
    assert after.nodes[2].options["padding"] == "VALID"


@slow
@given(drawn_convolutions())
@settings(max_examples=60)
def test_random_convolutions_are_exact(case: Convolution) -> None:
    after, notes = assert_exact_rewrite(whole(graph_of([case.node()])), rewrite)
    if case.stride[0] == case.stride[1]:
        assert strided(after) == []
    else:
        assert reasons(notes) == [
            "strides {}x{}: SPACE_TO_DEPTH has one size for both".format(*case.stride)
        ]


@given(CHAINS)
@settings(max_examples=20)
def test_chains_are_exact(cases: list[Convolution]) -> None:
    assert_exact_rewrite(chain(cases), both)


def test_readers_of_a_tensor_share_its_blocks() -> None:
    first = Convolution(size=(8, 8, 3), stride=(2, 2)).node()
    second = Convolution(size=(8, 8, 3), kernel=(1, 1), stride=(2, 2), out_c=8).node(1)
    second = replace(second, inputs=(first.inputs[0], *second.inputs[1:]))
    after, _ = assert_exact_rewrite(whole(graph_of([first, second])), rewrite)
    assert [node.op for node in after.nodes] == ["SPACE_TO_DEPTH", "CONV_2D", "CONV_2D"]


def test_dynamic_batch_stays_dynamic() -> None:
    node = Convolution(size=(9, 9, 2), stride=(2, 2)).node()
    opened = [
        replace(tensor, shape_signature=(-1, *tensor.shape[1:]))
        for tensor in (node.inputs[0], node.outputs[0])
        if tensor is not None
    ]
    graph = graph_of([replace(node, inputs=(opened[0], *node.inputs[1:]), outputs=(opened[1],))])
    after, _ = assert_exact_rewrite(whole(graph), rewrite)
    assert [node.outputs[0].shape_signature[0] for node in after.nodes] == [-1, -1, -1]


def test_reasons_of_unchanged_nodes() -> None:
    node = Convolution(stride=(2, 2), dtype="int8").node()
    source, weights, _ = node.inputs
    assert source is not None
    assert weights is not None
    wide = [
        replace(tensor, dtype="int16", quantization=replace(tensor.quantization, zero_point=(0,)))  # type: ignore[type-var]
        for tensor in (source, node.outputs[0])
    ]
    cases = {
        "int16: the reference kernels have no SPACE_TO_DEPTH of int16": replace(
            node, inputs=(wide[0], weights, None), outputs=(wide[1],)
        ),
        "strides 1x2: SPACE_TO_DEPTH has one size for both": Convolution(stride=(1, 2)).node(),
        "weights or a bias that are computed": replace(
            node, inputs=(source, replace(weights, data=None), None)
        ),
        "stride 0, dilation 1": replace(
            node, options={**node.options, "stride_h": 0, "padding": "SAME"}
        ),
    }
    for reason, case in cases.items():
        assert left_by(rewrite, graph_of([case])) == [reason]


def test_graph_without_strides_is_unchanged() -> None:
    graph = graph_of([Convolution().node()])
    notes = Notes()
    assert rewrite(graph, notes) is graph
    assert notes == []
    pool = op("MAX_POOL_2D", [t((1, 4, 4, 2), "uint8", 1.0)], [t((1, 2, 2, 2), "uint8", 1.0)])
    assert rewrite(other := graph_of([pool])) is other


@pytest.mark.model
@pytest.mark.parametrize(
    "name",
    [
        "mobilenet_v1_0.25_128_quant",
        "mbnet128_0.25_q",
        "vww_96_int8",
        "kws_ref_model",
        "pretrainedResnet_quant",
    ],
)
def test_models_are_exact(name: str) -> None:
    graph = read_model(model_path(name))
    after, notes = assert_exact_rewrite(graph, rewrite, is_slow=True)
    assert strided(after) == reasons(notes) == []
    after, _ = assert_exact_rewrite(graph, both, is_slow=True)
    assert strided(after) == []
    assert "DEPTHWISE_CONV_2D" not in {node.op for node in after.nodes}
