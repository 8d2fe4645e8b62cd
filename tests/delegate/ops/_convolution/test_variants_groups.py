# SPDX-License-Identifier: Apache-2.0
"""CONV_2D with groups of channels: what it lowers to and refuses, and its numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from tests.support.cases import (
    FUSED,
    GROUPS,
    LANES_8,
    SEEDS,
    SIMT,
    Strategy,
    assert_constants,
    assert_exact_or_refused,
    assert_exact_strategy,
    changed,
    only_launch,
    quantization,
)
from tests.support.compare import Arrays, Bounds, assert_within
from tests.support.convolution import Convolution, convolutions, float_convolution
from tests.support.factories import refused
from tests.support.floats import exact_doubles
from tests.support.model import chain_model

CASE = Convolution(size=(7, 5, 3), out_c=8)


def grouped(node: Node, groups: int) -> Node:
    """Return a convolution whose input has `groups` times the channels that its weights take."""
    source = node.inputs[0]
    assert source is not None
    return changed(node, 0, shape=(*source.shape[:3], groups * source.shape[3]))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_launch(dtype: str) -> None:
    (alternative,) = ops.lower(grouped(replace(CASE, dtype=dtype).node(), 4), SIMT.target)
    launch = only_launch(alternative)
    assert (alternative.name, launch.kernel) == ("plain", "conv_2d_groups_quant8")
    assert (launch.params["group_in_c"], launch.params["in_c"], launch.params["group_out_c"]) == (
        3,
        12,
        2,
    )
    assert_constants(launch)


def test_groups_of_one_channel_are_depthwise() -> None:
    found = ops.lower(grouped(replace(CASE, size=(7, 5, 1)).node(), 8), LANES_8.target)
    assert [alternative.name for alternative in found] == ["vector 8x4", "plain"]
    launch = only_launch(found[-1])
    assert (launch.file, launch.params["depth_multiplier"]) == ("depthwise_conv_2d", 1)


NODE = grouped(CASE.node(), 2)
FLOAT = grouped(float_convolution().node(), 2)
REFUSALS = {
    "remainder": (
        changed(NODE, 0, shape=(1, 7, 5, 7)),
        "groups: 3 input channels in the weights, 7 in the input, 8 in the output",
    ),
    "more_than_the_input_has": (
        changed(NODE, 0, shape=(1, 7, 5, 1)),
        "groups: 3 input channels in the weights, 1 in the input, 8 in the output",
    ),
    "outputs_that_do_not_divide": (
        changed(NODE, 0, shape=(1, 7, 5, 9)),
        "groups: 3 input channels in the weights, 9 in the input, 8 in the output",
    ),
    "no_input_channels": (
        changed(NODE, 1, shape=(8, 3, 3, 0)),
        "groups: 0 input channels in the weights, 6 in the input, 8 in the output",
    ),
    "output_channels": (
        changed(NODE, -1, shape=(1, 7, 5, 9)),
        "8 channels of weights, 9 of output: they must be equal",
    ),
    "hybrid": (changed(FLOAT, 1, dtype="uint8"), "hybrid: uint8 weights with float32 activations"),
    "int32": (
        changed(NODE, 0, dtype="int32"),
        "int32 in, uint8 out: only uint8 or int8 in both are implemented",
    ),
    "computed_weights": (changed(NODE, 1, data=None), "weights are not constant"),
    "bias_of_7": (changed(FLOAT, 2, shape=(7,)), "bias float32 of (7,): float32 of (8,) is needed"),
    "uint8_per_channel": (
        changed(NODE, 1, quantization=quantization([0.5] * 8)),
        "uint8 weights with 8 scales: per channel is int8 only",
    ),
}

test_refusal = refused(REFUSALS)

CASES = [
    (2, CASE),
    (8, replace(CASE, size=(7, 5, 1), stride=(2, 2))),
    (3, replace(CASE, size=(7, 5, 1), out_c=9)),
    (3, replace(CASE, size=(5, 4, 9), out_c=33, kernel=(2, 3), dilation=(1, 2))),
    (2, replace(CASE, padding="VALID", batch=2)),
    *((2, replace(CASE, fused=fused)) for fused in FUSED[1:]),
    (2, replace(CASE, zeros=(255, 255, 0))),
    (2, replace(CASE, multiplier=1.7)),
]
WITH_INT8 = [
    *CASES,
    *((n, replace(c, dtype="int8", per_channel=True, zeros=None)) for n, c in CASES[:6]),
]


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize(
    ("groups", "case"), [pytest.param(n, c, id=f"{n}_groups-{c}") for n, c in WITH_INT8]
)
def test_groups(groups: int, case: Convolution, strategy: Strategy, device: DeviceInfo) -> None:
    model = chain_model([grouped(case.node(), groups)])
    names = assert_exact_strategy(model, device, strategy)
    assert names == {"plain"} or case.size[2] == 1


@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("groups", [2, 8])
def test_float_groups(groups: int, fused: str, device: DeviceInfo) -> None:
    # Each group is a convolution of its own.
    case = float_convolution(size=(7, 5, 5), stride=(2, 1), fused=fused, batch=2)
    node = case.node()
    source, weights, bias = node.inputs
    assert source is not None
    assert weights is not None
    assert bias is not None
    kernels, biases = np.asarray(weights.data), np.asarray(bias.data)
    step = 8 // groups

    def bounds(inputs: Arrays) -> Bounds:
        parts = []
        for group in range(groups):
            rows = slice(group * step, (group + 1) * step)
            part = changed(node, 1, data=kernels[rows], shape=(step, 3, 3, 5))
            part = changed(part, 2, data=biases[rows], shape=(step,))
            parts.append(exact_doubles(part, inputs[0][..., 5 * group : 5 * group + 5])[1])
        return [np.concatenate(parts, 3)]

    assert_within(chain_model([grouped(node, groups)]), device, bounds)


@given(case=convolutions(), groups=st.integers(2, 4), strategy=st.sampled_from(GROUPS), seed=SEEDS)
def test_drawn_groups(
    device: DeviceInfo, case: Convolution, groups: int, strategy: Strategy, seed: int
) -> None:
    case = replace(case, out_c=groups * -(-case.out_c // groups))
    model = chain_model([grouped(case.node(seed), groups)])
    assert_exact_or_refused(model, device, strategy, seed)


NODES = {"CONV_2D_groups": NODE, "CONV_2D_groups_float": FLOAT}
BUILT = [
    grouped(Convolution(size=(5, 5, 2), kernel=(1, 1)).node(), 2),
    grouped(Convolution(size=(5, 5, 2), dtype="int8").node(), 2),
]
