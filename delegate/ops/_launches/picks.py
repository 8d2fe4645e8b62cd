# SPDX-License-Identifier: Apache-2.0
"""Rows that are picked by indices: what GATHER and GATHER_ND share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Constant, Defines, Params
from delegate.ops._checks.shapes import shape_text
from delegate.ops._launches.copy import joined, steps_of
from delegate.ops._launches.tiles import by_elements, launch_over
from delegate.ops._launches.types import type_of_bytes
from delegate.target import Target


@dataclass(frozen=True, slots=True)
class LookUp:
    """How indices name rows: a source has blocks of groups of rows, and each block its picks."""

    sizes: tuple[int, ...]  # of a group, one for each coordinate of an index
    row: int  # elements
    picks: int  # rows that are taken of a block; blocks may share theirs


def require_index(tensor: Tensor) -> None:
    """Check the type of indices.

    Raises:
        Unsupported: another type than int16, int32 or int64.
    """
    if tensor.dtype not in ("int16", "int32", "int64"):
        raise Unsupported(f"{tensor.dtype} indices: only int16, int32 and int64")


def reach_of(tensor: Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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


def picked(
    source: Tensor, result: Tensor, indices: Tensor, look_up: LookUp, target: Target
) -> tuple[Alternative, ...]:
    """Return the launch that copies the picked rows.

    Raises:
        Unsupported: an index that is, or may be, out of range.
    """
    low, high = (each.reshape(-1, len(look_up.sizes)) for each in reach_of(indices))
    for axis, size in enumerate(look_up.sizes):
        least, greatest = int(low[:, axis].min()), int(high[:, axis].max())
        if least < 0 or greatest >= size:
            wrong = least if least < 0 else greatest
            may_be = "may be" if indices.data is None else "is"
            raise Unsupported(f"an index {may_be} {wrong}: outside of {size} elements")
    width = np.dtype(source.dtype).itemsize
    times = joined(width, look_up.row)
    elements = math.prod(result.shape) // times
    tiling = by_elements(elements, target)
    group = math.prod(look_up.sizes)
    blocks = math.prod(source.shape) // (group * look_up.row)
    steps = steps_of(look_up.sizes)
    params: Params = {
        "input": source,
        "output": result,
        "picks": look_up.picks,
        "repeats": blocks // (len(low) // look_up.picks),
        "group": group,
        "row": look_up.row // times,
        "elements": elements,
    }
    defines: Defines = {"ELEM": type_of_bytes(width * times)}
    if indices.data is not None:
        rows = (low @ np.array(steps, np.int64)).astype(np.int32)
        params["table"] = Constant(rows.nbytes, lambda: rows)
    else:
        table = np.array(steps, np.int32)
        params |= {"indices": indices, "axes": len(steps)}
        params["steps"] = Constant(table.nbytes, lambda: table)
        defines["WORDS"] = 2 if indices.dtype == "int64" else 1
    launch = launch_over(
        "gather",
        "gather" if indices.data is not None else "gather_computed",
        tiling,
        params,
        defines,
    )
    return (Alternative("plain", (launch,)),)
