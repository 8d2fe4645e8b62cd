# SPDX-License-Identifier: Apache-2.0
"""SOFTMAX over the last axis: 8 and 16 bits in the reference kernels' fixed point, and float32.

A row a work-item, or a row a work-group.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Defines, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.node import require_same_shape, tensors_of
from delegate.ops._launches.lookup import ends_of_lines, on_lines
from delegate.ops._launches.rows import Rows, require_rows
from delegate.ops._launches.tiles import lanes_of, most_rounds, of_size
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import bits, fixed_point
from delegate.ops._registry import lowers
from delegate.target import Target

# From so many values on, a row is worth a work-group: below, making its table takes longer.
_LEAST_DEPTH = 32
_TABLE_INTS = 256  # of local memory, for a row's share of each 8-bit value
# Sums of so many int16 exponentials stay within an int32, too.
_MOST_DEPTH_16 = most_rounds(3, 1 << 14)


@lowers("SOFTMAX")
def lower_softmax(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Turn each row's values into shares of one.

    Shapes:
        input (..., c) -> output (..., c), rows of c
    Raises:
        Unsupported: types other than uint8, int8, int16 and float32, or int16 from 8 bits; an
            output's scale and zero point other than TFLite's for the types.
    Source: tflite/kernels/activations.cc SoftmaxPrepare, internal/reference/softmax.h Softmax,
    SoftmaxInt16, quantization_util.cc
    PreprocessSoftmaxScaling; TFLite's optimised kernels use floats and differ in 1 of 10^5 values.
    Floats are within (c + 8) * 2^-23 of the reference's value, and 2e-38: both round c additions,
    and exp() here is off by up to 2^-22.
    """
    return alternatives(decode(node), target)


def decode(node: Node) -> Rows:
    """Return what a node computes, checked.

    Raises:
        Unsupported: see `lower_softmax`.
    """
    source, result = tensors_of(node, 1)
    widens = source.dtype in quantized.QUANT8 and result.dtype == "int16"
    if source.dtype != result.dtype and not widens:
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: they must be equal")
    if source.dtype not in (*quantized.QUANT8, "int16", "float32"):
        raise Unsupported(f"{source.dtype}: only uint8, int8, int16 and float32 are implemented")
    require_same_shape(source, result)
    require_rows(source)
    beta = node.options.get("beta", 0.0)
    if not isinstance(beta, float | int):
        raise Unsupported(f"beta is {beta!r}: a number is needed")
    if source.dtype == "float32":
        if not 0 <= beta < math.inf:
            raise Unsupported(f"beta {beta}: it must be finite and not negative")
        return Rows(source, result, "float", {"beta": bits(beta)})
    if source.dtype == "int16":
        return Rows(source, result, "quant16", _quant16_params(source, result, beta))
    types: Defines = {"ELEM": ELEM[source.dtype], "OUT": ELEM[result.dtype]}
    return Rows(source, result, "quant8", _quant8_params(source, result, beta), types)


def alternatives(rows: Rows, target: Target) -> tuple[Alternative, ...]:
    """Return the launch of a row a work-group, if rows are long enough, then the plain one."""
    plain = rows.launch("softmax", of_size(rows.count, 1, target))
    family = rows.family
    lanes = lanes_of(rows.depth, target, 16 if family == "float" else 8)
    if rows.depth < _LEAST_DEPTH or lanes == 0 or family == "quant16":
        return (Alternative("plain", (plain,)),)
    defines = rows.defines | {"LANES": lanes, "ALONE": int(target.group_items == 1)}
    if target.group_items > 1:
        defines["SCRATCH_INTS"] = (_TABLE_INTS if family == "quant8" else 0) + target.group_items
    # A tile is one row, so there is no field for its items.
    row = replace(
        plain,
        kernel=f"softmax_row_{family}",
        tiles=rows.count,
        params=rows.params(),
        defines=defines,
    )
    return (Alternative(f"row {lanes}", (row,)), Alternative("plain", (plain,)))


def _quant8_params(source: Tensor, result: Tensor, beta: float) -> Params:
    """Return the table of exponentials and the output's range."""
    in_scale, _ = quantized.per_tensor(source)
    limits = np.iinfo(result.dtype)
    _require_output(result, 2.0**-limits.bits, int(limits.min))
    real = beta * in_scale * (1 << (31 - fixed_point.DISTANCE_BITS))
    if not 1 < real < math.inf:
        raise Unsupported(f"beta {beta} with scale {in_scale}: out of range")
    multiplier, left_shift = fixed_point.quantize_multiplier(min(real, float((1 << 31) - 1)))

    def table() -> NDArray[np.int32]:
        # exp by the distance below the row's maximum; then the same as the sum takes it.
        farthest = fixed_point.farthest_distance(left_shift)
        reached = np.arange(min(farthest, 255) + 1)
        scaled = fixed_point.rounding_doubling_high_mul(-reached << left_shift, multiplier)
        entries = np.zeros((2, 256), np.int32)
        entries[0, : reached.size] = fixed_point.exp_on_negative_values(scaled)
        entries[1] = fixed_point.rounding_divide_by_pot(entries[0].astype(np.int64), 12)
        return entries

    return {
        "table": Constant(2048, table),
        "output_min": int(limits.min),
        "output_max": int(limits.max),
        "output_bits": limits.bits,
    }


def _quant16_params(source: Tensor, result: Tensor, beta: float) -> Params:
    """Return the exponentials of all distances, and the lines that stand for 1 / (1 + x)."""
    in_scale, _ = quantized.per_tensor(source, quantized.QUANT)
    _require_output(result, 2.0**-15, 0)
    if source.shape[-1] > _MOST_DEPTH_16:
        raise Unsupported(f"rows of {source.shape[-1]}: at most {_MOST_DEPTH_16} of int16")
    real = float(np.float32(beta) * np.float32(in_scale)) / (10.0 / 65535)
    multiplier, shift = fixed_point.quantize_multiplier(real)
    if not multiplier or shift > 14:
        raise Unsupported(f"beta {beta} with scale {in_scale}: out of range")
    zero, one, steps = np.float64(0), np.float64(1), np.float64(1 << 15)

    def exponentials() -> NDArray[np.int16]:
        # Distances below the row's maximum; from 10 on, all are alike.
        distances = -np.arange(1 << 16)
        scaled = fixed_point.multiply_by_quantized_multiplier(distances, multiplier, shift)
        entries = ends_of_lines(-10 * one, zero, steps, np.exp)
        return on_lines(entries, np.maximum(scaled + ((1 << 15) - 1), -(1 << 15)))

    def reciprocals() -> NDArray[np.int16]:
        return ends_of_lines(zero, one, steps, lambda x: 1 / (1 + x))

    return {"table": Constant(1 << 17, exponentials), "reciprocals": Constant(1026, reciprocals)}


def _require_output(result: Tensor, scale: float, zero_point: int) -> None:
    quantization = result.quantization
    if quantization is None:
        raise Unsupported(f"{result.dtype} without quantisation: scale and zero point are missing")
    if (quantization.scale, quantization.zero_point) != ((scale,), (zero_point,)):
        found = ", ".join(map(str, quantization.scale))
        zeros = ", ".join(map(str, quantization.zero_point))
        raise Unsupported(
            f"output scale {found}, zero point {zeros}: TFLite's is {scale}, {zero_point}"
        )
