# SPDX-License-Identifier: Apache-2.0
"""Nodes with int16 activations and int8 weights, from the parameters of 8-bit ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node
from delegate.target import Rules
from tests.support.cases import integers
from tests.support.compare import RUNTIME
from tests.support.convolution import Convolution, convolutions
from tests.support.model import const, op, t

RULES = Rules(int16_sums_of_int32=RUNTIME.name == "tflite-runtime")  # of the installed TFLite
IN_SCALE, WEIGHT_SCALE = 0.0625, 0.03125  # so that simple multipliers give ties


def scales_and_bias(
    out_c: int, multiplier: float, per_channel: bool, seed: int, bias_dtype: str = "int64"
) -> tuple[Any, Any, float]:
    """Return weight scales, a bias and the output's scale."""
    rng = np.random.default_rng(seed)
    scales: Any = WEIGHT_SCALE
    if per_channel:
        scales = (WEIGHT_SCALE * rng.uniform(0.01, 1, out_c)).astype(np.float32)
    most = min(2.0**15 / multiplier, 2.0**40 if bias_dtype == "int64" else 2.0**29)
    bias = rng.uniform(-most, most, out_c).astype(bias_dtype)
    bias_scale = np.float32(IN_SCALE) * np.float32(scales)
    return scales, const(bias, bias_scale), IN_SCALE * WEIGHT_SCALE / multiplier


def convolution16(
    case: Convolution, seed: int = 0, groups: int = 1, bias_dtype: str | None = "int64"
) -> Node:
    """Return CONV_2D or DEPTHWISE_CONV_2D of int16; `bias_dtype` None: a depthwise one without."""
    height, width, in_c = case.size
    out_c = in_c * case.depth_multiplier or case.out_c
    shape = (out_c, *case.kernel, in_c // groups)
    if case.depth_multiplier:
        shape = (1, *case.kernel, out_c)
    weight_scales, bias, out_scale = scales_and_bias(
        out_c, case.multiplier, case.per_channel, seed, bias_dtype or "int64"
    )
    weights = np.maximum(integers(shape, "int8", seed), -127)
    axis = 3 if case.depth_multiplier else 0
    return op(
        "DEPTHWISE_CONV_2D" if case.depth_multiplier else "CONV_2D",
        [
            t((case.batch, height, width, in_c), "int16", IN_SCALE),
            const(weights, weight_scales, axis=axis),
            *([bias] if bias_dtype else []),
        ],
        [t((case.batch, *case.out_size(), out_c), "int16", out_scale)],
        {
            "padding": case.padding,
            "stride_h": case.stride[0],
            "stride_w": case.stride[1],
            "dilation_h_factor": case.dilation[0],
            "dilation_w_factor": case.dilation[1],
            "fused_activation_function": case.fused,
            **({"depth_multiplier": case.depth_multiplier} if case.depth_multiplier else {}),
        },
        version=5 if case.depth_multiplier else 4,
    )


@st.composite
def convolutions16(draw: st.DrawFn, is_depthwise: bool = False) -> Convolution:
    """Draw the parameters of a convolution of int16."""
    case = draw(convolutions(is_depthwise))
    return replace(
        case,
        dtype="int16",
        zeros=None,
        per_channel=draw(st.booleans()),
        multiplier=2.0 ** draw(st.floats(-20, 2)),
    )
