# SPDX-License-Identifier: Apache-2.0
"""MaxPoolingWithArgmax2D and MaxUnpooling2D: TFLite lacks them, XNNPACK's delegate has some."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import Graph, Node, pooling_options, write_model
from tests.support.cases import (
    DRAWN_STRATEGIES,
    GROUPS,
    SEEDS,
    Strategy,
    changed,
    forced,
    retyped,
    strategy_on,
)
from tests.support.compare import RUNTIME, assert_same, interpreter, invoke, refusals
from tests.support.factories import refused
from tests.support.model import graph_of, op, t
from tests.support.without_tflite import needs_tflite
from tflite_opencl.conformance.cases.mediapipe import max_pooling
from tflite_opencl.oracle.oracle import oracle

pytestmark = needs_tflite


def outputs_of(graph: Graph, device: DeviceInfo, strategy: Strategy, x: Any) -> list[Any]:
    """Return what the device gives, which takes all nodes."""
    model = write_model(graph)
    with forced(strategy):
        delegate = OpenCLDelegate(model, device=device.index, tune="off")
        got = invoke(interpreter(model, delegate), [x])
    assert refusals(delegate) == {}
    return got


def assert_as_known(graph: Graph, device: DeviceInfo, strategy: Strategy, seed: int = 0) -> None:
    """Assert that the device gives what TFLite's own ops make of the same windows."""
    rng = np.random.default_rng(seed)
    # Whole numbers, of which several are the greatest.
    x = rng.integers(-4, 5, graph.inputs[0].shape).astype(np.float32)
    (expected,) = oracle(RUNTIME, graph, write_model(graph), [[x]]).outputs
    for number, pair in enumerate(
        zip(outputs_of(graph, device, strategy, x), expected, strict=True)
    ):
        assert_same(*pair, f"output {number}")


POOLS: dict[str, Graph] = {
    "usual": max_pooling((1, 8, 6, 3), (2, 2), (2, 2), "SAME", is_undone=True),
    "border": max_pooling((2, 7, 10, 5), (4, 4), (4, 4), "SAME", is_undone=True),
    "rest": max_pooling((1, 7, 9, 16), (3, 2), (3, 2), "VALID", "RELU6", is_undone=True),
    "overlapping": max_pooling((1, 7, 9, 4), (3, 3), (2, 2), "SAME", "RELU_N1_TO_1"),
    "gaps": max_pooling((1, 9, 9, 1), (2, 1), (3, 4), "VALID"),
}


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("name", POOLS)
def test_pools(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    assert_as_known(POOLS[name], device, strategy)


@given(
    shape=st.tuples(*(st.integers(1, most) for most in (2, 9, 9, 17))),
    window=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    padding=st.sampled_from(["SAME", "VALID"]),
    is_undone=st.booleans(),
    strategy=DRAWN_STRATEGIES,
    seed=SEEDS,
)
def test_drawn(
    device: DeviceInfo,
    shape: tuple[int, ...],
    window: tuple[int, int],
    padding: str,
    is_undone: bool,
    strategy: Strategy,
    seed: int,
) -> None:
    shape = (shape[0], shape[1] + window[0], shape[2] + window[1], shape[3])
    strides = window if is_undone else (2, 3)
    graph = max_pooling(shape, window, strides, padding, is_undone=is_undone)
    assert_as_known(graph, device, strategy_on(device, strategy), seed)


@pytest.mark.skipif(RUNTIME.name == "tflite-runtime", reason="its XNNPACK does not know the ops")
@pytest.mark.parametrize("is_undone", [False, True], ids=["places", "undone"])
def test_windows_side_by_side_are_xnnpack_s(device: DeviceInfo, is_undone: bool) -> None:
    """Its places are integers, column by column; MediaPipe's floats go row by row."""
    graph = max_pooling((1, 9, 8, 5), (3, 2), (3, 2), "SAME", is_undone=is_undone)
    x = np.random.default_rng(0).standard_normal((1, 9, 8, 5)).astype(np.float32)
    got = outputs_of(graph, device, GROUPS[0], x)
    made = interpreter(write_model(graph), cpu_kernels="auto")
    expected = invoke(made, [x])
    np.testing.assert_array_equal(got[0], expected[0])
    if not is_undone:
        columns, rows = np.divmod(expected[1].view(np.uint32), 3)
        np.testing.assert_array_equal(got[1], (2 * rows + columns).astype(np.float32) + 0.1)


def test_a_place_beyond_its_window_is_none(device: DeviceInfo) -> None:
    places = np.array([-1, 0.9, 3.1, 4.1, np.nan, 1e9], np.float32).reshape(1, 1, 6, 1)
    x, y, z = t((1, 1, 6, 1)), t((1, 1, 6, 1)), t((1, 2, 12, 1))
    options = pooling_options("VALID", (2, 2), (2, 2))
    node = op("MaxUnpooling2D", [x, y], [z], options, is_custom=True)
    model = write_model(graph_of([node]))
    delegate = OpenCLDelegate(model, device=device.index, tune="off")
    (got,) = invoke(interpreter(model, delegate), [np.full((1, 1, 6, 1), 7, np.float32), places])
    rows = got.reshape(2, 12)
    assert np.argwhere(rows).tolist() == [[0, 2], [1, 5]]


POOL, UNDONE = POOLS["usual"].nodes


def optioned(node: Node, *arguments: Any) -> Node:
    return changed(node, options=pooling_options(*arguments))


test_refusal = refused(
    {
        "no_options": (changed(POOL, options={"custom_options": b""}), "no options"),
        "short": (
            changed(POOL, options={"custom_options": bytes([1, *[0] * 3] * 3)}),
            "no options",
        ),
        "no_window": (
            optioned(POOL, "SAME", (2, 2), (0, 2)),
            "window 0x2, activation 0: no pool",
        ),
        "float64": (retyped(POOL, "float64", [0]), "float64: only float32"),
        "integers": (retyped(UNDONE, "int32", [1]), "int32: only float32"),
        "large": (
            optioned(POOL, "SAME", (2, 2), (300, 300)),
            "a window of 90000 pixels: at most 60000",
        ),
        "channels": (
            changed(POOL, -1, shape=(1, 4, 3, 4)),
            "output 1x4x3x4: the inputs give 1x4x3x3",
        ),
        "overlapping": (
            optioned(UNDONE, "VALID", (1, 2), (2, 2)),
            "window 2x2, stride 1x2: the stride must equal the window",
        ),
        "size": (
            changed(UNDONE, -1, shape=(1, 8, 8, 3)),
            "output 1x8x8x3: the inputs give 1x8x6x3",
        ),
    }
)

NODES = {"max_pooling": POOL, "max_unpooling": UNDONE}
