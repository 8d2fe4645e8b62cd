# SPDX-License-Identifier: Apache-2.0
"""Hybrid TRANSPOSE_CONVs: float pictures that become int8 at each run, against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from delegate.target import Rules
from tests.delegate.ops._convolution.test_hybrid import hard_rows
from tests.support.cases import (
    FUSED,
    LANES_4,
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    Way,
    assert_exact_way,
    changed,
    quantization,
    refusal,
)
from tests.support.deal import where_rows_are_known
from tests.support.factories import assert_case_or_refused, drawn, refused
from tests.support.model import chain_model
from tflite_opencl.conformance.cases._convolution import HYBRID, Convolution

pytestmark = where_rows_are_known

WAYS = (PLAIN, SIMT, LANES_4, LANES_8, LANES_16)
CASES = {
    "usual": Convolution(op="TRANSPOSE_CONV", size=(4, 5, 3), stride=(2, 2), batch=2),
    "one": Convolution(op="TRANSPOSE_CONV", size=(1, 1, 1), kernel=(1, 1), out_c=1),
    "valid": Convolution(
        op="TRANSPOSE_CONV", size=(5, 3, 4), kernel=(2, 2), padding="VALID", out_c=17
    ),
    "wide": Convolution(
        op="TRANSPOSE_CONV", size=(3, 9, 7), kernel=(4, 3), stride=(3, 2), out_c=33, batch=3
    ),
    "small_windows": Convolution(
        op="TRANSPOSE_CONV", size=(3, 7, 9), kernel=(2, 1), stride=(3, 5), padding="VALID"
    ),
    "large_windows": Convolution(
        op="TRANSPOSE_CONV", size=(2, 13, 3), kernel=(5, 7), out_c=5, fused="RELU6"
    ),
    "without_bias": Convolution(
        op="TRANSPOSE_CONV", size=(4, 9, 33), stride=(2, 2), out_c=19, has_bias=False, fused="RELU"
    ),
}
NODES = {
    f"{name}_{kind.replace('-', '_')}": case.node(kind, None)
    for kind in HYBRID
    for name, case in CASES.items()
}


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", NODES)
def test_equals_the_reference(device: DeviceInfo, way: Way, name: str) -> None:
    assert_exact_way(chain_model([NODES[name]]), device, way)


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
    case = Convolution(op="TRANSPOSE_CONV", size=pictures.shape[1:], stride=(2, 2), batch=2)
    assert_exact_way(chain_model([case.node(kind, None)]), device, LANES_8, inputs=[[pictures]])


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
            Convolution(op="TRANSPOSE_CONV", size=(1, 1, 9000), kernel=(2, 2), out_c=1).node(
                "hybrid", None
            ),
            "36000 terms a sum: more than a work-item adds",
        ),
    }
)


def test_another_processor_is_refused() -> None:
    rules = Rules(processor="aarch64")
    reason = refusal(NODE, replace(SIMT.target, rules=rules))
    assert reason == "hybrid: how TFLite rounds its sums on aarch64 is not known"


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Draw a TRANSPOSE_CONV and how its weights are scaled."""
    small = st.integers(1, 4)
    kernel = draw(small), draw(small)
    padding = draw(st.sampled_from(["SAME", "VALID"]))
    stride = tuple(draw(st.integers(1, 4 if padding == "VALID" else side)) for side in kernel)
    case = Convolution(
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


test_drawn = drawn(nodes(), WAYS, assert_case_or_refused)
