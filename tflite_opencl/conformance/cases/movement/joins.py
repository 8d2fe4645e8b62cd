# SPDX-License-Identifier: Apache-2.0
"""CONCATENATION and PACK, which join tensors; UNPACK, SPLIT and SPLIT_V, which take them apart."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tflite_opencl.common.build import Shape, numbers, sizes
from tflite_opencl.conformance.cases.movement.row import Moved, Row, joined, without

_CONCATENATIONS: tuple[tuple[tuple[Shape, ...], int], ...] = (
    (((1, 4, 4, 3), (1, 4, 4, 5)), 3),
    (((1, 4, 4, 3), (1, 4, 4, 5)), -1),
    (((1, 2, 5, 7), (1, 3, 5, 7), (1, 1, 5, 7)), 1),
    (((2, 3), (1, 3)), 0),
    (((5,), (8,), (1,), (3,)), 0),
    (((1, 6, 6, 16), (1, 6, 6, 16)), 3),
    (((2, 3, 1, 33), (2, 3, 4, 33)), 2),
)
_STACKS: tuple[tuple[Shape, int, int], ...] = (  # shape, axis, how many
    ((5, 3), 0, 2),
    ((2, 3, 4), -1, 3),
    ((1, 7, 5, 3), 1, 2),
)
_EVEN_SPLITS: tuple[tuple[Shape, int, int], ...] = (  # shape, axis, how many
    ((1, 4, 6, 8), 3, 2),
    ((1, 4, 6, 8), 1, 4),
    ((6, 5), 0, 3),
    ((2, 9), -1, 3),
)
_SPLITS: tuple[tuple[Shape, int, Shape], ...] = (  # shape, axis, sizes; -1: the rest
    ((1, 4, 6, 9), 3, (2, 7)),
    ((7, 5), 0, (1, 2, 4)),
    ((2, 3, 8), -1, (3, -1)),
)


def rows() -> Iterator[Row]:
    """Yield this family's rows."""
    yield from _concatenations()
    yield from _stacks()
    yield from _splits()


def _concatenations() -> Iterator[Row]:
    for shapes, axis in _CONCATENATIONS:
        out = np.concatenate([np.zeros(shape) for shape in shapes], axis).shape
        yield Row(
            "CONCATENATION",
            without("bool"),
            f"in{'_'.join(map(sizes, shapes))}-axis{axis}",
            [Moved(shape) for shape in shapes],
            [out],
            {"axis": axis, "fused_activation_function": "NONE"},
            {"int8": 2, "int16": 3},
        )


def _stacks() -> Iterator[Row]:
    for shape, axis, count in _STACKS:
        whole = np.stack([np.zeros(shape)] * count, axis).shape
        yield Row(
            "PACK",
            without("bool"),
            f"in{sizes(shape)}-axis{axis}-of{count}",
            [Moved(shape)] * count,
            [whole],
            {"axis": axis, "values_count": count},
        )
        yield Row(
            "UNPACK",
            without("int64"),
            f"in{sizes(whole)}-axis{axis}",
            [Moved(whole)],
            [shape] * count,
            {"axis": axis, "num": count},
        )


def _splits() -> Iterator[Row]:
    for shape, axis, count in _EVEN_SPLITS:
        part = np.split(np.zeros(shape), count, axis)[0].shape
        yield Row(
            "SPLIT",
            without("int64", "bool"),
            f"in{sizes(shape)}-axis{axis}-of{count}",
            [numbers(axis), Moved(shape)],
            [part] * count,
            {"num_splits": count},
        )
    for shape, axis, parts in _SPLITS:
        # The last of numpy's parts is the rest, whether its size is given or -1.
        ends = np.cumsum(parts[:-1])
        yield Row(
            "SPLIT_V",
            without("bool"),
            f"in{sizes(shape)}-axis{axis}-of{joined(parts)}",
            [Moved(shape), numbers(parts), numbers(axis)],
            [part.shape for part in np.split(np.zeros(shape), ends, axis)],
            {"num_splits": len(parts)},
        )
