# SPDX-License-Identifier: Apache-2.0
"""Checked records of convolutions: a common geometry, and a class for each arithmetic."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import Constant, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import float_bounds, quantized_bounds
from delegate.ops._checks.windows import Window
from delegate.ops._launches.wide_sums import WideSums, require_16x8, wide_sums
from delegate.target import Rules

_Convolution = TypeVar("_Convolution", bound="Convolution")


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """A fused ADD after a convolution, whose own result is not written."""

    other: Tensor  # added to the convolution's result, of the same shape
    result: Tensor  # the sum
    numbers: dict[str, int]  # fields of finish.clh


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Convolution:
    """The tensors, window and weights of a convolution, for any arithmetic.

    FULLY_CONNECTED is a convolution with a single tap. A depthwise convolution has a group per
    input channel. The window of a TRANSPOSE_CONV slides over the output, but its input and output
    sizes are those of the node.
    """

    family: ClassVar[str]  # the types, as in kernel names
    source: Tensor
    result: Tensor
    area: Window
    batch: int
    weights: NDArray[np.generic]  # (out_c, taps, group_in_c) as stored
    groups: int = 1
    residual: Residual | None = None

    @property
    def out_c(self) -> int:
        """Output channels."""
        return int(self.weights.shape[0])

    @property
    def taps(self) -> int:
        """Taps of the window."""
        return int(self.weights.shape[1])

    @property
    def in_c(self) -> int:
        """Channels of an input pixel."""
        return self.group_in_c * self.groups

    @property
    def group_in_c(self) -> int:
        """Input channels of a group."""
        return int(self.weights.shape[2])

    @property
    def group_out_c(self) -> int:
        """Output channels of a group; the depth multiplier of a depthwise convolution."""
        return self.out_c // self.groups

    @property
    def pixels(self) -> int:
        """Output pixels of the batch."""
        return self.batch * self.area.out_h * self.area.out_w

    @property
    def elements(self) -> int:
        """Elements of the output."""
        return self.pixels * self.out_c

    @property
    def is_matrix(self) -> bool:
        """Whether output pixel i depends only on input pixel i: a product of two matrices."""
        area = self.area
        # A 1x1 window with a fused PAD has more output pixels than input pixels.
        sizes_are_equal = (area.out_h, area.out_w) == (area.in_h, area.in_w)
        return sizes_are_equal and (self.taps, area.stride_h, area.stride_w) == (1, 1, 1)

    @property
    def defines(self) -> dict[str, int | str]:
        """The macro for a residual, if there is one."""
        return {} if self.residual is None else {"HAS_RESIDUAL": 1}

    @property
    def layer(self: _Convolution) -> _Convolution:
        """The convolution without tensors and shape-dependent sizes: the input of packing.

        Constants packed from it are shared by all shapes of a layer (delegate/run/recipe.py).
        Reading a size fails.
        """
        sizes = ("in_h", "in_w", "out_h", "out_w", "pad_top", "pad_left")
        area = dataclasses.replace(self.area, **dict.fromkeys(sizes))  # type: ignore[arg-type]
        cleared = dict.fromkeys(("source", "result", "batch", "residual"))
        return dataclasses.replace(self, area=area, **cleared)  # type: ignore[arg-type]

    def fields(self) -> dict[str, Any]:
        """The fields of this record by name, to construct a record of a subclass."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def by_tap(self) -> NDArray[np.generic]:
        """Return a depthwise convolution's weights as its kernels read them, (taps, out_c)."""
        return np.ascontiguousarray(self.weights[:, :, 0].T)

    def params(self) -> Params:
        """Return the fields that all kernels of a convolution read."""
        residual = self.residual
        return {
            "input": self.source,
            "output": self.result if residual is None else residual.result,
            **self.area.params(),
            "in_c": self.in_c,
            "out_c": self.out_c,
            **({} if residual is None else {"residual": residual.other, **residual.numbers}),
        }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Quant8Convolution(Convolution):
    """A convolution of uint8 or int8."""

    family: ClassVar[str] = "quant8"
    input_zero: int
    weight_zero: int
    output_zero: int
    bias: NDArray[np.int64]  # (out_c,)
    scaling: NDArray[np.int32]  # (2, out_c): multiplier, shift
    clamp: tuple[int, int]
    single_rounding: bool = False

    def centred(self) -> NDArray[np.int16]:
        """Return the weights minus their zero point, in the same shape."""
        centred: NDArray[np.int16] = self.weights.astype(np.int16) - np.int16(self.weight_zero)
        return centred

    def centred_by_tap(self) -> NDArray[np.int16]:
        """Return the same of a depthwise convolution, (taps, out_c)."""
        return np.ascontiguousarray(self.centred()[:, :, 0].T)

    def weight_sums(self) -> NDArray[np.int64]:
        """Return the sum of each output channel's weights minus their zero point."""
        return np.asarray(self.centred().sum((1, 2), dtype=np.int64))

    def folded_bias(self) -> NDArray[np.int64]:
        """Return the bias including the input zero point's part, for kernels that ignore it."""
        folded: NDArray[np.int64] = self.bias - self.input_zero * self.weight_sums()
        return folded

    def params(self) -> Params:
        """Return the fields that all kernels of an 8-bit convolution read."""
        return {
            **Convolution.params(self),
            "output_zero": self.output_zero,
            "output_min": self.clamp[0],
            "output_max": self.clamp[1],
        }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DoublesConvolution(Quant8Convolution):
    """An 8-bit FULLY_CONNECTED whose sums are multiplied by doubles; `scaling` is unused (0)."""

    sums: WideSums


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Quant16Convolution(Convolution):
    """A convolution of int16 with int8 weights; all zero points are 0."""

    family: ClassVar[str] = "quant16"
    sums: WideSums
    clamp: tuple[int, int]

    def params(self) -> Params:
        """Return the fields that all kernels of an int16 convolution read."""
        return {
            **Convolution.params(self),
            "output_min": self.clamp[0],
            "output_max": self.clamp[1],
            "channels": self.sums.rows(),
        }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FloatConvolution(Convolution):
    """A convolution of float32."""

    family: ClassVar[str] = "float"
    weights: NDArray[np.float32]
    bias: Constant
    clamp: dict[str, int]  # fields: the bits of floats

    def params(self) -> Params:
        """Return the fields that all kernels of a float convolution read."""
        return {**Convolution.params(self), **self.clamp, "bias": self.bias}


AnyConvolution = Quant8Convolution | Quant16Convolution | FloatConvolution


def require_types(source: Tensor, weights: Tensor, result: Tensor) -> None:
    """Check the types of a convolution: all 8 bits, int16 with int8 weights, or float32.

    Raises:
        Unsupported: other types, float weights that are not finite.
    """
    if source.dtype == result.dtype == "float32":
        if weights.dtype != "float32":
            raise Unsupported(f"hybrid: {weights.dtype} weights with float32 activations")
        # Kernels multiply weights by padding zeros, which TFLite skips, and in padded vectors.
        if weights.data is not None and not np.isfinite(weights.data).all():
            raise Unsupported("a weight is not finite: times a padding zero it is not zero")
    elif source.dtype == result.dtype == "int16":
        require_16x8(source, weights, result)
    else:
        require_quant8(source, weights, result)


def require_quant8(source: Tensor, weights: Tensor, result: Tensor) -> None:
    """Check the types of an 8-bit convolution.

    Raises:
        Unsupported: activations that are not 8 bits or differ, weights of another type.
    """
    if source.dtype not in quantized.QUANT8 or source.dtype != result.dtype:
        raise Unsupported(
            f"{source.dtype} in, {result.dtype} out: only uint8 or int8 in both are implemented"
        )
    if weights.dtype != source.dtype:
        raise Unsupported(f"{weights.dtype} weights with {source.dtype} activations")


def float_bias(bias: Tensor | None, channels: int) -> Constant:
    """Return the bias as a constant of `channels` floats; see `bias_of`."""
    values = quantized.bias_of(bias, channels, ("float32",))
    return Constant(4 * channels, lambda: values)


def with_arithmetic(
    geometry: Convolution,
    weights: Tensor,
    bias: Tensor | None,
    activation: object,
    rules: Rules,
    channel_axis: int = 0,
) -> AnyConvolution:
    """Return the record of a node after its types and shapes have been checked.

    `channel_axis`: axis of the output channels in the weights.

    Raises:
        Unsupported: an invalid bias, scale or activation.
    """
    source, result, out_c = geometry.source, geometry.result, geometry.out_c
    if source.dtype == "float32":
        return FloatConvolution(
            **geometry.fields(),
            bias=float_bias(bias, out_c),
            clamp=float_bounds(activation),
        )
    if source.dtype == "int16":
        return Quant16Convolution(
            **geometry.fields(),
            sums=wide_sums(source, weights, bias, result, channel_axis, rules),
            clamp=quantized_bounds(result, activation, quantized.QUANT),
        )
    return Quant8Convolution(
        **geometry.fields(),
        weight_zero=quantized.weight_scales(weights, channel_axis)[1],
        bias=quantized.bias_of(bias, out_c, ("int32",)).astype(np.int64),
        scaling=quantized.convolution_multipliers(
            source, weights, result, channel_axis, per_channel=source.dtype == "int8"
        ),
        clamp=quantized_bounds(result, activation),
        input_zero=quantized.per_tensor(source)[1],
        output_zero=quantized.per_tensor(result)[1],
    )
