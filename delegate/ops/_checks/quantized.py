# SPDX-License-Identifier: Apache-2.0
"""Checks of the scales, zero points and biases of quantised tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.ops._numbers.fixed_point import quantize_multiplier

QUANT8 = ("uint8", "int8")
QUANT = (*QUANT8, "int16")


def per_tensor(tensor: Tensor, types: Sequence[str] = QUANT8) -> tuple[float, int]:
    """Return the scale and zero point of a per-tensor quantised tensor.

    `types`: those of QUANT that the op supports. int16 requires a zero point of 0.

    Raises:
        Unsupported: another type, no quantisation, several scales, an invalid scale or zero point.
    """
    if tensor.dtype not in types:
        raise Unsupported(f"{tensor.dtype}: only {' and '.join(types)} are implemented")
    quantization = tensor.quantization
    if quantization is None:
        raise Unsupported(f"{tensor.dtype} without quantisation: scale and zero point are missing")
    if len(quantization.scale) != 1 or len(quantization.zero_point) != 1:
        raise Unsupported(f"{len(quantization.scale)} scales: only one per tensor here")
    scale, zero_point = quantization.scale[0], quantization.zero_point[0]
    if not 0 < scale < math.inf:
        raise Unsupported(f"scale {scale}: it must be positive and finite")
    limits = np.iinfo(tensor.dtype)
    if not limits.min <= zero_point <= limits.max:
        raise Unsupported(f"zero point {zero_point}: outside {tensor.dtype}")
    if tensor.dtype == "int16" and zero_point:
        raise Unsupported(f"int16 with zero point {zero_point}: it must be 0")
    return scale, zero_point


def whole_range(result: Tensor) -> dict[str, int]:
    """Return the fields for a result that is clamped only to its type's range."""
    limits = np.iinfo(result.dtype)
    return {"output_min": int(limits.min), "output_max": int(limits.max)}


def multiplier_of(ratio: float, most: int = 30) -> tuple[int, int]:
    """Return a scale ratio's fixed-point multiplier and shift, at most `most` to the left.

    Raises:
        Unsupported: the ratio is too large.
    """
    multiplier, shift = quantize_multiplier(ratio)
    if shift > most:
        raise Unsupported(f"a scale ratio of 2^{shift}: more than 2^{most}")
    return multiplier, shift


def require_fixed_output(result: Tensor, scale: float, zero_point: int) -> None:
    """Check that an output has the fixed quantisation that TFLite requires.

    Raises:
        Unsupported: it has another one, several or none.
    """
    quantization = result.quantization
    if quantization is None:
        raise Unsupported(f"{result.dtype} without quantisation: scale and zero point are missing")
    if (quantization.scale, quantization.zero_point) != ((scale,), (zero_point,)):
        scales = ", ".join(map(str, quantization.scale))
        zeros = ", ".join(map(str, quantization.zero_point))
        raise Unsupported(
            f"output scale {scales}, zero point {zeros}: TFLite's is {scale}, {zero_point}"
        )


def weight_scales(weights: Tensor, channel_axis: int) -> tuple[tuple[float, ...], int]:
    """Return one scale per output channel, and their common zero point.

    Raises:
        Unsupported: scales that do not match the channels, or zero points that differ.
    """
    quantization = weights.quantization
    if quantization is None:
        raise Unsupported("weights without quantisation: scale and zero point are missing")
    channels = weights.shape[channel_axis]
    count = len(quantization.scale)
    if count == 1:
        scale, zero_point = per_tensor(weights)
        return (scale,) * channels, zero_point
    if weights.dtype != "int8":
        raise Unsupported(f"{weights.dtype} weights with {count} scales: per channel is int8 only")
    if count != channels or quantization.axis != channel_axis:
        raise Unsupported(
            f"weights have {count} scales on axis {quantization.axis}: "
            f"{channels} on axis {channel_axis} are needed"
        )
    # A sum of float32 numbers in doubles is finite if they are; NaN fails both comparisons.
    if not (min(quantization.scale, default=1) > 0 and math.isfinite(sum(quantization.scale))):
        raise Unsupported("a weight scale is not positive and finite")
    if any(quantization.zero_point):
        raise Unsupported("per-channel weights with a zero point other than 0")
    return quantization.scale, 0


def without_zero_points(weights: Tensor) -> Tensor:
    """Return weights as TFLite's DEPTHWISE_CONV_2D and TRANSPOSE_CONV read them.

    Zero points of int8 weights are ignored.
    Source: tflite/kernels/internal/reference/integer_ops/depthwise_conv.h, transpose_conv.h
    """
    quantization = weights.quantization
    if weights.dtype != "int8" or quantization is None or not any(quantization.zero_point):
        return weights
    zeros = replace(quantization, zero_point=(0,) * len(quantization.zero_point))
    return replace(weights, quantization=zeros)


def require_no_zero_points(weights: Tensor) -> None:
    """Check that int8 weights have no zero point, as TFLite's CONV_2D requires.

    Raises:
        Unsupported: one is not 0.
    Source: tflite/kernels/conv.cc Prepare
    """
    zero_points = weights.quantization.zero_point if weights.quantization else ()
    if weights.dtype == "int8" and any(zero_points):
        raise Unsupported(
            f"int8 weights with zero point {next(filter(None, zero_points))}: it must be 0"
        )


def convolution_multipliers(
    source: Tensor, weights: Tensor, result: Tensor, channel_axis: int, per_channel: bool
) -> NDArray[np.int32]:
    """Return each output channel's multiplier and shift.

    Shapes:
        -> (2, channels): row 0 the multipliers, row 1 the shifts
    Source: tflite/kernels/kernel_util.cc PopulateConvolutionQuantizationParams (per channel, a
    double product) and GetQuantizedConvolutionMultipler (per tensor, a float product)
    """
    in_scale, out_scale = per_tensor(source)[0], per_tensor(result)[0]
    scales, _ = weight_scales(weights, channel_axis)
    if per_channel:
        pairs = [multiplier_of(in_scale * scale / out_scale) for scale in scales]
    else:
        with np.errstate(over="ignore"):
            product = float(np.float32(in_scale) * np.float32(scales[0]))
        if math.isinf(product):
            raise Unsupported(f"scales {in_scale} * {scales[0]}: more than a float holds")
        pairs = [multiplier_of(product / out_scale)] * len(scales)
    scaling: NDArray[np.int32] = np.array(pairs, np.int32).T.copy()
    return scaling


def bias_of(bias: Tensor | None, channels: int, types: Sequence[str]) -> NDArray[Any]:
    """Return the bias of each channel; zeros of the first type if there is none.

    Shapes:
        -> (channels,)
    Raises:
        Unsupported: a bias that is not constant, or of another type or length.
    """
    if bias is None:
        return np.zeros(channels, types[0])
    if bias.data is None:
        raise Unsupported("the bias is not a constant")
    if bias.dtype not in types or bias.shape != (channels,):
        raise Unsupported(
            f"bias {bias.dtype} of {bias.shape}: {types[0]} of ({channels},) is needed"
        )
    return bias.data
