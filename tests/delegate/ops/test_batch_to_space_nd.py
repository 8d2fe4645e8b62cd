# SPDX-License-Identifier: Apache-2.0
"""BATCH_TO_SPACE_ND: what it refuses, and every crop against TFLite's."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node
from tests.support.cases import changed
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import ANY, MOVE_WAYS, assert_moved, assert_moved_or_refused, like, numbers


def spread(
    shape: tuple[int, ...], blocks: list[int], crops: list[list[int]], dtype: str = "uint8"
) -> Node:
    sizes = [n * b - sum(c) for n, b, c in zip(shape[1:], blocks, crops, strict=False)]
    result = (shape[0] // math.prod(blocks), *sizes, shape[-1])
    inputs = [like(shape, dtype), numbers(blocks), numbers(crops)]
    return op("BATCH_TO_SPACE_ND", inputs, [like(result, dtype)])


NODE = spread((4, 2, 3, 5), [2, 2], [[0, 1], [1, 0]])
REFUSALS = {
    "computed_blocks": (changed(NODE, 1, data=None), "computed block sizes: only constant"),
    "computed_crops": (changed(NODE, 2, data=None), "computed crops: only constant"),
    "blocks": (changed(NODE, 1, data=np.array([0, 2])), "block sizes [0, 2]: at least 1 is needed"),
    "crops": (
        changed(NODE, 2, data=np.array([[0, 1], [-1, 0]])),
        "crops [[0, 1], [-1, 0]] of 4x2x3x5",
    ),
    "batch": (changed(NODE, 0, shape=(6, 2, 3, 5)), "batch 6: blocks of 4 do not divide it"),
    "rank": (changed(NODE, 0, shape=(4, 6)), "input 4x6: only rank 3 and 4"),
    "output": (changed(NODE, -1, shape=(1, 3, 6, 5)), "output 1x3x6x5: the inputs give 1x3x5x5"),
    "scales": (
        changed(NODE, -1, quantization=None),
        "input and output differ in scale or zero point",
    ),
}
CASES = {
    "no_crops": spread((4, 3, 5, 16), [2, 2], [[0, 0], [0, 0]]),
    "crops": spread((4, 3, 5, 3), [2, 2], [[1, 0], [0, 1]]),
    "wide_crops": spread((12, 3, 5, 2), [4, 3], [[5, 2], [4, 7]]),
    "batch": spread((12, 3, 2, 5), [2, 3], [[1, 1], [2, 1]]),
    "inside_a_block": spread((16, 1, 1, 3), [4, 4], [[1, 1], [2, 1]]),
    "block_1": spread((2, 3, 5, 3), [1, 1], [[1, 1], [0, 2]]),
    "one_dimension": spread((6, 5, 4), [3], [[2, 2]]),
    "large": spread((4, 17, 19, 32), [2, 2], [[0, 1], [1, 0]]),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_WAYS, assert_moved)
test_types = types(
    lambda dtype: spread((4, 2, 3, 5), [2, 2], [[0, 1], [1, 0]], dtype), ANY, assert_moved
)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    blocks = draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
    sizes = [draw(st.integers(1, 5)) for _ in blocks]
    crops = []
    for size, block in zip(sizes, blocks, strict=True):
        first = draw(st.integers(0, size * block - 1))
        crops.append([first, draw(st.integers(0, size * block - 1 - first))])
    batch = math.prod(blocks) * draw(st.integers(1, 3))
    shape = (batch, *sizes, draw(st.integers(1, 9)))
    return spread(shape, blocks, crops, draw(st.sampled_from(ANY)))


test_drawn = drawn(nodes(), MOVE_WAYS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [spread((4, size, size, channels), [2, 2], [[0, 1], [1, 0]], dtype)]
