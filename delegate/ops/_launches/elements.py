# SPDX-License-Identifier: Apache-2.0
"""What ops share that visit a tensor element by element: types' names, tiles, broadcasting."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.ops._checks.windows import shape_text
from delegate.target import Target

# OpenCL C's names of the types that kernels compute with; a bool is one byte, 0 or 1.
ELEM = {
    "uint8": "uchar",
    "int8": "char",
    "int16": "short",
    "int32": "int",
    "float32": "float",
    "bool": "uchar",
}
# Where bytes only move, the width is all that counts; there is no 64-bit integer to rely on.
_MOVED = {1: "uchar", 2: "ushort", 4: "uint", 8: "uint2"}


def moved_type(tensor: Tensor) -> str:
    """Return an OpenCL type as wide as the tensor's elements.

    Raises:
        Unsupported: a type without a fixed size, or wider than 8 bytes.
    """
    try:
        dtype = np.dtype(tensor.dtype)
    except TypeError:
        raise Unsupported(f"{tensor.dtype}: only types of a fixed size") from None
    if dtype.hasobject or dtype.itemsize not in _MOVED:
        raise Unsupported(f"{tensor.dtype}: only types of 1, 2, 4 or 8 bytes")
    return _MOVED[dtype.itemsize]


def elements_of(tensor: Tensor) -> int:
    """Return how many elements a tensor has.

    Raises:
        Unsupported: none.
    """
    elements = math.prod(tensor.shape)
    if elements == 0:
        raise Unsupported(f"shape {shape_text(tensor)}: it is empty")
    return elements


def element_tiles(elements: int, target: Target, least: int = 4096) -> tuple[int, int, int]:
    """Return (tiles, group_items, tile_items) of a launch over so many elements.

    Groups of one work-item take as many as make a tile worth claiming, but share the work among
    all cores where there is enough of it.
    """
    if target.group_items > 1:
        tile_items = target.group_items
    else:
        tile_items = min(elements, max(least, -(-elements // (8 * target.compute_units))))
        tile_items = min(tile_items, 32768)  # llvmpipe leaves loops after 65,535 rounds
    return -(-elements // tile_items), target.group_items, tile_items


def broadcast(
    result: Tensor, *sources: Tensor
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Return how a result's elements find those of the sources that are stretched to it.

    Dimensions that all step through alike are merged, those of size 1 left out.

    Shapes:
        -> (sizes of the dimensions, outermost first), and for each source the elements between
        neighbours along each of them, 0 where it is stretched
    Raises:
        Unsupported: a source that does not stretch to the result.
    """
    rank = len(result.shape)
    columns: list[tuple[int, tuple[int, ...]]] = []  # innermost first
    steps = [1] * len(sources)
    for axis in range(1, rank + 1):
        size = result.shape[-axis]
        strides = []
        for number, source in enumerate(sources):
            own = source.shape[-axis] if axis <= len(source.shape) else 1
            if own not in (1, size):
                raise Unsupported(f"{shape_text(source)} does not stretch to {shape_text(result)}")
            strides.append(steps[number] if own > 1 else 0)
            steps[number] *= own
        if size == 1:
            continue
        if columns:
            inner, before = columns[-1]
            if all(s == b * inner for s, b in zip(strides, before, strict=True)):
                columns[-1] = (inner * size, before)
                continue
        columns.append((size, tuple(strides)))
    if any(len(source.shape) > rank for source in sources):
        raise Unsupported(f"more dimensions than the result's {rank}")
    columns.reverse()
    sizes = tuple(size for size, _ in columns)
    return sizes, tuple(tuple(s[n] for _, s in columns) for n in range(len(sources)))


def padded(values: Sequence[int], rank: int, absent: int) -> list[int]:
    """Return `values` with `absent` before them, so that there are `rank`.

    Raises:
        Unsupported: there are more.
    """
    if len(values) > rank:
        raise Unsupported(f"{len(values)} dimensions that differ: at most {rank} are implemented")
    return [absent] * (rank - len(values)) + list(values)
