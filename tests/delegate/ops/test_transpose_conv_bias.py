# SPDX-License-Identifier: Apache-2.0
"""Convolution2DTransposeBias: what it refuses, and its numbers by MediaPipe's own loops in numpy.

TFLite lacks the op: its TRANSPOSE_CONV is what the conformance suite compares it with.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.inspect import Node, sum_bound, transpose_conv_bias_options
from tests.support.cases import (
    DRAWN_STRATEGIES,
    GROUPS,
    SEEDS,
    SIMT,
    Strategy,
    changed,
    forced,
    retyped,
    strategy_on,
)
from tests.support.compare import RUNTIME, interpreter, invoke, refusals
from tests.support.factories import refused
from tests.support.model import chain_model, op, t
from tests.support.without_tflite import needs_tflite
from tflite_opencl.conformance.cases.mediapipe import transpose_conv_bias

Shape = tuple[int, ...]
Doubles = NDArray[np.float64]


def convolution(
    shape: Shape = (1, 4, 5, 3),
    channels: int = 8,
    taps: Shape = (3, 3),
    strides: Shape = (2, 2),
    padding: str = "SAME",
) -> Node:
    made: Node = transpose_conv_bias(shape, channels, taps, strides, padding).nodes[0]
    return made


def spread(source: Doubles, weights: Doubles, bias: Doubles, options: bytes) -> Doubles:
    """Add each input pixel's window to the output, as transpose_conv_bias.cc does."""
    is_same, stride_w, stride_h = struct.unpack("<3i", options)
    batch, *sizes, _ = source.shape
    channels, *taps, _ = weights.shape
    rows = [*zip(sizes, taps, (stride_h, stride_w), strict=True)]
    cuts = [max(0, tap - (size - 1) % stride - 1) * (is_same == 1) for size, tap, stride in rows]
    reach = [stride * (size - 1) + tap for size, tap, stride in rows]
    whole = np.zeros((batch, *reach, channels))
    for y, x in np.ndindex(*sizes):
        window = np.einsum("bi,ohwi->bhwo", source[:, y, x], weights)
        top, left = y * stride_h, x * stride_w
        whole[:, top : top + taps[0], left : left + taps[1]] += window
    top, left = (cut // 2 for cut in cuts)
    high, wide = (size - cut for size, cut in zip(reach, cuts, strict=True))
    return whole[:, top : top + high, left : left + wide] + bias


def assert_mediapipe_s(node: Node, device: DeviceInfo, strategy: Strategy, seed: int = 0) -> None:
    """Assert that the device takes a node, and gives what the loops give."""
    rng = np.random.default_rng(seed)
    source, *constants = node.inputs
    assert source is not None
    values = rng.standard_normal(source.shape).astype(np.float32)
    weights, bias = (np.asarray(each.data, np.float64) for each in constants if each is not None)
    options = node.options["custom_options"]
    wanted = spread(values.astype(np.float64), weights, bias, options)
    sizes = spread(*(np.abs(each.astype(np.float64)) for each in (values, weights, bias)), options)
    model = chain_model([node], outputs=node.outputs)
    with forced(strategy):
        delegate = OpenCLDelegate(model, device=device.index, tune="off")
        (got,) = invoke(interpreter(model, delegate), [values])
    assert refusals(delegate) == {}
    assert got.shape == wanted.shape
    bound = sum_bound(sizes, weights[0].size + 1)
    assert (np.abs(got - wanted) <= bound).all()


CASES: dict[str, dict[str, Any]] = {
    "usual": {},
    "valid": {"padding": "VALID"},
    "even": {"shape": (1, 8, 8, 16), "channels": 1, "taps": (2, 2)},
    "gaps": {"shape": (1, 5, 3, 8), "taps": (1, 2), "strides": (3, 2)},
    "wide": {"shape": (2, 4, 6, 5), "channels": 33, "taps": (4, 3), "strides": (2, 1)},
    "one": {"shape": (1, 1, 1, 7), "strides": (1, 1)},
    "large": {"shape": (1, 32, 32, 16), "channels": 2, "taps": (2, 2)},
}


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_numbers_are_mediapipe_s(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    assert_mediapipe_s(convolution(**CASES[name]), device, strategy)


SMALL = st.tuples(st.integers(1, 4), st.integers(1, 4))


@given(
    shape=st.tuples(*(st.integers(1, most) for most in (2, 6, 7, 17))),
    channels=st.integers(1, 20),
    taps=SMALL,
    strides=SMALL,
    padding=st.sampled_from(["SAME", "VALID"]),
    strategy=DRAWN_STRATEGIES,
    seed=SEEDS,
)
def test_drawn(
    device: DeviceInfo,
    shape: Shape,
    channels: int,
    taps: Shape,
    strides: Shape,
    padding: str,
    strategy: Strategy,
    seed: int,
) -> None:
    node = convolution(shape, channels, taps, strides, padding)
    assert_mediapipe_s(node, device, strategy_on(device, strategy), seed)


@needs_tflite
def test_tflite_runs_what_is_around_it_and_resizes_it(device: DeviceInfo) -> None:
    # A partition so small would stay on the CPU, which lacks the op. It has no FLOOR_MOD of floats.
    node = convolution()
    (source, *_), (result,) = node.inputs, node.outputs
    assert source is not None
    picture, rest = t(source.shape), t(result.shape)
    nodes = [op("RELU", [picture], [source]), node, op("FLOOR_MOD", [result, result], [rest])]
    model = chain_model(nodes, outputs=[result, rest])
    delegate = OpenCLDelegate(model, device=device.index, tune="off")
    made = interpreter(model, delegate)
    assert [*refusals(delegate)] == [2]
    (index,) = (each["index"] for each in made.get_input_details())
    weights, bias = (np.asarray(t.data, np.float64) for t in node.inputs[1:] if t is not None)
    for shape in (source.shape, (2, 7, 5, 3), source.shape):
        made.resize_tensor_input(index, shape)
        made.allocate_tensors()
        values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        got, _ = invoke(made, [values])
        given_ = np.maximum(values, 0).astype(np.float64)
        wanted = spread(given_, weights, bias, node.options["custom_options"])
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)


@pytest.mark.skipif(RUNTIME.name != "ai-edge-litert", reason="this TFLite's XNNPACK lacks the op")
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_xnnpack_agrees(padding: str) -> None:
    node = convolution(padding=padding)
    model = chain_model([node], outputs=node.outputs)
    values = np.random.default_rng(0).standard_normal((1, 4, 5, 3)).astype(np.float32)
    weights, bias = (np.asarray(t.data, np.float64) for t in node.inputs[1:] if t is not None)
    (got,) = invoke(interpreter(model, cpu_kernels="auto"), [values])
    wanted = spread(values.astype(np.float64), weights, bias, node.options["custom_options"])
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)


NODE = convolution()
SIZES = ("in_h", "out_w", "stride_h", "pad_top", "pad_left")


def optioned(*numbers: int) -> Node:
    return changed(NODE, options={"custom_options": struct.pack(f"<{len(numbers)}i", *numbers)})


test_refusal = refused(
    {
        "none": (optioned(), "custom options or inputs: no options"),
        "padding": (
            optioned(0, 2, 2),
            "custom options or inputs: padding 0, strides 2 and 2: no window",
        ),
        "stride": (
            optioned(1, 2, 0),
            "custom options or inputs: padding 1, strides 2 and 0: no window",
        ),
        "huge": (
            optioned(2, 2**31 - 1, 1),
            "custom options or inputs: an output of 6x8589934591: beyond 32 bits",
        ),
        "type": (retyped(NODE, "int8", [0]), "int8: only float32"),
        "computed": (changed(NODE, 1, data=None), "weights are not constant"),
        "rank": (
            changed(NODE, 0, shape=(4, 5, 3)),
            "custom options or inputs: a picture and OHWI weights are needed",
        ),
        "output": (
            changed(NODE, -1, shape=(1, 8, 8, 8)),
            "shapes 1x4x5x3 -> 1x8x8x8: the output must be 1x8x9x8, the input rank 4 (NHWC)",
        ),
    }
)


def test_what_follows_in_longer_options_is_not_read() -> None:
    for padding, number in (("SAME", 1), ("VALID", 2)):
        assert transpose_conv_bias_options(padding, 3, 2) == {
            "custom_options": struct.pack("<3i", number, 3, 2)
        }
    (found,), (wanted,) = (
        ops.lower(node, SIMT.target)[-1].launches for node in (optioned(1, 2, 2, 0, 7), NODE)
    )
    assert [*map(str, found.params)] == [*map(str, wanted.params)]
    assert [found.params[name] for name in SIZES] == [wanted.params[name] for name in SIZES]


NODES = {"Convolution2DTransposeBias": NODE}
BUILT = [NODE, convolution(padding="VALID", channels=33)]
