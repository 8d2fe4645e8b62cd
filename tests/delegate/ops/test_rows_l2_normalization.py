# SPDX-License-Identifier: Apache-2.0
"""L2_NORMALIZATION: its launches, what it refuses, and its numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Graph, Node
from tests.support.cases import (
    DTYPES,
    GROUPS,
    SIMT,
    Strategy,
    changed,
    only_launch,
    quantization,
    retyped,
    zero_points,
)
from tests.support.factories import drawn, refused
from tests.support.refusals import unquantised
from tests.support.suite_cases import assert_graph, assert_graph_or_refused, from_suite
from tflite_opencl.conformance.cases.softmaxes import of_rows

OP = "L2_NORMALIZATION"

test_l2_normalization = from_suite(OP)


def node(shape: tuple[int, ...], dtype: str = "uint8") -> Node:
    return of_rows(OP, dtype, shape).nodes[0]


def test_launches() -> None:
    (plain,) = ops.lower(node((65, 3), "int8"), SIMT.target)
    launch = only_launch(plain)
    assert (launch.kernel, launch.tiles) == ("l2_normalization_quant8", 2)
    assert launch.defines == {"ELEM": "char", "IS_SIGNED": 1}
    (plain,) = ops.lower(node((3, 11), "float32"), SIMT.target)
    assert only_launch(plain).kernel == "l2_normalization_float"


NODE = node((3, 11))
REFUSALS: dict[str, tuple[Node, str]] = {
    "types_differ": (changed(NODE, -1, dtype="int8"), "uint8 in, int8 out: they must be equal"),
    "int16": (retyped(NODE, "int16"), "int16: only float32, uint8, int8"),
    "shape_changes": (changed(NODE, -1, shape=(33,)), "3x11 -> 33: the shape must stay"),
    "scalar": (
        changed(changed(NODE, 0, shape=()), -1, shape=()),
        "shape scalar: at least rank 1 is needed",
    ),
    "empty": (changed(changed(NODE, 0, shape=(0,)), -1, shape=(0,)), "shape 0: it is empty"),
    "long_rows": (node((2, 32001)), "rows of 32001: at most 32000"),
    "fused": (
        changed(NODE, options={"fused_activation_function": "RELU"}),
        "fused activation RELU: only NONE",
    ),
    "output_scale": (
        changed(NODE, -1, quantization=quantization(0.5, 128)),
        f"output scale 0.5, zero point 128: TFLite's is {1 / 128}, 128",
    ),
    "without_quantisation": unquantised(NODE, 0),
    "no_input": (replace(NODE, inputs=()), "0 inputs: 1 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_sums_of_all_sizes(dtype: str, strategy: Strategy, device: DeviceInfo) -> None:
    limits, zero = np.iinfo(dtype), 128 if dtype == "uint8" else 0
    rng = np.random.default_rng(0)
    reach = np.exp2(rng.uniform(0, 7, (4000, 1)))
    values = np.clip(rng.uniform(-1, 1, (4000, 3)) * reach + zero, limits.min, limits.max)
    graph = of_rows(OP, dtype, values.shape, 0.1, zero=zero)
    assert_graph(graph, device, strategy, [[values.astype(dtype)]])


@st.composite
def norms(draw: st.DrawFn) -> Graph:
    dtype = draw(DTYPES | st.just("float32"))
    shape = (*draw(st.lists(st.integers(1, 7), max_size=3)), draw(st.integers(1, 300)))
    zero = 0 if dtype == "float32" else draw(zero_points(dtype))
    return of_rows(OP, dtype, shape, 0.1, zero=zero)


test_drawn = drawn(norms(), GROUPS, assert_graph_or_refused)

NODES = {OP: NODE}
BUILT = [node((3, 11), dtype) for dtype in ("float32", "uint8", "int8")]
