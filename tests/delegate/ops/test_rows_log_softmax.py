# SPDX-License-Identifier: Apache-2.0
"""LOG_SOFTMAX: its launches, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.inspect import Node
from delegate.launch import Constant
from tests.support.cases import (
    DTYPES,
    GROUPS,
    SEEDS,
    SIMT,
    Way,
    assert_exact_or_refused,
    assert_exact_way,
    changed,
    forced,
    only_launch,
    quantization,
    retyped,
    scales,
    zero_points,
)
from tests.support.compare import Arrays, assert_close, interpreter, invoke, refusals
from tests.support.factories import refused
from tests.support.floats import assert_float_or_refused, assert_float_ways
from tests.support.model import chain_model, op, t
from tests.support.refusals import unquantised


def log_softmax(
    shape: tuple[int, ...], dtype: str = "float32", scale: float = 0.1, zero: int = 3
) -> Node:
    if dtype == "float32":
        return op("LOG_SOFTMAX", [t(shape)], [t(shape)])
    result = t(shape, dtype, 16 / 256, 255 if dtype == "uint8" else 127)
    return op("LOG_SOFTMAX", [t(shape, dtype, scale, zero)], [result])


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


def bounds(inputs: Arrays) -> list[NDArray[np.float64]]:
    # The three terms' sizes; besides, each side's sum of c exponentials may be off by c halves.
    values = inputs[0].astype(np.float64)
    highest = values.max(-1, keepdims=True)
    logs = np.log(np.exp(values - highest).sum(-1, keepdims=True))
    places = np.spacing((np.abs(values) + np.abs(highest) + logs).astype(np.float32))
    return [2 * np.sqrt(3) * places.astype(np.float64) + (values.shape[-1] + 4) * 2.0**-24]


SHAPES = [(1, 1), (1, 2), (63, 3), (64, 3), (65, 3), (2, 3, 5, 7), (17,), (3, 1001)]


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_floats(shape: tuple[int, ...], way: Way, device: DeviceInfo) -> None:
    assert_float_ways(log_softmax(shape), device, way, bounds)


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("scale", [0.1, 0.004, 1 / 16, 0.125, 0.5, 2.0])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_scales(dtype: str, scale: float, way: Way, device: DeviceInfo) -> None:
    assert_exact_way(chain_model([log_softmax((300, 10), dtype, scale)]), device, way)


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_exact(shape: tuple[int, ...], way: Way, device: DeviceInfo) -> None:
    assert_exact_way(chain_model([log_softmax(shape, "uint8", 0.05)]), device, way)


@pytest.mark.parametrize("way", GROUPS, ids=str)
def test_nan_and_infinity(way: Way, device: DeviceInfo) -> None:
    values = np.ones((4, 7), np.float32)
    values[0, 3], values[1, 2], values[2, 5], values[3, :4] = np.nan, -np.inf, np.inf, -1e30
    model = chain_model([log_softmax(values.shape)])
    with forced(way):
        delegate = OpenCLDelegate(model, device.index, tune="off")
        ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    assert_close(invoke(ours, [values])[0], invoke(reference, [values])[0], 1e-6, str(way))


@given(
    shape=st.lists(st.integers(1, 9), max_size=3),
    depth=st.integers(1, 300),
    dtype=DTYPES,
    scale=scales(-10, 3),
    way=st.sampled_from(GROUPS),
    seed=SEEDS,
    data=st.data(),
)
def test_drawn_log_softmax(
    device: DeviceInfo,
    shape: list[int],
    depth: int,
    dtype: str,
    scale: float,
    way: Way,
    seed: int,
    data: st.DataObject,
) -> None:
    assert_float_or_refused(log_softmax((*shape, depth)), device, way, bounds)
    node = log_softmax((*shape, depth), dtype, scale, data.draw(zero_points(dtype)))
    assert_exact_or_refused(chain_model([node]), device, way, seed)


NODES = {"LOG_SOFTMAX": NODE}
BUILT = [log_softmax((5, 40), dtype) for dtype in ("float32", "uint8", "int8")]
