# SPDX-License-Identifier: Apache-2.0
"""Nodes of CONV_2D and its kin from their parameters, named so that an id reads aloud."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node
from tests.support.cases import DTYPES, FUSED, integers, multipliers, output_size, zero_points
from tests.support.model import chain_model, const, op, t

# What the reader makes of a node without an options table.
ABSENT_OPTIONS = {
    "padding": "SAME",
    "stride_h": 0,
    "stride_w": 0,
    "dilation_h_factor": 0,
    "dilation_w_factor": 0,
    "fused_activation_function": "NONE",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """One convolution; with a depth multiplier it is a depthwise one, and out_c says nothing."""

    size: tuple[int, int, int] = (7, 5, 3)  # h, w, c
    kernel: tuple[int, int] = (3, 3)
    out_c: int = 8
    depth_multiplier: int = 0
    batch: int = 1
    stride: tuple[int, int] = (1, 1)  # h, w
    dilation: tuple[int, int] = (1, 1)
    padding: str = "SAME"
    fused: str = "NONE"
    dtype: str = "uint8"
    per_channel: bool = False
    has_bias: bool = True
    zeros: tuple[int, int, int] | None = None  # of input, weights, output
    multiplier: float = 2.0**-9  # real: input scale * weight scale / output scale

    def __str__(self) -> str:
        depthwise = self.depth_multiplier
        parts = {
            "in" + "x".join(map(str, self.size)): True,
            "k{}x{}".format(*self.kernel): True,
            f"out{self.out_c}": not depthwise,
            f"depth{depthwise}": depthwise > 1,
            f"batch{self.batch}": self.batch > 1,
            f"stride{_pair(self.stride)}": self.stride != (1, 1),
            f"dilation{_pair(self.dilation)}": self.dilation != (1, 1),
            self.padding.lower(): True,
            self.fused.lower(): self.fused != "NONE",
            "no_bias": not self.has_bias,
            "zeros{}_{}_{}".format(*self.zeros or "---"): self.zeros is not None,
            f"multiplier{self.multiplier:g}": self.multiplier != 2.0**-9,
            self.dtype + ("_per_channel" if self.per_channel else ""): True,
        }
        return "-".join(part for part, is_said in parts.items() if is_said)

    def node(self, seed: int = 0) -> Node:
        """Return the node, its weights and bias drawn from the seed."""
        height, width, in_c = self.size
        out_c = in_c * self.depth_multiplier or self.out_c
        shape = (1, *self.kernel, out_c) if self.depth_multiplier else (out_c, *self.kernel, in_c)
        in_zero, weight_zero, out_zero = self.zeros or (
            (131, 135, 123) if self.dtype == "uint8" else (3, 0, -5)
        )
        in_scale, weight_scale = 0.0625, 0.03
        rng = np.random.default_rng(seed)
        weight_scales: Any = weight_scale
        if self.per_channel:
            weight_scales = (weight_scale * rng.uniform(0.01, 1, out_c)).astype(np.float32)
            # Some converters give a channel of zeros the least scale there is.
            weight_scales[-1] = np.finfo(np.float32).tiny if out_c > 2 else weight_scale
        weights = integers(shape, self.dtype, seed)
        if self.dtype == "int8":
            weights = np.maximum(weights, -127)
        bias = rng.integers(-(2**12), 2**12, out_c).astype(np.int32)
        bias_scale: Any = np.float32(in_scale) * np.float32(weight_scales)
        out_scale = in_scale * weight_scale / self.multiplier
        return op(
            "DEPTHWISE_CONV_2D" if self.depth_multiplier else "CONV_2D",
            [
                t((self.batch, height, width, in_c), self.dtype, in_scale, in_zero),
                const(weights, weight_scales, weight_zero, axis=3 if self.depth_multiplier else 0),
                *([const(bias, bias_scale)] if self.has_bias else []),
            ],
            [t((self.batch, *self.out_size(), out_c), self.dtype, out_scale, out_zero)],
            {
                "padding": self.padding,
                "stride_h": self.stride[0],
                "stride_w": self.stride[1],
                "dilation_h_factor": self.dilation[0],
                "dilation_w_factor": self.dilation[1],
                "fused_activation_function": self.fused,
                **({"depth_multiplier": self.depth_multiplier} if self.depth_multiplier else {}),
            },
            version=3,
        )

    def out_size(self) -> tuple[int, int]:
        """Return the output's height and width."""
        height, width = (
            output_size(
                self.size[i], self.kernel[i], self.stride[i], self.dilation[i], self.padding
            )
            for i in (0, 1)
        )
        return height, width

    def model(self, seed: int = 0) -> bytes:
        """Return a .tflite model of the node."""
        return chain_model([self.node(seed)])


def _pair(values: tuple[int, int]) -> str:
    return str(values[0]) if values[0] == values[1] else f"{values[0]}x{values[1]}"


@st.composite
def convolutions(draw: st.DrawFn, is_depthwise: bool = False) -> Convolution:
    """Draw a convolution whose output is not empty."""
    dtype = draw(DTYPES)
    weight_zero = draw(zero_points("uint8")) if dtype == "uint8" else 0
    small = st.integers(1, 4)
    case = Convolution(
        size=(draw(st.integers(1, 13)), draw(st.integers(1, 13)), draw(st.integers(1, 19))),
        kernel=(draw(small), draw(small)),
        out_c=draw(st.integers(1, 40)),
        depth_multiplier=draw(st.integers(1, 3)) if is_depthwise else 0,
        batch=draw(st.integers(1, 3)),
        stride=(draw(small), draw(small)),
        dilation=(draw(small), draw(small)),
        padding="VALID",
        fused=draw(st.sampled_from(FUSED)),
        dtype=dtype,
        per_channel=dtype == "int8" and draw(st.booleans()),
        zeros=(draw(zero_points(dtype)), weight_zero, draw(zero_points(dtype))),
        multiplier=draw(multipliers(-20, 3)),
    )
    fits = min(case.out_size()) > 0 and draw(st.booleans())
    return case if fits else replace(case, padding="SAME")


@st.composite
def deep_convolutions(draw: st.DrawFn, most: int) -> Convolution:
    """Draw a convolution of up to so many channels: whole products, and parts of one."""
    case = draw(convolutions())
    return replace(case, size=(*case.size[:2], draw(st.integers(1, most))))


def fully_connected(rows: int, dtype: str) -> Node:
    """Return an 8-bit FULLY_CONNECTED node of 77 inputs and 90 outputs a row."""
    zeros = (100, 140, 77) if dtype == "uint8" else (-3, 0, -9)
    return op(
        "FULLY_CONNECTED",
        [
            t((rows, 77), dtype, 0.05, zeros[0]),
            const(integers((90, 77), dtype), 0.03, zeros[1]),
            const(np.arange(90, dtype=np.int32) * 77, np.float32(0.05) * np.float32(0.03)),
        ],
        [t((rows, 90), dtype, 0.45, zeros[2])],
        {"fused_activation_function": "NONE", "weights_format": "DEFAULT"},
    )
