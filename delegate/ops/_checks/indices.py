# SPDX-License-Identifier: Apache-2.0
"""Indices that TFLite fails on where they are out of range, and so do runs of the delegate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import Requirement


def constant_rows(tensor: Tensor, sizes: Sequence[int]) -> NDArray[np.int64] | None:
    """Return the coordinates of constant indices, which stay inside; None: they are computed.

    Shapes:
        tensor: as many elements as rows x coordinates; sizes: one for each coordinate
        -> (rows, coordinates)
    Raises:
        Unsupported: an index out of range, or computed ones of int16.
    """
    if tensor.data is None:
        if tensor.dtype == "int16":
            raise Unsupported("computed indices of int16: only int32 and int64")
        return None
    rows = np.asarray(tensor.data).astype(np.int64).reshape(-1, len(sizes))
    for axis, size in enumerate(sizes):
        least, greatest = int(rows[:, axis].min()), int(rows[:, axis].max())
        if least < 0 or greatest >= size:
            wrong = least if least < 0 else greatest
            raise Unsupported(f"an index is {wrong}: outside of {size} elements")
    return rows


def require_inside(tensor: Tensor, sizes: Sequence[int]) -> tuple[Requirement, ...]:
    """Return the requirement that indices are inside; none where that is known.

    `sizes`: one for each coordinate of a row, the last dimension; a single one holds for all.
    """
    if tensor.data is not None or _is_proven(tensor, sizes):
        return ()
    most = tuple(size - 1 for size in sizes)
    words = "x".join(map(str, sizes))
    rule = f"outside of {words} elements"
    return (Requirement(tensor, "an index", rule, 0, most if len(most) > 1 else most[0]),)


def _is_proven(tensor: Tensor, sizes: Sequence[int]) -> bool:
    """Whether the ranges of computed indices (graph/ranges.py) stay inside."""
    if tensor.ranges is None:
        return False
    low, high = tensor.ranges
    is_fit = low.shape == high.shape == tensor.shape
    return is_fit and bool((low >= 0).all() and (high.reshape(-1, len(sizes)) < sizes).all())
