# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSE_CONV nodes from parameters; str() of them is a readable test id."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node, sum_bound
from tests.support.cases import FUSED, multipliers, zero_points
from tests.support.compare import Arrays, Bounds
from tests.support.convolution import WEIGHT_SCALE, Convolution
from tests.support.model import const, op


@dataclass(frozen=True, slots=True, kw_only=True)
class Transposed(Convolution):
    """A TRANSPOSE_CONV; its output is the largest for input and padding, minus `less`."""

    size: tuple[int, int, int] = (4, 5, 3)  # h, w, c
    stride: tuple[int, int] = (2, 2)
    weight_scale: float = WEIGHT_SCALE

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
        """Return the node, with random weights and bias."""
        source, weights, result, bias = self.tensors(seed)
        inputs = [const(np.array(result.shape, np.int32)), weights, source, *bias]
        return op("TRANSPOSE_CONV", inputs, [result], self.options(), version=3)

    def bounds(self, inputs: Arrays) -> Bounds:
        """Return the bound of each float's rounding error, from sums of absolute values."""
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
def transposed(draw: st.DrawFn, dtypes: tuple[str, ...], least_c: int = 1) -> Transposed:
    """Draw a TRANSPOSE_CONV of one of these types; `least_c`: the fewest output channels."""
    dtype = draw(st.sampled_from(dtypes))
    small = st.integers(1, 4)
    zeros = None
    if dtype in ("uint8", "int8"):
        weight_zero = draw(zero_points("uint8")) if dtype == "uint8" else 0
        zeros = (draw(zero_points(dtype)), weight_zero, draw(zero_points(dtype)))
    return Transposed(
        size=(draw(st.integers(1, 7)), draw(st.integers(1, 11)), draw(st.integers(1, 19))),
        kernel=(draw(small), draw(small)),
        out_c=draw(st.integers(least_c, 40)),
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
