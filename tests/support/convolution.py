# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and DEPTHWISE_CONV_2D nodes from parameters; str() of them is a readable test id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node, Tensor
from delegate.target import Rules
from tests.support.cases import (
    DTYPES,
    FUSED,
    changed,
    integers,
    multipliers,
    output_size,
    zero_points,
)
from tests.support.compare import RUNTIME
from tests.support.model import chain_model, const, op, t

RULES = Rules(int16_sums_of_int32=RUNTIME.name == "tflite-runtime")  # of the installed TFLite
IN_SCALE, WEIGHT_SCALE = 0.0625, 0.03125  # so that simple multipliers give ties

# The reader's defaults for a node without an options table.
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
    """A convolution; a non-zero depth multiplier makes it depthwise, and out_c is ignored then.

    int16 convolutions have int8 weights; float32 ones are not quantised.
    """

    size: tuple[int, int, int] = (7, 5, 3)  # h, w, c
    kernel: tuple[int, int] = (3, 3)
    out_c: int = 8
    depth_multiplier: int = 0
    groups: int = 1
    batch: int = 1
    stride: tuple[int, int] = (1, 1)  # h, w
    dilation: tuple[int, int] = (1, 1)
    padding: str = "SAME"
    less: tuple[int, int] = (0, 0)  # only of Transposed: pixels that the output lacks
    fused: str = "NONE"
    dtype: str = "uint8"
    per_channel: bool = False
    has_bias: bool = True
    bias_dtype: str = "int64"  # of int16
    zeros: tuple[int, int, int] | None = None  # of input, weights, output
    multiplier: float = 2.0**-9  # real: input scale * weight scale / output scale
    weight_scale: float = 0.03  # of 8 bits

    def __str__(self) -> str:
        depthwise = self.depth_multiplier
        parts = {
            "in" + "x".join(map(str, self.size)): True,
            "k{}x{}".format(*self.kernel): True,
            f"out{self.out_c}": not depthwise,
            f"depth{depthwise}": depthwise > 1,
            f"groups{self.groups}": self.groups > 1,
            f"batch{self.batch}": self.batch > 1,
            f"stride{_pair(self.stride)}": self.stride != (1, 1),
            f"dilation{_pair(self.dilation)}": self.dilation != (1, 1),
            self.padding.lower(): True,
            "less{}x{}".format(*self.less): self.less != (0, 0),
            self.fused.lower(): self.fused != "NONE",
            "no_bias": not self.has_bias,
            "zeros{}_{}_{}".format(*self.zeros or "---"): self.zeros is not None,
            f"multiplier{self.multiplier:g}": self.multiplier != 2.0**-9,
            self.dtype + ("_per_channel" if self.per_channel else ""): True,
        }
        return "-".join(part for part, is_shown in parts.items() if is_shown)

    def node(self, seed: int = 0) -> Node:
        """Return the node, with random weights and bias."""
        source, weights, result, bias = self.tensors(seed)
        return op(
            "DEPTHWISE_CONV_2D" if self.depth_multiplier else "CONV_2D",
            [source, weights, *bias],
            [result],
            self.options()
            | {"dilation_h_factor": self.dilation[0], "dilation_w_factor": self.dilation[1]}
            | ({"depth_multiplier": self.depth_multiplier} if self.depth_multiplier else {}),
            version=(5 if self.depth_multiplier else 4) if self.dtype == "int16" else 3,
        )

    def options(self) -> dict[str, Any]:
        """Return the options that TRANSPOSE_CONV shares."""
        return {
            "padding": self.padding,
            "stride_h": self.stride[0],
            "stride_w": self.stride[1],
            "fused_activation_function": self.fused,
        }

    def tensors(self, seed: int) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
        """Return the input, the weights, the output and, if there is one, the bias."""
        in_c = self.size[2]
        out_c = in_c * self.depth_multiplier or self.out_c
        shape = (out_c, *self.kernel, in_c // self.groups)
        if self.depth_multiplier:
            shape = (1, *self.kernel, out_c)
        in_shape = (self.batch, *self.size)
        out_shape = (self.batch, *self.out_size(), out_c)
        if self.dtype == "float32":
            rng = np.random.default_rng(seed)
            weights = const(rng.standard_normal(shape).astype(np.float32))
            bias = const(rng.standard_normal(out_c).astype(np.float32))
            return t(in_shape), weights, t(out_shape), [bias] * self.has_bias
        zeros = {"uint8": (131, 135, 123), "int8": (3, 0, -5), "int16": (0, 0, 0)}[self.dtype]
        in_zero, weight_zero, out_zero = self.zeros or zeros
        scales, bias, out_scale = scales_and_bias(
            *(out_c, self.multiplier, self.per_channel, seed),
            WEIGHT_SCALE if self.dtype == "int16" else self.weight_scale,
            self.bias_dtype if self.dtype == "int16" else None,
        )
        values = integers(shape, "uint8" if self.dtype == "uint8" else "int8", seed)
        if self.dtype != "uint8":
            values = np.maximum(values, -127)
        return (
            t(in_shape, self.dtype, IN_SCALE, in_zero),
            const(values, scales, weight_zero, axis=3 if self.depth_multiplier else 0),
            t(out_shape, self.dtype, out_scale, out_zero),
            [bias] * self.has_bias,
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


float_convolution = partial(Convolution, dtype="float32")


def scales_and_bias(
    out_c: int,
    multiplier: float,
    per_channel: bool,
    seed: int,
    weight_scale: float = WEIGHT_SCALE,
    bias_dtype: str | None = "int64",
) -> tuple[Any, Tensor, float]:
    """Return weight scales, a bias and the output's scale; `bias_dtype` is None for 8 bits."""
    rng = np.random.default_rng(seed)
    scales: Any = weight_scale
    if per_channel:
        scales = (weight_scale * rng.uniform(0.01, 1, out_c)).astype(np.float32)
        if bias_dtype is None and out_c > 2:
            # Some converters give a channel of zeros the smallest normal scale.
            scales[-1] = np.finfo(np.float32).tiny
    if bias_dtype is None:
        bias = rng.integers(-(2**12), 2**12, out_c).astype(np.int32)
    else:
        most = min(2.0**15 / multiplier, 2.0**40 if bias_dtype == "int64" else 2.0**29)
        bias = rng.uniform(-most, most, out_c).astype(bias_dtype)
    bias_scale = np.float32(IN_SCALE) * np.float32(scales)
    return scales, const(bias, bias_scale), IN_SCALE * weight_scale / multiplier


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
def float_convolutions(draw: st.DrawFn, is_depthwise: bool = False) -> Convolution:
    """Draw a convolution whose output is not empty."""
    small = st.integers(1, 4)
    case = float_convolution(
        size=(draw(st.integers(1, 13)), draw(st.integers(1, 19)), draw(st.integers(1, 40))),
        kernel=(3, 3) if draw(st.booleans()) else (draw(small), draw(small)),
        out_c=draw(st.integers(1, 40)),
        depth_multiplier=draw(st.sampled_from([1, 1, 2, 3])) if is_depthwise else 0,
        batch=draw(st.integers(1, 3)),
        stride=(draw(small), draw(small)),
        dilation=(1, 1) if draw(st.booleans()) else (draw(small), draw(small)),
        padding="VALID",
        fused=draw(st.sampled_from(FUSED)),
    )
    fits = min(case.out_size()) > 0 and draw(st.booleans())
    return case if fits else replace(case, padding="SAME")


@st.composite
def convolutions16(draw: st.DrawFn, is_depthwise: bool = False) -> Convolution:
    """Draw an int16 convolution."""
    case = draw(convolutions(is_depthwise))
    return replace(
        case,
        dtype="int16",
        zeros=None,
        per_channel=draw(st.booleans()),
        multiplier=2.0 ** draw(st.floats(-20, 2)),
    )


@st.composite
def deep_convolutions(draw: st.DrawFn, most: int) -> Convolution:
    """Draw a convolution of up to `most` input channels."""
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


def of_geometry(
    rows: Iterable[Sequence[object]], make: Callable[..., Convolution] = Convolution, **fields: Any
) -> list[Convolution]:
    """Return a convolution for each row: size, kernel, stride, dilation and padding."""
    names = "size", "kernel", "stride", "dilation", "padding"
    return [make(**dict(zip(names, row, strict=True)), **fields) for row in rows]


def channel_refusals(node: Node) -> dict[str, tuple[Node, str]]:
    """Return changed copies of a 3x3 CONV_2D from 3 to 8 channels, with the reason of refusal."""
    return {
        "groups": (
            changed(node, 0, shape=(1, 7, 5, 7)),
            "groups: 3 input channels in the weights, 7 in the input, 8 in the output",
        ),
        "output_channels": (
            changed(node, -1, shape=(1, 7, 5, 9)),
            "8 channels of weights, 9 of output: they must be equal",
        ),
        "rank_2_weights": (
            changed(node, 1, shape=(8, 27)),
            "weights 8x27: rank 4 (OHWI) is needed",
        ),
    }
