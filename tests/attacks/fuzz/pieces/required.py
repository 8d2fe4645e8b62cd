# SPDX-License-Identifier: Apache-2.0
"""Nodes on which TFLite fails for some values: computed divisors and indices.

Mostly a clamp prevents these values. One named BEYOND lets one of them through, and
TFLite and the delegate fail on some inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from delegate.inspect import Graph, Tensor
from tests.attacks.fuzz.drawing import QUANT, Numbers, Pen, Skip, numbers_of, scale_of
from tflite_opencl.models.build import FUSED, numbers

_BEYOND = "beyond"
_OPEN = 0.2  # name of clamps
_PLACES = ((1,), (4,), (2, 3))


def may_fail(whole: Graph) -> bool:
    """Whether a clamp of a graph lets failing values through."""
    return any(each.name == _BEYOND for each in whole.tensors)


def required(pen: Pen) -> None:
    """A node with a requirement."""
    pen.is_clamped = True
    try:
        pen.one_of((_divided, _divided, _picked, _picked_by_rows, _scattered))(pen)
    finally:
        pen.is_clamped = False


def _divided(pen: Pen) -> None:
    """DIV, FLOOR_DIV or FLOOR_MOD with positive or negative divisors."""
    x = pen.source()
    op = pen.one_of(("DIV", "DIV", "FLOOR_DIV", "FLOOR_MOD"))
    shape = pen.narrowed(x.shape)
    y = pen.operand(shape, x.dtype)
    if y.data is not None:
        y = pen.input(shape, x.dtype)
    given = numbers_of(y)
    zero = int(given[1]) if given and op == "DIV" else 0
    # The smallest integer divided by -1 crashes TFLite.
    step = pen.one_of((1, -1 if x.dtype in (*QUANT, "float32") else -2))
    bound = zero if (is_open := pen.may(_OPEN)) else zero + step
    if x.dtype == "bool" or (
        x.dtype in QUANT and not np.iinfo(x.dtype).min <= bound <= np.iinfo(x.dtype).max
    ):
        raise Skip
    divisors = _clamped(pen, "MAXIMUM" if step > 0 else "MINIMUM", y, [bound], is_open)
    if op == "DIV":
        about = scale_of(x) / scale_of(divisors) if given else None
        pen.add(op, [x, divisors], {"fused_activation_function": pen.one_of(FUSED)}, about=about)
    else:
        pen.add(op, [x, divisors])


def _clamped(
    pen: Pen, op: str, x: Tensor, bounds: Sequence[float], is_open: bool = False
) -> Tensor:
    """Return the maximum or minimum of a tensor and bounds, along the last dimension."""
    given: Numbers = numbers_of(x)
    bound = pen.constant((len(bounds),), x.dtype, given, np.array(bounds))
    if is_open:
        bound = replace(bound, name=_BEYOND)
    (result,) = pen.add(op, [x, bound], given=given)
    return result


def _indices(pen: Pen, shape: Sequence[int], sizes: Sequence[int], kind: str) -> Tensor:
    """Return computed coordinates. Shapes: shape -> (*shape, coordinates)"""
    own = (*shape, len(sizes))
    results = [each for each in pen.pool if (each.shape, each.dtype) == (own, kind)]
    x = pen.one_of(results) if results and pen.may(0.5) else pen.input(own, kind)
    is_open = pen.may(_OPEN)
    low = _clamped(pen, "MAXIMUM", x, [0] * len(sizes))
    return _clamped(pen, "MINIMUM", low, [size - (not is_open) for size in sizes], is_open)


def _picked(pen: Pen) -> None:
    """GATHER with indices converted from floats."""
    x, floats = pen.source(), pen.source(dtype="float32")
    is_open = pen.may(_OPEN)
    low = _clamped(pen, "MAXIMUM", floats, [0.0])
    inside = _clamped(pen, "MINIMUM", low, [x.shape[0] - 1.0 + is_open], is_open)
    types = {"in_data_type": "float32", "out_data_type": "int32"}
    (places,) = pen.add("CAST", [inside], types, dtype="int32")
    pen.add("GATHER", [x, places], {"axis": 0, "batch_dims": 0}, given=numbers_of(x))


def _picked_by_rows(pen: Pen) -> None:
    """GATHER_ND."""
    x = pen.source()
    depth = pen.random.randint(1, len(x.shape))
    kind = pen.one_of(("int32", "int32", "int64"))
    rows = _indices(pen, pen.one_of(_PLACES), x.shape[:depth], kind)
    pen.add("GATHER_ND", [x, rows], given=numbers_of(x))


def _scattered(pen: Pen) -> None:
    """SCATTER_ND, possibly with duplicate rows."""
    like = pen.source()
    shape = pen.shape(pen.one_of((1, 2, 3, 4)))
    depth, places = pen.random.randint(1, len(shape)), pen.one_of(_PLACES)
    updates = pen.operand((*places, *shape[depth:]), like.dtype)
    rows = _indices(pen, places, shape[:depth], "int32")
    given = numbers_of(updates)
    pen.add("SCATTER_ND", [rows, updates, numbers(shape)], dtype=like.dtype, given=given)


OFTEN = ((4, required),)
