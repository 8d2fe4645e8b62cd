# SPDX-License-Identifier: Apache-2.0
"""ADD, SUB, ADD_N. An 8-bit ADD of equal shapes has kernels of its own, in integers and floats.

All other types and shapes use binary.cl.
"""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.float_results import Growth, sums
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Params, temporary
from delegate.ops._checks import quantized
from delegate.ops._checks.activations import activation_of, bounds_of, quantized_bounds
from delegate.ops._checks.node import inputs_of, output_of, require_same_shape, require_types
from delegate.ops._launches.binary import EVERY, NUMBERS, Operands, binary, operands_of, rescaling
from delegate.ops._launches.tiles import (
    LEAST_BYTES,
    by_share,
    lanes_of,
    launch_over,
    of_size,
    vectors_of,
)
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import bits, ceil_div
from delegate.ops._numbers.fixed_point import quantize_multiplier
from delegate.ops._numbers.float_sum import LEFT_SHIFT, LEFT_SHIFT_16, Sum, float_sum
from delegate.ops._registry import lowers
from delegate.target import Target

_PLAIN_ELEMENTS = 1024  # per tile of the fallback kernel if a work-group is one work-item


@lowers("ADD", "SUB", floats=sums(Growth.ADDITION))
def lower_add(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Add two tensors, or subtract the right one from the left.

    They may differ in scale and zero point, and are broadcast.

    Raises:
        Unsupported: other types, shapes that cannot be broadcast, an output scale too small.
    Source: tflite/kernels/add.cc, sub.cc: PrepareGeneralQuantized; for int16 with power-of-two
    scales a sum of shifted inputs, unless pot_scale_int16 is false; internal/reference/add.h, sub.h
    """
    operands = operands_of(node, (*EVERY, "int64"))
    left, right, result = operands.left, operands.right, operands.result
    activation, sign = activation_of(node), -1 if node.op == "SUB" else 1
    if left.dtype in quantized.QUANT8 and left.shape == right.shape and node.op == "ADD":
        return _equal_shapes(operands, sum_of(left, right, result, activation), target)
    numbers, signed = bounds_of(result, activation), {"right_sign": sign}
    if left.dtype in (*NUMBERS, "int64"):
        return binary(operands, "ADD", numbers | signed, target)
    if left.dtype == "int16" and node.options.get("pot_scale_int16", True):
        shifts = _pot_shifts(operands)
        if shifts is not None:
            return binary(operands, "ADD_SHIFTED", numbers | shifts | signed, target)
    case = sum_of(left, right, result, activation)
    (by_left, by_right, by_sum), (left_zero, right_zero, zero) = case.rescaling, case.zeros
    lift = 1 << case.left_shift
    numbers |= {
        **rescaling("left", *by_left, left_zero, lift),
        **rescaling("right", *by_right, right_zero, sign * lift),
        "output_multiplier": by_sum[0],
        "output_shift": by_sum[1],
        "output_zero": zero,
    }
    return binary(operands, "ADD", numbers, target)


def _equal_shapes(operands: Operands, case: Sum, target: Target) -> tuple[Alternative, ...]:
    """Return the alternatives for equal shapes: float and fixed-point vectors, and plain."""
    elements = math.prod(operands.result.shape)
    elem = ELEM[operands.result.dtype]
    scaling = dict(zip(("left", "right", "output"), case.rescaling, strict=True))
    common: Params = {
        "left": operands.left,
        "right": operands.right,
        "output": operands.result,
        "output_zero": case.zeros[2],
        "output_min": case.clamp[0],
        "output_max": case.clamp[1],
        "elements": elements,
    }
    fixed = {
        "left_zero": case.zeros[0],
        "right_zero": case.zeros[1],
        **{f"{name}_multiplier": multiplier for name, (multiplier, _) in scaling.items()},
        **{f"{name}_shift": shift for name, (_, shift) in scaling.items()},
    }
    tiling = of_size(elements, _PLAIN_ELEMENTS, target)
    fallback = launch_over("add", "add_quant8", tiling, common | fixed, {"ELEM": elem})
    lanes = lanes_of(elements, target)
    if not lanes:
        return (Alternative("plain", (fallback,)),)

    def vector(name: str, fields: dict[str, int], is_float: bool) -> Alternative:
        items = ceil_div(elements, lanes)
        launch = launch_over(
            "add",
            "add_vector_quant8",
            by_share(items, target, LEAST_BYTES // lanes),
            common | fields | {"items": items},
            {"ELEM": elem, **vectors_of(elements, lanes, target), "IS_FLOAT": int(is_float)},
        )
        return Alternative(f"{name} {lanes}", (launch,))

    alternatives = [vector("vector", fixed, False), Alternative("plain", (fallback,))]
    floats = float_sum(case)
    if floats is not None:
        fields = {name: bits(value) for name, value in asdict(floats).items()}
        alternatives.insert(0, vector("float", fields, True))
    return tuple(alternatives)


def sum_of(left: Tensor, right: Tensor, result: Tensor, activation: object) -> Sum:
    """Return the arithmetic of an ADD of two 8-bit or 16-bit tensors.

    Raises:
        Unsupported: missing quantisation, an output scale too small for the inputs', an activation
            that is no clamp.
    Source: tflite/kernels/add.cc PrepareGeneralQuantized
    """
    (left_scale, left_zero), (right_scale, right_zero), (scale, zero) = (
        quantized.per_tensor(tensor, quantized.QUANT) for tensor in (left, right, result)
    )
    lift = LEFT_SHIFT_16 if left.dtype == "int16" else LEFT_SHIFT
    twice_widest = 2 * max(left_scale, right_scale)
    reals = (
        left_scale / twice_widest,
        right_scale / twice_widest,
        twice_widest / ((1 << lift) * scale),
    )
    pairs = tuple(quantize_multiplier(real) for real in reals)
    if pairs[2][1] > 0:
        raise Unsupported(f"output scale {scale}: too small beside {twice_widest / 2}")
    return Sum(
        zeros=(left_zero, right_zero, zero),
        scales=(left_scale, right_scale, scale),
        rescaling=pairs,
        left_shift=lift,
        clamp=quantized_bounds(result, activation, quantized.QUANT),
        dtype=result.dtype,
    )


def _pot_shifts(operands: Operands) -> dict[str, int] | None:
    """Return the right shifts of the inputs, or None if a scale is no power of two."""
    logs = []
    for tensor in (operands.left, operands.right, operands.result):
        scale, _ = quantized.per_tensor(tensor, ("int16",))
        exact = np.log2(np.float32(scale), dtype=np.float32)
        whole = round(float(exact))
        if not abs(float(exact) - whole) < 1e-3:
            return None
        logs.append(whole)
    left, right = logs[2] - logs[0], logs[2] - logs[1]
    if min(left, right) < 0 or (left and right):
        raise Unsupported(f"int16 shifts by {left} and {right}: one must be 0, none to the left")
    if max(left, right) > 31:
        raise Unsupported(f"int16 shifts by {left} and {right}: more than 31")
    if not operands.left.shape == operands.right.shape:
        raise Unsupported("int16 of scales that are powers of two: only equal shapes")
    return {"left_shift": left, "right_shift": right}


@lowers("ADD_N", floats=sums(Growth.ADDITION))
def lower_add_n(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Add tensors of equal shapes, in order.

    Raises:
        Unsupported: fewer than two inputs, other types, shapes that differ.
    Source: tflite/kernels/add_n.cc, internal/optimized/optimized_ops.h AddN, which is
    multithreaded: TFLite may add floats in another order
    """
    inputs, _ = inputs_of(node.inputs, max(2, len(node.inputs)))
    result = output_of(node.outputs)
    for tensor in inputs:
        require_types(tensor, result, NUMBERS)
        require_same_shape(tensor, result)
    numbers = bounds_of(result, "NONE") | {"right_sign": 1}
    total, *rest = inputs
    sums: list[tuple[Alternative, ...]] = []
    for number, tensor in enumerate(rest, 1):
        is_last = number == len(rest)
        partial = result if is_last else temporary("sum", result.shape, result.dtype)
        sums.append(binary(Operands(total, tensor, partial), "ADD", numbers, target))
        total = partial
    choices = {sums[0][place].name: [chain[place] for chain in sums] for place in (0, -1)}
    return tuple(
        Alternative(name, tuple(launch for each in chain for launch in each.launches))
        for name, chain in choices.items()
    )
