# SPDX-License-Identifier: Apache-2.0
"""PRELU of floats, 8 and 16 bits, alpha broadcast to the input: by elements, and by rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Launch, Params
from delegate.ops._checks import quantized
from delegate.ops._checks.node import inputs_of, output_of
from delegate.ops._checks.shapes import elements_of, shape_text
from delegate.ops._launches.broadcast import broadcast, padded
from delegate.ops._launches.tiles import HALF_ROUNDS, LEAST_ELEMENTS, by_elements, launch_over
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import fixed_point
from delegate.ops._numbers.integers import ceil_div
from delegate.ops._registry import lowers
from delegate.target import Rules, Target

_DIMENSIONS = 4  # that alpha steps through differently
_LEAST_ROW = 8  # shorter ones cost more than they save
_ALPHAS = {"float32": "float32", "uint8": "uint8", "int8": "int8", "int16": "int8"}
_FAMILY = {"float32": "float", "int16": "quant16"}  # else quant8


@dataclass(frozen=True, slots=True, eq=False)
class Leak:
    """A checked PRELU as its kernels see it."""

    source: Tensor
    alpha: Tensor
    params: Params
    depth: int  # elements of a row, along which alpha has one step


@lowers("PRELU")
def lower_prelu(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Multiply values below zero by alpha, which is broadcast to the input's shape.

    Raises:
        Unsupported: other types, an alpha of another type than the input's, or than int8 for
            int16 (TFLite takes such an alpha's bytes for int8), one that cannot be broadcast.
    Source: tflite/kernels/activations.cc PreluPrepare, internal/reference/prelu.h
    """
    return alternatives(decode(node, target.rules), target)


def decode(node: Node, rules: Rules) -> Leak:
    """Return what a node multiplies, checked.

    Raises:
        Unsupported: see `lower_prelu`.
    """
    (source, alpha), _ = inputs_of(node.inputs, 2)
    result = output_of(node.outputs)
    if source.dtype not in _ALPHAS:
        raise Unsupported(f"{source.dtype}: only {', '.join(_ALPHAS)}")
    if source.dtype != result.dtype:
        raise Unsupported(f"{source.dtype} -> {result.dtype}: must be equal")
    if alpha.dtype != _ALPHAS[source.dtype]:
        raise Unsupported(f"{source.dtype}, alpha {alpha.dtype}: {_ALPHAS[source.dtype]} expected")
    if source.dtype == "int16" and not rules.newer_types:
        raise Unsupported("int16: PRELU fails in this TFLite")
    if source.shape != result.shape:
        raise Unsupported(f"{shape_text(source)} -> {shape_text(result)}: the shape must stay")
    elements = elements_of(source)
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
    return Leak(source, alpha, params, depth=sizes[-1] if sizes else 1)


def alternatives(leak: Leak, target: Target) -> tuple[Alternative, ...]:
    """Return the launch over rows, where a group is one work-item, then the plain one."""
    elements, depth = elements_of(leak.source), leak.depth
    family = _FAMILY.get(leak.source.dtype, "quant8")

    def launch(kernel: str, items: int, least: int) -> Launch:
        tiling = by_elements(items, target, least)
        return launch_over(
            "prelu",
            f"{kernel}_{family}",
            tiling,
            leak.params,
            {"ELEM": ELEM[leak.source.dtype], "ALPHA_ELEM": ELEM[leak.alpha.dtype]},
        )

    plain = Alternative("plain", (launch("prelu", elements, LEAST_ELEMENTS),))
    if target.group_items > 1 or not _LEAST_ROW <= depth <= HALF_ROUNDS:
        return (plain,)
    rows = launch("prelu_row", elements // depth, ceil_div(LEAST_ELEMENTS, depth))
    return (Alternative("row", (rows,)), plain)


def _scaling(source: Tensor, alpha: Tensor, result: Tensor) -> dict[str, int]:
    """Return zero points, and multipliers and shifts from zero on and below."""
    in_scale, in_zero = quantized.per_tensor(source, quantized.QUANT)
    alpha_scale, alpha_zero = quantized.per_tensor(alpha)
    out_scale, out_zero = quantized.per_tensor(result, quantized.QUANT)
    # Products and quotients are floats there.
    with np.errstate(over="ignore", under="ignore"):
        ratio = np.float32(in_scale) / np.float32(out_scale)
        leaking = np.float32(in_scale) * np.float32(alpha_scale) / np.float32(out_scale)
    above = fixed_point.quantize_multiplier(float(ratio))
    below = fixed_point.quantize_multiplier(float(leaking))
    if max(above[1], below[1]) > 30:
        raise Unsupported(f"a scale ratio of 2^{max(above[1], below[1])}: more than 2^30")
    limits = np.iinfo(result.dtype)
    return {
        "input_zero": in_zero,
        "alpha_zero": alpha_zero,
        "output_zero": out_zero,
        "multiplier_above": above[0],
        "shift_above": above[1],
        "multiplier_below": below[0],
        "shift_below": below[1],
        "output_min": int(limits.min),
        "output_max": int(limits.max),
    }
