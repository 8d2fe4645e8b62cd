# SPDX-License-Identifier: Apache-2.0
"""Constants that ops read on the host: axes, sizes and positions, checked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor


def integers_of(tensor: Tensor, what: str) -> NDArray[np.int64]:
    """Return the values of a constant tensor of indices in its shape.

    Raises:
        Unsupported: it is computed, or not of int32 or int64.
    """
    if tensor.dtype not in ("int32", "int64"):
        raise Unsupported(f"{tensor.dtype} {what}: only int32 and int64")
    if tensor.data is None:
        raise Unsupported(f"computed {what}: only constant")
    return np.asarray(tensor.data).astype(np.int64)


def vector_of(tensor: Tensor, what: str, length: int | None = None) -> list[int]:
    """Return the values of a constant tensor of one dimension.

    Raises:
        Unsupported: it is computed, of another type, rank or length.
    """
    values = integers_of(tensor, what)
    if values.ndim != 1 or length not in (None, values.size):
        raise Unsupported(f"{what} of shape {values.shape}: ({length or 'n'},) is needed")
    return [int(value) for value in values]


def scalar_of(tensor: Tensor, what: str) -> int:
    """Return the one value of a constant tensor.

    Raises:
        Unsupported: it is computed, of another type, or several.
    """
    values = integers_of(tensor, what)
    if values.size != 1:
        raise Unsupported(f"{what} of shape {values.shape}: one number is needed")
    return int(values.ravel()[0])


def axis_of(axis: int, rank: int, what: str = "axis") -> int:
    """Return an axis counted from the first, one below 0 is counted from the last.

    Raises:
        Unsupported: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise Unsupported(f"{what} {axis}: outside of {rank} dimensions")
    return axis % rank
