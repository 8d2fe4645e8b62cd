# SPDX-License-Identifier: Apache-2.0
"""Whether two multipliers give a layer the same outputs, proven for all possible sums.

TFLite's uint8 kernels multiply input scale and weight scale as floats, the int8 kernels as
doubles, so their multipliers differ in the last bits. That matters only if a sum lies between
the two thresholds of an output value. Both functions are monotonic: at most 255 to check.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Node
from delegate.ops._numbers.fixed_point import (
    multiply_by_quantized_multiplier,
    multiply_by_quantized_multiplier_once,
    quantize_multiplier,
)

# Both rounding modes that TFLite can be built with.
ROUNDINGS = (multiply_by_quantized_multiplier, multiply_by_quantized_multiplier_once)
_MOST_SUM = 2**31 - 1
_STEPS = 256  # range of scaled outputs around 0: covers any zero point


def sums_of(node: Node, weights: NDArray[np.int64]) -> tuple[int, int]:
    """Return the minimum and maximum sum of a layer over all inputs.

    `weights`: minus their zero point. Shapes: TFLite's; channels last for depthwise convolutions.
    """
    source, bias = node.inputs[0], node.inputs[2] if len(node.inputs) > 2 else None
    assert source is not None
    assert source.quantization is not None
    limits, zero = np.iinfo(source.dtype), source.quantization.zero_point[0]
    axes = tuple(range(weights.ndim))
    axes = axes[:-1] if node.op == "DEPTHWISE_CONV_2D" else axes[1:]
    ends = [weights * (int(end) - zero) for end in (limits.min, limits.max)]
    own = np.zeros(1, np.int64) if bias is None else np.asarray(bias.data, np.int64)
    low, high = (each(*ends).sum(axes) + own for each in (np.minimum, np.maximum))
    return int(low.min()), int(high.max())


def stay_in_32_bits(multiplier: float, least: int, greatest: int) -> bool:
    """Whether sums from `least` to `greatest` fit an int32, before and after scaling.

    Otherwise kernels of one type saturate and those of another wrap around. TFLite's fixed-point
    arithmetic shifts before it multiplies, which may double the values.
    """
    most = max(-least, greatest)
    return most <= _MOST_SUM and 2 * most * multiplier <= _MOST_SUM


def round_alike(one: float, other: float, least: int, greatest: int) -> bool:
    """Whether two multipliers give the same outputs for all sums from `least` to `greatest`."""
    pairs = [quantize_multiplier(each) for each in (one, other)]
    if pairs[0] == pairs[1]:
        return True
    if max(-least, greatest) > _MOST_SUM or any(shift > 0 or not m for m, shift in pairs):
        return False  # sums may overflow: not decidable here
    for scaled in ROUNDINGS:
        first, second = (_places(scaled, pair, least, greatest) for pair in pairs)
        if not np.array_equal(first, second):
            return False
    return True


def _places(
    scaled: Callable[..., NDArray[np.int64]], pair: tuple[int, int], least: int, greatest: int
) -> NDArray[np.int64]:
    """Return the minimum sum of each output value or above; `greatest` + 1: none."""
    codes = np.arange(-_STEPS, _STEPS + 1)
    low = np.full(codes.shape, least, np.int64)
    high = np.full(codes.shape, greatest + 1, np.int64)
    while (low < high).any():
        middle = (low + high) // 2
        reached = scaled(middle, *pair) >= codes
        high = np.where(reached & (low < high), middle, high)
        low = np.where(~reached & (low < high), middle + 1, low)
    return low
