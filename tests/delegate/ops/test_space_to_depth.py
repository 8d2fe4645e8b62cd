# SPDX-License-Identifier: Apache-2.0
"""SPACE_TO_DEPTH: what it refuses, and blocks of every size against TFLite's."""

from __future__ import annotations

from delegate.inspect import Node
from tests.support.cases import changed
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import (
    BLOCK_TYPES,
    BLOCKS,
    MOVE_WAYS,
    assert_moved,
    assert_moved_or_refused,
    deep_and_wide,
    drawn_blocks,
)


def blocks(n: int, h: int, w: int, c: int, block: int, dtype: str = "uint8") -> Node:
    deep, wide = deep_and_wide(n, h, w, c, block, dtype)
    return op("SPACE_TO_DEPTH", [wide], [deep], {"block_size": block})


NODE = blocks(1, 2, 3, 4, 2)
REFUSALS = {
    "block_0": (
        changed(NODE, options={"block_size": 0}),
        "block 0 of 1x4x6x4: only whole blocks of rank 4",
    ),
    "block_5": (
        changed(NODE, options={"block_size": 5}),
        "block 5 of 1x4x6x4: only whole blocks of rank 4",
    ),
    "rank": (changed(NODE, 0, shape=(4, 4, 4)), "block 2 of 4x4x4: only whole blocks of rank 4"),
    "output": (changed(NODE, -1, shape=(1, 4, 6, 3)), "output 1x4x6x3: the inputs give 1x2x3x16"),
    "int16": (blocks(1, 2, 3, 4, 2, "int16"), "int16: only uint8, int8, int32, int64, float32"),
}
CASES = {name: blocks(*sizes) for name, sizes in BLOCKS.items()}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_WAYS, assert_moved)
test_types = types(lambda dtype: blocks(2, 3, 4, 5, 2, dtype), BLOCK_TYPES, assert_moved)
test_drawn = drawn(drawn_blocks(blocks), MOVE_WAYS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [blocks(1, size, size, channels, 2, dtype)]
