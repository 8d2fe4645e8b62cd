# SPDX-License-Identifier: Apache-2.0
"""A convolution as its kernels see it: one geometry, a record for each arithmetic, checked."""

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
    """The ADD after a convolution; then the convolution's own result is never written."""

    other: Tensor  # what is added to the convolution's results, of their shape
    result: Tensor  # the sum, which alone is written
    numbers: dict[str, int]  # fields of finish.clh


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Convolution:
    """The tensors, the window and the weights of a convolution, whatever its arithmetic.

    FULLY_CONNECTED is a convolution of a single tap. A depthwise convolution is one with a group
    for each input channel. Of a TRANSPOSE_CONV the window goes the other way, from the output to
    the input, but its sizes of input and output are those of the node.
    """

    family: ClassVar[str]  # the types, as kernels' names have them
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
        """Output channels of a group; of a depthwise convolution the depth multiplier."""
        return self.out_c // self.groups

    @property
    def pixels(self) -> int:
        """Output pixels of all pictures."""
        return self.batch * self.area.out_h * self.area.out_w

    @property
    def elements(self) -> int:
        """Elements of the output."""
        return self.pixels * self.out_c

    @property
    def is_matrix(self) -> bool:
        """Whether output pixel i is made of input pixel i alone: a product of two matrices."""
        area = self.area
        # A 1x1 window that took a PAD has more output pixels than input pixels.
        sizes_are_equal = (area.out_h, area.out_w) == (area.in_h, area.in_w)
        return sizes_are_equal and (self.taps, area.stride_h, area.stride_w) == (1, 1, 1)

    @property
    def defines(self) -> dict[str, int | str]:
        """The macro of kernels that add a residual."""
        return {} if self.residual is None else {"HAS_RESIDUAL": 1}

    @property
    def layer(self: _Convolution) -> _Convolution:
        """The same with no tensor and no size of a shape: what packed constants follow from.

        All shapes of a layer have equal ones, so what is packed of it for one serves the others
        (delegate/run/recipe.py). What reads a size of it fails.
        """
        sizes = ("in_h", "in_w", "out_h", "out_w", "pad_top", "pad_left")
        area = dataclasses.replace(self.area, **dict.fromkeys(sizes))  # type: ignore[arg-type]
        nothing = dict.fromkeys(("source", "result", "batch", "residual"))
        return dataclasses.replace(self, area=area, **nothing)  # type: ignore[arg-type]

    def fields(self) -> dict[str, Any]:
        """The fields of this record by name, for a record that has more."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def by_tap(self) -> NDArray[np.generic]:
        """A depthwise convolution's weights, (taps, out_c) as its kernels read them."""
        return np.ascontiguousarray(self.weights[:, :, 0].T)

    def params(self) -> Params:
        """The fields every kernel of a convolution reads."""
        added = self.residual
        return {
            "input": self.source,
            "output": self.result if added is None else added.result,
            **self.area.params(),
            "in_c": self.in_c,
            "out_c": self.out_c,
            **({} if added is None else {"residual": added.other, **added.numbers}),
        }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Quant8Convolution(Convolution):
    """A convolution of uint8 or of int8."""

    family: ClassVar[str] = "quant8"
    input_zero: int
    weight_zero: int
    output_zero: int
    bias: NDArray[np.int64]  # (out_c,)
    scaling: NDArray[np.int32]  # (2, out_c): multiplier, shift
    clamp: tuple[int, int]
    single_rounding: bool = False

    def centred(self) -> NDArray[np.int16]:
        """The weights less their zero point, of the same shape."""
        centred: NDArray[np.int16] = self.weights.astype(np.int16) - np.int16(self.weight_zero)
        return centred

    def centred_by_tap(self) -> NDArray[np.int16]:
        """The same of a depthwise convolution, (taps, out_c) as its kernels read them."""
        return np.ascontiguousarray(self.centred()[:, :, 0].T)

    def weight_sums(self) -> NDArray[np.int64]:
        """The sum of each output channel's weights less their zero point."""
        return np.asarray(self.centred().sum((1, 2), dtype=np.int64))

    def folded_bias(self) -> NDArray[np.int64]:
        """The bias less the input zero point's part, for kernels that take inputs as stored."""
        folded: NDArray[np.int64] = self.bias - self.input_zero * self.weight_sums()
        return folded

    def params(self) -> Params:
        """The fields every kernel of an 8-bit convolution reads."""
        return {
            **Convolution.params(self),
            "output_zero": self.output_zero,
            "output_min": self.clamp[0],
            "output_max": self.clamp[1],
        }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DoublesConvolution(Quant8Convolution):
    """A FULLY_CONNECTED of 8 bits whose sums are multiplied by doubles; `scaling` is 0."""

    sums: WideSums


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Quant16Convolution(Convolution):
    """A convolution of int16 with int8 weights; every zero point is 0."""

    family: ClassVar[str] = "quant16"
    sums: WideSums
    clamp: tuple[int, int]

    def params(self) -> Params:
        """The fields every kernel of an int16 convolution reads."""
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
        """The fields every kernel of a float convolution reads."""
        return {**Convolution.params(self), **self.clamp, "bias": self.bias}


AnyConvolution = Quant8Convolution | Quant16Convolution | FloatConvolution


def require_types(source: Tensor, weights: Tensor, result: Tensor) -> None:
    """Check the types of a convolution-like node: all 8 bit, int16 with int8 weights, or float32.

    Raises:
        Unsupported: other types, float weights that are not finite.
    """
    if source.dtype == result.dtype == "float32":
        if weights.dtype != "float32":
            raise Unsupported(f"hybrid: {weights.dtype} weights with float32 activations")
        # Kernels multiply weights by zeros where a window leaves the input, which TFLite skips, and
        # where vectors are filled up.
        if weights.data is not None and not np.isfinite(weights.data).all():
            raise Unsupported("a weight is not finite: times a padding zero it is not zero")
    elif source.dtype == result.dtype == "int16":
        require_16x8(source, weights, result)
    else:
        require_quant8(source, weights, result)


def require_quant8(source: Tensor, weights: Tensor, result: Tensor) -> None:
    """Check the types of a convolution-like node of 8 bits.

    Raises:
        Unsupported: activations that are not 8 bit or differ, weights of another type.
    """
    if source.dtype not in quantized.QUANT8 or source.dtype != result.dtype:
        raise Unsupported(
            f"{source.dtype} in, {result.dtype} out: only uint8 or int8 in both are implemented"
        )
    if weights.dtype != source.dtype:
        raise Unsupported(f"{weights.dtype} weights with {source.dtype} activations")


def float_bias(bias: Tensor | None, channels: int) -> Constant:
    """Return the bias as `channels` floats; see `bias_of`."""
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
    """Return the record of a node whose types and shapes are checked.

    `channel_axis`: of the weights, that of the output channels.

    Raises:
        Unsupported: a bias, scales or an activation that do not fit.
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
