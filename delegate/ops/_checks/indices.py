# SPDX-License-Identifier: Apache-2.0
"""Indices that TFLite fails on where they are out of range: all must be known to stay inside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.ops._checks.node import shape_text


def inside(tensor: Tensor, sizes: Sequence[int]) -> NDArray[np.int64]:
    """Return the least values of rows of coordinates, a constant's values, if all stay inside.

    Shapes:
        tensor: as many elements as rows x coordinates; sizes: one for each coordinate
        -> (rows, coordinates)
    Raises:
        Unsupported: an index that is, or may be, out of range.
    """
    low, high = (each.reshape(-1, len(sizes)) for each in _reach_of(tensor))
    for axis, size in enumerate(sizes):
        least, greatest = int(low[:, axis].min()), int(high[:, axis].max())
        if least < 0 or greatest >= size:
            wrong = least if least < 0 else greatest
            may_be = "may be" if tensor.data is None else "is"
            raise Unsupported(f"an index {may_be} {wrong}: outside of {size} elements")
    return low


def _reach_of(tensor: Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the least and greatest value of each index; a constant's are its values.

    Raises:
        Unsupported: they are computed, and nothing is proven of them.
    """
    if tensor.data is not None:
        values = np.asarray(tensor.data).astype(np.int64)
        return values, values
    if tensor.ranges is None or tensor.dtype == "int16":
        raise Unsupported("computed indices: one out of range must fail as it does in TFLite")
    low, high = tensor.ranges
    if low.shape != tensor.shape or high.shape != tensor.shape:
        raise Unsupported(f"limits of {low.shape} for indices {shape_text(tensor)}")
    return low, high
