# SPDX-License-Identifier: Apache-2.0
"""ARG_MAX and ARG_MIN: their launches, what they refuse, and their places, ties and NaNs too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from tests.support.cases import (
    DRAWN_STRATEGIES,
    LANES_4,
    LANES_8,
    LANES_16,
    PLAIN,
    SEEDS,
    SIMT,
    STRATEGIES,
    Strategy,
    changed,
    only_launch,
)
from tests.support.factories import refused
from tests.support.model import op
from tests.support.suite_cases import assert_graph, assert_graph_or_refused, from_suite
from tflite_opencl.conformance.cases.reductions import arg
from tflite_opencl.oracle.values import input_sets

OPS = ("ARG_MAX", "ARG_MIN")
DTYPES = ("uint8", "int8", "int32", "float32", "bool")


def node(
    shape: tuple[int, ...],
    axis: int,
    dtype: str = "uint8",
    name: str = "ARG_MAX",
    result: str = "int32",
) -> Node:
    return arg(name, dtype, shape, axis, result).nodes[0]


def few(shape: tuple[int, ...], dtype: str, seed: int = 0) -> NDArray[Any]:
    """Return values that are each there many times, the ends of the range among them."""
    values = {"float32": [-np.inf, -0.0, 0.0, 1.5], "bool": [0, 1]}.get(dtype)
    if values is None:
        limits = np.iinfo(dtype)
        values = [limits.min, 1, limits.max]
    return np.random.default_rng(seed).choice(np.array(values), shape).astype(dtype)


@pytest.mark.parametrize(
    ("strategy", "node", "names"),
    [
        (SIMT, node((3, 7, 21), -1), ["plain"]),
        (SIMT, node((3, 7, 21), 1), ["vector 4", "plain"]),
        (LANES_8, node((3, 7, 21), -1), ["row 16", "plain"]),
        (LANES_8, node((3, 7, 3), -1), ["plain"]),
        (LANES_8, node((3, 257), -1), ["row 8", "plain"]),
        (LANES_8, node((3, 9), -1, "float32"), ["row 8", "plain"]),
        (LANES_16, node((2304, 17), 0, "int8"), ["vector 16", "plain"]),
        (LANES_16, node((40000, 17), 0, "int8"), ["plain"]),
        (LANES_16, node((9, 3), 0), ["plain"]),
    ],
)
def test_alternatives(strategy: Strategy, node: Node, names: list[str]) -> None:
    assert [found.name for found in ops.lower(node, strategy.target)] == names


def test_launch() -> None:
    found = ops.lower(node((2, 3, 5, 21), 3, "int8", "ARG_MIN", "int64"), LANES_8.target)
    row, plain = map(only_launch, found)
    assert (row.kernel, row.defines) == ("arg_max_row_quant8", {"IS_LONG": 1, "LANES": 16})
    assert (plain.kernel, plain.params["items"]) == ("arg_max", 30)
    assert plain.defines == {"IS_LONG": 1, "ELEM": "char", "IS_MIN": 1}


NODE = node((3, 7, 5), 1)
REFUSALS: dict[str, tuple[Node, str]] = {
    "int16": (
        changed(NODE, 0, dtype="int16"),
        "int16: only uint8, int8, int32, float32, bool are implemented",
    ),
    "output_type": (changed(NODE, -1, dtype="float32"), "output float32: int32 or int64 is needed"),
    "axis_type": (changed(NODE, 1, dtype="uint8"), "axis uint8: int32 or int64 is needed"),
    "computed_axis": (changed(NODE, 1, data=None), "axes are not constant"),
    "axis_outside": (
        changed(NODE, 1, data=np.array(3, np.int32)),
        "axis [3] of 3x7x5: one of its axes is needed",
    ),
    "two_axes": (
        changed(NODE, 1, data=np.array([0, 1], np.int32), shape=(2,)),
        "axis [0, 1] of 3x7x5: one of its axes is needed",
    ),
    "scalar": (changed(NODE, 0, shape=()), "axis [1] of scalar: one of its axes is needed"),
    "empty": (changed(NODE, 0, shape=(3, 0, 5)), "shape 3x0x5: it is empty"),
    "output_shape": (
        changed(NODE, -1, shape=(3, 1, 5)),
        "3x7x5 -> 3x1x5: all but axis 1 must stay",
    ),
    "long_axis": (node((2**18 + 1,), 0), "axis of 262145: more than 2^18 elements"),
    "one_input": (op("ARG_MAX", NODE.inputs[:1], NODE.outputs), "1 inputs: 2 expected"),
}

test_refusals = refused(REFUSALS)

test_arg_max = from_suite("ARG_MAX", strategies=(SIMT, LANES_16))
test_arg_min = from_suite("ARG_MIN")


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_ties(dtype: str, axis: int, device: DeviceInfo) -> None:
    graph = arg("ARG_MAX", dtype, (3, 5, 19), axis)
    inputs = [[few((3, 5, 19), dtype, seed)] for seed in (0, 1)]
    for strategy in STRATEGIES:
        assert_graph(graph, device, strategy, inputs)


@pytest.mark.parametrize("name", OPS)
def test_nan(device: DeviceInfo, name: str) -> None:
    # Not along the last axis: there TFLite's answer depends on the vectors it was built with.
    # A NaN is found only where it is the first of all, in some versions not even there.
    values = few((11, 13), "float32", 3)
    values[0, 2], values[:, 5], values[4, 0], values[4, 12] = (np.nan,) * 4
    values[7], values[7, 0] = -np.inf, np.nan
    for strategy in (PLAIN, LANES_4, LANES_8):
        assert_graph(arg(name, "float32", (11, 13), 0), device, strategy, [[values]])


def test_a_long_axis(device: DeviceInfo) -> None:
    # More rounds than some drivers make, were each one element.
    graph = arg("ARG_MIN", "int8", (70001, 1), 0)
    values = np.full((70001, 1), 5, np.int8)
    values[[69999, 70000]] = -7
    for strategy in (PLAIN, SIMT, LANES_8):
        assert_graph(graph, device, strategy, [[values]])


@given(
    shape=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    axis=st.integers(-4, 3),
    dtype=st.sampled_from(DTYPES),
    name=st.sampled_from(OPS),
    result=st.sampled_from(["int32", "int64"]),
    strategy=DRAWN_STRATEGIES,
    seed=SEEDS,
)
def test_drawn(
    device: DeviceInfo,
    shape: list[int],
    axis: int,
    dtype: str,
    name: str,
    result: str,
    strategy: Strategy,
    seed: int,
) -> None:
    along = axis % len(shape) - (len(shape) if axis < 0 else 0)
    graph = arg(name, dtype, tuple(shape), along, result)
    inputs = [[few(tuple(shape), dtype, seed)], *input_sets(graph, seed)]
    assert_graph_or_refused(graph, device, strategy, seed, inputs)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [node((1, size, size, channels), 3, dtype, name) for name in OPS]


BUILT = [
    made
    for axis in (1, 2)
    for made in (
        *(node((2, 18, 17), axis, dtype) for dtype in DTYPES),
        node((2, 18, 17), axis, "uint8", result="int64"),
        node((2, 18, 17), axis, "float32", "ARG_MIN"),
    )
]
