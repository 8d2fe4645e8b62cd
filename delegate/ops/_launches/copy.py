# SPDX-License-Identifier: Apache-2.0
"""Copies of boxes of elements between tensors, to which most ops without arithmetic reduce.

Dimensions are merged, and elements grouped into wider types.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Constant, Defines, Launch, Params, temporary
from delegate.ops._checks import quantized
from delegate.ops._launches.tiles import LEAST_ELEMENTS, by_elements, launch_of, over_elements
from delegate.ops._launches.types import WIDEST_BYTES, copy_type, type_of_bytes
from delegate.ops._numbers import ceil_div
from delegate.target import Target

MOST_DIMENSIONS = 8  # after merging
_COLUMNS = (2, 3, 4)  # elements of a row that compilers make vectors of


@dataclass(frozen=True, slots=True)
class Box:
    """A strided box of elements in a source and in a result, outermost dimension first."""

    sizes: tuple[int, ...]
    # Strides in elements: 0 repeats an element, negative ones go backwards.
    in_steps: tuple[int, ...]
    out_steps: tuple[int, ...]
    in_start: int = 0  # offset of the first element
    out_start: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """Copies a box of a tensor, or one constant value, into a result."""

    source: Tensor | NDArray[np.generic]
    result: Tensor
    box: Box


def steps_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense tensor, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def zero_of(tensor: Tensor) -> NDArray[np.generic]:
    """Return the value that represents 0.0: the zero point, or 0 if there is none.

    Raises:
        Unsupported: several zero points, or one out of the type's range.
    """
    points = (0,) if tensor.quantization is None else tensor.quantization.zero_point
    if tensor.dtype not in quantized.QUANT:
        points = (0,)
    if len(points) != 1:
        raise Unsupported(f"{len(points)} zero points: only one per tensor here")
    if points[0] and not np.iinfo(tensor.dtype).min <= points[0] <= np.iinfo(tensor.dtype).max:
        raise Unsupported(f"zero point {points[0]}: outside {tensor.dtype}")
    return np.array(points, tensor.dtype)


def fill(value: NDArray[np.generic], result: Tensor, shape: Sequence[int], start: int = 0) -> Move:
    """Return the move that sets a box of the result to a value, `shape` from element `start` on.

    Shapes:
        value: one element of the result's type; shape: of the result's rank
    """
    zero_strides = (0,) * len(result.shape)
    return Move(value, result, Box(tuple(shape), zero_strides, steps_of(result.shape), 0, start))


def slice_of(source: Tensor, result: Tensor, axis: int, start: int, count: int) -> Move:
    """Return the move of a slice of a source, `count` from index `start` on along an axis.

    The result is dense. With a `count` of 1 it may lack the axis.
    """
    sizes = (*source.shape[:axis], count, *source.shape[axis + 1 :])
    steps = steps_of(source.shape)
    return Move(source, result, Box(sizes, steps, steps_of(sizes), start * steps[axis]))


def insertion(source: Tensor, result: Tensor, axis: int, start: int, count: int) -> Move:
    """Return the move that undoes `slice_of`: a dense source becomes a slice of the result."""
    return inverse_move(slice_of(result, source, axis, start, count))


def inverse_move(move: Move) -> Move:
    """Return the move that undoes one between two tensors."""
    assert isinstance(move.source, Tensor)
    box = move.box
    swapped = Box(box.sizes, box.out_steps, box.in_steps, box.out_start, box.in_start)
    return Move(move.result, move.source, swapped)


def by_moves(moves: Sequence[Move], target: Target) -> tuple[Alternative, ...]:
    """Return the alternatives that make the moves, in order; a view if no copy is needed.

    Raises:
        Unsupported: a box that exceeds its tensors or has too many dimensions.
    """
    moves = [move for move in moves if 0 not in move.box.sizes]
    for move in moves:
        _require_inside(move)
    if len(moves) == 1 and isinstance(moves[0].source, Tensor):
        source, result, box = moves[0].source, moves[0].result, _merged(moves[0].box)
        elements = math.prod(result.shape)
        flat = Box((elements,), (1,), (1,)) if elements > 1 else Box((), (), ())
        if box == flat and math.prod(source.shape) == elements:
            return view(source, result)
    return by_copies(moves, target)


def by_copies(moves: Sequence[Move], target: Target) -> tuple[Alternative, ...]:
    """Return the same, but always copy: the result never shares the source's memory.

    Raises:
        Unsupported: see `by_moves`.
    """
    for move in moves:
        _require_inside(move)
    fallback = Alternative("plain", tuple(_launch(move, target, False) for move in moves))
    if target.group_items > 1:
        return (fallback,)
    rows = Alternative("row", tuple(_launch(move, target, True) for move in moves))
    columns = [each for move in moves if (each := _columns(move, target)) is not None]
    if len(columns) != len(moves) or not moves:
        return rows, fallback
    return Alternative("columns", tuple(columns)), rows, fallback


def transposed(source: Tensor, target: Target) -> tuple[Tensor, tuple[Launch, ...]]:
    """Return transposed matrices as a temporary, and the launches that transpose them."""
    *outer, rows, columns = source.shape
    result = temporary("turned matrices", (*outer, columns, rows), source.dtype)
    steps = steps_of(source.shape)
    box = Box(result.shape, (*steps[:-2], 1, columns), steps_of(result.shape))
    return result, by_copies([Move(source, result, box)], target)[0].launches


def view(source: Tensor, result: Tensor) -> tuple[Alternative, ...]:
    """Return the single alternative of a node whose output shares its input's memory."""
    return (Alternative("view", (), view=(source, result)),)


def group_size(width: int, *numbers: int) -> int:
    """Return how many elements of `width` bytes are copied as one: a divisor of all `numbers`."""
    return math.gcd(WIDEST_BYTES // width, *numbers)


def _require_inside(move: Move) -> None:
    # A last line of defence: whatever an op computes, copies stay inside the tensors.
    box = move.box
    source = 1 if isinstance(move.source, np.ndarray) else math.prod(move.source.shape)
    for start, steps, elements in (
        (box.in_start, box.in_steps, source),
        (box.out_start, box.out_steps, math.prod(move.result.shape)),
    ):
        extents = [(size - 1) * step for size, step in zip(box.sizes, steps, strict=True)]
        first = start + sum(distance for distance in extents if distance < 0)
        last = start + sum(distance for distance in extents if distance > 0)
        if first < 0 or last >= elements:
            raise Unsupported(f"elements {first} to {last} of {elements}: outside of the tensor")


def _merged(box: Box) -> Box:
    """Return the box without dimensions of size 1, and adjacent ones merged if strides allow."""
    columns: list[tuple[int, int, int]] = []
    for size, inwards, outwards in zip(box.sizes, box.in_steps, box.out_steps, strict=True):
        if size == 1:
            continue
        if columns and columns[-1][1:] == (inwards * size, outwards * size):
            size *= columns.pop()[0]
        columns.append((size, inwards, outwards))
    sizes, in_steps, out_steps = zip(*columns, strict=True) if columns else ((), (), ())
    return Box(sizes, in_steps, out_steps, box.in_start, box.out_start)


def _widened(box: Box, width: int, is_value: bool) -> tuple[Box, int]:
    """Return the box in units of the widest elements that divide it, and their bytes."""
    if not box.sizes or box.out_steps[-1] != 1 or box.in_steps[-1] != (0 if is_value else 1):
        return box, width
    numbers = (
        box.sizes[-1], box.in_start, box.out_start, *box.in_steps[:-1], *box.out_steps[:-1]
    )  # fmt: skip
    group = group_size(width, *numbers)
    if group == 1:
        return box, width
    return _merged(
        Box(
            (*box.sizes[:-1], box.sizes[-1] // group),
            (*(step // group for step in box.in_steps[:-1]), box.in_steps[-1]),
            (*(step // group for step in box.out_steps[:-1]), 1),
            box.in_start // group,
            box.out_start // group,
        )
    ), width * group  # fmt: skip


def _columns(move: Move, target: Target) -> Launch | None:
    """Return the launch of rows of few elements, each from a plane of its own; None: it is not."""
    box = _merged(move.box)
    if isinstance(move.source, np.ndarray) or len(box.sizes) != 2:
        return None
    (rows, columns), (step, plane) = box.sizes, box.in_steps
    if step != 1 or box.out_steps != (columns, 1) or columns not in _COLUMNS:
        return None
    params: Params = {
        "input": move.source,
        "output": move.result,
        "in_start": box.in_start,
        "out_start": box.out_start,
        "in_0": plane,
    }
    copy_type(move.result)
    width = np.dtype(move.result.dtype).itemsize
    defines: Defines = {"ELEM": type_of_bytes(width), "COLUMNS": columns}
    least = LEAST_ELEMENTS // columns
    return over_elements("copy", "copy_columns", rows, target, params, defines, least)


def _launch(move: Move, target: Target, is_row: bool) -> Launch:
    copy_type(move.result)
    width = np.dtype(move.result.dtype).itemsize
    source: Tensor | Constant
    if isinstance(move.source, np.ndarray):
        values = np.repeat(move.source.ravel(), WIDEST_BYTES // width)
        source = Constant(WIDEST_BYTES, lambda: values)
    else:
        source = move.source
    box, width = _widened(_merged(move.box), width, isinstance(source, Constant))
    missing = MOST_DIMENSIONS - len(box.sizes)
    if missing < 0:
        raise Unsupported(f"{len(box.sizes)} dimensions that differ: at most {MOST_DIMENSIONS}")
    params: Params = {
        "input": source,
        "output": move.result,
        "is_constant": int(isinstance(source, Constant)),
        "in_start": box.in_start,
        "out_start": box.out_start,
        "dims": len(box.sizes),
    }
    columns = zip(box.sizes, box.in_steps, box.out_steps, strict=True)
    for axis, column in enumerate((*reversed([*columns]), *((1, 0, 0),) * missing)):
        params |= {
            f"{name}_{axis}": n for name, n in zip(("size", "in", "out"), column, strict=True)
        }
    elements = math.prod(box.sizes)
    tiling = by_elements(elements, target)
    tiles = tiling.tiles
    if is_row:
        row = box.sizes[-1] if box.sizes else 1
        part = min(row, tiling.tile_items)
        tile_rows = max(1, tiling.tile_items // row)
        rows, parts = elements // row, ceil_div(row, part)
        params |= {"rows": rows, "tile_rows": tile_rows, "parts": parts, "part": part}
        tiles = ceil_div(rows, tile_rows) * parts
    else:
        params |= {"elements": elements, "tile_items": tiling.tile_items}
    kernel = "copy_row" if is_row else "copy"
    defines: Defines = {"ELEM": type_of_bytes(width)}
    return launch_of("copy", kernel, tiles, tiling.group_items, params, defines)
