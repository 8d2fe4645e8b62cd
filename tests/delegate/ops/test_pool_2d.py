# SPDX-License-Identifier: Apache-2.0
"""The poolings: their alternatives, what they refuse, and their numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.inspect import Graph, Node, write_model
from tests.support.cases import (
    DTYPES,
    FUSED,
    LANES_4,
    LANES_8,
    LANES_16,
    SIMT,
    STRATEGIES,
    Strategy,
    changed,
    forced,
    only_launch,
    quantization,
    retyped,
    scales,
    zero_points,
)
from tests.support.compare import assert_close, assert_within, interpreter, invoke, refusals
from tests.support.factories import drawn, refused
from tests.support.nodes import CHANNELS, SIZES
from tests.support.refusals import activated, unquantised
from tests.support.suite_cases import assert_graph, assert_graph_or_refused, from_suite
from tflite_opencl.conformance.cases.pools import pool
from tflite_opencl.oracle.values import input_sets

OPS = ("AVERAGE_POOL_2D", "MAX_POOL_2D")


def node(
    op: str = OPS[0],
    dtype: str = "uint8",
    size: tuple[int, int, int] = (7, 5, 3),
    window: tuple[int, int] = (3, 3),
    **options: Any,
) -> Node:
    """Return a pool of one picture."""
    return pool(op, dtype, (1, *size), window, **options).nodes[0]


@pytest.mark.parametrize(
    ("strategy", "depth", "dtype", "names"),
    [
        (SIMT, 3, "int8", ["plain"]),
        (SIMT, 64, "int8", ["vector 4", "plain"]),
        (LANES_4, 5, "uint8", ["vector 4", "plain"]),
        (LANES_16, 7, "float32", ["vector 4", "plain"]),
        (LANES_16, 64, "uint8", ["vector 8", "plain"]),
        (LANES_16, 64, "float32", ["vector 16", "plain"]),
    ],
    ids=str,
)
def test_alternatives(strategy: Strategy, depth: int, dtype: str, names: list[str]) -> None:
    found = ops.lower(node(dtype=dtype, size=(7, 5, depth)), strategy.target)
    assert [alternative.name for alternative in found] == names


def test_the_greatest_of_16_bytes_at_once() -> None:
    found = ops.lower(node("MAX_POOL_2D", size=(7, 5, 24)), LANES_16.target)
    assert [alternative.name for alternative in found] == ["vector 16", "plain"]


@pytest.mark.parametrize(
    ("op", "depth", "vectors"),
    [("MAX_POOL_2D", 128, 4), ("MAX_POOL_2D", 96, 2), ("MAX_POOL_2D", 80, 1), (OPS[0], 128, 1)],
)
def test_vectors_that_share_a_window(op: str, depth: int, vectors: int, device: DeviceInfo) -> None:
    for dtype in ("uint8", "int8", "int16"):
        graph = pool(op, dtype, (2, 9, 7, depth), (3, 4), (2, 1))
        launch = only_launch(ops.lower(graph.nodes[0], LANES_16.target)[0])
        assert launch.defines["VECTORS"] == vectors
        assert_graph(graph, device, LANES_16, input_sets(graph, 2))


def test_a_tile_visits_no_more_pixels_than_a_window_may_have() -> None:
    large = node(size=(200, 300, 64), window=(200, 300), padding="VALID")
    launch = only_launch(ops.lower(large, LANES_8.target)[0])
    assert (launch.params["items"], launch.params["tile_items"]) == (8, 1)
    large = node(size=(20, 30, 640), window=(20, 30))
    launch = only_launch(ops.lower(large, LANES_8.target)[0])
    assert launch.params["tile_items"] == 100


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("op", OPS)
def test_launches(op: str, dtype: str) -> None:
    vector, plain = map(only_launch, ops.lower(node(op, dtype, (7, 5, 9)), LANES_8.target))
    name = "float" if dtype == "float32" else "quant8"
    assert (vector.kernel, plain.kernel) == (f"pool_2d_vector_{name}", f"pool_2d_{name}")
    assert (vector.params["items"], vector.group_items) == (7 * 5 * 2, 1)
    on_gpu = only_launch(ops.lower(node(op, dtype), SIMT.target)[-1])
    assert (on_gpu.tiles, on_gpu.group_items) == (2, 64)  # of 105 elements


NODE = node()
FLOAT_NODE = node(dtype="float32")
REFUSALS: dict[str, tuple[Node, str]] = {
    "rank_3": (changed(NODE, 0, shape=(7, 5, 3)), "shapes 7x5x3 -> 1x7x5x3: only rank 4 (NHWC)"),
    "empty": (changed(NODE, 0, shape=(1, 7, 5, 0)), "shapes 1x7x5x0 -> 1x7x5x3: they are empty"),
    "absent_options_table": (
        replace(
            NODE, options=dict.fromkeys(NODE.options, 0) | {"fused_activation_function": "NONE"}
        ),
        "kernel 0x0, stride 0x0, dilation 1x1: each must be at least 1",
    ),
    "text_as_filter": (
        changed(NODE, options={"filter_width": "3"}),
        "filter_width is '3': an int32 is needed",
    ),
    "huge_filter": (
        changed(NODE, options={"filter_width": 2**31}),
        f"filter_width is {2**31}: an int32 is needed",
    ),
    "no_options": (
        replace(NODE, options={}),
        "kernel 0x0, stride 0x0, dilation 1x1: each must be at least 1",
    ),
    # TFLite clamps by numbers that it never set.
    "bound": (
        replace(
            changed(NODE, options={"fused_activation_function": "RELU6"}),
            inputs=(replace(NODE.inputs[0], quantization=quantization(2.0**-33, 3)),),
            outputs=(replace(NODE.outputs[0], quantization=quantization(2.0**-33, 3)),),
        ),
        f"activation bound 6.0 at scale {2.0**-33}: beyond 32 bits",
    ),
    "padding": (changed(NODE, options={"padding": 2}), "padding 2: only SAME and VALID exist"),
    "channels": (changed(NODE, -1, shape=(1, 7, 5, 4)), "3 channels in, 4 out: they must be equal"),
    "batch": (changed(NODE, -1, shape=(2, 7, 5, 3)), "batch 1 in, 2 out: they must be equal"),
    "output_size": (changed(NODE, -1, shape=(1, 6, 5, 3)), "output 6x5: the window gives 7x5"),
    "window_too_large": (
        changed(NODE, options={"padding": "VALID", "filter_height": 9}),
        "output 7x5: the window gives 0x3",
    ),
    "int32": (retyped(NODE, "int32"), "int32: only uint8 and int8 and int16 are implemented"),
    "l2_of_bytes": (node("L2_POOL_2D"), "uint8: only float32 is implemented"),
    "large_window": (
        node(size=(300, 300, 3), window=(300, 201)),
        "a window of 60300 pixels: at most 60000 are implemented",
    ),
    "from_float32": (
        changed(NODE, 0, dtype="float32"),
        "float32 in, uint8 out: they must be equal",
    ),
    "float_fused_tanh": activated(FLOAT_NODE, "TANH"),
    "signedness_changes": (
        changed(NODE, -1, dtype="int8"),
        "uint8 in, int8 out: they must be equal",
    ),
    "scale_changes": (
        changed(NODE, -1, quantization=quantization(0.5, 128)),
        "the scale or zero point changes: TFLite's kernel would not rescale",
    ),
    "without_quantisation": unquantised(NODE, 0),
    "fused_tanh": activated(NODE, "TANH"),
    "no_input": (replace(NODE, inputs=()), "0 inputs: 1 expected"),
    "two_inputs": (replace(NODE, inputs=NODE.inputs * 2), "2 inputs: 1 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)

test_average_pool_2d = from_suite(
    "AVERAGE_POOL_2D", strategies=(SIMT, LANES_16), first="in1x9x6x33"
)
test_max_pool_2d = from_suite("MAX_POOL_2D", strategies=(SIMT, LANES_16), first="in1x9x6x33")
test_l2_pool_2d = from_suite("L2_POOL_2D", strategies=(SIMT, LANES_16), first="in1x9x6x33")


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_every_average(dtype: str, device: DeviceInfo) -> None:
    # Every sum of windows of 1 to 15 pixels a side, as far as one picture has them; ties, too.
    for side in range(1, 16):
        graph = pool(OPS[0], dtype, (1, 15 + side, 64, 8), (side, side), padding="VALID")
        for strategy in (LANES_4, LANES_16):
            assert_graph(graph, device, strategy, input_sets(graph, side))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("alternative", ["vector", "plain"])
def test_nan_and_infinity(op: str, alternative: str, device: DeviceInfo) -> None:
    # NaN is no maximum, but makes an average NaN.
    model = write_model(pool(op, "float32", (1, 7, 9, 8), (3, 3)))
    values = np.ones((1, 7, 9, 8), np.float32)
    values[0, 1, 1], values[0, 5, 5], values[0, 1, 7] = np.nan, np.inf, -np.inf
    with forced(replace(LANES_8, alternative=alternative)):
        delegate = OpenCLDelegate(model, device.index, tune="off")
        ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    got, expected = invoke(ours, [values])[0], invoke(reference, [values])[0]
    assert np.isnan(expected).any() == (op == "AVERAGE_POOL_2D")
    assert_close(got, expected, 1e-6, op)


@pytest.mark.parametrize("alternative", ["vector", "plain"])
def test_roots_of_squares(alternative: str, device: DeviceInfo) -> None:
    # A window of one: the root of a square, within two places of the number itself.
    model = write_model(pool("L2_POOL_2D", "float32", (1, 64, 64, 8), (1, 1)))
    rng = np.random.default_rng(0)
    values = (rng.uniform(1, 2, (1, 64, 64, 8)) * 2.0 ** rng.integers(-60, 60)).astype(np.float32)
    values[0, 0, 0, :3] = 0, np.inf, -np.inf
    with forced(replace(LANES_8, alternative=alternative)):
        assert_within(
            model, device, lambda inputs: [2 * np.spacing(inputs[0]).astype(float)],
            inputs=[[values]],
        )  # fmt: skip


@st.composite
def pools(draw: st.DrawFn) -> Graph:
    dtype = draw(DTYPES | st.sampled_from(["int16", "float32"]))
    window = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    size = draw(st.integers(1, 13)), draw(st.integers(1, 13))
    fits = all(map(int.__le__, window, size)) and draw(st.booleans())
    zero = draw(zero_points(dtype)) if dtype in ("uint8", "int8") else 0
    return pool(
        draw(st.sampled_from((*OPS, "L2_POOL_2D") if dtype == "float32" else OPS)),
        dtype,
        (draw(st.integers(1, 3)), *size, draw(st.integers(1, 19))),
        window,
        stride=(draw(st.integers(1, 6)), draw(st.integers(1, 6))),
        padding="VALID" if fits else "SAME",
        fused=draw(st.sampled_from(FUSED)),
        quantization=None if dtype == "float32" else (draw(scales()), zero),
    )


test_drawn = drawn(pools(), STRATEGIES, assert_graph_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    shape = (size, size, channels)
    return [*(node(op, dtype, shape) for op in OPS), node("L2_POOL_2D", "float32", shape)]


NODES = {f"{op}_float": node(op, "float32") for op in OPS}
BUILT = [
    *(node(op, "int16", (5, 5, 17)) for op in OPS),
    *(
        node(op, "float32", (size, size, channels), (2, 2))
        for op in OPS
        for size in SIZES
        for channels in CHANNELS
    ),
]
