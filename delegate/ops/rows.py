# SPDX-License-Identifier: Apache-2.0
"""SOFTMAX, LOG_SOFTMAX and L2_NORMALIZATION along the last axis.

Integers use the fixed point of the reference kernels. A work-item computes a row; long rows of a
SOFTMAX are computed by a work-group.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import Growth, roundings
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Defines, Launch, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import require_no_activation
from delegate.ops._checks.node import one_to_one, require_same_shape, shape_text, tensors_of
from delegate.ops._launches.lookup import curve_points, interpolate
from delegate.ops._launches.tiles import (
    LEAST_ELEMENTS,
    Tiling,
    by_elements,
    lanes_of,
    launch_over,
    most_rounds,
    of_size,
)
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import bits, ceil_div, fixed_point
from delegate.ops._registry import lowers
from delegate.target import Target

# Least row length worth a work-group: for shorter rows its table takes longer.
_LEAST_DEPTH = 32
_TABLE_INTS = 256  # of local memory: the result of each 8-bit value in a row
# Sums of so many int16 exponentials fit an int32, too.
_MOST_DEPTH_16 = most_rounds(3, 1 << 14)
_MOST_LOG_DEPTH = most_rounds(3, 10_000)
_MOST_LOG_DEPTH_8 = 4095  # a sum with 12 integer bits holds so many exponentials of up to 1
_LEAST_LOG_ELEMENTS = 1024  # per tile: an exponential costs more than other functions
_LEAST_SOFTMAX_ELEMENTS = 1024  # the same where rows share vectors
_MOST_L2_DEPTH = most_rounds(2, 1_000)  # a sum of so many 8-bit squares is below 2^31, too


def _rows(source: Tensor, most: int | None = None) -> tuple[int, int]:
    """Return the number of rows of a tensor and their length, at most `most`.

    Raises:
        Unsupported: a scalar, or longer rows.
    """
    if not source.shape:
        raise Unsupported(f"shape {shape_text(source)}: at least rank 1 is needed")
    depth = source.shape[-1]
    if most is not None and depth > most:
        raise Unsupported(f"rows of {depth}: at most {most}")
    return math.prod(source.shape) // depth, depth


def _launch(
    op: str, source: Tensor, result: Tensor, extra: Params, defines: Defines, tiling: Tiling
) -> Launch:
    """Return the launch of the op's fallback kernel for the type, over tiles of rows."""
    family = {"float32": "float", "int16": "quant16"}.get(source.dtype, "quant8")
    count, depth = _rows(source)
    params: Params = {"input": source, "output": result, "rows": count, "depth": depth, **extra}
    return launch_over(op, f"{op}_{family}", tiling, params, defines)


@lowers("L2_NORMALIZATION", floats=roundings(Growth.STEADY, 8, limit=1.0, is_activation=True))
def lower_l2_normalization(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Divide each row by the square root of its sum of squares.

    Shapes:
        input (..., c) -> output (..., c), rows of c
    Raises:
        Unsupported: types other than uint8, int8 and float32, a fused activation, an output scale
            or zero point other than TFLite's, rows that are too long.
    Source: tflite/kernels/l2norm.cc, internal/reference/l2normalization.h,
    integer_ops/l2normalization.h
    """
    source, result = one_to_one(node, ("float32", *quantized.QUANT8))
    require_no_activation(node)
    count, depth = _rows(source, _MOST_L2_DEPTH)
    extra, defines = Params(), Defines()
    if source.dtype != "float32":
        _, in_zero = quantized.per_tensor(source)
        out_zero = 128 if result.dtype == "uint8" else 0
        quantized.require_fixed_output(result, 1 / 128, out_zero)
        extra = {
            "input_zero": in_zero,
            "output_zero": out_zero,
            **quantized.whole_range(result),
        }
        defines = {"ELEM": ELEM[source.dtype], "IS_SIGNED": int(source.dtype == "int8")}
    tiling = by_elements(count, target, ceil_div(LEAST_ELEMENTS, depth))
    launch = _launch("l2_normalization", source, result, extra, defines, tiling)
    return (Alternative("plain", (launch,)),)


@lowers("LOG_SOFTMAX", floats=roundings(Growth.STEADY, 16))
def lower_log_softmax(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute the logarithm of the softmax of each row.

    Shapes:
        input (..., c) -> output (..., c), rows of c
    Raises:
        Unsupported: types other than uint8, int8 and float32, an 8-bit output scale or zero point
            other than TFLite's, rows that are too long.
    Source: tflite/kernels/activations.cc LogSoftmaxPrepare, internal/reference/log_softmax.h,
    integer_ops/log_softmax.h LogSoftmax
    """
    source, result = one_to_one(node, ("float32", *quantized.QUANT8))
    is_float = source.dtype == "float32"
    count, depth = _rows(source, _MOST_LOG_DEPTH if is_float else _MOST_LOG_DEPTH_8)
    extra: Params = {} if is_float else _log_params(source, result)
    defines: Defines = {} if is_float else {"ELEM": ELEM[source.dtype]}
    tiling = by_elements(count, target, ceil_div(_LEAST_LOG_ELEMENTS, depth))
    launch = _launch("log_softmax", source, result, extra, defines, tiling)
    return (Alternative("plain", (launch,)),)


def _log_params(source: Tensor, result: Tensor) -> Params:
    """Return the tables by distance from the row's maximum, and the largest distance in them."""
    in_scale, _ = quantized.per_tensor(source)
    ends = quantized.whole_range(result)
    quantized.require_fixed_output(result, 16 / 256, ends["output_max"])
    scale_ratio = in_scale * (1 << (31 - fixed_point.DISTANCE_BITS))
    if not 2 < scale_ratio < math.inf:
        raise Unsupported(f"scale {in_scale}: out of range")
    multiplier, left_shift = fixed_point.quantize_multiplier(min(scale_ratio, float((1 << 31) - 1)))
    # From scaled distances back to distances.
    inverse, inverse_shift = fixed_point.quantize_multiplier(2.0 ** (31 - left_shift) / multiplier)

    def table() -> NDArray[np.int32]:
        # Scaled distances, then their exponentials with the sum's fraction bits.
        scaled, exponentials = _exponentials(multiplier, left_shift)
        entries = np.zeros((2, 256), np.int32)
        entries[0, : scaled.size] = scaled
        entries[1, : scaled.size] = fixed_point.rounding_divide_by_pot(exponentials, 12)
        return entries

    return {
        "table": Constant(2048, table),
        "farthest": fixed_point.farthest_distance(left_shift),
        "back_multiplier": inverse,
        "back_shift": inverse_shift,
        **ends,
    }


def _exponentials(
    multiplier: int, left_shift: int
) -> tuple[fixed_point.Integers, fixed_point.Integers]:
    """Return the scaled distances below a row's maximum that 8 bits can have, and exp of each.

    Shapes:
        (n,) each, n <= 256: distances that fit the integer bits of exp
    """
    distances = np.arange(min(fixed_point.farthest_distance(left_shift), 255) + 1)
    scaled = fixed_point.rounding_doubling_high_mul(-distances << left_shift, multiplier)
    return scaled, fixed_point.exp_on_negative_values(scaled)


@lowers("SOFTMAX", floats=roundings(Growth.STEADY, 32, limit=1.0))
def lower_softmax(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute the softmax of each row.

    Shapes:
        input (..., c) -> output (..., c), rows of c
    Raises:
        Unsupported: types other than uint8, int8, int16, float32, and 8 bits to int16; an output
            scale or zero point other than TFLite's.
    Source: tflite/kernels/activations.cc SoftmaxPrepare, internal/reference/softmax.h Softmax,
    SoftmaxInt16, quantization_util.cc PreprocessSoftmaxScaling; TFLite's optimised kernels use
    floats and differ in 1 of 10^5 values. Floats differ from the reference by at most (c + 8) *
    2^-23 relatively, plus 2e-38: both round c additions, and exp() here has an error of up to
    2^-22.
    """
    source, result = tensors_of(node, 1)
    widens = source.dtype in quantized.QUANT8 and result.dtype == "int16"
    if source.dtype != result.dtype and not widens:
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: they must be equal")
    if source.dtype not in (*quantized.QUANT8, "int16", "float32"):
        raise Unsupported(f"{source.dtype}: only uint8, int8, int16 and float32 are implemented")
    require_same_shape(source, result)
    count, depth = _rows(source)
    is_float, is_wide = source.dtype == "float32", source.dtype == "int16"
    extra = _softmax_params(source, result, node.options.get("beta", 0.0))
    defines: Defines = {}
    if not (is_float or is_wide):
        defines = {"ELEM": ELEM[source.dtype], "OUT": ELEM[result.dtype]}
    launch = _launch("softmax", source, result, extra, defines, of_size(count, 1, target))
    fallback = Alternative("plain", (launch,))
    lanes = lanes_of(depth, target, 16 if is_float else 8)
    if depth < _LEAST_DEPTH and defines and target.group_items == 1 and lanes_of(count, target):
        return _short_rows(launch, defines, target), fallback
    if depth < _LEAST_DEPTH or lanes == 0 or is_wide:
        return (fallback,)
    defines = defines | {"LANES": lanes, "ALONE": int(target.group_items == 1)}
    if target.group_items > 1:
        defines["SCRATCH_INTS"] = (0 if is_float else _TABLE_INTS) + target.group_items
    # A tile is one row, so the kernel has no tile_items.
    row = replace(
        launch,
        kernel=launch.kernel.replace("softmax", "softmax_row"),
        tiles=count,
        params={name: value for name, value in launch.params.items() if name != "tile_items"},
        defines=defines,
    )
    return Alternative(f"row {lanes}", (row,)), fallback


def _short_rows(fallback: Launch, defines: Defines, target: Target) -> Alternative:
    """Return the launch of an 8-bit SOFTMAX whose items are as many rows as a vector has lanes."""
    fields = {name: n for name, n in fallback.params.items() if name not in ("depth", "tile_items")}
    rows, depth = fallback.params["rows"], fallback.params["depth"]
    assert isinstance(rows, int)
    assert isinstance(depth, int)
    lanes = lanes_of(rows, target)
    items = ceil_div(rows, lanes)
    tiling = by_elements(items, target, ceil_div(_LEAST_SOFTMAX_ELEMENTS, lanes * depth))
    launch = launch_over(
        "softmax_vector",
        "softmax_vector_quant8",
        tiling,
        fields | {"items": items},
        defines | {"LANES": lanes, "DEPTH": depth},
    )
    return Alternative(f"vector {lanes}", (launch,))


def _softmax_params(source: Tensor, result: Tensor, beta: object) -> Params:
    if not isinstance(beta, float | int):
        raise Unsupported(f"beta is {beta!r}: a number is needed")
    if source.dtype == "float32":
        if not 0 <= beta < math.inf:
            raise Unsupported(f"beta {beta}: it must be finite and not negative")
        return {"beta": bits(beta)}
    params_of = _quant16_params if source.dtype == "int16" else _quant8_params
    return params_of(source, result, beta)


def _quant8_params(source: Tensor, result: Tensor, beta: float) -> Params:
    """Return the table of exponentials and the output's range."""
    in_scale, _ = quantized.per_tensor(source)
    limits = np.iinfo(result.dtype)
    quantized.require_fixed_output(result, 2.0**-limits.bits, int(limits.min))
    real = beta * in_scale * (1 << (31 - fixed_point.DISTANCE_BITS))
    if not 1 < real < math.inf:
        raise Unsupported(f"beta {beta} with scale {in_scale}: out of range")
    multiplier, left_shift = fixed_point.quantize_multiplier(min(real, float((1 << 31) - 1)))

    def table() -> NDArray[np.int32]:
        # exp by the distance below the row's maximum, then with the sum's fraction bits.
        _, exponentials = _exponentials(multiplier, left_shift)
        entries = np.zeros((2, 256), np.int32)
        entries[0, : exponentials.size] = exponentials
        entries[1] = fixed_point.rounding_divide_by_pot(entries[0].astype(np.int64), 12)
        return entries

    table_constant = Constant(2048, table)
    return {"table": table_constant, **quantized.whole_range(result), "output_bits": limits.bits}


def _quant16_params(source: Tensor, result: Tensor, beta: float) -> Params:
    """Return the table of exponentials of all distances, and that of 1 / (1 + x)."""
    in_scale, _ = quantized.per_tensor(source, quantized.QUANT)
    quantized.require_fixed_output(result, 2.0**-15, 0)
    _rows(source, _MOST_DEPTH_16)
    real = float(np.float32(beta) * np.float32(in_scale)) / (10.0 / 65535)
    multiplier, shift = fixed_point.quantize_multiplier(real)
    if not multiplier or shift > 14:
        raise Unsupported(f"beta {beta} with scale {in_scale}: out of range")
    zero, one, steps = np.float64(0), np.float64(1), np.float64(1 << 15)

    def exponentials() -> NDArray[np.int16]:
        # Distances below the row's maximum, saturated at 10.
        distances = -np.arange(1 << 16)
        scaled = fixed_point.multiply_by_quantized_multiplier(distances, multiplier, shift)
        entries = curve_points(-10 * one, zero, steps, np.exp)
        return interpolate(entries, np.maximum(scaled + ((1 << 15) - 1), -(1 << 15)))

    reciprocals = partial(curve_points, zero, one, steps, lambda x: 1 / (1 + x))
    return {"table": Constant(1 << 17, exponentials), "reciprocals": Constant(1026, reciprocals)}
