# SPDX-License-Identifier: Apache-2.0
"""Sizes computed from shapes, as converters write Flatten, U-Nets and masks.

Folding makes them constant. On the CPU, some of them make tensors dynamic.
"""

from __future__ import annotations

import math
from dataclasses import replace

from delegate.inspect import Tensor
from tests.attacks.fuzz.drawing import Pen, numbers_of
from tflite_opencl.models.build import numbers


def _shape_of(pen: Pen, x: Tensor) -> Tensor:
    return pen.compute("SHAPE", [x], (len(x.shape),), {"out_type": "int32"})


def _size_of(pen: Pen, shape: Tensor, axis: int) -> Tensor:
    """Return the size of one dimension, as a scalar."""
    if pen.may(0.3):
        return pen.compute("GATHER", [shape, numbers(axis)], (), {"axis": 0, "batch_dims": 0})
    ends = [numbers([place]) for place in (axis, axis + 1, 1)]
    return pen.compute("STRIDED_SLICE", [shape, *ends], (), {"shrink_axis_mask": 1})


def _packed(pen: Pen, parts: list[Tensor]) -> Tensor:
    return pen.compute("PACK", parts, (len(parts),), {"values_count": len(parts), "axis": 0})


def _sized(pen: Pen, computed: Tensor) -> None:
    """Replace the last node's sizes, its second input, by a computed tensor."""
    last = pen.nodes[-1]
    pen.nodes[-1] = replace(last, inputs=(last.inputs[0], computed, *last.inputs[2:]))


def flatten(pen: Pen) -> None:
    """Keras' Flatten and Reshape: the batch is read from the shape, the rest is constant."""
    x = pen.source()
    shape = _shape_of(pen, x)
    rest = math.prod(x.shape[1:])
    rows = [_size_of(pen, shape, 0), numbers(-1 if pen.may(0.3) else rest)]
    sizes = [x.shape[0], rest]
    if pen.may(0.3) and len(x.shape) > 2:
        rows, sizes = [rows[0], numbers(x.shape[1]), numbers(-1)], [*x.shape[:2], -1]
    computed = _packed(pen, rows)
    pen.add("RESHAPE", [x, numbers(sizes)], {"new_shape": []}, given=numbers_of(x))
    _sized(pen, computed)


def back(pen: Pen) -> None:
    """A flattened tensor is reshaped back, as in group norm."""
    x = pen.source()
    shape = _shape_of(pen, x)
    flat = [1, -1] if x.shape[0] == 1 else [-1]
    (y,) = pen.add("RESHAPE", [x, numbers(flat)], {"new_shape": flat}, given=numbers_of(x))
    if pen.may(0.5):
        (y,) = pen.add("ABS" if x.dtype in ("float32", "int8") else "RESHAPE", _alone(y, flat))
    pen.add("RESHAPE", [y, numbers(x.shape)], {"new_shape": []}, given=numbers_of(y))
    _sized(pen, shape)


def _alone(y: Tensor, flat: list[int]) -> list[Tensor | None]:
    return [y] if y.dtype in ("float32", "int8") else [y, numbers(flat)]


def twice_as_large(pen: Pen) -> None:
    """A picture is resized to a multiple of its size."""
    x, factor = pen.source(4), pen.one_of((1, 2, 3))
    shape = _shape_of(pen, x)
    places = [numbers([place]) for place in (1, 3, 1)]
    sizes = pen.compute("STRIDED_SLICE", [shape, *places], (2,), {})
    wanted = pen.compute("MUL", [sizes, numbers([factor, factor])], (2,), {})
    op = pen.one_of(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"))
    pen.add(op, [x, numbers([factor * size for size in x.shape[1:3]])], {})
    _sized(pen, wanted)


def like(pen: Pen) -> None:
    """A constant is broadcast to another tensor's shape, or fills it."""
    x = pen.source()
    shape = _shape_of(pen, x)
    value = pen.operand((1,) * len(x.shape), x.dtype, numbers_of(x))
    pen.add("BROADCAST_TO", [value, numbers(x.shape)], given=numbers_of(x))
    _sized(pen, shape)


def all_but_some(pen: Pen) -> None:
    """A SLICE with a computed size, one shorter in a dimension if possible."""
    x = pen.source()
    less = [int(size > 1 and pen.may(0.5)) for size in x.shape]
    shape = _shape_of(pen, x)
    sizes = pen.compute("SUB", [shape, numbers(less)], (len(less),), {})
    wanted = [size - one for size, one in zip(x.shape, less, strict=True)]
    pen.add("SLICE", [x, numbers([0] * len(less)), numbers(wanted)], given=numbers_of(x))
    last = pen.nodes[-1]
    pen.nodes[-1] = replace(last, inputs=(*last.inputs[:2], sizes))


# Frequencies.
OFTEN = ((2, flatten), (1, back), (1, twice_as_large), (1, like), (1, all_but_some))
