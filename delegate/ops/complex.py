# SPDX-License-Identifier: Apache-2.0
"""RFFT2D, and COMPLEX_ABS, REAL and IMAG, which make floats of what it gives."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.float_results import SELECTS, Growth, roundings
from delegate.graph.ir import Node
from delegate.launch import Alternative, Constant, Defines, Launch, Params, temporary
from delegate.ops._checks.node import (
    elements_of,
    require_constant,
    require_same_shape,
    require_shape,
    shape_text,
    tensors_of,
)
from delegate.ops._launches.tiles import launch_of, over_elements
from delegate.ops._registry import lowers
from delegate.target import Target

# Op -> expression of complex.cl
_PARTS = {"COMPLEX_ABS": "SIZE_OF", "REAL": "REAL_PART", "IMAG": "IMAGINARY_PART"}
_MOST_NUMBERS = 2048  # that are transformed at once: 16 KiB of a work-group's own memory


@lowers("RFFT2D", floats=roundings(Growth.STEADY, 48))
def lower_rfft2d(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Transform pictures of floats into their frequencies: rows first, then columns.

    Shapes:
        input (batch..., h, w), lengths (2,) -> output (batch..., lengths[0], lengths[1] / 2 + 1) of
        complex64; what a picture has beyond the lengths is left out, what it lacks is 0
    Raises:
        Unsupported: lengths that are computed, no powers of two or too large; other types.
    Source: tflite/kernels/rfft2d.cc, which computes in double by third_party/fft2d/fftsg2d.c
    """
    source, lengths_of, result = tensors_of(node, 2)
    if (source.dtype, result.dtype) != ("float32", "complex64"):
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: only float32 to complex64")
    lengths = require_constant(lengths_of, "lengths").reshape(-1).tolist()
    if len(source.shape) < 2 or len(lengths) != 2 or lengths_of.dtype != "int32":
        raise Unsupported(
            f"{len(lengths)} lengths of {shape_text(source)}: two of int32 are needed"
        )
    elements_of(source)
    elements_of(result)
    height, width = lengths
    if width < 2 or height < 1 or any(length & (length - 1) for length in lengths):
        raise Unsupported(f"lengths {height}x{width}: powers of two, and 2 or more columns")
    if max(height, width // 2) > _MOST_NUMBERS:
        raise Unsupported(f"lengths {height}x{width}: at most {_MOST_NUMBERS}x{2 * _MOST_NUMBERS}")
    columns = width // 2 + 1
    require_shape(result, (*source.shape[:-2], height, columns))
    pictures = math.prod(source.shape[:-2])
    rows = result if height == 1 else temporary("transformed rows", result.shape, "complex64")
    params: Params = {
        "input": source,
        "output": rows,
        "rows": height,
        "in_h": source.shape[-2],
        "in_w": source.shape[-1],
    }
    launches = [_transformed("row", params, width, width // 2, pictures * height, target)]
    if height > 1:
        params = {"input": rows, "output": result, "columns": columns}
        launches.append(_transformed("columns", params, height, height, pictures * columns, target))
    return (Alternative("plain", tuple(launches)),)


def _transformed(
    what: str, params: Params, length: int, numbers: int, tiles: int, target: Target
) -> Launch:
    """Return the launch that transforms `numbers` complex numbers a tile.

    `length`: of the angles, which are a turn's parts.
    """
    file, group = "rfft2d", target.group_items
    fields: Params = {
        "length": length,
        "turns": Constant(8 * (length // 2 + 1), lambda: _turns(length)),
        "places": Constant(4 * numbers, lambda: _reversed(numbers)),
    }
    defines: Defines = {"ALONE": int(group == 1), "SCRATCH_INTS": 2 * numbers}
    return launch_of(file, f"{file}_{what}_float", tiles, group, params | fields, defines)


def _turns(length: int) -> NDArray[np.float32]:
    """Return the numbers on the unit circle by the first half of `length` parts of a turn.

    Those of quarters of a turn are exact, so that what is 0 in TFLite is so here.
    """
    angles = -2 * math.pi / length * np.arange(length // 2 + 1)
    parts = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return np.where(np.abs(parts) < 1e-15, 0, parts).astype(np.float32)


def _reversed(count: int) -> NDArray[np.int32]:
    """Return each number below `count`, a power of two, with its bits in reverse."""
    places = np.zeros(1, np.int32)
    while places.size < count:
        places = np.concatenate([2 * places, 2 * places + 1])
    return places.astype(np.int32)


@lowers("COMPLEX_ABS", floats=roundings(Growth.STEADY, 2))
@lowers("REAL", "IMAG", floats=SELECTS)
def lower_parts(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Take how large a complex number is, or one of its parts.

    Raises:
        Unsupported: other types than complex64 to float32.
    Source: tflite/kernels/complex_support.cc
    """
    source, result = tensors_of(node, 1)
    if (source.dtype, result.dtype) != ("complex64", "float32"):
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: only complex64 to float32")
    elements = require_same_shape(source, result)
    params: Params = {"input": source, "output": result}
    defines: Defines = {"OP": _PARTS[node.op]}
    launch = over_elements("complex", "complex_float", elements, target, params, defines)
    return (Alternative("plain", (launch,)),)
