# SPDX-License-Identifier: Apache-2.0
"""QUANTIZE: its launches, what it refuses, and its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo, ops
from delegate.inspect import Graph, Node
from delegate.launch import Constant
from tests.support.cases import (
    GROUPS,
    LANES_8,
    SIMT,
    Strategy,
    changed,
    only_launch,
    quantization,
    scales,
    zero_points,
)
from tests.support.factories import drawn, refused
from tests.support.refusals import unquantised
from tests.support.suite_cases import assert_graph, assert_graph_or_refused, from_suite
from tflite_opencl.conformance.cases.conversions import quantize

test_quantize = from_suite("QUANTIZE")


def node(
    source: str,
    result: str,
    shape: tuple[int, ...] = (1, 7, 5, 11),
    inside: tuple[float, int] = (0.1, 3),
    outside: tuple[float, int] = (0.07, 8),
) -> Node:
    if "int16" in (source, result):
        inside, outside = ((scale, 0) for scale, _ in (inside, outside))
    return quantize(source, result, shape, inside, outside).nodes[0]


@pytest.mark.parametrize(
    ("strategy", "tiles", "group_items", "tile_items"),
    [(SIMT, 65, 64, 64), (LANES_8, 2, 1, 4096)],
    ids=str,
)
@pytest.mark.parametrize(
    ("dtype", "kernel"), [("float32", "quantize_float"), ("int32", "quantize_int32")]
)
def test_launch(
    dtype: str, kernel: str, strategy: Strategy, tiles: int, group_items: int, tile_items: int
) -> None:
    lowered = node(dtype, "int8", (17, 241))
    *vectors, plain = ops.lower(lowered, strategy.target)
    vector = "vector 8" if strategy is LANES_8 else "vector 4"
    assert [each.name for each in vectors] == ([vector] if dtype == "float32" else [])
    launch = only_launch(plain)
    assert (plain.name, launch.file, launch.kernel) == ("plain", "quantize", kernel)
    assert (launch.tiles, launch.group_items) == (tiles, group_items)  # of 4097 elements
    assert launch.defines == {"ELEM": "char"}
    assert launch.params["tile_items"] == tile_items


@pytest.mark.parametrize(
    ("strategy", "lanes", "tiles", "tile_items"), [(SIMT, 4, 17, 64), (LANES_8, 8, 2, 512)], ids=str
)
def test_vectors(strategy: Strategy, lanes: int, tiles: int, tile_items: int) -> None:
    lowered = node("float32", "uint8", (17, 241))
    launch = only_launch(ops.lower(lowered, strategy.target)[0])
    assert (launch.kernel, launch.tiles) == ("quantize_vector_float", tiles)
    assert launch.defines == {"ELEM": "uchar", "LANES": lanes}  # of 4097 elements
    assert launch.params["tile_items"] == tile_items
    even = node("float32", "uint8", (17, 240))
    is_aligned = only_launch(ops.lower(even, strategy.target)[0]).defines.get("IS_ALIGNED")
    assert is_aligned == (1 if strategy is SIMT else None)


def test_small_integers_have_a_table() -> None:
    lowered = node("int8", "uint8", inside=(0.5, 0), outside=(0.5, 128))
    vector, plain = ops.lower(lowered, SIMT.target)
    assert [only_launch(each).kernel for each in (vector, plain)] == ["lookup_vector", "lookup"]
    table = only_launch(plain).params["table"]
    assert isinstance(table, Constant)
    signed = np.arange(256, dtype=np.uint8).view(np.int8).astype(int)
    assert table.pack().tolist() == (signed + 128).tolist()


def test_thresholds_are_the_least_floats() -> None:
    lowered = node("float32", "uint8", outside=(0.5, 2))
    thresholds = only_launch(ops.lower(lowered, SIMT.target)[0]).params["thresholds"]
    assert isinstance(thresholds, Constant)
    packed = thresholds.pack()
    assert packed.nbytes == thresholds.size_bytes
    up = np.nextafter(np.float32([-0.75, -0.25]), np.float32(1))
    assert packed[:5].tolist() == [-np.inf, *up.tolist(), 0.25, 0.75]


NODE = node("uint8", "int8")
FLOAT = node("float32", "int8")
REFUSALS: dict[str, tuple[Node, str]] = {
    "float16": (
        changed(NODE, 0, dtype="float16"),
        "float16: only uint8 and int8 and int16 and int32 are implemented",
    ),
    "to_int32": (
        changed(NODE, -1, dtype="int32"),
        "int32: only uint8 and int8 and int16 are implemented",
    ),
    "int16_to_uint8": (
        node("int16", "uint8"),
        "int16 to uint8: only to int8 and int16",
    ),
    "without_quantisation": unquantised(NODE, -1),
    "float_without_quantisation": unquantised(FLOAT, -1),
    "per_channel": (
        changed(NODE, -1, quantization=quantization([0.5] * 11, axis=3)),
        "11 scales: only one per tensor here",
    ),
    "zero_point_outside": (
        changed(NODE, -1, quantization=quantization(0.5, 200)),
        "zero point 200: outside int8",
    ),
    "shape_changes": (changed(NODE, -1, shape=(385,)), "1x7x5x11 -> 385: the shape must stay"),
    "empty": (changed(changed(NODE, 0, shape=(0,)), -1, shape=(0,)), "shape 0: it is empty"),
    "scale_ratio": (
        changed(NODE, -1, quantization=quantization(1e-30)),
        "a scale ratio of 2^97: more than 2^30",
    ),
    "least_scale": (
        changed(FLOAT, -1, quantization=quantization(2.0**-96)),
        f"scale {2.0**-96}: only 2^-96 to 2^96, so that its reciprocal is exact",
    ),
    "no_input": (replace(NODE, inputs=(None,)), "1 inputs: 1 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_every_int16(dtype: str, strategy: Strategy, device: DeviceInfo) -> None:
    graph = quantize("int16", dtype, (65536,), (0.013, 0), (0.7, 8 if dtype == "int8" else 0))
    every = np.arange(-(2**15), 2**15).astype(np.int16)
    assert_graph(graph, device, strategy, [[every]])


def near_ties(dtype: str, scale: float, zero: int) -> NDArray[Any]:
    """Return the floats around where one output value gives way to the next, and far ones."""
    limits = np.iinfo(dtype)
    step = 1 if limits.bits == 8 else 97
    halves = np.arange(limits.min - 3, limits.max + 4, step) - zero + 0.5
    near = (halves * np.float32(scale).astype(np.float64)).astype(np.float32)
    up, down = np.float32(np.inf), np.float32(-np.inf)
    around = [near]
    for _ in range(2):
        around = [np.nextafter(around[0], down), *around, np.nextafter(around[-1], up)]
    far = np.float32([0.0, -0.0, 0.5, -0.5, 1e-40, -1e-40, 2.0**30, -(2.0**30)])
    return np.concatenate([*around, far * np.float32(scale)])


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("scale", [0.5, 0.1, 1 / 3, 1e-9, 12345.678])
@pytest.mark.parametrize(
    ("dtype", "zero"),
    [("uint8", 0), ("uint8", 3), ("uint8", 255), ("int8", -128), ("int8", 127), ("int16", 0)],
)
def test_ties_of_floats(
    dtype: str, zero: int, scale: float, strategy: Strategy, device: DeviceInfo
) -> None:
    values = near_ties(dtype, scale, zero)
    graph = quantize("float32", dtype, values.shape, None, (scale, zero))
    assert_graph(graph, device, strategy, [[values]])


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("zero", [-128, -1, 0, 127])
def test_floats_an_int32_cannot_hold(zero: int, strategy: Strategy, device: DeviceInfo) -> None:
    below = np.nextafter(np.float32(2.0**30), np.float32(0))
    values = np.float32([2.0**30, below, 3e9, 1e38, np.inf, -(2.0**30), -below, -3e9, -np.inf])
    values = np.append(values, np.float32(np.nan))
    graph = quantize("float32", "int8", values.shape, None, (0.5, zero))
    assert_graph(graph, device, strategy, [[values]])


@st.composite
def quantizations(draw: st.DrawFn) -> Graph:
    source = draw(st.sampled_from(["uint8", "int8", "int16", "int32", "float32"]))
    results = ["int8", "int16"] if source in ("int16", "int32") else ["uint8", "int8", "int16"]
    result = draw(st.sampled_from(results))
    inside, outside = (
        (draw(scales()), draw(zero_points(dtype)) if dtype in ("uint8", "int8") else 0)
        for dtype in (source, result)
    )
    shape = tuple(draw(st.lists(st.integers(1, 11), max_size=4)))
    return quantize(source, result, shape, inside, outside)


test_drawn = drawn(quantizations(), GROUPS, assert_graph_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    same = (0.5, 3)
    return [node(dtype, dtype, (1, size, size, channels), same, same)]


BUILT = [
    node(before, after, (5, 40))
    for before, afters in (("float32", ("uint8", "int8", "int16")), ("int32", ("int8", "int16")))
    for after in afters
]
