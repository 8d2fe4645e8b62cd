# SPDX-License-Identifier: Apache-2.0
"""LOG_SOFTMAX: its launches, what it refuses, and its numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.inspect import Graph, Node, write_model
from delegate.launch import Constant
from tests.support.cases import (
    DTYPES,
    GROUPS,
    SIMT,
    Strategy,
    changed,
    forced,
    only_launch,
    quantization,
    retyped,
    scales,
    zero_points,
)
from tests.support.compare import assert_close, interpreter, invoke, refusals
from tests.support.factories import drawn, refused
from tests.support.refusals import unquantised
from tests.support.suite_cases import assert_graph_or_refused, from_suite
from tflite_opencl.conformance.cases.softmaxes import of_rows

test_log_softmax = from_suite("LOG_SOFTMAX")


def log_softmax(shape: tuple[int, ...], dtype: str = "float32", scale: float = 0.1) -> Node:
    return of_rows("LOG_SOFTMAX", dtype, shape, scale).nodes[0]


NODE = log_softmax((65, 11))
REFUSALS: dict[str, tuple[Node, str]] = {
    "int16": (retyped(NODE, "int16"), "int16: only float32, uint8, int8"),
    "output_scale": (
        changed(log_softmax((3, 5), "uint8"), -1, quantization=quantization(0.5, 255)),
        "output scale 0.5, zero point 255: TFLite's is 0.0625, 255",
    ),
    "without_quantisation": unquantised(log_softmax((3, 5), "uint8"), 0),
    "scale": (log_softmax((3, 5), "uint8", 2.0**-25), f"scale {2.0**-25}: out of range"),
    "long_rows_of_8_bits": (log_softmax((2, 4096), "int8"), "rows of 4096: at most 4095"),
    "types_differ": (changed(NODE, -1, dtype="int8"), "float32 in, int8 out: they must be equal"),
    "shape_changes": (changed(NODE, -1, shape=(715,)), "65x11 -> 715: the shape must stay"),
    "scalar": (log_softmax(()), "shape scalar: at least rank 1 is needed"),
    "empty": (log_softmax((0, 3)), "shape 0x3: it is empty"),
    "long_rows": (log_softmax((2, 20001)), "rows of 20001: at most 20000"),
    "no_input": (replace(NODE, inputs=()), "0 inputs: 1 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)


def test_launch() -> None:
    (plain,) = ops.lower(NODE, SIMT.target)
    launch = only_launch(plain)
    assert (launch.file, launch.kernel, launch.tiles) == ("log_softmax", "log_softmax_float", 2)
    (plain,) = ops.lower(log_softmax((65, 11), "int8"), SIMT.target)
    launch = only_launch(plain)
    assert (launch.kernel, dict(launch.defines)) == ("log_softmax_quant8", {"ELEM": "char"})
    table = launch.params["table"]
    assert isinstance(table, Constant)
    scaled, exponentials = table.pack()
    real = -0.1 * np.arange(256)
    reached = int(31 / 0.1 / 2)  # what 5 integer bits hold, at the multiplier's power of 2
    assert np.abs(scaled / 2**26 - real)[:reached].max() < 1e-5
    assert np.abs(exponentials / 2**19 - np.exp(real)).max() < 1e-5


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
def test_nan_and_infinity(strategy: Strategy, device: DeviceInfo) -> None:
    values = np.ones((4, 7), np.float32)
    values[0, 3], values[1, 2], values[2, 5], values[3, :4] = np.nan, -np.inf, np.inf, -1e30
    model = write_model(of_rows("LOG_SOFTMAX", "float32", values.shape))
    with forced(strategy):
        delegate = OpenCLDelegate(model, device.index, tune="off")
        ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    assert_close(invoke(ours, [values])[0], invoke(reference, [values])[0], 1e-6, str(strategy))


@st.composite
def log_softmaxes(draw: st.DrawFn) -> Graph:
    dtype = draw(DTYPES | st.just("float32"))
    shape = (*draw(st.lists(st.integers(1, 9), max_size=3)), draw(st.integers(1, 300)))
    zero = 0 if dtype == "float32" else draw(zero_points(dtype))
    return of_rows("LOG_SOFTMAX", dtype, shape, draw(scales(-10, 3)), zero=zero)


test_drawn = drawn(log_softmaxes(), GROUPS, assert_graph_or_refused)

NODES = {"LOG_SOFTMAX": NODE}
BUILT = [log_softmax((5, 40), dtype) for dtype in ("float32", "uint8", "int8")]
