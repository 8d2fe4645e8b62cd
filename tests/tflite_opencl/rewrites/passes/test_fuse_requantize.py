# SPDX-License-Identifier: Apache-2.0
"""QUANTIZE after an op: removed if no value changes, and kept otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate.inspect import Graph, Node, Tensor, read_model
from tests.support.cases import scales, zero_points
from tests.support.convolution import Convolution
from tests.support.model import graph_of, op, t
from tests.support.rewrites import assert_exact_rewrite, drawn_convolutions, left_by, reasons, whole
from tests.support.shared import model_path
from tests.support.tiers import slow
from tflite_opencl.rewrites.passes.fuse_requantize import rewrite


def quantize(source: Tensor, dtype: str, scale: float, zero_point: int) -> Node:
    """Return a QUANTIZE of a tensor to another quantisation."""
    return op("QUANTIZE", [source], [t(source.shape, dtype, scale, zero_point)], version=2)


def behind(case: Convolution, zero_point: int, factor: float = 1.0) -> list[Node]:
    """Return a convolution and a QUANTIZE to `factor` times its scale."""
    node = case.node()
    result = node.outputs[0]
    assert result.quantization is not None
    return [node, quantize(result, result.dtype, result.quantization.scale[0] * factor, zero_point)]


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


@slow
@given(drawn_convolutions(), st.data())
@settings(max_examples=60)
def test_other_zero_point_is_exact(case: Convolution, data: st.DataObject) -> None:
    nodes = behind(case, data.draw(zero_points(case.dtype)))
    after, notes = assert_exact_rewrite(whole(graph_of(nodes)), rewrite)
    assert len(after.nodes) - 1 == len(reasons(notes))


@pytest.mark.parametrize(
    ("fused", "zeros", "expected"),
    [
        ("RELU", (-128, -100), 1),  # 0 to 227 quanta: within the original 0 to 255
        ("RELU", (-100, -128), 2),  # up to 255, of which 227 were representable before
        ("NONE", (0, 5), 2),
        ("NONE", (7, 7), 1),
    ],
)
def test_exact_if_convolution_clamps_no_more(
    fused: str, zeros: tuple[int, int], expected: int
) -> None:
    case = Convolution(fused=fused, dtype="int8", zeros=(3, 0, zeros[0]), multiplier=0.1)
    after, _ = assert_exact_rewrite(whole(graph_of(behind(case, zeros[1]))), rewrite)
    assert len(after.nodes) == expected


def test_weights_prove_that_nothing_is_clamped() -> None:
    case = Convolution(dtype="int8", zeros=(3, 0, 0), multiplier=2.0**-20)
    after, notes = assert_exact_rewrite(whole(graph_of(behind(case, 5))), rewrite)
    assert ops(after) == ["CONV_2D"]
    assert notes[0].text == "CONV_2D has its zero point"


# Types that TFLite's QUANTIZE supports.
FOLLOWING = {
    "": ["uint8", "int8", "int16"],
    "uint8": ["uint8", "int8"],
    "int8": ["uint8", "int8"],
    "int16": ["int8", "int16"],
}


@slow
@given(st.data())
@settings(max_examples=60)
def test_random_pairs_are_exact(data: st.DataObject) -> None:
    tensors: list[Tensor] = []
    for _ in range(3):
        last = tensors[-1].dtype if tensors else ""
        dtype = data.draw(st.sampled_from(FOLLOWING[last]))
        zero = 0 if dtype == "int16" else data.draw(zero_points(dtype))
        alike = [tensor.quantization.scale[0] for tensor in tensors if tensor.quantization]
        scale = data.draw(st.sampled_from([*alike, 0.5, 1.0]) | scales(-3, 2))
        tensors.append(t((1, 4096), dtype, scale, zero))
    nodes = [
        op("QUANTIZE", [tensors[0]], [tensors[1]], version=2),
        op("QUANTIZE", [tensors[1]], [tensors[2]], version=2),
    ]
    assert_exact_rewrite(whole(graph_of(nodes)), rewrite)


def test_one_of_two_is_removed() -> None:
    source = t((1, 256), "uint8", 0.5, 128)
    first = quantize(source, "int8", 0.5, 0)
    second = quantize(first.outputs[0], "uint8", 0.25, 10)
    after, _ = assert_exact_rewrite(whole(graph_of([first, second])), rewrite)
    assert ops(after) == ["QUANTIZE"]
    # A tensor with other readers stays.
    shown = graph_of([first, second], outputs=[first.outputs[0], second.outputs[0]])
    after, _ = assert_exact_rewrite(whole(shown), rewrite)
    assert [node.inputs[0].name for node in after.nodes] == ["t0", "t0"]  # type: ignore[union-attr]


def test_quantize_without_effect_is_removed() -> None:
    pool = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "filter_width": 2, "filter_height": 2}
    picture = t((1, 3, 3, 2), "uint8", 0.5, 7)
    first = op("MAX_POOL_2D", [picture], [replace(picture)], pool)
    same = quantize(first.outputs[0], "uint8", 0.5, 7)
    again = quantize(same.outputs[0], "uint8", 0.5, 7)
    last = op("MAX_POOL_2D", [again.outputs[0]], [replace(picture)], pool)
    after, notes = assert_exact_rewrite(whole(graph_of([first, same, again, last])), rewrite)
    assert ops(after) == ["MAX_POOL_2D", "MAX_POOL_2D"]
    assert [record.node_index for record in notes] == [1, 2]
    after, _ = assert_exact_rewrite(whole(graph_of([first, same, again])), rewrite)
    assert ops(after) == ["MAX_POOL_2D"]
    shown = [first.outputs[0], same.outputs[0]]
    assert left_by(rewrite, graph_of([first, same], outputs=shown)) == [
        "it changes nothing, but its input and its output are outputs of the graph"
    ]


def test_reasons_of_unchanged_nodes() -> None:
    case = Convolution(dtype="int8", zeros=(3, 0, 5))
    node, behind_it = behind(case, 5, 0.5)
    other = behind(case, 6)
    source = t((1, 8), "int8", 0.5)
    floats = op("QUANTIZE", [t((1, 8), "float32")], [source])
    graphs = {
        "CONV_2D rounds to other quanta before it": graph_of([node, behind_it]),
        "the result of CONV_2D is an output, or read by others, too": graph_of(
            other, outputs=[other[0].outputs[0], other[1].outputs[0]]
        ),
        "CONV_2D clamps to another range before it": graph_of(
            behind(replace(case, multiplier=0.1), 6)
        ),
        "QUANTIZE from floats before it: the greatest floats may differ": graph_of(
            [floats, quantize(source, "int8", 0.5, 3)]
        ),
        "QUANTIZE rounds before it, and 64 of 256 codes would differ": graph_of(
            [op("QUANTIZE", [t((1, 8), "int8", 0.25)], [source]), quantize(source, "int8", 1.0, 0)]
        ),
    }
    for reason, graph in graphs.items():
        assert left_by(rewrite, graph) == [reason]
    relu = op("RELU", [source], [t((1, 8), "int8", 0.25)])
    assert left_by(rewrite, graph_of([relu, quantize(relu.outputs[0], "int8", 1.0, 0)])) == [
        "RELU rounds to other quanta before it"
    ]


@pytest.mark.model
@pytest.mark.parametrize(
    "name", ["deeplabv3_mnv2_pascal_quant", "movenet_single_pose_lightning_ptq"]
)
def test_models_keep_quantize(name: str) -> None:
    assert left_by(rewrite, read_model(model_path(name))) != []
