# SPDX-License-Identifier: Apache-2.0
"""SPACE_TO_DEPTH, SPACE_TO_BATCH_ND and their opposites: blocks of pixels move to another axis."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tflite_opencl.common.build import Shape, numbers, sizes
from tflite_opencl.conformance.cases.movement.row import Inputs, Moved, Row, pairs, without

_KINDS = without("16x8", "bool")
_DEPTHS: tuple[tuple[Shape, int], ...] = (  # sizes are made multiples of the block
    ((1, 4, 6, 3), 2),
    ((2, 6, 3, 5), 3),
    ((1, 8, 8, 16), 4),
)
_BATCHES: tuple[tuple[Shape, Shape, tuple[tuple[int, int], ...]], ...] = (
    # shape, block, pads or crops: (before, after) of height and width
    ((1, 4, 6, 3), (2, 2), ((0, 0), (0, 0))),
    ((2, 5, 4, 8), (3, 2), ((1, 0), (1, 1))),
    ((1, 7, 7, 5), (4, 4), ((1, 0), (0, 1))),
)


def rows() -> Iterator[Row]:
    """Yield this family's rows."""
    for shape, block in _DEPTHS:
        n, c = shape[0], shape[3]
        h, w = (int(np.lcm(side, block)) for side in shape[1:3])
        whole: Shape = (n, h, w, c)
        flat: Shape = (n, h // block, w // block, c * block * block)
        for op, source, out in (("SPACE_TO_DEPTH", whole, flat), ("DEPTH_TO_SPACE", flat, whole)):
            detail = f"in{sizes(source)}-block{block}"
            yield Row(op, _KINDS, detail, [Moved(source)], [out], {"block_size": block})
    for shape, blocks, edges in _BATCHES:
        h, w = (s + sum(e) for s, e in zip(shape[1:3], edges, strict=True))
        count = shape[0] * blocks[0] * blocks[1]
        split: Shape = (count, h // blocks[0], w // blocks[1], shape[3])
        for op, source, out in (
            ("SPACE_TO_BATCH_ND", shape, split),
            ("BATCH_TO_SPACE_ND", split, shape),
        ):
            detail = f"in{sizes(source)}-block{sizes(blocks)}-edges{pairs(edges)}"
            inputs: Inputs = [Moved(source), numbers(blocks), numbers(edges)]
            yield Row(op, _KINDS, detail, inputs, [out], versions={"int8": 2})
