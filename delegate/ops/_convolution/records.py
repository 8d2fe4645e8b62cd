# SPDX-License-Identifier: Apache-2.0
"""A convolution as its kernels see it, and the constants they share. Lowers nothing itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import Constant
from delegate.ops._checks import quantized
from delegate.ops._checks.windows import Window
from delegate.ops._numbers import fixed_point
from delegate.ops._numbers.float32 import bits
from delegate.ops._numbers.float_sum import FloatSum


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """The ADD after a convolution as kernels/residual.clh sees it."""

    other: Tensor  # what is added to the convolution's results, of their shape
    result: Tensor  # the sum, which alone is written
    floats: FloatSum
    clamp: tuple[int, int]

    def params(self) -> dict[str, int | Tensor | Constant]:
        """The fields kernels read."""
        return {
            "residual": self.other,
            "value_factor": bits(self.floats.left_factor),
            "residual_factor": bits(self.floats.right_factor),
            "sum_offset": bits(self.floats.offset),
            "sum_zero": quantized.per_tensor(self.result)[1],
            "sum_min": self.clamp[0],
            "sum_max": self.clamp[1],
        }


@dataclass(frozen=True, slots=True, eq=False)
class Convolution:
    """A convolution as its kernels see it; FULLY_CONNECTED is one of a single tap."""

    source: Tensor
    weights: NDArray[np.generic]  # (out_c, taps, in_c) as stored
    weight_zero: int
    bias: NDArray[np.int64]  # (out_c,)
    scaling: NDArray[np.int32]  # (2, out_c): multiplier, shift
    clamp: tuple[int, int]
    result: Tensor
    batch: int
    area: Window
    single_rounding: bool = False
    residual: Residual | None = None  # then `result` is never written

    @property
    def reads(self) -> tuple[Tensor, ...]:
        """The tensors kernels read."""
        return (self.source,) if self.residual is None else (self.source, self.residual.other)

    @property
    def writes(self) -> tuple[Tensor]:
        """The tensor kernels write."""
        return (self.result if self.residual is None else self.residual.result,)

    @property
    def defines(self) -> dict[str, int | str]:
        """What kernels/residual.clh is built with."""
        return {} if self.residual is None else {"HAS_RESIDUAL": 1}

    @property
    def pixels(self) -> int:
        """Output pixels of all pictures."""
        return self.batch * self.area.out_h * self.area.out_w

    @property
    def input_zero(self) -> int:
        """The input's zero point."""
        return quantized.per_tensor(self.source)[1]

    def centred(self) -> NDArray[np.int64]:
        """The weights less their zero point, as stored otherwise."""
        centred: NDArray[np.int64] = self.weights.astype(np.int64) - self.weight_zero
        return centred

    def folded_bias(self) -> NDArray[np.int64]:
        """The bias less the input zero point's part, for kernels that take inputs as stored."""
        folded: NDArray[np.int64] = self.bias - self.input_zero * self.centred().sum((1, 2))
        return folded

    def params(self) -> dict[str, int | Tensor | Constant]:
        """The fields every kernel of a convolution reads."""
        out_c, _, in_c = self.weights.shape
        return {
            "input": self.source,
            "output": self.writes[0],
            **self.area.params(),
            "in_c": in_c,
            "out_c": out_c,
            "output_zero": quantized.per_tensor(self.result)[1],
            "output_min": self.clamp[0],
            "output_max": self.clamp[1],
            **({} if self.residual is None else self.residual.params()),
        }


@dataclass(frozen=True, slots=True, eq=False)
class DepthwiseConvolution:
    """A depthwise convolution as its kernels see it."""

    source: Tensor
    weights: NDArray[np.generic]  # (taps, out_c) as stored
    weight_zero: int
    bias: NDArray[np.int64]  # (out_c,)
    scaling: NDArray[np.int32]  # (2, out_c): multiplier, shift
    clamp: tuple[int, int]
    result: Tensor
    batch: int
    area: Window

    @property
    def out_c(self) -> int:
        """Output channels."""
        return self.result.shape[3]

    @property
    def depth_multiplier(self) -> int:
        """Output channels an input channel."""
        return self.out_c // self.source.shape[3]

    @property
    def input_zero(self) -> int:
        """The input's zero point."""
        return quantized.per_tensor(self.source)[1]

    def centred(self) -> NDArray[np.int64]:
        """The weights less their zero point, as stored otherwise."""
        centred: NDArray[np.int64] = self.weights.astype(np.int64) - self.weight_zero
        return centred

    def folded_bias(self) -> NDArray[np.int64]:
        """The bias less the input zero point's part, for kernels that take inputs as stored."""
        folded: NDArray[np.int64] = self.bias - self.input_zero * self.centred().sum(0)
        return folded

    def params(self) -> dict[str, int | Tensor | Constant]:
        """The fields every kernel of a depthwise convolution reads."""
        return {
            "input": self.source,
            "output": self.result,
            **self.area.params(),
            "in_c": self.source.shape[3],
            "out_c": self.out_c,
            "output_zero": quantized.per_tensor(self.result)[1],
            "output_min": self.clamp[0],
            "output_max": self.clamp[1],
        }


def require_quant8_weights(source: Tensor, weights: Tensor, result: Tensor) -> None:
    """Check the types of a convolution-like node.

    Raises:
        Unsupported: activations that are not 8 bit or differ, weights of another type.
    """
    if source.dtype not in quantized.QUANT8 or source.dtype != result.dtype:
        raise Unsupported(
            f"{source.dtype} in, {result.dtype} out: only uint8 or int8 in both are implemented"
        )
    if weights.dtype != source.dtype:
        raise Unsupported(f"{weights.dtype} weights with {source.dtype} activations")


def zeros_row(channels: int, zero_point: int, dtype: str) -> Constant:
    """A pixel of zero points, which out-of-bounds taps read, and room for one vector more."""
    return Constant(channels + 16, lambda: np.full(channels + 16, zero_point, dtype))


def channel_rows(bias: Callable[[], NDArray[np.int64]], scaling: NDArray[np.int32]) -> Constant:
    """Each output channel's bias, multiplier and shift: three rows of int32."""
    return Constant(
        12 * scaling.shape[1],
        lambda: np.concatenate([fixed_point.wrap_int32(bias())[None], scaling]),
    )
