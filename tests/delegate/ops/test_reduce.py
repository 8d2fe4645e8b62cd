# SPDX-License-Identifier: Apache-2.0
"""SUM, MEAN and the REDUCE ops: what they launch and refuse, and their numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Graph, Node
from delegate.target import Rules
from tests.support.cases import (
    DRAWN_STRATEGIES,
    LANES_2,
    LANES_8,
    LANES_16,
    PLAIN,
    SEEDS,
    SIMT,
    Strategy,
    changed,
    only_launch,
    quantization,
    refusal,
    retyped,
)
from tests.support.compare import RUNTIME
from tests.support.factories import refused
from tests.support.reductions import reductions
from tests.support.refusals import unquantised
from tests.support.suite_cases import assert_graph, assert_graph_or_refused, from_suite
from tflite_opencl.conformance.cases.reductions import reduction
from tflite_opencl.oracle.values import input_sets

NUMBERS = ("uint8", "int8", "int16", "int32", "float32")
TYPES = {
    "MEAN": NUMBERS,
    "SUM": NUMBERS,
    "REDUCE_MAX": NUMBERS,
    "REDUCE_MIN": NUMBERS,
    "REDUCE_PROD": ("int32", "float32"),
    "REDUCE_ANY": ("bool",),
    "REDUCE_ALL": ("bool",),
}
STRATEGIES = (SIMT, LANES_16)

test_mean = from_suite("MEAN", strategies=STRATEGIES)
test_sum = from_suite("SUM", strategies=STRATEGIES)
test_largest_and_smallest = from_suite("REDUCE_MAX", "REDUCE_MIN", strategies=STRATEGIES)
test_products = from_suite("REDUCE_PROD", strategies=STRATEGIES)
test_any_and_all = from_suite("REDUCE_ANY", "REDUCE_ALL", strategies=STRATEGIES)


def node(
    op: str, dtype: str = "int8", shape: tuple[int, ...] = (1, 7, 5, 3), axes: Any = (1, 2)
) -> Node:
    return reduction(op, dtype, shape, axes).nodes[0]


@pytest.mark.parametrize(
    ("strategy", "shape", "axes", "names"),
    [
        (SIMT, (1, 3, 2, 3), (1, 2), ["plain"]),
        (SIMT, (1, 3, 2, 4), (1, 2), ["vector 4", "plain"]),
        (LANES_2, (1, 3, 2, 99), (1, 2), ["plain"]),
        (LANES_8, (1, 3, 2, 7), (1, 2), ["vector 4", "plain"]),
        (LANES_16, (1, 3, 2, 17), (1, 2), ["vector 16", "plain"]),
        (LANES_16, (3, 2, 17), (2,), ["row 16", "plain"]),
        (LANES_16, (3, 2, 17), (1, 2), ["row 16", "plain"]),
        (LANES_8, (3, 3), (1,), ["plain"]),
        (SIMT, (3, 63), (1,), ["plain"]),
        (SIMT, (3, 99), (1,), ["shared", "plain"]),
        (SIMT, (1, 8, 8, 4), (1, 2), ["shared", "vector 4", "plain"]),
        (SIMT, (16385, 64), (1,), ["plain"]),
    ],
)
def test_alternatives(
    strategy: Strategy, shape: tuple[int, ...], axes: tuple[int, ...], names: list[str]
) -> None:
    found = ops.lower(node("MEAN", shape=shape, axes=axes), strategy.target)
    assert [alternative.name for alternative in found] == names


@pytest.mark.parametrize(
    ("op", "dtype", "fold"),
    [
        ("MEAN", "uint8", "SUM"),
        ("SUM", "float32", "SUM"),
        ("REDUCE_PROD", "int32", "PROD"),
        ("REDUCE_MAX", "int8", "MAX"),
        ("REDUCE_MIN", "float32", "MIN"),
        ("REDUCE_ANY", "bool", "MAX"),
        ("REDUCE_ALL", "bool", "MIN"),
    ],
)
def test_launches(op: str, dtype: str, fold: str) -> None:
    found = ops.lower(node(op, dtype, (2, 3, 5, 8), (0, -2)), LANES_8.target)
    vector, plain = map(only_launch, found)
    assert (vector.kernel, plain.kernel) == ("reduce_vector", "reduce")
    assert vector.defines == plain.defines | {"LANES": 8}
    assert plain.defines["FOLD"] == fold
    on_gpu = only_launch(ops.lower(node(op, dtype, (5, 3, 2, 13)), SIMT.target)[-1])
    assert (on_gpu.tiles, on_gpu.group_items) == (2, 64)  # 5 x 13 elements


def test_means_of_integers_divide() -> None:
    launch = only_launch(ops.lower(node("MEAN", "int32"), SIMT.target)[-1])
    assert (launch.kernel, launch.params["terms"]) == ("mean_int32", 35)


def test_a_row_of_too_many_rounds_for_one_item_is_a_tile_of_its_own() -> None:
    found = ops.lower(node("SUM", shape=(64, 200000), axes=(1,)), LANES_8.target)
    assert [only_launch(each).params["tile_items"] for each in found] == [2, 2]


LARGEST, SUM, MEAN = node("REDUCE_MAX"), node("SUM"), node("MEAN")
REFUSALS: dict[str, tuple[Node, str]] = {
    "scales": (
        changed(LARGEST, -1, quantization=quantization(0.5, 3)),
        "the scale or zero point changes: TFLite does not rescale here",
    ),
    "float64": (
        retyped(LARGEST, "float64"),
        "float64: only float32, int32, int64, uint8, int8, int16 are implemented",
    ),
    "string": (retyped(LARGEST, "string"), "string: only types of a fixed size"),
    "product_of_bytes": (node("REDUCE_PROD"), "int8: only float32, int32, int64 are implemented"),
    "any_of_numbers": (node("REDUCE_ANY", "int32"), "int32: only bool are implemented"),
    "without_quantisation": unquantised(SUM, 0),
    "ratio_of_sums": (
        changed(SUM, -1, quantization=quantization(1e-30)),
        "35 elements at a scale ratio of 1e+29: too large",
    ),
    "computed_axes": (changed(SUM, 1, data=None), "axes are not constant"),
    "axis_outside": (
        changed(MEAN, 1, data=np.array([1, 6], np.int32)),
        "axes [1, 6] of 1x7x5x3: each must be one of its axes",
    ),
    "int64_axes": (changed(MEAN, 1, dtype="int64"), "int64 axes: only int32"),
    "empty": (changed(MEAN, 0, shape=(1, 0, 5, 3)), "shape 1x0x5x3: it is empty"),
    "scalar": (changed(MEAN, 0, shape=()), "axes [1, 2] of scalar: each must be one of its axes"),
    "output_size": (changed(MEAN, -1, shape=(1, 4)), "output 1x4: it must be 1x3"),
    "output_keeps_dims": (changed(MEAN, -1, shape=(1, 1, 1, 3)), "output 1x1x1x3: it must be 1x3"),
    "signedness_changes": (
        changed(MEAN, -1, dtype="uint8"),
        "int8 in, uint8 out: they must be equal",
    ),
    "mean_of_bools": (retyped(MEAN, "bool"), "bool: only uint8 and int8 and int16 are implemented"),
    "mean_without_quantisation": unquantised(MEAN, -1),
    "int16_zero": (
        reduction("MEAN", "int16", (1, 7, 5, 3), (1, 2), scales=(0.1, 0.07), zeros=(1, 0)).nodes[0],
        "int16 with zero point 1: it must be 0",
    ),
    "ratio_of_means": (
        changed(MEAN, -1, quantization=quantization(1e-30)),
        "a scale ratio of 2^97: more than 2^30",
    ),
    "too_many": (
        node("MEAN", shape=(1, 1000, 1000, 3)),
        "1000000 elements per result: too many for a work-item",
    ),
    "too_many_integers": (
        node("MEAN", "int32", (1, 200, 200, 3)),
        "40000 int32 elements per result: more than 2^15",
    ),
    "in_turns": (
        node("MEAN", shape=(2,) * 8, axes=(0, 2, 4, 6)),
        "4 dimensions that differ: at most 3 are implemented",
    ),
    "no_axes_input": (replace(MEAN, inputs=MEAN.inputs[:1]), "1 inputs: 2 expected"),
    "no_output": (replace(MEAN, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)


def test_older_sums_of_int16_are_refused() -> None:
    older = replace(SIMT.target, rules=Rules(saturating_sums=False))
    reason = refusal(node("SUM", "int16"), older)
    assert reason == "int16: tflite-runtime's sums do not saturate"


def test_integers_truncate(device: DeviceInfo) -> None:
    # Toward zero, of sums beyond 32 bits.
    most, least = 2**31 - 1, -(2**31)
    rows = [
        [most] * 3 + [5],
        [least] * 4,
        [-7, 0, 0, 0],
        [-7, -1, 0, 0],
        [7, 0, 0, 0],
        [least, most, 1, 1],
    ]
    graph = reduction("MEAN", "int32", (6, 4), (1,))
    assert_graph(graph, device, SIMT, [[np.array(rows, np.int32)]])


def test_more_rounds_than_some_drivers_make(device: DeviceInfo) -> None:
    for shape, axes in (((1, 263, 263, 3), (1, 2)), ((70001, 2), (0,)), ((2, 70001), (1,))):
        graph = reduction("MEAN", "int8", shape, axes)
        for strategy in (PLAIN, LANES_8, SIMT):
            assert_graph(graph, device, strategy, input_sets(graph))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_sums_round_as_the_type_does(dtype: str, device: DeviceInfo) -> None:
    # In fixed point or as floats: 265 of 2048 results of uint8 differ.
    if (dtype, RUNTIME.name) != ("int16", "tflite-runtime"):
        graph = reduction("SUM", dtype, (99, 49), (1,), scales=(0.05, 0.37))
        assert_graph(graph, device, LANES_8, input_sets(graph))


@pytest.mark.parametrize("op", ["REDUCE_MAX", "REDUCE_MIN"])
def test_nan_and_infinity(op: str, device: DeviceInfo) -> None:
    # A NaN is neither; infinity is beyond what TFLite begins with.
    values = np.random.default_rng(3).standard_normal((8, 21)).astype(np.float32)
    values[1, 3], values[2, :], values[:, 5] = np.nan, np.nan, np.nan
    values[3], values[4] = np.inf, -np.inf
    for strategy in (PLAIN, LANES_8):
        for axis in (0, 1):
            graph = reduction(op, "float32", (8, 21), (axis,))
            assert_graph(graph, device, strategy, [[values]])


@pytest.mark.parametrize("op", ["REDUCE_MAX", "REDUCE_MIN"])
@pytest.mark.parametrize("axes", [(0, 1), (1,)], ids=["whole", "one axis"])
def test_the_first_of_a_whole_tensor_stays_if_it_is_nan(
    op: str, axes: tuple[int, ...], device: DeviceInfo
) -> None:
    sets = [np.random.default_rng(3).standard_normal((1, 99)).astype(np.float32) for _ in range(4)]
    sets[0][0, 0], sets[1][0, 3] = np.nan, np.nan
    sets[2][:], sets[3][:] = -np.inf, np.inf
    graph = reduction(op, "float32", (1, 99), axes)
    for strategy in (PLAIN, LANES_8, SIMT):
        assert_graph(graph, device, strategy, [[each] for each in sets])


def assert_drawn(graph: Graph, device: DeviceInfo, strategy: Strategy, seed: int) -> None:
    """Assert a drawn graph. Products are of floats near 1: the least may be zeros on a device."""
    (reduce,), (source,) = graph.nodes, graph.inputs
    inputs = None
    if (reduce.op, source.dtype) == ("REDUCE_PROD", "float32"):
        values = np.random.default_rng(seed).uniform(0.9, 1.1, source.shape).astype(np.float32)
        inputs = [[values], [-values]]
    assert_graph_or_refused(graph, device, strategy, seed, inputs)


@pytest.mark.parametrize("op", TYPES)
@given(data=st.data(), strategy=DRAWN_STRATEGIES, seed=SEEDS)
def test_drawn(
    device: DeviceInfo, op: str, data: st.DataObject, strategy: Strategy, seed: int
) -> None:
    is_older = (op, RUNTIME.name) == ("SUM", "tflite-runtime")
    dtypes = tuple(dtype for dtype in TYPES[op] if not is_older or dtype != "int16")
    assert_drawn(data.draw(reductions(op, dtypes)), device, strategy, seed)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return these ops' nodes of a size and an 8-bit type, for the tests of all ops."""
    types = {"REDUCE_PROD": "float32", "REDUCE_ANY": "bool", "REDUCE_ALL": "bool"}
    return [node(op, types.get(op, dtype), (1, size, size, channels)) for op in TYPES]


BUILT = [
    node("REDUCE_MAX", "float32", (2, 18), (0, 1)),
    *(
        node(op, dtype, (2, *sizes), (axis,))
        for axis, sizes in ((1, (18, 17)), (2, (18, 17)), (2, (3, 64)))
        for op, dtype in (
            *((op, dtype) for op in ("SUM", "MEAN") for dtype in NUMBERS),
            *(
                (op, dtype)
                for op in ("REDUCE_MAX", "REDUCE_PROD")
                for dtype in ("int32", "float32")
            ),
            ("REDUCE_MAX", "uint8"),
            ("REDUCE_MIN", "float32"),
        )
    ),
]
