# SPDX-License-Identifier: Apache-2.0
"""PRELU: its launches, what it refuses, and its numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.host.tflite.library import installed_rules
from delegate.inspect import Graph, Node
from delegate.target import Rules
from tests.support.activations import floats_of_all_sizes
from tests.support.cases import (
    DTYPES,
    GROUPS,
    LANES_8,
    SIMT,
    Strategy,
    changed,
    integers,
    only_launch,
    quantization,
    refusal,
    retyped,
    scales,
    zero_points,
)
from tests.support.factories import drawn, refused
from tests.support.pairs import every_pair
from tests.support.refusals import sparse, unquantised
from tests.support.suite_cases import assert_graph, assert_graph_or_refused, from_suite
from tflite_opencl.conformance.cases.elementwise import prelu

test_prelu = from_suite("PRELU")


def node(
    shape: tuple[int, ...] = (1, 5, 7, 11),
    alpha: tuple[int, ...] = (1, 1, 11),
    dtype: str = "uint8",
) -> Node:
    return prelu(dtype, shape, alpha).nodes[0]


@pytest.mark.parametrize(
    ("node", "sizes", "steps"),
    [
        (node(), [1, 1, 35, 11], [0, 0, 0, 1]),
        (node(alpha=(1,)), [1, 1, 1, 385], [0, 0, 0, 0]),
        (node(alpha=(5, 7, 11)), [1, 1, 1, 385], [0, 0, 0, 1]),
        (node((2, 5, 7, 11), (5, 1, 11)), [2, 5, 7, 11], [0, 11, 0, 1]),
    ],
    ids=["channels", "one", "picture", "rows"],
)
def test_launch(node: Node, sizes: list[int], steps: list[int]) -> None:
    row, plain = ops.lower(node, LANES_8.target)
    assert [each.name for each in ops.lower(node, SIMT.target)] == ["plain"]
    assert (row.name, only_launch(row).kernel) == ("row", "prelu_row_quant8")
    launch = only_launch(plain)
    assert (launch.file, launch.kernel, launch.tiles) == ("prelu", "prelu_quant8", 1)
    assert [launch.params[f"size_{i}"] for i in range(4)] == sizes
    assert [launch.params[f"step_{i}"] for i in range(4)] == steps


NODE = node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "types_differ": (changed(NODE, 1, dtype="int8"), "uint8, alpha int8: uint8 expected"),
    "result_differs": (changed(NODE, -1, dtype="int8"), "uint8 -> int8: must be equal"),
    "alpha_of_16_bits": (retyped(NODE, "int16", (0, 1, -1)), "int16, alpha int16: int8 expected"),
    "int32": (retyped(NODE, "int32", (0, 1, -1)), "int32: only float32, uint8, int8, int16"),
    "shape_changes": (changed(NODE, -1, shape=(385,)), "1x5x7x11 -> 385: the shape must stay"),
    "alpha_is_not_broadcast": (
        changed(NODE, 1, shape=(7,), data=None),
        "7 cannot be broadcast to 1x5x7x11",
    ),
    "alpha_of_higher_rank": (
        changed(NODE, 1, shape=(1, 1, 1, 1, 11), data=None),
        "more dimensions than the result's 4",
    ),
    "empty": (changed(changed(NODE, 0, shape=(0,)), -1, shape=(0,)), "shape 0: it is empty"),
    "without_quantisation": unquantised(NODE, 1),
    "scale_ratio": (
        changed(NODE, -1, quantization=quantization(1e-12)),
        "a scale ratio of 2^37: more than 2^30",
    ),
    "five_that_differ": (
        node((2, 3, 2, 3, 2), (2, 1, 2, 1, 2)),
        "5 dimensions that differ: at most 4 are implemented",
    ),
    "sparse": sparse(NODE, 1),
    "one_input": (replace(NODE, inputs=NODE.inputs[:1]), "1 inputs: 2 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)


HAS_INT16 = installed_rules().newer_types
INT16 = node(dtype="int16")


def test_older_runtime_has_no_int16() -> None:
    older = replace(SIMT.target, rules=Rules(newer_types=False))
    assert refusal(INT16, older) == "int16: PRELU fails in this TFLite"


STRATEGIES = (*GROUPS, replace(LANES_8, name="lanes8-plain", alternative="plain"))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_every_pair(dtype: str, strategy: Strategy, device: DeviceInfo) -> None:
    zeros = (121, 3, 128) if dtype == "uint8" else (3, -8, 5)
    shapes = (256, 256), (256, 256)
    graph = prelu(dtype, *shapes, (0.1, 0.02, 0.07), zeros, is_constant=False)
    assert_graph(graph, device, strategy, [every_pair(dtype)])


@pytest.mark.skipif(not HAS_INT16, reason="PRELU of int16 fails in this TFLite")
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("scales", [(0.001, 0.01, 0.0007), (0.25, 1.0, 0.25)], ids=str)
def test_every_16_bit_value(
    scales: tuple[float, float, float], strategy: Strategy, device: DeviceInfo
) -> None:
    every = np.arange(-(1 << 15), 1 << 15).astype(np.int16)
    alphas = integers((16, 1), "int8").ravel().tolist()[:12]
    alpha = np.array([-128, 127, 0, 1, *alphas], np.int8).reshape(16, 1)
    graph = prelu("int16", (16, 65536), (16, 1), scales, (0, 0, 0), is_constant=False)
    assert_graph(graph, device, strategy, [[np.tile(every, (16, 1)), alpha]])


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_floats_of_all_sizes(strategy: Strategy, device: DeviceInfo) -> None:
    values = floats_of_all_sizes()
    values = values[(abs(values) > 1e-30) | (values == 0)]  # a device may take less for zero
    assert_graph(prelu("float32", values.shape, (1,)), device, strategy, [[values]])


@st.composite
def prelus(draw: st.DrawFn) -> Graph:
    dtype = draw(DTYPES | st.sampled_from(["float32", "int16"] if HAS_INT16 else ["float32"]))
    shape = tuple(draw(st.lists(st.integers(1, 11), min_size=1, max_size=4)))
    kept = [n if draw(st.booleans()) else 1 for n in shape]
    zeros = zero_points(dtype) if dtype in ("uint8", "int8") else st.just(0)
    return prelu(
        dtype,
        shape,
        tuple(kept[draw(st.integers(0, len(kept) - 1)) :]),
        (draw(scales()), draw(scales()), draw(scales())),
        (draw(zeros), draw(zeros), draw(zeros)),
        draw(st.booleans()),
    )


test_drawn = drawn(prelus(), STRATEGIES, assert_graph_or_refused)

NODES = {"PRELU": NODE}
BUILT = [
    *(
        prelu(dtype, (5, 40), (40,), is_constant=False).nodes[0]
        for dtype in ("uint8", "int8", "float32")
    ),
    INT16,
]
