# SPDX-License-Identifier: Apache-2.0
"""What ops on 8 and 16 bits share: a table with the answer for each value an element can have.

The host fills it by the same arithmetic as TFLite's kernel, which may have a table of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.isa import LOOKUPS
from delegate.launch import Alternative, Constant, Launch, Params, element_type
from delegate.ops._checks import quantized
from delegate.ops._checks.node import require_same_shape
from delegate.ops._launches.tiles import LEAST_ELEMENTS, by_elements, by_share, launch_over
from delegate.ops._launches.types import moved_type, type_of_bytes
from delegate.ops._numbers import ceil_div, fixed_point
from delegate.ops._numbers.c_library import float_function
from delegate.target import Target

# Elements a work-item takes at once: a word of 8-bit values, two of 16-bit ones.
_LANES = 4

# Every value an element can have, by its bits read as an unsigned number -> the answers.
Answers = Callable[[NDArray[np.int64]], NDArray[Any]]
Floats = NDArray[np.float32]
Entries = NDArray[np.int16]


def lookup(
    source: Tensor, result: Tensor, answers: Answers, target: Target, read_as: str = ""
) -> tuple[Alternative, ...]:
    """Replace each element of an 8-bit or 16-bit integer or bool tensor by its answer.

    `answers` is called when constants are packed, with all 256 or 65,536 values; it returns as
    many that fit the result's type, which may have 1, 2, 4 or 8 bytes. `read_as`: the type of the
    values, of the input's width, where it is not the input's own.

    Raises:
        Unsupported: an input of another type, an output of another shape, empty tensors.
    """
    kind = read_as or ("uint8" if source.dtype == "bool" else source.dtype)
    wide = _width(kind)
    if wide not in (1, 2):
        raise Unsupported(f"{source.dtype}: a table is for integers of 8 or 16 bits")
    elements = require_same_shape(source, result)
    moved = moved_type(result)
    count = 1 << (8 * wide)

    def table() -> NDArray[Any]:
        bits = np.arange(count, dtype=np.uint8 if wide == 1 else np.uint16)
        found = answers(bits.view(kind).astype(np.int64))
        return np.ascontiguousarray(found).astype(result.dtype)

    table_constant = Constant(count * np.dtype(result.dtype).itemsize, table)

    params: Params = {"input": source, "output": result, "elements": elements}

    def launch(kernel: str, items: int) -> Launch:
        return launch_over(
            "lookup",
            kernel,
            by_elements(items, target),
            params | {"table": table_constant},
            {"INDEX": type_of_bytes(wide), "ELEM": moved},
        )

    def of_vectors(isa: str, size: int) -> Alternative:
        def rows() -> NDArray[Any]:
            return np.tile(table().reshape(16, 16), size // 16)

        fields = params | {"table": Constant(16 * size, rows)}
        kernel = f"lookup_{isa}"
        whole = by_share(ceil_div(elements, size), target, LEAST_ELEMENTS // size)
        tiling = replace(whole, tile_items=whole.tile_items * size)
        return Alternative(f"{isa} {size}", (launch_over("lookup", kernel, tiling, fields),))

    fallback = Alternative("plain", (launch("lookup", elements),))
    if elements < _LANES or moved == "uint2":
        return (fallback,)
    vectors = launch("lookup_vector", ceil_div(elements, _LANES))
    proven = [(f.name, f.lookup_bytes) for f in LOOKUPS if f.name in target.isa]
    fitting = [(isa, size) for isa, size in proven if elements >= size]
    if count != 256 or table_constant.size_bytes != 256:
        fitting = []
    best = [of_vectors(isa, size) for isa, size in fitting[:1]]
    return (*best, Alternative(f"vector {_LANES}", (vectors,)), fallback)


def rounded_floats(
    source: Tensor, result: Tensor, function: Callable[[Floats], Floats], saturates: bool = False
) -> Answers:
    """Return the answers of TFLite's tables for 8 bits: a function of floats, rounded.

    `saturates`: in the calling TFLite those of int8 beyond an int32 become its ends, and NaN 0;
    others are what C's conversion gives on this machine.

    Raises:
        Unsupported: quantisation that the tensors cannot have.
    Source: tflite/kernels/internal/common.h LUTPopulate
    """
    in_scale, in_zero = quantized.per_tensor(source)
    out_scale, out_zero = quantized.per_tensor(result)

    def answers(values: NDArray[np.int64]) -> NDArray[Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            inverse = np.float32(1) / np.float32(out_scale)
            floats = np.float32(in_scale) * (values - in_zero).astype(np.float32)
            steps = round_away(function(floats) * inverse)
            steps += np.float32(out_zero)
            if saturates and result.dtype == "int8":
                steps = np.clip(np.where(np.isnan(steps), 0, steps), -(2**30), 2**30)
            whole = steps.astype(np.int32)
        return fixed_point.clamped(whole, result.dtype)

    return answers


def rounded_sigmoid(source: Tensor, result: Tensor, is_tanh: bool, target: Target) -> Answers:
    """Return the answers of LOGISTIC, or of TANH, of 8 bits.

    Raises:
        Unsupported: another output scale or zero point than TFLite's for the type.
    """
    limits = np.iinfo(result.dtype)
    scale, zero = (1 / 128, 128 if limits.min == 0 else 0) if is_tanh else (1 / 256, limits.min)
    quantized.require_fixed_output(result, scale, int(zero))
    function = float_function(target.rules.float_function, "tanhf" if is_tanh else "expf")

    def logistic(values: Floats) -> Floats:
        with np.errstate(over="ignore"):
            shares: Floats = np.float32(1) / (np.float32(1) + function(-values))
        return shares

    return rounded_floats(source, result, function if is_tanh else logistic)


def interpolated_floats(
    source: Tensor, result: Tensor, function: Callable[[Floats], Floats]
) -> Answers:
    """Return the answers of TFLite's tables for 16 bits: straight lines between 513 floats.

    Raises:
        Unsupported: quantisation that the tensors cannot have.
    """
    in_scale, in_zero = quantized.per_tensor(source, quantized.QUANT)
    out_scale, out_zero = quantized.per_tensor(result, quantized.QUANT)
    limits = np.array([-(1 << 15), (1 << 15) - 1])

    def answers(values: NDArray[np.int64]) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            first, last = np.float32(in_scale) * (limits - in_zero).astype(np.float32)
            lowest, highest = np.float32(out_scale) * (limits - out_zero).astype(np.float32)
            steps = np.float32(1 << 16) / (highest - lowest)
        return on_lines(ends_of_lines(first, last, steps, function), values)

    return answers


def ends_of_lines(first: Any, last: Any, steps: Any, function: Callable[[Any], Any]) -> Entries:
    """Return the 513 ends of the lines that stand for a function, in `steps` of one.

    Computed as the arguments are, in floats or doubles.
    Source: tflite/kernels/internal/common.h LUTPopulate for int16_t
    """
    two = type(last)(2)  # numpy 1 makes doubles of a float and an int
    with np.errstate(over="ignore", invalid="ignore"):
        step = (last - first) / type(last)(512)
        points = first + np.arange(513).astype(step.dtype) * step
        curve = function(points) * steps
        middle = round_away(function(points[:-1] + step / two) * steps)
        line = round_away((curve[1:] + round_away(curve[:-1])) / two)
        # Half of what a line misses in the middle is shared with its ends.
        entries = round_away(curve[:-1]) - round_away((line - middle) / two)
        end = round_away(function(np.array([last])) * steps)
        whole = np.clip(np.concatenate([entries, end]), -(1 << 15), (1 << 15) - 1)
        ends: Entries = whole.astype(np.int16)
    return ends


def on_lines(entries: Entries, values: NDArray[np.int64]) -> Entries:
    """Return what the lines between the entries give for values of an int16.

    Source: tflite/kernels/internal/common.h LUTLookup
    """
    place = 256 + (values >> 7)
    slope = (entries[place + 1] - entries[place]).astype(np.int64)
    answers: Entries = (entries[place] + ((slope * (values & 127) + 64) >> 7)).astype(np.int16)
    return answers


def round_away(values: NDArray[Any]) -> NDArray[Any]:
    """Return whole floats or doubles, ties away from zero, as C's round() does."""
    size = np.abs(values.astype(np.float64))
    whole = np.floor(size)
    rounded: NDArray[Any] = np.copysign(whole + (size - whole >= 0.5), values)
    return rounded.astype(values.dtype)


def _width(dtype: str) -> int:
    try:
        kind = element_type(dtype)
    except TypeError:
        return 0
    return kind.itemsize if kind.kind in "iu" else 0
