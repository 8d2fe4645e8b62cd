# SPDX-License-Identifier: Apache-2.0
"""DEQUANTIZE: its launches, what it refuses, and its numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from tests.support.cases import (
    GROUPS,
    LANES_8,
    SIMT,
    STRATEGIES,
    Strategy,
    assert_exact_strategy,
    changed,
    only_launch,
    quantization,
    scales,
    zero_points,
)
from tests.support.compare import RUNTIME
from tests.support.factories import drawn, refused
from tests.support.model import chain_model, op, t
from tests.support.refusals import unquantised
from tests.support.suite_cases import assert_graph, assert_graph_or_refused, from_suite
from tflite_opencl.conformance.cases.conversions import dequantize

TYPES = ("uint8", "int8", "int16")

test_dequantize = from_suite("DEQUANTIZE")


def node(dtype: str = "uint8", shape: tuple[int, ...] = (256,), scale: float = 0.1) -> Node:
    return dequantize(dtype, shape, scale, 0).nodes[0]


@pytest.mark.parametrize(
    ("dtype", "elem"), [("uint8", "uchar"), ("int8", "char"), ("int16", "short")]
)
def test_launch(dtype: str, elem: str) -> None:
    found = ops.lower(node(dtype), LANES_8.target)
    assert [each.name for each in found] == ["product", "vector 4", "plain"]
    launch = only_launch(found[0])
    assert (launch.file, launch.kernel, launch.tiles) == ("dequantize", "dequantize", 1)
    assert launch.defines == {"ELEM": elem}


@pytest.mark.parametrize(("size", "aligned"), [(256, {"IS_ALIGNED": 1}), (1027, {})])
def test_vectors_on_gpus(size: int, aligned: dict[str, int]) -> None:
    launch = only_launch(ops.lower(node(shape=(size,)), SIMT.target)[0])
    assert launch.kernel == "dequantize_vector"
    assert launch.defines == {"ELEM": "uchar", "LANES": 4, **aligned}
    assert (launch.params["items"], launch.params["tile_items"]) == (-(-size // 4), 64)


def test_no_product_below_the_least_normal_float() -> None:
    found = ops.lower(node(scale=2.0**-127), SIMT.target)
    assert [each.name for each in found] == ["vector 4", "plain"]


NODE = node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "to_float16": (changed(NODE, -1, dtype="float16"), "uint8 to float16: only float32 comes out"),
    "from_int32": (
        changed(NODE, 0, dtype="int32"),
        "int32: only uint8 and int8 and int16 are implemented",
    ),
    "without_quantisation": unquantised(NODE, 0),
    "per_channel": (
        changed(NODE, 0, quantization=quantization([0.5] * 256)),
        "256 scales: only one per tensor here",
    ),
    "shape_changes": (changed(NODE, -1, shape=(16, 16)), "256 -> 16x16: the shape must stay"),
    "int4_below_the_least_normal_float": (
        changed(changed(NODE, 0, dtype="int4"), 0, quantization=quantization(2.0**-127)),
        "int4 with scale 5.877471754111438e-39: products may be zero on a device",
    ),
    "int4_per_channel": (
        changed(changed(NODE, 0, dtype="int4"), 0, quantization=quantization([0.5] * 256)),
        "256 scales: only one per tensor here",
    ),
    "int2": (changed(NODE, 0, dtype="int2"), "int2: only uint8 and int8 and int16 are implemented"),
    "empty": (changed(changed(NODE, 0, shape=(0,)), -1, shape=(0,)), "shape 0: it is empty"),
    "no_input": (replace(NODE, inputs=()), "0 inputs: 1 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)


@pytest.mark.parametrize("alternative", ["product", "vector", "plain"])
@pytest.mark.parametrize("strategy", GROUPS, ids=str)
def test_every_int16(strategy: Strategy, alternative: str, device: DeviceInfo) -> None:
    every = np.arange(-(2**15), 2**15).astype(np.int16)
    graph = dequantize("int16", every.shape, 0.0374, 0)
    assert_graph(graph, device, replace(strategy, alternative=alternative), [[every]])


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
def test_every_half(strategy: Strategy, device: DeviceInfo) -> None:
    every = np.arange(65536).astype(np.uint16).view(np.float16)
    model = chain_model([op("DEQUANTIZE", [t(every.shape, "float16")], [t(every.shape)])])
    assert_exact_strategy(model, device, strategy, inputs=[[every]])


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("name", ["DEQUANTIZE", "CAST"])
@pytest.mark.parametrize("size", [1, 2, 15, 4097])
def test_int4(size: int, name: str, strategy: Strategy, device: DeviceInfo) -> None:
    if RUNTIME.name == "tflite-runtime":
        pytest.skip("tflite-runtime has no floats of int4")
    source = replace(t((size,), "int8", 0.0374, -5), dtype="int4")
    model = chain_model([op(name, [source], [t((size,))], version=6)])
    every = [np.resize(np.arange(-8, 8), size).astype(np.int8)]
    assert_exact_strategy(model, device, strategy, inputs=[every])


test_drawn = drawn(
    st.sampled_from(TYPES).flatmap(
        lambda dtype: st.builds(
            dequantize,
            st.just(dtype),
            st.lists(st.integers(1, 11), max_size=4).map(tuple),
            scales(-100, 60),
            st.just(0) if dtype == "int16" else zero_points(dtype),
        )
    ),
    STRATEGIES,
    assert_graph_or_refused,
)

NODES = {"DEQUANTIZE": NODE}
BUILT = [
    *(node(dtype) for dtype in TYPES),
    op("DEQUANTIZE", [t((5, 40), "float16")], [t((5, 40))]),
    op("DEQUANTIZE", [replace(t((5, 41), "int8", 0.1), dtype="int4")], [t((5, 41))]),
]
