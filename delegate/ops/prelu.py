# SPDX-License-Identifier: Apache-2.0
"""PRELU of floats, 8 and 16 bits, alpha broadcast to the input: by elements, and by rows."""

from __future__ import annotations

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Defines, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.node import elements_of, require_same_shape, tensors_of
from delegate.ops._launches.broadcast import broadcast, padded
from delegate.ops._launches.tiles import HALF_ROUNDS, LEAST_ELEMENTS, by_elements, launch_over
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import ceil_div
from delegate.ops._registry import lowers
from delegate.target import Target

_DIMENSIONS = 4  # that alpha steps through differently
_LEAST_ROW = 8  # shorter ones cost more than they save
_ALPHAS = {"float32": "float32", "uint8": "uint8", "int8": "int8", "int16": "int8"}
_FAMILY = {"float32": "float", "int16": "quant16"}  # else quant8


@lowers("PRELU")
def lower_prelu(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Multiply values below zero by alpha, which is broadcast to the input's shape.

    By rows where a group is one work-item, and plain.

    Raises:
        Unsupported: other types, an alpha of another type than the input's, or than int8 for
            int16 (TFLite takes such an alpha's bytes for int8), one that cannot be broadcast.
    Source: tflite/kernels/activations.cc PreluPrepare, internal/reference/prelu.h
    """
    source, alpha, result = tensors_of(node, 2)
    if source.dtype not in _ALPHAS:
        raise Unsupported(f"{source.dtype}: only {', '.join(_ALPHAS)}")
    if source.dtype != result.dtype:
        raise Unsupported(f"{source.dtype} -> {result.dtype}: must be equal")
    if alpha.dtype != _ALPHAS[source.dtype]:
        raise Unsupported(f"{source.dtype}, alpha {alpha.dtype}: {_ALPHAS[source.dtype]} expected")
    if source.dtype == "int16" and not target.rules.newer_types:
        raise Unsupported("int16: PRELU fails in this TFLite")
    elements = require_same_shape(source, result)
    elements_of(alpha)
    sizes, (steps,) = broadcast(result, alpha)
    params: Params = {
        "input": source,
        "alpha": alpha,
        "output": result,
        "elements": elements,
        **{f"size_{i}": n for i, n in enumerate(padded(sizes, _DIMENSIONS, 1))},
        **{f"step_{i}": n for i, n in enumerate(padded(steps, _DIMENSIONS, 0))},
    }
    if source.dtype != "float32":
        params |= _scaling(source, alpha, result)
    family = _FAMILY.get(source.dtype, "quant8")
    defines: Defines = {"ELEM": ELEM[source.dtype], "ALPHA_ELEM": ELEM[alpha.dtype]}

    def alternative(name: str, kernel: str, items: int, least: int) -> Alternative:
        tiling = by_elements(items, target, least)
        launch = launch_over("prelu", f"{kernel}_{family}", tiling, params, defines)
        return Alternative(name, (launch,))

    plain = alternative("plain", "prelu", elements, LEAST_ELEMENTS)
    depth = sizes[-1] if sizes else 1  # elements of a row, along which alpha has one step
    if target.group_items > 1 or not _LEAST_ROW <= depth <= HALF_ROUNDS:
        return (plain,)
    least = ceil_div(LEAST_ELEMENTS, depth)
    return alternative("row", "prelu_row", elements // depth, least), plain


def _scaling(source: Tensor, alpha: Tensor, result: Tensor) -> dict[str, int]:
    """Return zero points, and multipliers and shifts from zero on and below."""
    in_scale, in_zero = quantized.per_tensor(source, quantized.QUANT)
    alpha_scale, alpha_zero = quantized.per_tensor(alpha)
    out_scale, out_zero = quantized.per_tensor(result, quantized.QUANT)
    # Products and quotients are floats there.
    with np.errstate(over="ignore", under="ignore"):
        ratio = np.float32(in_scale) / np.float32(out_scale)
        leaking = np.float32(in_scale) * np.float32(alpha_scale) / np.float32(out_scale)
    above = quantized.multiplier_of(float(ratio))
    below = quantized.multiplier_of(float(leaking))
    return {
        "input_zero": in_zero,
        "alpha_zero": alpha_zero,
        "output_zero": out_zero,
        "multiplier_above": above[0],
        "shift_above": above[1],
        "multiplier_below": below[0],
        "shift_below": below[1],
        **quantized.whole_range(result),
    }
