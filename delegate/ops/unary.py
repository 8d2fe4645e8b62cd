# SPDX-License-Identifier: Apache-2.0
"""ABS, NEG, SIGN, SQUARE, SQRT, RSQRT, EXP, LOG, SIN, COS, FLOOR, CEIL, ROUND, PRELU.

Quantised types use lookup tables. Roots of negative values fail at run time, as in TFLite. PRELU
broadcasts alpha to the input: element by element, or row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import SELECTION, SELECTS, STEPS, FloatResult, Growth, roundings
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Defines, Params, Requirement
from delegate.ops._checks import quantized
from delegate.ops._checks.node import elements_of, one_to_one, require_same_shape, tensors_of
from delegate.ops._launches.broadcast import broadcast, padded
from delegate.ops._launches.lookup import (
    Floats,
    TableFunction,
    interpolated_floats,
    lookup,
    rounded_floats,
)
from delegate.ops._launches.tiles import (
    HALF_ROUNDS,
    LEAST_ELEMENTS,
    by_elements,
    launch_over,
    over_elements,
)
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import ceil_div, fixed_point
from delegate.ops._numbers.c_library import float_function
from delegate.ops._registry import lowers
from delegate.target import Rules, Target

# Op -> expression of unary.cl, and supported types.
_EXPRESSIONS = {
    "ABS": ("ABSOLUTE", ("float32", "int32", "int8", "int16")),
    "NEG": ("NEGATIVE", ("float32", "int32", "int64", "int8", "int16")),
    "SIGN": ("SIGN_OF", ("float32", "int32")),
    "SIN": ("SINE", ("float32",)),
    "COS": ("COSINE", ("float32",)),
    "SQUARE": ("SQUARE", ("float32",)),
    "FLOOR": ("FLOOR", ("float32",)),
    "CEIL": ("CEILING", ("float32",)),
    "ROUND": ("ROUND", ("float32",)),
    "SQRT": ("SQUARE_ROOT", ("float32", "int8", "int16")),
    "RSQRT": ("RECIPROCAL_ROOT", ("float32", "int8", "int16")),
    "EXP": ("EXPONENTIAL", ("float32", "int8", "int16")),
    "LOG": ("LOGARITHM", ("float32", "int8", "int16")),
}
# 2 / pi in binary, after 32 zeros: multiplier of angles.clh.
_DIGITS = np.array(
    [0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB],
    np.uint32,
)
_COMPUTED = ("float32", "int32", "int64")  # quantised types use tables
_NEWER = (("RSQRT", "int16"), ("LOG", "int16"))  # not in tflite-runtime
_LEAST_RATIO, _MOST_RATIO = 2.0**-10, 2.0**20  # of scales: shifts with 20 fraction bits hold these
_MOST_STEPS = 1e9  # results in quantisation steps: beyond every range, but within an int32
_DIMENSIONS = 4  # of the broadcast of alpha, after merging
_LEAST_ROW = 8  # shorter rows cost more than they save
_ALPHAS = {"float32": "float32", "uint8": "uint8", "int8": "int8", "int16": "int8"}
_FAMILY = {"float32": "float", "int16": "quant16"}  # else quant8


@lowers("ABS", "NEG", floats=SELECTS)
@lowers("SIGN", floats=FloatResult(SELECTION, Growth.STEADY, limit=1.0, is_steep=True))
@lowers("FLOOR", "CEIL", "ROUND", floats=STEPS)
@lowers("SIN", "COS", floats=roundings(Growth.STEADY, 8, limit=1.0, is_steep=True))
@lowers("SQUARE", floats=roundings(Growth.SQUARE, 1))
@lowers("SQRT", floats=roundings(Growth.STEADY, 1))
@lowers("RSQRT", floats=roundings(Growth.UNBOUNDED, 4))
@lowers("EXP", floats=roundings(Growth.EXPONENTIAL, 8))
@lowers("LOG", floats=roundings(Growth.STEADY, 8, limit=104.0))
def lower_unary(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Apply an elementwise function.

    Raises:
        Unsupported: types without a kernel here or in this TFLite, another shape.
    Source: tflite/kernels/elementwise.cc, neg.cc, sign.cc, exp.cc, floor.cc, ceil.cc, round.cc
    """
    name, rules = node.op, target.rules
    expression, types = _EXPRESSIONS[name]
    source, result = one_to_one(node, types)
    if source.dtype not in _COMPUTED:
        fails = (name in ("NEG", "LOG") and not rules.saturating_cast) or (
            (name == "SQRT" or (name, source.dtype) in _NEWER) and not rules.newer_types
        )
        if fails:
            raise Unsupported(f"{source.dtype}: {name} fails in this TFLite")
        alternatives = lookup(source, result, table_of(name, source, result, rules), target)
        requirements = _requirements(name, source)
        return tuple(replace(each, requirements=requirements) for each in alternatives)
    kernel = f"unary_{source.dtype.replace('float32', 'float')}"
    fields: Params = {"input": source, "output": result}
    if name in ("SIN", "COS"):
        fields["digits"] = Constant(_DIGITS.nbytes, lambda: _DIGITS)
    launch = over_elements("unary", kernel, elements_of(source), target, fields, {"OP": expression})
    return (Alternative("plain", (launch,)),)


def table_of(name: str, source: Tensor, result: Tensor, rules: Rules) -> TableFunction:
    """Return the function that fills a quantised op's table."""
    if name == "SQRT" or (name == "RSQRT" and source.dtype == "int8"):
        return _root_table(name, source, result)
    if name == "NEG":  # scales are not looked at, and the least value stays
        return lambda values: (-values).astype(source.dtype)
    if name == "ABS":
        return _abs_table(source, result)
    if name == "RSQRT":
        return interpolated_floats(source, result, _extended(_reciprocal_root, result))
    function = float_function(rules.float_function, "expf" if name == "EXP" else "logf")
    if source.dtype == "int16":
        function = _extended(function, result) if name == "LOG" else function
        return interpolated_floats(source, result, function)
    float_of = _logarithm(function) if name == "LOG" else function
    return rounded_floats(source, result, float_of, rules.saturating_cast)


def _logarithm(function: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
    """Return the logarithm; -inf for values of 0 and below."""
    return lambda values: np.where(values > 0, function(values), np.float32(-np.inf))


def _requirements(name: str, source: Tensor) -> tuple[Requirement, ...]:
    zero = quantized.per_tensor(source, quantized.QUANT)[1] if name in ("SQRT", "RSQRT") else None
    if zero is None or zero == np.iinfo(source.dtype).min:
        return ()
    return (Requirement(source, "an input", f"below {zero}, which stands for 0", least=zero),)


def _root_table(name: str, source: Tensor, result: Tensor) -> TableFunction:
    """Return the table of SQRT, in truncated floats, or of RSQRT, in fixed point.

    Source: tflite/kernels/elementwise.cc SqrtEvalQuantized, RsqrtEvalQuantized
    """
    in_scale, in_zero = quantized.per_tensor(source, quantized.QUANT)
    out_scale, out_zero = quantized.per_tensor(result, quantized.QUANT)
    widest = (1 << 8 if source.dtype == "int8" else 1 << 15) - 1

    def magnitudes(values: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.maximum(values - in_zero, 0)  # a run with a negative value fails

    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        if name == "SQRT":
            largest = np.sqrt(np.float32(widest) * np.float32(in_scale))
            highest = float(largest / np.float32(out_scale))
            if not highest < _MOST_STEPS:
                raise Unsupported(
                    f"output scale {out_scale}: the root of {widest} is {highest:g} of it"
                )
            return lambda values: fixed_point.clamped(
                (
                    np.sqrt(np.float32(in_scale) * magnitudes(values).astype(np.float32))
                    / np.float32(out_scale)
                ).astype(np.int64)
                + out_zero,
                result.dtype,
            )
        ratio = 1 / np.float64(np.sqrt(np.float32(in_scale)) * np.float32(out_scale))
    if not _LEAST_RATIO < ratio < _MOST_RATIO:
        raise Unsupported(f"a scale ratio of {ratio:g}: not within 2^-10 and 2^20")
    multiplier, shift = fixed_point.quantize_multiplier(float(ratio))

    def table(values: NDArray[np.int64]) -> NDArray[Any]:
        roots = fixed_point.inverse_root(magnitudes(values)[values > in_zero])
        scaled = np.full(values.shape, 127)  # the result for 0
        scaled[values > in_zero] = out_zero + fixed_point.multiply_by_quantized_multiplier(
            roots, multiplier, shift - 20
        )
        return fixed_point.clamped(scaled, result.dtype)

    return table


def _reciprocal_root(values: Floats) -> Floats:
    with np.errstate(over="ignore", divide="ignore"):
        roots: Floats = np.float32(1) / np.sqrt(values)
    return roots


def _extended(function: Callable[[Floats], Floats], result: Tensor) -> Callable[[Floats], Floats]:
    """Extend RSQRT by the output's highest value, and LOG by its lowest, to values <= 0.

    Source: tflite/kernels/elementwise.cc GenericPrepare, LogLUTPrepare
    """
    limits = np.iinfo(result.dtype)
    steps = limits.max if function is _reciprocal_root else limits.min
    scale = np.float32(quantized.per_tensor(result, quantized.QUANT)[0])
    with np.errstate(over="ignore"):
        limit = np.float32(steps) * scale

    def extended(values: Floats) -> Floats:
        is_defined = values > 0
        return np.where(is_defined, function(np.where(is_defined, values, np.float32(1))), limit)

    return extended


def _abs_table(source: Tensor, result: Tensor) -> TableFunction:
    """Return the table of ABS, rescaled if the scales differ.

    Source: tflite/kernels/elementwise.cc AbsPrepare, whose ratio is float32; AbsEvalQuantized
    """
    in_scale, in_zero = quantized.per_tensor(source, quantized.QUANT)
    out_scale, out_zero = quantized.per_tensor(result, quantized.QUANT)
    with np.errstate(over="ignore"):
        ratio = np.float32(in_scale) / np.float32(out_scale)
    multiplier, shift = fixed_point.quantize_multiplier(float(ratio))
    if shift > 30 or np.isinf(ratio):
        raise Unsupported(f"a scale ratio of {ratio:g}: more than 2^30")

    def table(values: NDArray[np.int64]) -> NDArray[Any]:
        magnitudes = np.abs(values - in_zero)
        if in_scale != out_scale:
            magnitudes = fixed_point.multiply_by_quantized_multiplier(magnitudes, multiplier, shift)
        return fixed_point.clamped(magnitudes + out_zero, result.dtype)

    return table


@lowers("PRELU", floats=roundings(Growth.STEADY, 1))
def lower_prelu(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Multiply negative values by alpha, which is broadcast to the input's shape.

    Alternatives: by rows if a work-group is one work-item, and plain.

    Raises:
        Unsupported: other types, an alpha that differs in type from the input, or is not int8 for
            int16 (TFLite reads its bytes as int8), one that cannot be broadcast.
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
        params |= _prelu_params(source, alpha, result)
    family = _FAMILY.get(source.dtype, "quant8")
    defines: Defines = {"ELEM": ELEM[source.dtype], "ALPHA_ELEM": ELEM[alpha.dtype]}

    def alternative(name: str, kernel: str, items: int, least: int) -> Alternative:
        tiling = by_elements(items, target, least)
        launch = launch_over("prelu", f"{kernel}_{family}", tiling, params, defines)
        return Alternative(name, (launch,))

    fallback = alternative("plain", "prelu", elements, LEAST_ELEMENTS)
    depth = sizes[-1] if sizes else 1  # row length: alpha has a constant stride along a row
    if target.group_items > 1 or not _LEAST_ROW <= depth <= HALF_ROUNDS:
        return (fallback,)
    least = ceil_div(LEAST_ELEMENTS, depth)
    return alternative("row", "prelu_row", elements // depth, least), fallback


def _prelu_params(source: Tensor, alpha: Tensor, result: Tensor) -> dict[str, int]:
    """Return zero points, and the multipliers and shifts for positive and negative values."""
    in_scale, in_zero = quantized.per_tensor(source, quantized.QUANT)
    alpha_scale, alpha_zero = quantized.per_tensor(alpha)
    out_scale, out_zero = quantized.per_tensor(result, quantized.QUANT)
    # TFLite computes products and quotients in float32.
    with np.errstate(over="ignore", under="ignore"):
        ratio = np.float32(in_scale) / np.float32(out_scale)
        negative_ratio = np.float32(in_scale) * np.float32(alpha_scale) / np.float32(out_scale)
    above, below = (quantized.multiplier_of(float(each)) for each in (ratio, negative_ratio))
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
