# SPDX-License-Identifier: Apache-2.0
"""The fixed-point arithmetic of TFLite's quantised kernels, as the host prepares it.

Numbers only: no kernel, no node. The device's half is kernels/quantize.clh.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor

QUANT8 = ("uint8", "int8")
QUANT = (*QUANT8, "int16")
ELEM = {"uint8": "uchar", "int8": "char"}  # OpenCL C's names


def quantize_multiplier(real: float) -> tuple[int, int]:
    """Return (multiplier, shift) with real ~ multiplier * 2**(shift - 31).

    Units:
        multiplier: 0 or in [2**30, 2**31); shift: positive is to the left, in bits
    Source: tflite/kernels/internal/quantization_util.cc QuantizeMultiplier
    """
    if not real > 0 or math.isinf(real):
        return 0, 0
    fraction, shift = math.frexp(real)
    multiplier = math.floor(fraction * (1 << 31) + 0.5)
    if multiplier == 1 << 31:
        multiplier //= 2
        shift += 1
    return (0, 0) if shift < -31 else (multiplier, shift)


def rounding_doubling_high_mul(a: int, b: int) -> int:
    """Return a * b / 2**31, rounded half up, as int32.

    Source: gemmlowp fixedpoint.h SaturatingRoundingDoublingHighMul, whose nudge by sign and
    truncation toward zero come to this floor
    """
    return min((a * b + (1 << 30)) >> 31, (1 << 31) - 1)


def rounding_divide_by_pot(value: int, exponent: int) -> int:
    """Return value / 2**exponent, ties away from zero.

    Source: gemmlowp fixedpoint.h RoundingDivideByPOT
    """
    remainder = value & ((1 << exponent) - 1)
    threshold = (((1 << exponent) - 1) >> 1) + (value < 0)
    return (value >> exponent) + (remainder > threshold)


def multiply_by_quantized_multiplier(value: int, multiplier: int, shift: int) -> int:
    """Scale one int32 as TFLite does, with its two roundings.

    Source: tflite/kernels/internal/common.cc MultiplyByQuantizedMultiplier (double rounding)
    """
    shifted = _wrap_int32(value << max(shift, 0))
    return rounding_divide_by_pot(rounding_doubling_high_mul(shifted, multiplier), max(-shift, 0))


def multiply_by_quantized_multiplier_once(value: int, multiplier: int, shift: int) -> int:
    """Scale one int32 with a single rounding, ties away from zero."""
    total = 31 - shift
    size = (abs(value) * multiplier + (1 << (total - 1))) >> total
    return size if value >= 0 else -size


def exact_multipliers(
    reals: NDArray[np.float64], largest: int
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return (multiplier, shift) that give round(value * real) for |value| <= largest.

    round() is C's, ties away from zero, of a double product; equal means up to 255, beyond which
    every 8-bit result is clamped. Each answer begins at some value, which confines the multiplier;
    of some ratios no multiplier of 31 bits fits all answers.

    Shapes:
        (n,) -> (2, n): multipliers, shifts; (n,): whether there is one
    """
    unique, inverse = np.unique(reals, return_inverse=True)
    pairs = np.array([quantize_multiplier(float(real)) for real in unique], np.int64)
    multiplier, shift = pairs.T
    never = largest * unique < 0.5  # then every result is 0
    found = (shift >= -28) & (largest * unique < 2**31) & ~never
    total = np.where(found, 31 - shift, 31)[:, None]
    real = unique[:, None]
    answers = np.arange(1, 256, dtype=np.int64)[None]
    # Answers that no sum has confine nothing, and might not fit 63 bits.
    answers = np.minimum(
        answers, np.where(found, largest * unique, 0)[:, None].astype(np.int64) + 1
    )

    def reaches(values: NDArray[np.int64]) -> NDArray[np.bool_]:
        product = values * real
        whole = np.floor(product)
        return np.asarray(whole + (product - whole >= 0.5) >= answers)

    with np.errstate(over="ignore"):
        begin = np.minimum((answers - 0.5) / real, largest + 1).astype(np.int64)
    while (early := (begin > 0) & reaches(begin - 1)).any():
        begin = begin - early
    while (late := (begin <= largest) & ~reaches(begin)).any():
        begin = begin + late
    edge = (answers << total) - (1 << (total - 1))
    is_met = begin <= largest
    least = np.where(is_met, -(-edge // np.maximum(begin, 1)), 0).max(1)
    most = np.where(begin > 1, (edge - 1) // np.maximum(begin - 1, 1), 2**31 - 1).min(1)
    most = np.minimum(most, 2**31 - 1)
    found &= least <= most
    exact = np.clip(multiplier, least, np.maximum(least, most))
    rows = np.stack([np.where(found, exact, 0), np.where(found, shift, 0)]).astype(np.int32)
    inverse = inverse.ravel()
    return rows[:, inverse], (found | never)[inverse]


def _wrap_int32(value: int) -> int:
    return ((value + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def wrap_int32(values: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the low 32 bits, as the reference's int32 accumulators wrap."""
    return values.astype(np.int64).astype(np.uint64).astype(np.uint32).view(np.int32)


def per_tensor(tensor: Tensor, types: Sequence[str] = QUANT8) -> tuple[float, int]:
    """Return a quantised tensor's one scale and zero point.

    `types`: those that the op knows, of QUANT. An int16 tensor's zero point is 0.

    Raises:
        Unsupported: another type, no quantisation, several scales, a scale or zero point that no
            such tensor can have.
    """
    if tensor.dtype not in types:
        raise Unsupported(f"{tensor.dtype}: only {' and '.join(types)} are implemented")
    quantization = tensor.quantization
    if quantization is None:
        raise Unsupported(f"{tensor.dtype} without quantisation: scale and zero point are missing")
    if len(quantization.scale) != 1 or len(quantization.zero_point) != 1:
        raise Unsupported(f"{len(quantization.scale)} scales: only one a tensor is allowed here")
    scale, zero_point = quantization.scale[0], quantization.zero_point[0]
    if not 0 < scale < math.inf:
        raise Unsupported(f"scale {scale}: it must be positive and finite")
    limits = np.iinfo(tensor.dtype)
    if not limits.min <= zero_point <= limits.max:
        raise Unsupported(f"zero point {zero_point}: outside {tensor.dtype}")
    if tensor.dtype == "int16" and zero_point:
        raise Unsupported(f"int16 with zero point {zero_point}: it must be 0")
    return scale, zero_point


def weight_scales(weights: Tensor, channel_axis: int) -> tuple[tuple[float, ...], int]:
    """Return one scale per output channel and the zero point they share.

    Raises:
        Unsupported: scales that do not fit the channels, or zero points that differ.
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
    if not all(0 < scale < math.inf for scale in quantization.scale):
        raise Unsupported("a weight scale is not positive and finite")
    if any(quantization.zero_point):
        raise Unsupported("per-channel weights with a zero point other than 0")
    return quantization.scale, 0


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
        pairs = [quantize_multiplier(in_scale * scale / out_scale) for scale in scales]
    else:
        with np.errstate(over="ignore"):
            product = float(np.float32(in_scale) * np.float32(scales[0]))
        if math.isinf(product):
            raise Unsupported(f"scales {in_scale} * {scales[0]}: more than a float holds")
        pairs = [quantize_multiplier(product / out_scale)] * len(scales)
    for _multiplier, shift in pairs:
        if shift > 30:
            raise Unsupported(f"a scale ratio of 2^{shift}: more than 2^30")
    scaling: NDArray[np.int32] = np.array(pairs, np.int32).T.copy()
    return scaling


def activation_range(
    result: Tensor, activation: object, types: Sequence[str] = QUANT8
) -> tuple[int, int]:
    """Return the smallest and largest value a fused activation lets through.

    Raises:
        Unsupported: an activation that is no clamp.
    Source: tflite/kernels/kernel_util.cc CalculateActivationRangeQuantized
    """
    scale, zero_point = per_tensor(result, types)
    limits = np.iinfo(result.dtype)
    bounds: dict[str, tuple[float | None, float | None]] = {
        "NONE": (None, None),
        "RELU": (0.0, None),
        "RELU6": (0.0, 6.0),
        "RELU_N1_TO_1": (-1.0, 1.0),
    }
    if not isinstance(activation, str) or activation not in bounds:
        raise Unsupported(f"fused activation {activation}: only {', '.join(bounds)}")

    def quantized(real: float | None, otherwise: int) -> int:
        if real is None:
            return otherwise
        with np.errstate(over="ignore"):
            steps = float(np.float32(real) / np.float32(scale))
        if not abs(steps) < 2**30:
            raise Unsupported(f"activation bound {real} at scale {scale}: beyond 32 bits")
        return zero_point + int(math.copysign(math.floor(abs(steps) + 0.5), steps))

    lowest, highest = bounds[activation]
    return (
        max(int(limits.min), quantized(lowest, int(limits.min))),
        min(int(limits.max), quantized(highest, int(limits.max))),
    )


def int32_bias(bias: Tensor | None, channels: int) -> NDArray[np.int64]:
    """Return the bias as (channels,) int64; zeros where there is none.

    Raises:
        Unsupported: a bias that is computed, of another type or length.
    """
    if bias is None:
        return np.zeros(channels, np.int64)
    if bias.data is None:
        raise Unsupported("the bias is not a constant")
    if bias.dtype != "int32" or bias.shape != (channels,):
        raise Unsupported(f"bias {bias.dtype} of {bias.shape}: int32 of ({channels},) is needed")
    return bias.data.astype(np.int64)


def require_constant(tensor: Tensor, what: str) -> NDArray[np.generic]:
    """Return a constant's values.

    Raises:
        Unsupported: the tensor is computed.
    """
    if tensor.data is None:
        raise Unsupported(f"{what} are not constant")
    return tensor.data


def inputs_of(
    inputs: Sequence[Tensor | None], required: int, optional: int = 0
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Return the required inputs, then the optional ones, None where one is left out.

    Raises:
        Unsupported: a required one is missing, there are too many, or one is sparse.
    """
    present = [tensor for tensor in inputs[:required] if tensor is not None]
    rest = list(inputs[required:])
    if len(present) < required or len(rest) > optional:
        most = f" to {required + optional}" if optional else ""
        raise Unsupported(f"{len(inputs)} inputs: {required}{most} expected")
    for position, tensor in enumerate(inputs):
        if tensor is not None and tensor.is_sparse:
            raise Unsupported(f"input {position} is sparse: only dense tensors are implemented")
    return present, rest + [None] * (optional - len(rest))


def output_of(outputs: Sequence[Tensor]) -> Tensor:
    """Return the one output.

    Raises:
        Unsupported: none is there, or several.
    """
    if len(outputs) != 1:
        raise Unsupported(f"{len(outputs)} outputs: 1 is expected")
    return outputs[0]
