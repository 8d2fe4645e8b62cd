# SPDX-License-Identifier: Apache-2.0
"""Hybrid TRANSPOSE_CONVs: float pictures that become int8 at each run, against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.inspect import Node
from tests.delegate.ops._convolution.test_hybrid import AARCH64, hard_rows
from tests.support.cases import (
    FUSED,
    LANES_4,
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    Strategy,
    assert_exact_strategy,
    changed,
    forced,
    quantization,
)
from tests.support.compare import interpreter, invoke
from tests.support.factories import assert_case_or_refused, drawn, refused
from tests.support.model import chain_model
from tests.support.tiers import where_rows_are_known
from tflite_opencl.conformance.cases._convolution import HYBRID, ConvCase

pytestmark = where_rows_are_known

STRATEGIES = (PLAIN, SIMT, LANES_4, LANES_8, LANES_16)
CASES = {
    "usual": ConvCase(op="TRANSPOSE_CONV", size=(4, 5, 3), stride=(2, 2), batch=2),
    "one": ConvCase(op="TRANSPOSE_CONV", size=(1, 1, 1), kernel=(1, 1), out_c=1),
    "valid": ConvCase(
        op="TRANSPOSE_CONV", size=(5, 3, 4), kernel=(2, 2), padding="VALID", out_c=17
    ),
    "wide": ConvCase(
        op="TRANSPOSE_CONV", size=(3, 9, 7), kernel=(4, 3), stride=(3, 2), out_c=33, batch=3
    ),
    "small_windows": ConvCase(
        op="TRANSPOSE_CONV", size=(3, 7, 9), kernel=(2, 1), stride=(3, 5), padding="VALID"
    ),
    "large_windows": ConvCase(
        op="TRANSPOSE_CONV", size=(2, 13, 3), kernel=(5, 7), out_c=5, fused="RELU6"
    ),
    "without_bias": ConvCase(
        op="TRANSPOSE_CONV", size=(4, 9, 33), stride=(2, 2), out_c=19, has_bias=False, fused="RELU"
    ),
}
NODES = {
    f"{name}_{kind.replace('-', '_')}": case.node(kind, None)
    for kind in HYBRID
    for name, case in CASES.items()
}


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("name", NODES)
def test_equals_the_reference(device: DeviceInfo, strategy: Strategy, name: str) -> None:
    assert_exact_strategy(chain_model([NODES[name]]), device, strategy)


def test_vectors_then_plain() -> None:
    found = ops.lower(NODES["wide_hybrid"], LANES_8.target)
    assert [each.name for each in found] == ["vector 8x4", "plain"]
    kernels = [launch.kernel for launch in found[0].launches]
    assert kernels == ["quantize_row_float", "transpose_conv_vector_hybrid"]
    assert [each.name for each in ops.lower(NODES["one_hybrid"], LANES_8.target)] == ["plain"]


@pytest.mark.parametrize("kind", HYBRID)
def test_hard_pictures(device: DeviceInfo, kind: str) -> None:
    """Half steps and wide ranges: their sums are rounded in TFLite's order."""
    rows = hard_rows(20, seed=5)
    pictures = np.stack([rows, rows[::-1] * np.float32(3)])[..., None].repeat(3, -1)
    case = ConvCase(op="TRANSPOSE_CONV", size=pictures.shape[1:], stride=(2, 2), batch=2)
    assert_exact_strategy(
        chain_model([case.node(kind, None)]), device, LANES_8, inputs=[[pictures]]
    )


NODE = NODES["usual_hybrid"]
test_refusal = refused(
    {
        "int4": (
            changed(NODE, 1, dtype="int4"),
            "int4 weights with float32 activations: only int8",
        ),
        "computed_weights": (changed(NODE, 1, data=None), "weights are not constant"),
        "zero_point": (
            changed(NODE, 1, quantization=quantization(0.25, 1)),
            "int8 weights with zero point 1: it must be 0",
        ),
        "computed_shape": (changed(NODE, 0, data=None), "output shapes are not constant"),
        "many_terms": (
            ConvCase(op="TRANSPOSE_CONV", size=(1, 1, 9000), kernel=(2, 2), out_c=1).node(
                "hybrid", None
            ),
            "36000 terms a sum: too many for a work-item",
        ),
    }
)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_products_that_are_added_and_rounded_once(device: DeviceInfo, strategy: Strategy) -> None:
    """As on aarch64. Pictures of multiples of 3 have a scale of 3 and a zero point of -28."""
    depth = 23
    case = ConvCase(op="TRANSPOSE_CONV", size=(3, 5, depth), kernel=(1, 1), stride=(1, 1))
    node = case.node("hybrid-per-channel", None)
    values = np.random.default_rng(4).integers(-100, 156, (1, 3, 5, depth))
    values[0, 0, 0, :2] = -100, 155
    weights, bias = node.inputs[1], node.inputs[3]
    assert weights is not None
    assert weights.quantization is not None
    assert weights.data is not None
    assert bias is not None
    assert bias.data is not None
    scales = np.array(weights.quantization.scale, np.float32)
    once, twice = (np.zeros((15, case.out_c), np.float32) for _ in range(2))
    for x, taps in zip(values.reshape(15, depth).T, weights.data[:, 0, 0].T, strict=True):
        product = np.outer(x, taps.astype(np.int64)).astype(np.float32) * scales
        once = (product.astype(np.longdouble) * 3 + once).astype(np.float32)
        twice = product * np.float32(3) + twice
    assert np.sum(once != twice) > once.size // 8, "nothing was compared"
    model = chain_model([node])
    with forced(replace(strategy, facts={**strategy.facts, "rules": AARCH64})):
        delegate = OpenCLDelegate(model, device.index, tune="off")
        picture = (3 * values).astype(np.float32)
        (found,) = invoke(interpreter(model, delegate), [picture])
    np.testing.assert_array_equal(found.reshape(once.shape), once + bias.data)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Draw a TRANSPOSE_CONV and how its weights are scaled."""
    small = st.integers(1, 4)
    kernel = draw(small), draw(small)
    padding = draw(st.sampled_from(["SAME", "VALID"]))
    stride = tuple(draw(st.integers(1, 4 if padding == "VALID" else side)) for side in kernel)
    case = ConvCase(
        op="TRANSPOSE_CONV",
        size=(draw(st.integers(1, 7)), draw(st.integers(1, 11)), draw(st.integers(1, 19))),
        kernel=kernel,
        stride=(stride[0], stride[1]),
        padding=padding,
        out_c=draw(st.integers(1, 40)),
        batch=draw(st.integers(1, 3)),
        fused=draw(st.sampled_from(FUSED)),
        has_bias=draw(st.booleans()),
    )
    return case.node(draw(st.sampled_from(HYBRID)), None)


test_drawn = drawn(nodes(), STRATEGIES, assert_case_or_refused)
