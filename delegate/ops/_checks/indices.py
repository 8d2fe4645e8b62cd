# SPDX-License-Identifier: Apache-2.0
"""Indices on which TFLite, and so a run of the delegate, fails if they are out of range."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import Requirement


def constant_rows(tensor: Tensor, sizes: Sequence[int]) -> NDArray[np.int64] | None:
    """Return the coordinates of constant indices after checking them; None: not constant.

    Shapes:
        tensor: rows x coordinates elements; sizes: one per coordinate
        -> (rows, coordinates)
    Raises:
        Unsupported: an index out of range, or int16 indices that are not constant.
    """
    if tensor.data is None:
        if tensor.dtype == "int16":
            raise Unsupported("non-constant indices of int16: only int32 and int64")
        return None
    rows = np.asarray(tensor.data).astype(np.int64).reshape(-1, len(sizes))
    for axis, size in enumerate(sizes):
        least, greatest = int(rows[:, axis].min()), int(rows[:, axis].max())
        if least < 0 or greatest >= size:
            wrong = least if least < 0 else greatest
            raise Unsupported(f"an index is {wrong}: outside of {size} elements")
    return rows


def require_inside(tensor: Tensor, sizes: Sequence[int]) -> tuple[Requirement, ...]:
    """Return the requirement that indices are in range; none if that is already known.

    `sizes`: one per coordinate (the last dimension), or a single one for all.
    """
    if tensor.data is not None or _is_known(tensor, sizes):
        return ()
    most = tuple(size - 1 for size in sizes)
    extents = "x".join(map(str, sizes))
    rule = f"outside of {extents} elements"
    return (Requirement(tensor, "an index", rule, 0, most if len(most) > 1 else most[0]),)


def _is_known(tensor: Tensor, sizes: Sequence[int]) -> bool:
    """Whether value range analysis (graph/ranges.py) proves that the indices are in range."""
    if tensor.ranges is None:
        return False
    low, high = tensor.ranges
    matches_shape = low.shape == high.shape == tensor.shape
    return matches_shape and bool((low >= 0).all() and (high.reshape(-1, len(sizes)) < sizes).all())
