# SPDX-License-Identifier: Apache-2.0
"""int8 to uint8 and back: equal outputs, QUANTIZE only at borders, and nodes that stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate.inspect import Graph, Node, Tensor
from delegate.ops._numbers.fixed_point import multiply_by_quantized_multiplier, quantize_multiplier
from tests.support.cases import DTYPES, FUSED, SEEDS
from tests.support.convolution import Convolution
from tests.support.model import const, graph_of, op, t
from tests.support.rewrites import (
    CHAINS,
    Rewrite,
    assert_exact_rewrite,
    chain,
    drawn_convolutions,
    left_by,
    reasons,
    whole,
)
from tests.support.tiers import slow
from tflite_opencl.rewrites.passes import signed_to_unsigned, unsigned_to_signed
from tflite_opencl.rewrites.passes.rounding import round_alike

REWRITES: dict[str, Rewrite] = {
    "int8": signed_to_unsigned.rewrite,
    "uint8": unsigned_to_signed.rewrite,
}
OTHER = {"int8": "uint8", "uint8": "int8"}
# The reason of a layer without a proof.
ROUNDED = "rounds some sums otherwise"


def zero_of(dtype: str) -> int:
    return 3 if dtype == "int8" else 131


def quantised(shape: Sequence[int], dtype: str, scale: float = 0.05, **more: Any) -> Tensor:
    return t(shape, dtype, scale, zero_of(dtype), **more)


def fed(dtype: str, nodes: Sequence[Node], first: Tensor) -> Graph:
    """Return (x, x) -ADD-> first -> the nodes: the sum makes the conversion profitable."""
    x = quantised(first.shape, dtype, 0.04, name="x")
    return whole(graph_of([op("ADD", [x, x], [first]), *nodes]))


def window(size: int, padding: str = "VALID") -> dict[str, Any]:
    sizes = {"filter_width": size, "filter_height": size, "stride_w": 1, "stride_h": 1}
    return {"padding": padding, **sizes}


def followers(dtype: str) -> dict[str, Node]:
    """Return a node of each kind that can be converted; other inputs are constant."""
    x = quantised((1, 6, 6, 4), dtype, name="middle")

    def one(name: str, shape: Sequence[int], *more: Tensor, **options: Any) -> Node:
        return op(name, [x, *more], [quantised(shape, dtype)], options)

    zero, end = ((1 / 256, -128), (1 / 256, 0))[dtype == "uint8"], quantised((1, 4, 4, 4), dtype)
    return {
        "AVERAGE_POOL_2D": op("AVERAGE_POOL_2D", [x], [end], window(3)),
        "CONCATENATION": op("CONCATENATION", [x, x], [quantised((1, 6, 6, 8), dtype)], {"axis": 3}),
        "DEPTH_TO_SPACE": one("DEPTH_TO_SPACE", (1, 12, 12, 1), block_size=2),
        "DEQUANTIZE": op("DEQUANTIZE", [x], [t((1, 6, 6, 4))]),
        "EXPAND_DIMS": one("EXPAND_DIMS", (1, 1, 6, 6, 4), const(np.int32(0))),
        "MAX_POOL_2D": one("MAX_POOL_2D", (1, 6, 6, 4), **window(2, "SAME")),
        "MUL": op("MUL", [x, x], [quantised((1, 6, 6, 4), dtype, 0.3)]),
        "PAD": one("PAD", (1, 7, 6, 4), const(np.int32([[0, 0], [1, 0], [0, 0], [0, 0]]))),
        "QUANTIZE": op("QUANTIZE", [x], [quantised((1, 6, 6, 4), dtype, 0.07)]),
        "RELU": op("RELU", [x], [quantised((1, 6, 6, 4), dtype, 0.03)]),
        "RELU6": op("RELU6", [x], [quantised((1, 6, 6, 4), dtype, 0.03)]),
        "RESHAPE": one("RESHAPE", (36, 4), const(np.int32([36, 4]))),
        "RESIZE_NEAREST_NEIGHBOR": one(
            "RESIZE_NEAREST_NEIGHBOR", (1, 9, 4, 4), const(np.int32([9, 4]))
        ),
        "SOFTMAX": op("SOFTMAX", [x], [t((1, 6, 6, 4), dtype, *zero)], {"beta": 1.0}),
        "SPACE_TO_DEPTH": one("SPACE_TO_DEPTH", (1, 3, 3, 16), block_size=2),
        "SQUEEZE": one("SQUEEZE", (6, 6, 4), squeeze_dims=[0]),
        "STRIDED_SLICE": one(
            "STRIDED_SLICE",
            (1, 3, 6, 4),
            *(const(np.int32(n)) for n in ([0, 1, 0, 0], [1, 6, 6, 4], [1, 2, 1, 1])),
        ),
        "SUB": op("SUB", [x, x], [quantised((1, 6, 6, 4), dtype, 0.01)]),
        "TRANSPOSE": one("TRANSPOSE", (1, 4, 6, 6), const(np.int32([0, 3, 1, 2]))),
    }


@pytest.mark.parametrize("dtype", REWRITES)
@pytest.mark.parametrize("name", followers("int8"))
def test_convertible_nodes(name: str, dtype: str) -> None:
    node = followers(dtype)[name]
    source = node.inputs[0]
    assert source is not None
    after, notes = assert_exact_rewrite(fed(dtype, [node], source), REWRITES[dtype])
    assert reasons(notes) == []
    of_ends = ["QUANTIZE", "ADD", name, *(["QUANTIZE"] if name != "DEQUANTIZE" else [])]
    assert [each.op for each in after.nodes] == of_ends
    entries = [t.dtype for t in (*after.inputs, *after.outputs)]
    assert entries == [dtype, "float32" if name == "DEQUANTIZE" else dtype]


@pytest.mark.parametrize("dtype", REWRITES)
def test_mean_of_even_number_of_pixels_stays(dtype: str) -> None:
    x, y = quantised((1, 6, 6, 4), dtype), quantised((1, 5, 5, 4), dtype)
    graph = fed(dtype, [op("AVERAGE_POOL_2D", [x], [y], window(2))], x)
    after, notes = assert_exact_rewrite(graph, REWRITES[dtype])
    assert [node.op for node in after.nodes] == ["QUANTIZE", "ADD", "QUANTIZE", "AVERAGE_POOL_2D"]
    assert "even number of pixels" in reasons(notes)[0]


@slow
@given(drawn_convolutions(), SEEDS)
@settings(max_examples=60)
def test_random_convolutions(case: Convolution, seed: int) -> None:
    graph = whole(graph_of([case.node(seed)]))
    _, notes = assert_exact_rewrite(graph, REWRITES[case.dtype], seed)
    assert len(notes) == 1


@slow
@given(CHAINS)
@settings(max_examples=25)
def test_random_chains(cases: list[Convolution]) -> None:
    graph = chain(cases)
    after, notes = assert_exact_rewrite(graph, REWRITES[cases[0].dtype])
    borders = [node for node in after.nodes if node.op == "QUANTIZE"]
    treated = [record.treated for record in notes]
    # One before and one after each chain of converted layers.
    runs = sum(now and not before for before, now in zip([False, *treated], treated, strict=False))
    assert len(borders) == 2 * runs


@given(DTYPES, st.sampled_from(FUSED), st.integers(1, 9), st.integers(1, 9), SEEDS)
@settings(max_examples=40)
def test_random_layers(dtype: str, fused: str, depth: int, units: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    zero = 128 if dtype == "uint8" else 0
    weights = const((rng.integers(-127, 128, (units, depth)) + zero).astype(dtype), 0.013, zero)
    bias = const(rng.integers(-999, 999, units).astype(np.int32), 0.05 * 0.013)
    x, y = quantised((3, depth), dtype), quantised((3, units), dtype, 0.2)
    options = {"fused_activation_function": fused}
    graph = whole(graph_of([op("FULLY_CONNECTED", [x, weights, bias], [y], options)]))
    after, notes = assert_exact_rewrite(graph, REWRITES[dtype], seed)
    assert [record.text for record in notes] == [OTHER[dtype]]
    assert after.nodes[1].outputs[0].dtype == OTHER[dtype]


@pytest.mark.parametrize("dtype", REWRITES)
@pytest.mark.parametrize(
    ("bias", "scale"), [(2**31 - 1, 0.2), (2**20, 2e-8), (2**20, 0.2)], ids=["sum", "scaled", "no"]
)
def test_layers_whose_sums_exceed_32_bits_stay(bias: int, scale: float, dtype: str) -> None:
    zero = 128 if dtype == "uint8" else 0
    weights = const((np.full((2, 3), 99) + zero).astype(dtype), 0.004, zero)
    biases = const(np.int32([bias, -bias]), 0.05 * 0.004)
    x, y = quantised((4, 3), dtype), quantised((4, 2), dtype, scale)
    graph = whole(graph_of([op("FULLY_CONNECTED", [x, weights, biases], [y])]))
    _, notes = assert_exact_rewrite(graph, REWRITES[dtype])
    left = ["sums that leave 32 bits: kernels of both types treat them otherwise"]
    assert reasons(notes) == ([] if (bias, scale) == (2**20, 0.2) else left)


def conv(dtype: str = "int8", **more: Any) -> Graph:
    return whole(graph_of([Convolution(size=(6, 6, 4), dtype=dtype, **more).node()]))


def test_per_channel_weights_stay() -> None:
    assert left_by(signed_to_unsigned.rewrite, conv(per_channel=True)) == [
        "weights with several scales: per_channel_to_per_tensor gives them one"
    ]


def test_weights_without_int8_code_stay() -> None:
    graph = conv("uint8", zeros=(3, 0, 3))
    weights = graph.nodes[0].inputs[1]
    assert weights is not None
    assert np.asarray(weights.data).max() > 127
    assert left_by(unsigned_to_signed.rewrite, graph) == [
        "weights farther than 127 from their zero point"
    ]


def test_hybrid_and_16x8_stay() -> None:
    weights = const(np.ones((4, 3), np.int8), 0.1)
    hybrid = op("FULLY_CONNECTED", [t((2, 3)), weights, None], [t((2, 4))])
    assert left_by(signed_to_unsigned.rewrite, whole(graph_of([hybrid]))) == [
        "float32 and int8: hybrid or 16x8"
    ]
    wide = [t((2, 3), "int16", 0.01), t((2, 4), "int16", 0.01)]
    node = op("FULLY_CONNECTED", [wide[0], weights, None], [wide[1]])
    assert left_by(signed_to_unsigned.rewrite, whole(graph_of([node]))) == [
        "int16 and int8: hybrid or 16x8"
    ]


def test_unknown_op_stays() -> None:
    x, y = quantised((2, 3), "int8"), t((2, 3), "int8", 1 / 256, -128)
    assert left_by(signed_to_unsigned.rewrite, whole(graph_of([op("LOGISTIC", [x], [y])]))) == [
        "LOGISTIC of uint8 is not known to compute the same"
    ]


def test_moves_alone_are_not_converted() -> None:
    x, y = quantised((2, 3), "int8"), quantised((6,), "int8")
    graph = whole(graph_of([op("RESHAPE", [x, const(np.int32([6]))], [y])]))
    assert left_by(signed_to_unsigned.rewrite, graph) == [
        "no convolution, layer or sum of the type is beside it"
    ]


def test_computed_weights_and_bias_stay() -> None:
    x, w, y = quantised((2, 3), "int8"), t((4, 3), "int8", 0.1), quantised((2, 4), "int8")
    node = op("FULLY_CONNECTED", [x, w, None], [y])
    assert left_by(signed_to_unsigned.rewrite, whole(graph_of([node]))) == [
        "weights that are computed or sparse"
    ]
    weights, bias = const(np.ones((4, 3), np.int8), 0.1), t((4,), "int32", 0.005)
    node = op("FULLY_CONNECTED", [x, weights, bias], [y])
    assert left_by(signed_to_unsigned.rewrite, whole(graph_of([node]))) == [
        "a bias that is computed"
    ]


def test_output_with_readers_has_both_types() -> None:
    graph = fed("int8", [followers("int8")["RELU"]], quantised((1, 6, 6, 4), "int8"))
    middle = quantised((1, 6, 6, 4), "int8", name="middle")
    x, y = quantised((1, 6, 6, 4), "int8", 0.04), quantised((1, 6, 6, 4), "int8", 0.03)
    graph = whole(
        graph_of([op("ADD", [x, x], [middle]), op("RELU", [middle], [y])], outputs=[middle, y])
    )
    after, _ = assert_exact_rewrite(graph, signed_to_unsigned.rewrite)
    assert [node.op for node in after.nodes] == ["QUANTIZE", "ADD", "QUANTIZE", "RELU", "QUANTIZE"]
    assert [tensor.name for tensor in after.outputs] == ["middle", graph.outputs[1].name]


@given(st.floats(-14, -1), st.integers(-4, 4), st.integers(1, 1 << 20), SEEDS)
@settings(max_examples=100)
def test_the_proof_holds_for_all_sums(power: float, bits: int, reach: int, seed: int) -> None:
    one = 2**power
    other = float(np.float32(one)) * (1 + bits * 2**-26)
    sums = np.random.default_rng(seed).integers(-reach, reach, 5000, endpoint=True)
    codes = [
        np.clip(multiply_by_quantized_multiplier(sums, *quantize_multiplier(each)), -255, 255)
        for each in (one, other)
    ]
    if round_alike(one, other, -reach, reach):
        assert np.array_equal(*codes)


def test_the_proof_finds_the_one_sum() -> None:
    one, other = 0.5 / 1000, 0.5 / 1000 * (1 + 2**-28)
    assert round_alike(one, other, -999, 999)
    assert not round_alike(one * (1 - 2**-28), other, -1000, 1000)


def wide(seed: int) -> Graph:
    """Return a layer with sums up to 2^23, whose scales use all bits of a float."""
    node = Convolution(size=(3, 3, 128), kernel=(3, 3), dtype="int8", out_c=2).node(seed)
    x, weights, bias = node.inputs
    assert x is not None
    assert weights is not None
    assert bias is not None
    scale, by = 0.0371 + seed / 997, 0.0123 + seed / 1009
    tensors = [
        replace(x, quantization=t((), "int8", scale, 3).quantization),
        replace(weights, quantization=t((), "int8", by).quantization),
        replace(bias, quantization=t((), "int32", scale * by).quantization),
    ]
    result = replace(node.outputs[0], quantization=t((), "int8", 2000 * scale * by, 3).quantization)
    return whole(graph_of([replace(node, inputs=tuple(tensors), outputs=(result,))]))


def test_layer_that_rounds_differently_stays() -> None:
    left = [
        reasons(assert_exact_rewrite(wide(seed), signed_to_unsigned.rewrite, seed)[1])
        for seed in range(12)
    ]
    assert 0 < sum(ROUNDED in reason for each in left for reason in each) < 12


def test_invalid_nodes_stay() -> None:
    # Mutated files have such nodes, and every pass must handle them.
    pool = op("AVERAGE_POOL_2D", [], [quantised((1, 2, 2, 1), "int8")])
    assert left_by(signed_to_unsigned.rewrite, graph_of([pool])) == [
        "its inputs or outputs are left out"
    ]
    node = Convolution(size=(6, 6, 4), dtype="int8").node()
    short = const(np.zeros(3, np.int32), 0.001)
    graph = graph_of([replace(node, inputs=(*node.inputs[:2], short))])
    assert left_by(signed_to_unsigned.rewrite, graph) == ["a bias of int32 and of the shape [3]"]
