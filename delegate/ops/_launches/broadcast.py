# SPDX-License-Identifier: Apache-2.0
"""Strides of tensors that are broadcast to a result."""

from __future__ import annotations

from collections.abc import Sequence

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.ops._checks.node import shape_text


def broadcast(
    result: Tensor, *sources: Tensor
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Return the result's dimensions, and each source's strides along them.

    Dimensions of size 1 are dropped, and adjacent ones merged where all strides allow.

    Shapes:
        -> (sizes of the dimensions, outermost first), and for each source the strides in elements,
        0 where it is broadcast
    Raises:
        Unsupported: a source that cannot be broadcast to the result.
    """
    rank = len(result.shape)
    columns: list[tuple[int, tuple[int, ...]]] = []  # innermost first
    steps = [1] * len(sources)
    for axis in range(1, rank + 1):
        size = result.shape[-axis]
        strides = []
        for index, source in enumerate(sources):
            extent = source.shape[-axis] if axis <= len(source.shape) else 1
            if extent not in (1, size):
                raise Unsupported(
                    f"{shape_text(source)} cannot be broadcast to {shape_text(result)}"
                )
            strides.append(steps[index] if extent > 1 else 0)
            steps[index] *= extent
        if size == 1:
            continue
        if columns:
            inner, inner_strides = columns[-1]
            if all(s == b * inner for s, b in zip(strides, inner_strides, strict=True)):
                columns[-1] = (inner * size, inner_strides)
                continue
        columns.append((size, tuple(strides)))
    if any(len(source.shape) > rank for source in sources):
        raise Unsupported(f"more dimensions than the result's {rank}")
    columns.reverse()
    sizes = tuple(size for size, _ in columns)
    return sizes, tuple(tuple(s[n] for _, s in columns) for n in range(len(sources)))


def padded(values: Sequence[int], rank: int, absent: int) -> list[int]:
    """Return `values`, padded with leading `absent` to `rank` numbers.

    Raises:
        Unsupported: there are more than `rank`.
    """
    if len(values) > rank:
        raise Unsupported(f"{len(values)} dimensions that differ: at most {rank} are implemented")
    return [absent] * (rank - len(values)) + list(values)
