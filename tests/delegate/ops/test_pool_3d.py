# SPDX-License-Identifier: Apache-2.0
"""MaxPool3D and AveragePool3D against what TFLite's own ops make of the same windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.inspect import Graph, Node, flexbuffer_of, write_model
from tests.support.cases import (
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    STRATEGIES,
    Strategy,
    changed,
    forced,
    quantization,
    retyped,
)
from tests.support.compare import interpreter, invoke
from tests.support.factories import drawn, refused
from tests.support.suite_cases import assert_graph, assert_graph_or_refused, from_suite
from tests.support.without_tflite import needs_tflite
from tflite_opencl.conformance.cases.volumes import pool_3d

pytestmark = needs_tflite

OPS = ("MaxPool3D", "AveragePool3D", "AvgPool3D")
USUAL = ((1, 4, 6, 8, 16), (2, 2, 2), (2, 2, 2), "SAME")

test_pool_3d = from_suite(*OPS, strategies=(SIMT, LANES_16))


@pytest.mark.parametrize("strategy", [PLAIN, LANES_8], ids=str)
def test_halves_are_rounded_away_from_zero(strategy: Strategy, device: DeviceInfo) -> None:
    graph = pool_3d("AveragePool3D", "int8", (1, 2, 1, 40, 8), (2, 1, 1), (1, 1, 1), "VALID")
    x = np.zeros(graph.inputs[0].shape, np.int8)
    x[0, 0] = np.arange(-20, 20, dtype=np.int8)[None, :, None]
    x[0, 1, :, ::2] = 1
    assert_graph(graph, device, strategy, [[x]])


@pytest.mark.parametrize("op", OPS[:2])
def test_numbers_that_are_not_finite(op: str, device: DeviceInfo) -> None:
    """A maximum passes over NaN, and infinities become the largest float, as in TFLite."""
    graph = pool_3d(op, "float32", (1, 2, 1, 5, 8), (2, 1, 1), (1, 1, 1), "VALID")
    x = np.ones(graph.inputs[0].shape, np.float32)
    x[0, 0, 0, :4] = np.array([np.nan, np.inf, -np.inf, 3e38])[:, None]
    x[0, 1, 0, 2] = -np.inf
    model = write_model(graph)
    with forced(LANES_8):
        delegate = OpenCLDelegate(model, device=device.index, tune="off")
        (got,) = invoke(interpreter(model, delegate), [x])
    most = np.finfo(np.float32).max
    expected = [1, most, -most, 3e38, 1] if op == "MaxPool3D" else [np.nan, most, -most, 1.5e38, 1]
    np.testing.assert_allclose(got[0, 0, 0, :, 0], np.array(expected, np.float32), rtol=1e-6)


@st.composite
def pools(draw: st.DrawFn) -> Graph:
    shape = tuple(draw(st.integers(1, most)) for most in (2, 6, 6, 7, 35))
    window = tuple(draw(st.integers(1, 4)) for _ in "dhw")
    strides = tuple(draw(st.integers(1, 3)) for _ in "dhw")
    fits = all(taps <= size for taps, size in zip(window, shape[1:4], strict=True))
    padding = "VALID" if fits and draw(st.booleans()) else "SAME"
    dtype = draw(st.sampled_from(["float32", "int8", "int16"]))
    return pool_3d(draw(st.sampled_from(OPS)), dtype, shape, window, strides, padding)


test_drawn = drawn(pools(), STRATEGIES, assert_graph_or_refused)

(FLOATS,) = pool_3d("MaxPool3D", "float32", *USUAL).nodes
(INT8,) = pool_3d("AveragePool3D", "int8", *USUAL).nodes


def test_vectors_then_plain() -> None:
    assert [each.name for each in ops.lower(INT8, LANES_8.target)] == ["vector 8", "plain"]
    (few,) = pool_3d("MaxPool3D", "float32", (1, 7, 7, 9, 1), (1, 2, 1), (3, 4, 2), "VALID").nodes
    assert [each.name for each in ops.lower(few, LANES_8.target)] == ["plain"]


def optioned(**values: Any) -> Node:
    given = {"data_format": "NDHWC", "padding": "SAME", "ksize": [1, 2, 2, 2, 1]}
    return changed(FLOATS, options=flexbuffer_of(**given | {"strides": [1, 2, 2, 2, 1]} | values))


test_refusal = refused(
    {
        "no_options": (
            changed(FLOATS, options={"custom_options": b""}),
            "custom options: no options",
        ),
        "planar": (
            optioned(data_format="NCDHW"),
            "custom options: layout NCDHW, padding SAME: no pool",
        ),
        "padding": (
            optioned(padding="EXPLICIT"),
            "custom options: layout NDHWC, padding EXPLICIT: no pool",
        ),
        "four_sizes": (
            optioned(ksize=[1, 2, 2, 1]),
            "custom options: ksize (1, 2, 2, 1): five are needed, the first and the last 1",
        ),
        "across_pictures": (
            optioned(strides=[2, 2, 2, 2, 1]),
            "custom options: strides (2, 2, 2, 2, 1): five are needed, the first and the last 1",
        ),
        "no_window": (
            optioned(ksize=[1, 0, 2, 2, 1]),
            "custom options: ksize (1, 0, 2, 2, 1): each must be at least 1",
        ),
        "many_sizes": (
            optioned(ksize=[1] * 1000),
            "custom options: ksize None: five are needed, the first and the last 1",
        ),
        "uint8": (retyped(INT8, "uint8"), "uint8: only int8, int16, float32"),
        "another_scale": (
            changed(INT8, -1, quantization=quantization(0.5, -7)),
            "the scale or zero point changes: TFLite's kernel would not rescale",
        ),
        "rank": (
            changed(FLOATS, 0, shape=(1, 4, 6, 128)),
            "shape 1x4x6x128: rank 5 (NDHWC) is needed",
        ),
        "size": (
            changed(FLOATS, -1, shape=(1, 2, 3, 4, 15)),
            "output 1x2x3x4x15: the inputs give 1x2x3x4x16",
        ),
        "large": (
            changed(
                pool_3d(
                    "MaxPool3D", "int8", (1, 30, 30, 30, 1), (30,) * 3, (1,) * 3, "VALID"
                ).nodes[0]
            ),
            "a window of 27000 pixels: at most 21000 are implemented",
        ),
    },
)

NODES = {f"{op}_{dtype}": pool_3d(op, dtype, *USUAL).nodes[0]
         for op in OPS for dtype in ("float32", "int8", "int16")}  # fmt: skip
BUILT = [
    pool_3d(op, dtype, (1, 4, 4, 4, channels), (2, 2, 2), (2, 2, 2), "SAME").nodes[0]
    for op in OPS[:2]
    for dtype in ("float32", "int8", "int16")
    for channels in (1, 4, 32)
]
