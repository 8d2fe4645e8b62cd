# SPDX-License-Identifier: Apache-2.0
"""DEPTHWISE_CONV_2D as a CONV_2D with dense weights: equal outputs, and nodes that stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from delegate.inspect import Graph, read_model
from tests.support.convolution import Convolution
from tests.support.model import graph_of
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
from tflite_opencl.rewrites.passes.depthwise_to_conv import rewrite

OPS = ["CONV_2D", "DEPTHWISE_CONV_2D"]


def graph_for(**fields: object) -> Graph:
    return whole(graph_of([Convolution(depth_multiplier=2, **fields).node()]))  # type: ignore[arg-type]


def test_weights_are_dense_with_original_scales() -> None:
    before = graph_for(dtype="int8", per_channel=True)
    after, notes = assert_exact_rewrite(before, rewrite)
    (old,), (new,) = before.nodes, after.nodes
    assert (new.op, new.options["padding"], new.outputs[0].name) == (
        "CONV_2D",
        old.options["padding"],
        old.outputs[0].name,
    )
    ours, theirs = new.inputs[1], old.inputs[1]
    assert ours is not None
    assert theirs is not None
    assert ours.shape == (6, 3, 3, 3)
    assert ours.quantization == replace(theirs.quantization, axis=0)  # type: ignore[type-var]
    assert np.count_nonzero(ours.data) <= np.size(theirs.data)
    assert [(record.op, record.treated) for record in notes] == [(OPS[1], True)]


@given(drawn_convolutions())
@settings(max_examples=40)
def test_random_convolutions_are_exact(case: Convolution) -> None:
    after, _ = assert_exact_rewrite(whole(graph_of([case.node()])), rewrite)
    assert [node.op for node in after.nodes] == ["CONV_2D"]


@given(CHAINS)
@settings(max_examples=15)
def test_chains_are_exact(cases: list[Convolution]) -> None:
    after, _ = assert_exact_rewrite(chain(cases), rewrite)
    assert {node.op for node in after.nodes} == {"CONV_2D"}


def test_shared_weights_stay_shared() -> None:
    first = Convolution(depth_multiplier=1, size=(5, 5, 4)).node()
    second = replace(first, outputs=(replace(first.outputs[0]),))
    after, _ = assert_exact_rewrite(whole(graph_of([first, second])), rewrite)
    assert after.nodes[0].inputs[1] is after.nodes[1].inputs[1]


def test_reasons_of_unchanged_nodes() -> None:
    node = Convolution(depth_multiplier=1, dtype="int8").node()
    source, weights, bias = node.inputs
    assert source is not None
    assert weights is not None
    real = replace(source, dtype="float32", quantization=None)
    result = replace(node.outputs[0], dtype="float32", quantization=None)
    moving = replace(source, shape_signature=(1, -1, -1, 3))
    cases = {
        "hybrid: float32 activations; only quantised activations are treated": replace(
            node, inputs=(real, weights, None), outputs=(result,)
        ),
        "weights or a bias that are computed": replace(
            node, inputs=(source, replace(weights, data=None), bias)
        ),
        "'t0' has a height, a width or channels that may change": replace(
            node, inputs=(moving, weights, bias)
        ),
    }
    for reason, case in cases.items():
        graph = graph_of([case])
        assert left_by(rewrite, graph) == [reason]
    settable = graph_of([node], inputs=[source, weights])
    assert left_by(rewrite, settable) == ["weights or a bias that a caller may set"]


@pytest.mark.model
@pytest.mark.parametrize(
    "name",
    [
        "mobilenet_v1_0.25_128_quant",
        "mbnet128_0.25_q",
        "vww_96_int8",
        "kws_ref_model",
        "ds_cnn_s_quantized_int16",
    ],
)
def test_models_are_exact(name: str) -> None:
    after, notes = assert_exact_rewrite(read_model(model_path(name)), rewrite, is_slow=True)
    assert OPS[1] not in {node.op for node in after.nodes}
    assert reasons(notes) == []
