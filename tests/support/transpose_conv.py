# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE_CONV nodes from their parameters, named so that an id reads aloud."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate.inspect import Node, sum_bound
from tests.support.cases import FUSED, integers, multipliers, zero_points
from tests.support.compare import Arrays, Bounds
from tests.support.model import chain_model, const, op, t
from tests.support.quant16 import IN_SCALE, WEIGHT_SCALE, scales_and_bias


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One TRANSPOSE_CONV; the output is as large as the input's size and padding allow, less."""

    size: tuple[int, int, int] = (4, 5, 3)  # h, w, c
    kernel: tuple[int, int] = (3, 3)
    out_c: int = 8
    batch: int = 1
    stride: tuple[int, int] = (2, 2)
    padding: str = "SAME"
    less: tuple[int, int] = (0, 0)  # pixels of the output that the last stride leaves out
    fused: str = "NONE"
    dtype: str = "uint8"
    per_channel: bool = False
    has_bias: bool = True
    zeros: tuple[int, int, int] | None = None  # of input, weights, output
    multiplier: float = 2.0**-9  # real: input scale * weight scale / output scale

    def __str__(self) -> str:
        parts = {
            "in" + "x".join(map(str, self.size)): True,
            "k{}x{}".format(*self.kernel): True,
            f"out{self.out_c}": True,
            f"batch{self.batch}": self.batch > 1,
            "stride{}x{}".format(*self.stride): True,
            self.padding.lower(): True,
            "less{}x{}".format(*self.less): self.less != (0, 0),
            self.fused.lower(): self.fused != "NONE",
            "no_bias": not self.has_bias,
            "zeros{}_{}_{}".format(*self.zeros or "---"): self.zeros is not None,
            f"multiplier{self.multiplier:g}": self.multiplier != 2.0**-9,
            self.dtype + ("_per_channel" if self.per_channel else ""): True,
        }
        return "-".join(part for part, is_said in parts.items() if is_said)

    def out_size(self) -> tuple[int, int]:
        """Return the output's height and width."""
        height, width = (
            (
                self.size[i] * self.stride[i]
                if self.padding == "SAME"
                else (self.size[i] - 1) * self.stride[i] + self.kernel[i] + self.stride[i] - 1
            )
            - self.less[i] % self.stride[i]
            for i in (0, 1)
        )
        return height, width

    def node(self, seed: int = 0) -> Node:
        """Return the node, its weights and bias drawn from the seed."""
        in_c, is_float = self.size[2], self.dtype == "float32"
        shape = (self.out_c, *self.kernel, in_c)
        rng = np.random.default_rng(seed)
        in_scale: Any = None if is_float else IN_SCALE
        scales: Any = None if is_float else WEIGHT_SCALE
        out_scale: Any = None if is_float else IN_SCALE * WEIGHT_SCALE / self.multiplier
        zeros = (0, 0, 0)
        weights: NDArray[Any]
        if is_float:
            weights = rng.standard_normal(shape).astype(np.float32)
            bias = const(rng.standard_normal(self.out_c).astype(np.float32))
        elif self.dtype == "int16":
            weights = np.maximum(integers(shape, "int8", seed), -127)
            scales, bias, out_scale = scales_and_bias(
                self.out_c, self.multiplier, self.per_channel, seed
            )
        else:
            weights = integers(shape, self.dtype, seed)
            zeros = self.zeros or ((131, 135, 123) if self.dtype == "uint8" else (3, 0, -5))
            if self.per_channel:
                scales = (WEIGHT_SCALE * rng.uniform(0.01, 1, self.out_c)).astype(np.float32)
            values = rng.integers(-(2**12), 2**12, self.out_c).astype(np.int32)
            bias = const(values, np.float32(IN_SCALE) * np.float32(scales))
        out_shape = (self.batch, *self.out_size(), self.out_c)
        return op(
            "TRANSPOSE_CONV",
            [
                const(np.array(out_shape, np.int32)),
                const(weights, scales, zeros[1]),
                t((self.batch, *self.size), self.dtype, in_scale, zeros[0]),
                *([bias] if self.has_bias else []),
            ],
            [t(out_shape, self.dtype, out_scale, zeros[2])],
            {
                "padding": self.padding,
                "stride_h": self.stride[0],
                "stride_w": self.stride[1],
                "fused_activation_function": self.fused,
            },
            version=3,
        )

    def model(self, seed: int = 0) -> bytes:
        """Return a .tflite model of the node."""
        return chain_model([self.node(seed)])

    def bounds(self, inputs: Arrays) -> Bounds:
        """Return what rounding may change of each float, by spreading absolute values."""
        node = self.node()
        weights = node.inputs[1]
        assert weights is not None
        assert weights.data is not None
        source, kernel = np.abs(inputs[0].astype(np.float64)), np.abs(weights.data)
        height, width = self.out_size()
        reach = [(self.size[i] - 1) * self.stride[i] + self.kernel[i] for i in (0, 1)]
        total = np.zeros((self.batch, reach[0], reach[1], self.out_c))
        for ky in range(self.kernel[0]):
            for kx in range(self.kernel[1]):
                rows = slice(ky, ky + (self.size[0] - 1) * self.stride[0] + 1, self.stride[0])
                columns = slice(kx, kx + (self.size[1] - 1) * self.stride[1] + 1, self.stride[1])
                total[:, rows, columns] += source @ kernel[:, ky, kx].T
        top, left = (
            max(0, reach[i] - (height, width)[i]) // 2 if self.padding == "SAME" else 0
            for i in (0, 1)
        )
        result = np.zeros((self.batch, height, width, self.out_c))
        inside = total[:, top : top + height, left : left + width]
        result[:, : inside.shape[1], : inside.shape[2]] = inside
        bias = node.inputs[3].data if len(node.inputs) > 3 and node.inputs[3] else np.zeros(1)
        terms = self.kernel[0] * self.kernel[1] * self.size[2] + 1
        return [sum_bound(result + np.abs(np.asarray(bias, np.float64)), terms)]


@st.composite
def spreads(draw: st.DrawFn, dtypes: tuple[str, ...]) -> Spread:
    """Draw a TRANSPOSE_CONV of one of these types."""
    dtype = draw(st.sampled_from(dtypes))
    small = st.integers(1, 4)
    zeros = None
    if dtype in ("uint8", "int8"):
        weight_zero = draw(zero_points("uint8")) if dtype == "uint8" else 0
        zeros = (draw(zero_points(dtype)), weight_zero, draw(zero_points(dtype)))
    return Spread(
        size=(draw(st.integers(1, 7)), draw(st.integers(1, 11)), draw(st.integers(1, 19))),
        kernel=(draw(small), draw(small)),
        out_c=draw(st.integers(1, 40)),
        batch=draw(st.integers(1, 3)),
        stride=(draw(small), draw(small)),
        padding=draw(st.sampled_from(["SAME", "VALID"])),
        less=(draw(st.integers(0, 3)), draw(st.integers(0, 3))),
        fused=draw(st.sampled_from(FUSED)),
        dtype=dtype,
        per_channel=dtype in ("int8", "int16") and draw(st.booleans()),
        has_bias=draw(st.booleans()),
        zeros=zeros,
        multiplier=draw(multipliers(-18, 2)),
    )
