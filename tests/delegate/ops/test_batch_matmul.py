# SPDX-License-Identifier: Apache-2.0
"""BATCH_MATMUL: what it lowers to, what it refuses, and its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Graph, Node
from delegate.target import Rules
from tests.support.cases import (
    LANES_4,
    LANES_8,
    LANES_16,
    SIMT,
    STRATEGIES,
    Strategy,
    assert_exact_strategy,
    changed,
    multipliers,
    only_launch,
    quantization,
    refusal,
    retyped,
    zero_points,
)
from tests.support.convolution import RULES
from tests.support.factories import drawn, refused
from tests.support.model import chain_model, op, t
from tests.support.nodes import CHANNELS
from tests.support.refusals import sparse, unquantised
from tests.support.suite_cases import assert_graph_or_refused, from_suite
from tflite_opencl.conformance.cases.products import product

test_batch_matmul = from_suite("BATCH_MATMUL", strategies=(SIMT, LANES_16))


def node(
    dtype: str = "float32",
    m: int = 5,
    k: int = 11,
    n: int = 9,
    batch: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
    **options: Any,
) -> Node:
    """Return a product of m x k by k x n, with the batches of the left and the right matrices."""
    return product(dtype, (*batch[0], m, k), (*batch[1], k, n), **options).nodes[0]


# What lower() returns.


@pytest.mark.parametrize(
    ("strategy", "node", "names"),
    [
        (SIMT, node(), ["vector 4x4", "plain"]),
        (SIMT, node(n=3), ["plain"]),
        (LANES_8, node("int8"), ["vector 8x4", "plain"]),
        (LANES_16, node(m=3, left=True), ["vector 16x1", "plain"]),
        (LANES_8, node(right=True), ["row 8x4", "plain"]),
        (LANES_4, node("int8", n=3, k=8, right=True), ["row 4x1", "plain"]),
        (LANES_8, node(k=3, right=True), ["plain"]),
        (LANES_8, node(left=True, right=True), ["plain"]),
        (LANES_8, node(n=1), ["row 8x1", "plain"]),
        (LANES_8, node(m=16, right=True), ["turned vector 16x4", "row 8x4", "plain"]),
        (LANES_8, node(m=16, k=3, right=True), ["turned vector 16x4", "plain"]),
        (SIMT, node(m=16, right=True), ["row 4x4", "plain"]),
        (LANES_8, node("int16"), ["plain"]),
    ],
)
def test_vectors_then_plain(strategy: Strategy, node: Node, names: list[str]) -> None:
    found = ops.lower(node, strategy.target)
    assert [alternative.name for alternative in found] == names


def test_steps_of_broadcast_matrices() -> None:
    case = node(batch=((2, 1, 3), (4, 1)), left=True)
    fields = only_launch(ops.lower(case, SIMT.target)[-1]).params
    assert [fields[f"left_batch_{i}"] for i in range(3)] == [165, 0, 55]
    assert [fields[f"right_batch_{i}"] for i in range(3)] == [0, 99, 0]
    assert (fields["batch_1"], fields["batch_2"], fields["elements"]) == (4, 3, 24 * 45)
    assert (fields["left_row"], fields["left_term"]) == (1, 5)


def test_rows_that_a_runtime_mixes_up() -> None:
    target = replace(SIMT.target, rules=Rules(batch_matmul_mixes_rows=True))
    mixed = (3, 2), (3, 1)
    reason = "adj_x with one right matrix for several: this TFLite mixes up the rows"
    assert refusal(node(batch=mixed, left=True), target) == reason
    assert ops.lower(node(batch=mixed, left=True), SIMT.target)
    assert ops.lower(node(batch=mixed), target)
    for batch in (((3, 1), (3, 1)), ((3, 2), (3, 2)), ((3, 2), ())):
        assert ops.lower(node(batch=batch, left=True), target)


# What it refuses.


def _halves(node: Node) -> Node:
    """Return a node whose inputs have a scale of 0.5: those of the suite's cases are drawn."""
    return changed(
        changed(node, 0, quantization=quantization(0.5)), 1, quantization=quantization(0.5)
    )


NODE = node()
INT8 = node("int8")
INT16 = node("int16", times_int8=True)
REFUSALS: dict[str, tuple[Node, str]] = {
    "uint8": (
        retyped(NODE, "uint8", (0, 1, -1)),
        "uint8 x uint8 -> uint8: no such kernel",
    ),
    "hybrid": (
        changed(NODE, 1, dtype="uint8"),
        "float32 x uint8 -> float32: no such kernel",
    ),
    "int32_output": (
        changed(INT8, -1, dtype="int32"),
        "int8 x int8 -> int32: no such kernel",
    ),
    "vector": (
        changed(NODE, 0, shape=(11,)),
        "shapes 11 x 11x9 -> 5x9: 2 to 5 dimensions are implemented",
    ),
    "6_dimensions": (
        changed(NODE, 1, shape=(1, 1, 1, 1, 11, 9)),
        "shapes 5x11 x 1x1x1x1x11x9 -> 5x9: 2 to 5 dimensions are implemented",
    ),
    "empty": (changed(NODE, 0, shape=(0, 11)), "shapes 0x11 x 11x9 -> 5x9: they are empty"),
    "terms": (
        changed(NODE, options={"adj_y": True}),
        "shapes 5x11 x 11x9 -> 5x9: 11 columns of the left one, 9 rows of the right one",
    ),
    "batches": (
        changed(changed(NODE, 0, shape=(2, 5, 11)), 1, shape=(3, 11, 9)),
        "shapes 2x5x11 x 3x11x9 -> 5x9: they cannot be broadcast together",
    ),
    "output": (
        changed(NODE, -1, shape=(1, 5, 9)),
        "shapes 5x11 x 11x9 -> 1x5x9: the output must be 5x9",
    ),
    "many_terms": (
        changed(changed(NODE, 0, shape=(5, 65001)), 1, shape=(65001, 9)),
        "shapes 5x65001 x 65001x9 -> 5x9: 65001 terms a sum, at most 65000 are implemented",
    ),
    "without_quantisation": unquantised(INT8, 1),
    "per_channel": (
        changed(INT8, 1, quantization=quantization([0.5] * 9)),
        "9 scales: only one per tensor here",
    ),
    "int16_zero_point": (
        changed(INT16, 0, quantization=quantization(0.5, 1)),
        "int16 with zero point 1: it must be 0",
    ),
    "right_zero_point_with_int16": (
        changed(INT16, 1, quantization=quantization(0.5, 1)),
        "int8 with zero point 1: it must be 0",
    ),
    "scale_ratio": (
        _halves(changed(INT8, -1, quantization=quantization(1e-30))),
        "a scale ratio of 2^98: more than 2^30",
    ),
    "scale_ratio_of_int16": (
        _halves(changed(INT16, -1, quantization=quantization(1e-6))),
        "a scale ratio of 2^18: more than 2^7",
    ),
    "scales": (
        changed(
            changed(INT8, 0, quantization=quantization(3e38)), 1, quantization=quantization(2.0)
        ),
        f"scales {float(np.float32(3e38))} * 2.0: more than a float holds",
    ),
    "sparse": sparse(NODE, 1),
    "one_input": (replace(NODE, inputs=NODE.inputs[:1]), "1 inputs: 2 expected"),
}

test_refusal = refused(REFUSALS)


# Its numbers.


def test_a_matrix_times_itself(device: DeviceInfo) -> None:
    square = t((2, 8, 8), "int8", 0.5, 3)
    twice = op("BATCH_MATMUL", [square, square], [t((2, 8, 8), "int8", 20.0)], {}, version=2)
    assert_exact_strategy(chain_model([twice]), device)


@st.composite
def products(draw: st.DrawFn) -> Graph:
    outer = draw(st.lists(st.integers(1, 3), max_size=3))
    left, right = (
        tuple(size if draw(st.booleans()) else 1 for size in outer)[
            draw(st.integers(0, len(outer))) :
        ]
        for _ in range(2)
    )
    k = draw(st.integers(1, 40))
    # What tflite-runtime mixes up is refused there.
    is_mixed = RULES.int16_sums_of_int32 and right[-1:] == (1,)
    return product(
        draw(st.sampled_from(["int8", "int16", "float32"])),
        (*left, draw(st.integers(1, 9)), k),
        (*right, k, draw(st.integers(1, 40))),
        draw(st.booleans()) and not is_mixed,
        draw(st.booleans()),
        zeros=(draw(zero_points("int8")), draw(zero_points("int8")), draw(zero_points("int8"))),
        multiplier=draw(multipliers(-20, 3)),
        is_constant=draw(st.booleans()),
    )


test_drawn = drawn(products(), STRATEGIES, assert_graph_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [node("int8", size, channels, channels)]


NODES = {
    "BATCH_MATMUL_float": node(right=True),
    "BATCH_MATMUL_int16": node("int16", times_int8=True, right=True),
}
BUILT = [
    node(dtype, m, k, k, right=right, times_int8=times_int8)
    for m in (1, 5)
    for k in CHANNELS
    for dtype, times_int8 in (
        ("float32", False),
        ("int8", False),
        ("int16", False),
        ("int16", True),
    )
    for right in (False, True)
]
