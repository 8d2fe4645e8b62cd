# SPDX-License-Identifier: Apache-2.0
"""Lookup tables for ops on 8 and 16 bits: the result for each value an element can have.

The host fills them with the arithmetic of TFLite's kernels, which may use tables, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.isa import LOOKUPS
from delegate.launch import Alternative, Constant, Defines, Launch, Params, element_type
from delegate.ops._checks import quantized
from delegate.ops._checks.node import require_same_shape
from delegate.ops._launches.tiles import (
    LEAST_ELEMENTS,
    by_elements,
    by_share,
    launch_of,
    launch_over,
)
from delegate.ops._launches.types import copy_type, type_of_bytes
from delegate.ops._numbers import ceil_div, fixed_point
from delegate.ops._numbers.c_library import float_function
from delegate.target import Target

# Elements per work-item: a word of 8-bit values, two words of 16-bit ones.
_LANES = 4
_TILE_COLUMNS = 16  # fours of channels in a tile, whose tables fit a CPU's first cache

# All values an element can have, in the order of their bit patterns -> the table's entries.
TableFunction = Callable[[NDArray[np.int64]], NDArray[Any]]
Floats = NDArray[np.float32]
Entries = NDArray[np.int16]


def lookup(
    source: Tensor, result: Tensor, function: TableFunction, target: Target, read_as: str = ""
) -> tuple[Alternative, ...]:
    """Return the alternatives that map each 8-bit or 16-bit element by a table.

    `function` is called when constants are packed, with all 256 or 65,536 values; it returns as
    many results, in the output's type of 1, 2, 4 or 8 bytes. `read_as`: the type of the values, if
    it is not the input's type, but of the same width.

    Raises:
        Unsupported: an input of another type, an output of another shape, empty tensors.
    """
    kind = read_as or ("uint8" if source.dtype == "bool" else source.dtype)
    width = _width(kind)
    if width not in (1, 2):
        raise Unsupported(f"{source.dtype}: a table is for integers of 8 or 16 bits")
    elements = require_same_shape(source, result)
    element = copy_type(result)
    count = 1 << (8 * width)

    def table() -> NDArray[Any]:
        bits = np.arange(count, dtype=np.uint8 if width == 1 else np.uint16)
        entries = function(bits.view(kind).astype(np.int64))
        return np.ascontiguousarray(entries).astype(result.dtype)

    table_constant = Constant(count * np.dtype(result.dtype).itemsize, table)

    params: Params = {"input": source, "output": result, "elements": elements}

    def launch(kernel: str, items: int) -> Launch:
        return launch_over(
            "lookup",
            kernel,
            by_elements(items, target),
            params | {"table": table_constant},
            {"INDEX": type_of_bytes(width), "ELEM": element},
        )

    def of_vectors(isa: str, size: int) -> Alternative:
        def rows() -> NDArray[Any]:
            return np.tile(table().reshape(16, 16), size // 16)

        fields = params | {"table": Constant(16 * size, rows)}
        kernel = f"lookup_{isa}"
        whole_vectors = by_share(ceil_div(elements, size), target, LEAST_ELEMENTS // size)
        tiling = replace(whole_vectors, tile_items=whole_vectors.tile_items * size)
        return Alternative(f"{isa} {size}", (launch_over("lookup", kernel, tiling, fields),))

    fallback = Alternative("plain", (launch("lookup", elements),))
    if elements < _LANES or element == "uint2":
        return (fallback,)
    vectors = launch("lookup_vector", ceil_div(elements, _LANES))
    proven = [(f.name, f.lookup_bytes) for f in LOOKUPS if f.name in target.isa]
    fitting = [(isa, size) for isa, size in proven if elements >= size]
    if count != 256 or table_constant.size_bytes != 256:
        fitting = []
    best = [of_vectors(isa, size) for isa, size in fitting[:1]]
    return (*best, Alternative(f"vector {_LANES}", (vectors,)), fallback)


def lookup_by_channel(
    source: Tensor, result: Tensor, function: TableFunction, tables: int, target: Target
) -> tuple[Alternative, ...]:
    """Return the alternatives that map each 8-bit element by the table of its channel.

    `function`: as in `lookup`. `tables`: size of the last dimension, the channels.

    Shapes:
        of the function's result: (tables, 256)
    Raises:
        Unsupported: an output of another shape, empty tensors.
    """
    elements = require_same_shape(source, result)

    def entries() -> NDArray[Any]:
        values = np.arange(256, dtype=np.uint8).view(source.dtype).astype(np.int64)
        return np.ascontiguousarray(function(values)).astype(result.dtype)

    params: Params = {"input": source, "output": result, "elements": elements}
    table = Constant(256 * tables, entries)
    fields = params | {"tables": tables, "table": table}
    defines: Defines = {"INDEX": "uchar", "ELEM": "uchar"}
    tiling = by_elements(elements, target)
    plain = Alternative("plain", (launch_over("lookup", "lookup_row", tiling, fields, defines),))
    repeats = _LANES // math.gcd(_LANES, tables)  # until a row is whole fours
    if elements < repeats * tables:
        return (plain,)
    columns = repeats * tables // _LANES
    width = min(columns, _TILE_COLUMNS)
    rows = ceil_div(elements, repeats * tables)
    tiling = by_elements(rows * width, target, LEAST_ELEMENTS // _LANES)
    tile_rows = max(1, tiling.tile_items // width)
    fields = params | {
        "columns": columns,
        "tile_columns": width,
        "rows": rows,
        "tile_rows": tile_rows,
        "row_tiles": ceil_div(rows, tile_rows),
        "table": table if repeats == 1 else _repeated(table, repeats),
    }
    tiles = ceil_div(columns, width) * ceil_div(rows, tile_rows)
    launch = launch_of("lookup", "lookup_columns", tiles, tiling.group_items, fields, defines)
    return Alternative(f"columns {_LANES}", (launch,)), plain


def _repeated(table: Constant, times: int) -> Constant:
    return Constant(table.size_bytes * times, lambda: np.tile(table.pack(), (times, 1)))


def rounded_floats(
    source: Tensor, result: Tensor, function: Callable[[Floats], Floats], saturates: bool = False
) -> TableFunction:
    """Return the function that fills TFLite's 8-bit tables: a float function, rounded.

    `saturates`: the calling TFLite saturates int8 results beyond an int32, and makes NaN 0.
    Otherwise these are what C's conversion yields on this machine.

    Raises:
        Unsupported: missing or invalid quantisation.
    Source: tflite/kernels/internal/common.h LUTPopulate
    """
    in_scale, in_zero = quantized.per_tensor(source)
    out_scale, out_zero = quantized.per_tensor(result)

    def table(values: NDArray[np.int64]) -> NDArray[Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            inverse = np.float32(1) / np.float32(out_scale)
            floats = np.float32(in_scale) * (values - in_zero).astype(np.float32)
            steps = round_away(function(floats) * inverse)
            steps += np.float32(out_zero)
            if saturates and result.dtype == "int8":
                steps = np.clip(np.where(np.isnan(steps), 0, steps), -(2**30), 2**30)
            whole = steps.astype(np.int32)
        return fixed_point.clamped(whole, result.dtype)

    return table


def rounded_sigmoid(source: Tensor, result: Tensor, is_tanh: bool, target: Target) -> TableFunction:
    """Return the function that fills the 8-bit tables of LOGISTIC or TANH.

    Raises:
        Unsupported: an output scale or zero point other than TFLite's.
    """
    limits = np.iinfo(result.dtype)
    scale, zero = (1 / 128, 128 if limits.min == 0 else 0) if is_tanh else (1 / 256, limits.min)
    quantized.require_fixed_output(result, scale, int(zero))
    function = float_function(target.rules.float_function, "tanhf" if is_tanh else "expf")

    def logistic(values: Floats) -> Floats:
        with np.errstate(over="ignore"):
            results: Floats = np.float32(1) / (np.float32(1) + function(-values))
        return results

    return rounded_floats(source, result, function if is_tanh else logistic)


def interpolated_floats(
    source: Tensor, result: Tensor, function: Callable[[Floats], Floats]
) -> TableFunction:
    """Return the function that fills 16-bit tables: linear interpolation between 513 points.

    Raises:
        Unsupported: missing or invalid quantisation.
    """
    in_scale, in_zero = quantized.per_tensor(source, quantized.QUANT)
    out_scale, out_zero = quantized.per_tensor(result, quantized.QUANT)
    limits = np.array([-(1 << 15), (1 << 15) - 1])

    def table(values: NDArray[np.int64]) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            first, last = np.float32(in_scale) * (limits - in_zero).astype(np.float32)
            lowest, highest = np.float32(out_scale) * (limits - out_zero).astype(np.float32)
            steps = np.float32(1 << 16) / (highest - lowest)
        return interpolate(curve_points(first, last, steps, function), values)

    return table


def curve_points(first: Any, last: Any, steps: Any, function: Callable[[Any], Any]) -> Entries:
    """Return the 513 points that approximate a function, scaled by `steps`.

    Computed in the type of the arguments, floats or doubles.
    Source: tflite/kernels/internal/common.h LUTPopulate for int16_t
    """
    two = type(last)(2)  # numpy 1 promotes a float32 and an int to double
    with np.errstate(over="ignore", invalid="ignore"):
        step = (last - first) / type(last)(512)
        points = first + np.arange(513).astype(step.dtype) * step
        curve = function(points) * steps
        middle = round_away(function(points[:-1] + step / two) * steps)
        line = round_away((curve[1:] + round_away(curve[:-1])) / two)
        # Half of the error in the middle of a line is moved to its ends.
        entries = round_away(curve[:-1]) - round_away((line - middle) / two)
        end = round_away(function(np.array([last])) * steps)
        whole = np.clip(np.concatenate([entries, end]), -(1 << 15), (1 << 15) - 1)
        samples: Entries = whole.astype(np.int16)
    return samples


def interpolate(entries: Entries, values: NDArray[np.int64]) -> Entries:
    """Interpolate between the entries at int16 values.

    Source: tflite/kernels/internal/common.h LUTLookup
    """
    place = 256 + (values >> 7)
    slope = (entries[place + 1] - entries[place]).astype(np.int64)
    results: Entries = (entries[place] + ((slope * (values & 127) + 64) >> 7)).astype(np.int16)
    return results


def round_away(values: NDArray[Any]) -> NDArray[Any]:
    """Round floats or doubles to integers, ties away from zero, like C's round()."""
    magnitude = np.abs(values.astype(np.float64))
    whole = np.floor(magnitude)
    rounded: NDArray[Any] = np.copysign(whole + (magnitude - whole >= 0.5), values)
    return rounded.astype(values.dtype)


def _width(dtype: str) -> int:
    try:
        kind = element_type(dtype)
    except TypeError:
        return 0
    return kind.itemsize if kind.kind in "iu" else 0
