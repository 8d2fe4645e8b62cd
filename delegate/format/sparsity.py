# SPDX-License-Identifier: Apache-2.0
"""Sparse constants: conversion to and from dense arrays."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from delegate.format.table import Table

Indices = NDArray[np.int64]
# The size of a dense level, or the segments and indices of a sparse one.
Level = int | tuple[Indices, Indices]


def dense(values: NDArray[np.generic], shape: tuple[int, ...], table: Table) -> NDArray[np.generic]:
    """Return a sparse tensor's values as a dense array.

    Dimensions are traversed in the traversal order, block dimensions last; at a dense level each
    index of the previous one has all indices, at a sparse level those listed.

    Shapes:
        values (stored,) -> shape
    Raises:
        ValueError: inconsistent parameters.
    Source: tflite/kernels/internal/utils/sparsity_format_converter.cc
    """
    order = table.numbers("traversal_order")
    blocked = table.numbers("block_map")
    levels = [_level(each) for each in table.tables("dim_metadata", f"{table.where}: level")]
    rank = len(shape)
    if sorted(order) != list(range(rank + len(blocked))) or len(levels) != len(order):
        raise ValueError("not an order of the dimensions")
    if any(not 0 <= axis < rank for axis in blocked):
        raise ValueError("a block of no dimension")
    # Each path ends at its own stored value, and has a segment before a sparse level.
    segments = (each[0].size for each in levels if not isinstance(each, int))
    most_paths = max(values.size, *segments, 1)
    at = np.zeros(1, np.int64)  # position in the next level, by path
    index: dict[int, Indices] = {}  # dimension -> its index, by path
    for dimension, level in zip(order, levels, strict=True):
        parents, at, own = _walked(level, at, most_paths)
        index = {known: each[parents] for known, each in index.items()} | {dimension: own}
    blocks = {axis: rank + place for place, axis in enumerate(blocked)}
    place = np.zeros(at.size, np.int64)
    for axis, size in enumerate(shape):
        along = index[axis]
        if axis in blocks:
            inner = index[blocks[axis]]
            along = along * _block_size(levels[order.index(blocks[axis])]) + inner
        if along.min(initial=0) < 0 or along.max(initial=-1) >= size:
            raise ValueError("an index out of range")
        place = place * size + along
    if at.max(initial=-1) >= values.size:
        raise ValueError("fewer values than places")
    result = np.zeros(math.prod(shape), values.dtype)
    result[place] = values[at]
    return result.reshape(shape)


def compressed(
    values: NDArray[np.generic],
) -> tuple[NDArray[np.generic], NDArray[np.int32], NDArray[np.int32]]:
    """Return the non-zero values, and the last dimension's segments and indices.

    The inverse of `dense`. All other dimensions are dense, in their own order.

    Shapes:
        values (..., width) -> (stored,), (rows + 1,), (stored,)
    """
    rows = values.reshape(-1, values.shape[-1])
    is_stored = rows.astype(bool)
    segments = np.concatenate([[0], is_stored.sum(1).cumsum()]).astype(np.int32)
    return rows[is_stored], segments, np.nonzero(is_stored)[1].astype(np.int32)


def _level(table: Table) -> Level:
    if table.scalar("format") == 0:
        return int(table.scalar("dense_size"))
    return _indices(table, "array_segments"), _indices(table, "array_indices")


def _block_size(level: Level) -> int:
    if not isinstance(level, int):
        raise ValueError("a sparse block")
    return level


def _walked(level: Level, at: Indices, most_paths: int) -> tuple[Indices, Indices, Indices]:
    """Traverse a level: return the parent path, position and index of each entry."""
    if isinstance(level, int):
        if level < 0 or at.size * level > most_paths:
            raise ValueError("a size that does not fit")
        begin, counts = at * level, np.full(at.size, level)
    else:
        segments, listed = level
        if at.max(initial=-1) + 1 >= segments.size:
            raise ValueError("fewer segments than paths")
        begin, end = segments[at], segments[at + 1]
        if (begin < 0).any() or (end < begin).any() or end.max(initial=0) > listed.size:
            raise ValueError("segments beyond their indices")
        counts = end - begin
        if counts.sum() > most_paths:
            raise ValueError("segments that overlap")
    parents = np.repeat(np.arange(at.size), counts)
    inner = np.arange(parents.size) - (np.cumsum(counts) - counts)[parents]
    places = begin[parents] + inner
    return parents, places, inner if isinstance(level, int) else listed[places]


def _indices(level: Table, name: str) -> Indices:
    table = level.union(name)
    if table is None:
        raise ValueError("a list that is missing")
    return np.array(table.numbers("values"), np.int64)
