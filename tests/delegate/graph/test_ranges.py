# SPDX-License-Identifier: Apache-2.0
"""How far computed indices can reach, and where nothing is said of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate.graph.integers import INTEGER_FOLDERS
from delegate.graph.ranges import RULES, with_ranges
from delegate.inspect import Graph, Node, Tensor
from tests.support.compare import interpreter, invoke, oracle
from tests.support.model import chain_model, const, graph_of, op, t

FUSED = {"fused_activation_function": "NONE"}
SCORES = t((4, 10), "uint8", 0.5, 3)
PLACE = t((4,), "int32")
ARG_MAX = op("ARG_MAX", [SCORES, const(np.int32(1))], [PLACE], {"output_type": "int32"})


def after(*nodes: Node) -> Tensor:
    """Return the last output behind an ARG_MAX over 10 elements."""
    return with_ranges(graph_of([ARG_MAX, *nodes])).nodes[-1].outputs[0]


def index(shape: tuple[int, ...] = (4,), dtype: str = "int32") -> Tensor:
    return t(shape, dtype)


def numbers(*values: int) -> Tensor:
    return const(np.array(values, np.int32))


def remainder(times: int = 3, divisor: int = 3) -> list[Node]:
    """Return the nodes of PLACE - PLACE // divisor * times."""
    quotient, product = index(), index()
    return [
        op("FLOOR_DIV", [PLACE, numbers(divisor)], [quotient]),
        op("MUL", [quotient, numbers(times)], [product], FUSED),
        op("SUB", [PLACE, product], [index()], FUSED),
    ]


def clamp(low: int = 0, high: int = 6) -> list[Node]:
    """Return the nodes that bring an input of any values between two numbers."""
    below = index()
    return [
        op("MINIMUM", [index(), numbers(high)], [below]),
        op("MAXIMUM", [numbers(low), below], [index()]),
    ]


KNOWN: dict[str, tuple[list[Node], Any, Any]] = {
    "arg_max": ([], [0] * 4, [9] * 4),
    "floor_div": ([op("FLOOR_DIV", [PLACE, numbers(4)], [index()])], [0] * 4, [2] * 4),
    "add": (
        [op("ADD", [PLACE, numbers(1, 2, 3, -4)], [index()], FUSED)],
        [1, 2, 3, -4],
        [10, 11, 12, 5],
    ),
    "sub": ([op("SUB", [numbers(9), PLACE], [index()], FUSED)], [0] * 4, [9] * 4),
    "mul": (
        [op("MUL", [PLACE, numbers(2, 0, -1, 3)], [index()], FUSED)],
        [0, 0, -9, 0],
        [18, 0, 0, 27],
    ),
    "minimum": ([op("MINIMUM", [PLACE, numbers(5)], [index()])], [0] * 4, [5] * 4),
    "maximum": ([op("MAXIMUM", [PLACE, numbers(5)], [index()])], [5] * 4, [9] * 4),
    "clamped": (clamp(), [0] * 4, [6] * 4),
    "cast": ([op("CAST", [PLACE], [index(dtype="int64")])], [0] * 4, [9] * 4),
    "reshape": (
        [op("RESHAPE", [PLACE, numbers(2, 2)], [index((2, 2))])],
        [[0, 0], [0, 0]],
        [[9, 9], [9, 9]],
    ),
    "pack": (
        [op("PACK", [numbers(0, 1, 2, 3), PLACE], [index((4, 2))], {"axis": 1})],
        [[0, 0], [1, 0], [2, 0], [3, 0]],
        [[0, 9], [1, 9], [2, 9], [3, 9]],
    ),
    "concatenation": (
        [op("CONCATENATION", [PLACE, numbers(7)], [index((5,))], {"axis": 0, **FUSED})],
        [0, 0, 0, 0, 7],
        [9, 9, 9, 9, 7],
    ),
    "remainder": (remainder(), [0] * 4, [2] * 4),
    # Not the remainder: what the intervals alone give.
    "other_factor": (remainder(times=2), [-6] * 4, [9] * 4),
}


@pytest.mark.parametrize(("nodes", "low", "high"), KNOWN.values(), ids=KNOWN)
def test_limits(nodes: list[Node], low: Any, high: Any) -> None:
    limits = after(*nodes).ranges
    assert limits is not None
    np.testing.assert_array_equal(limits[0], low)
    np.testing.assert_array_equal(limits[1], high)


UNKNOWN: dict[str, list[Node]] = {
    "clamp_of_int64": [
        op("MINIMUM", [index(dtype="int64"), PLACE], [index(dtype="int64")]),
    ],
    "clamp_of_floats": [op("MINIMUM", [t((4,)), PLACE], [index()])],
    "another_op": [op("ABS", [PLACE], [index()])],
    "float": [op("CAST", [PLACE], [t((4,))])],
    "unknown_input": [op("ADD", [PLACE, index()], [index()], FUSED)],
    "fused": [op("ADD", [PLACE, numbers(1)], [index()], {"fused_activation_function": "RELU"})],
    "divisor_0": [op("FLOOR_DIV", [PLACE, numbers(0)], [index()])],
    "computed_divisor": [op("FLOOR_DIV", [PLACE, PLACE], [index()])],
    "wraps": [op("MUL", [PLACE, numbers(2**30)], [index()], FUSED)],
    "more_than_memory": [op("MINIMUM", [index((2**31 - 1, 9, 4)), PLACE], [index()])],
    "another_shape": [op("ADD", [PLACE, numbers(1)], [index((1, 4))], FUSED)],
    "no_shape": [op("RESHAPE", [PLACE, numbers(3)], [index((3,))])],
    "no_axis": [op("PACK", [PLACE, PLACE], [index((2, 4))], {"axis": 5})],
    "no_input": [op("SUB", [PLACE], [index()], FUSED)],
    "computed_axis": [op("ARG_MAX", [SCORES, index(())], [index()])],
    "axis_out_of_range": [op("ARG_MAX", [SCORES, numbers(2)], [index()])],
}


@pytest.mark.parametrize("nodes", UNKNOWN.values(), ids=UNKNOWN)
def test_nothing_is_said(nodes: list[Node]) -> None:
    assert after(*nodes).ranges is None


def test_a_graph_without_indices_stays() -> None:
    graph = graph_of([op("RELU", [t((4,))], [t((4,))])])
    assert with_ranges(graph) is graph


def test_tensors_stay_joined() -> None:
    graph: Graph = with_ranges(graph_of([ARG_MAX, *remainder()]))
    first, *_, last = graph.nodes
    assert last.inputs[0] is first.outputs[0]
    assert graph.tensors[first.outputs[0].index] is first.outputs[0]
    assert graph.outputs == last.outputs


@given(
    operations=st.lists(
        st.tuples(
            st.sampled_from(["ADD", "SUB", "MUL", "FLOOR_DIV", "MINIMUM", "MAXIMUM", "REMAINDER"]),
            st.integers(1, 40),
            st.booleans(),
        ),
        min_size=1,
        max_size=4,
    ),
    seed=st.integers(0, 99),
)
def test_what_tflite_computes_is_within(operations: list[tuple[str, int, bool]], seed: int) -> None:
    current, nodes = PLACE, [ARG_MAX]
    for name, number, is_swapped in operations:
        result = index()
        other = numbers(number)
        if name == "REMAINDER":
            quotient, product = index(), index()
            nodes.append(op("FLOOR_DIV", [current, other], [quotient]))
            nodes.append(op("MUL", [quotient, other], [product], FUSED))
            nodes.append(op("SUB", [current, product], [result], FUSED))
        else:
            swapped = is_swapped and name != "FLOOR_DIV"
            inputs = [other, current] if swapped else [current, other]
            nodes.append(op(name, inputs, [result], FUSED if name in ("ADD", "SUB", "MUL") else {}))
        current = result
    limits = with_ranges(graph_of(nodes)).nodes[-1].outputs[0].ranges
    model = chain_model(nodes)
    scores = np.random.default_rng(seed).integers(0, 256, SCORES.shape).astype(np.uint8)
    (values,) = invoke(interpreter(model, cpu_kernels=oracle(model)), [scores])
    if limits is not None:
        assert (limits[0] <= values).all()
        assert (values <= limits[1]).all()


def test_places_of_the_largest_are_inside_of_their_row() -> None:
    outputs = [t((1, 3)), t((1, 3), "int32")]
    top = op("TOPK_V2", [SCORES, const(np.int32(3))], outputs)
    rest = op("FLOOR_MOD", [outputs[1], const(np.int32(4))], [t((1, 3), "int32")])
    nodes = with_ranges(graph_of([top, rest])).nodes
    for node, most in zip(nodes, (9, 3), strict=True):
        low, high = node.outputs[-1].ranges or ([], [])
        assert (np.ravel(low).tolist(), np.ravel(high).tolist()) == ([0] * 3, [most] * 3)


def test_every_folded_op_has_a_rule_or_is_known_to_have_none() -> None:
    """Shapes are constants, and a selected element has the range of all: no converter needs it."""
    without = {"GATHER", "RANGE", "RANK", "REDUCE_PROD", "SHAPE", "SLICE", "STRIDED_SLICE", "WHERE"}
    assert INTEGER_FOLDERS.keys() - RULES.keys() == without
