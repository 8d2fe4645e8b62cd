# SPDX-License-Identifier: Apache-2.0
"""RFFT2D, and COMPLEX_ABS, REAL and IMAG, which turn its results into floats."""

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
_MOST_POINTS = 2048  # complex numbers of a transform: 16 KiB of a work-group's local memory


@lowers("RFFT2D", floats=roundings(Growth.STEADY, 48))
def lower_rfft2d(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Compute the Fourier transform of float images: rows first, then columns.

    Shapes:
        input (batch..., h, w), lengths (2,) -> output (batch..., lengths[0], lengths[1] / 2 + 1) of
        complex64; images are cropped or padded with zeros to the lengths
    Raises:
        Unsupported: lengths that are not constant, no powers of two or too large; other types.
    Source: tflite/kernels/rfft2d.cc, which computes in double by third_party/fft2d/fftsg2d.c
    """
    source, length_tensor, result = tensors_of(node, 2)
    if (source.dtype, result.dtype) != ("float32", "complex64"):
        raise Unsupported(f"{source.dtype} in, {result.dtype} out: only float32 to complex64")
    lengths = require_constant(length_tensor, "lengths").reshape(-1).tolist()
    if len(source.shape) < 2 or len(lengths) != 2 or length_tensor.dtype != "int32":
        raise Unsupported(
            f"{len(lengths)} lengths of {shape_text(source)}: two of int32 are needed"
        )
    elements_of(source)
    elements_of(result)
    height, width = lengths
    if width < 2 or height < 1 or any(length & (length - 1) for length in lengths):
        raise Unsupported(f"lengths {height}x{width}: powers of two, and 2 or more columns")
    if max(height, width // 2) > _MOST_POINTS:
        raise Unsupported(f"lengths {height}x{width}: at most {_MOST_POINTS}x{2 * _MOST_POINTS}")
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
    launches = [_fft("row", params, width, width // 2, pictures * height, target)]
    if height > 1:
        params = {"input": rows, "output": result, "columns": columns}
        launches.append(_fft("columns", params, height, height, pictures * columns, target))
    return (Alternative("plain", tuple(launches)),)


def _fft(
    what: str, params: Params, length: int, numbers: int, tiles: int, target: Target
) -> Launch:
    """Return the launch that transforms `numbers` complex numbers per tile.

    `length`: divisions of the unit circle for the twiddle factors.
    """
    file, group = "rfft2d", target.group_items
    fields: Params = {
        "length": length,
        "turns": Constant(8 * (length // 2 + 1), lambda: _twiddle_factors(length)),
        "places": Constant(4 * numbers, lambda: _bit_reversal(numbers)),
    }
    defines: Defines = {"ALONE": int(group == 1), "SCRATCH_INTS": 2 * numbers}
    return launch_of(file, f"{file}_{what}_float", tiles, group, params | fields, defines)


def _twiddle_factors(length: int) -> NDArray[np.float32]:
    """Return the first half of the `length` roots of unity, and one more.

    Those at multiples of 90 degrees are exact, so that zeros in TFLite are zeros here.
    """
    angles = -2 * math.pi / length * np.arange(length // 2 + 1)
    parts = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return np.where(np.abs(parts) < 1e-15, 0, parts).astype(np.float32)


def _bit_reversal(count: int) -> NDArray[np.int32]:
    """Return each number below `count`, a power of two, with its bits reversed."""
    indices = np.zeros(1, np.int32)
    while indices.size < count:
        indices = np.concatenate([2 * indices, 2 * indices + 1])
    return indices.astype(np.int32)


@lowers("COMPLEX_ABS", floats=roundings(Growth.STEADY, 2))
@lowers("REAL", "IMAG", floats=SELECTS)
def lower_parts(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Return the magnitude, or the real or imaginary part, of complex numbers.

    Raises:
        Unsupported: types other than complex64 to float32.
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
