# SPDX-License-Identifier: Apache-2.0
"""Fused activations: the bounds of results, for every type."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.integers import FUSED_BOUNDS
from delegate.graph.ir import Node, Tensor
from delegate.launch import Defines
from delegate.ops._checks.quantized import QUANT, QUANT8, per_tensor
from delegate.ops._numbers import bits

# TFLite's bounds without an activation: an infinite sum becomes the largest float.
_LARGEST = float(np.finfo(np.float32).max)
_INT32 = np.iinfo(np.int32)


def activation_of(node: Node) -> object:
    """Return a node's fused activation by its name in the file."""
    return node.options.get("fused_activation_function", "NONE")


def require_no_activation(node: Node) -> None:
    """Check that a node has no fused activation, which TFLite does not support in some ops.

    Raises:
        Unsupported: it has one.
    """
    activation = activation_of(node)
    if activation != "NONE":
        raise Unsupported(f"fused activation {activation}: only NONE")


def reals_of(op: str) -> tuple[int | None, int | None]:
    """Return the bounds of the op RELU, RELU6, ...; None: unbounded."""
    return (0, 1) if op == "RELU_0_TO_1" else FUSED_BOUNDS[op]  # this one is never fused


def bounds_of(result: Tensor, activation: object) -> dict[str, int]:
    """Return the fields for the bounds of a result of any type.

    Raises:
        Unsupported: an activation that is no clamp.
    Source: tflite/kernels/kernel_util.h CalculateActivationRange
    """
    if result.dtype == "float32":
        return float_bounds(activation)
    if result.dtype == "int64":
        if _real_bounds(activation) != (None, None):
            raise Unsupported(f"{activation} of int64: only NONE")
        return {}
    if result.dtype == "int32":
        low, high = _real_bounds(activation)
        least = int(_INT32.min) if low is None else low
        return {"output_min": least, "output_max": int(_INT32.max) if high is None else high}
    least, greatest = quantized_bounds(result, activation, QUANT)
    return {"output_min": least, "output_max": greatest}


def float_bounds(activation: object, most: float = _LARGEST) -> dict[str, int]:
    """Return the fields for the bounds of floats, as bits; `most`: the bound if there is none.

    Raises:
        Unsupported: an activation that is no clamp.
    Source: tflite/kernels/kernel_util.h CalculateActivationRange
    """
    low, high = _real_bounds(activation)
    return {
        "output_min": bits(-most if low is None else low),
        "output_max": bits(most if high is None else high),
    }


def applied(activation: object) -> tuple[dict[str, int], Defines]:
    """Return the fields for the bounds of floats, and macros, for ops that apply an activation.

    Unlike ops that clamp, these keep infinite sums if there is no activation, and otherwise turn
    NaN into the lower bound.

    Raises:
        Unsupported: an activation that is no clamp.
    Source: tflite/kernels/internal/tensor_utils.h ApplyActivationToVector
    """
    is_none = _real_bounds(activation) == (None, None)
    return float_bounds(activation, math.inf), {} if is_none else {"NAN_IS_LEAST": 1}


def quantized_bounds(
    result: Tensor, activation: object, types: Sequence[str] = QUANT8
) -> tuple[int, int]:
    """Return the lowest and highest quantised value after a fused activation.

    Raises:
        Unsupported: an activation that is no clamp.
    Source: tflite/kernels/kernel_util.cc CalculateActivationRangeQuantized
    """
    scale, zero_point = per_tensor(result, types)
    limits = np.iinfo(result.dtype)
    low, high = _real_bounds(activation)

    def quantized(real: int | None, default: int) -> int:
        if real is None:
            return default
        return zero_point + steps_of_scale(real, scale, "activation bound")

    return (
        max(int(limits.min), quantized(low, int(limits.min))),
        min(int(limits.max), quantized(high, int(limits.max))),
    )


def steps_of_scale(real: float, scale: float, what: str) -> int:
    """Return real / scale in float32, rounded half away from zero.

    Raises:
        Unsupported: it is beyond 2^30; `what` names the number in the message.
    """
    with np.errstate(over="ignore"):
        steps = float(np.float32(real) / np.float32(scale))
    if not abs(steps) < 2**30:
        raise Unsupported(f"{what} {float(real)} at scale {scale}: beyond 32 bits")
    return int(math.copysign(math.floor(abs(steps) + 0.5), steps))


def _real_bounds(activation: object) -> tuple[int | None, int | None]:
    if not isinstance(activation, str) or activation not in FUSED_BOUNDS:
        raise Unsupported(f"fused activation {activation}: only {', '.join(FUSED_BOUNDS)}")
    return FUSED_BOUNDS[activation]
