# SPDX-License-Identifier: Apache-2.0
"""SPACE_TO_BATCH_ND: what it refuses, and every padding against TFLite's."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node
from tests.support.cases import changed, zero_points
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import ANY, MOVE_WAYS, assert_moved, assert_moved_or_refused, like, numbers


def taken(
    shape: tuple[int, ...],
    blocks: list[int],
    paddings: list[list[int]],
    dtype: str = "uint8",
    zero: int = 3,
) -> Node:
    sizes = [(n + sum(pair)) // b for n, b, pair in zip(shape[1:], blocks, paddings, strict=False)]
    result = (shape[0] * math.prod(blocks), *sizes, shape[-1])
    inputs = [like(shape, dtype, zero), numbers(blocks), numbers(paddings)]
    return op("SPACE_TO_BATCH_ND", inputs, [like(result, dtype, zero)])


NODE = taken((1, 3, 5, 2), [2, 2], [[0, 1], [1, 0]])
REFUSALS = {
    "computed_blocks": (changed(NODE, 1, data=None), "computed block sizes: only constant"),
    "computed_paddings": (changed(NODE, 2, data=None), "computed paddings: only constant"),
    "divided": (
        changed(NODE, 2, data=np.array([[0, 0], [1, 0]])),
        "1x3x5x2 padded to [3, 6]: blocks of [2, 2] do not fit",
    ),
    "negative": (
        changed(NODE, 2, data=np.array([[2, -1], [1, 0]])),
        "paddings [[2, -1], [1, 0]] of 1x3x5x2",
    ),
    "rank": (changed(NODE, 0, shape=(4, 6)), "input 4x6: only rank 3 and 4"),
    "output": (changed(NODE, -1, shape=(4, 3, 2, 2)), "output 4x3x2x2: the inputs give 4x2x3x2"),
    "zero_point": (
        taken((1, 3, 5, 2), [2, 2], [[0, 1], [1, 0]], zero=256),
        "zero point 256: outside uint8",
    ),
}
CASES = {
    "no_padding": taken((1, 6, 4, 16), [2, 2], [[0, 0], [0, 0]]),
    "padding": taken((1, 5, 7, 3), [2, 2], [[1, 0], [0, 1]]),
    "wide_padding": taken((2, 3, 2, 5), [3, 4], [[5, 4], [1, 9]], zero=255),
    "batch": taken((3, 4, 6, 5), [2, 3], [[1, 1], [2, 1]], zero=0),
    "inside_a_block": taken((1, 2, 1, 3), [4, 4], [[1, 1], [2, 1]]),
    "block_1": taken((2, 3, 5, 3), [1, 1], [[1, 1], [0, 2]]),
    "one_dimension": taken((2, 5, 4), [3], [[2, 2]]),
    "large": taken((1, 33, 37, 32), [2, 2], [[0, 1], [1, 0]]),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_WAYS, assert_moved)
test_types = types(
    lambda dtype: taken((1, 3, 5, 2), [2, 2], [[0, 1], [1, 0]], dtype), ANY, assert_moved
)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    blocks = draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
    sizes = [draw(st.integers(1, 9)) for _ in blocks]
    paddings = []
    for size, block in zip(sizes, blocks, strict=True):
        first = draw(st.integers(0, 5))
        paddings.append([first, -(size + first) % block + block * draw(st.integers(0, 2))])
    shape = (draw(st.integers(1, 3)), *sizes, draw(st.integers(1, 9)))
    dtype = draw(st.sampled_from(ANY))
    zero = draw(zero_points(dtype)) if dtype in ("uint8", "int8") else 0
    return taken(shape, blocks, paddings, dtype, zero)


test_drawn = drawn(nodes(), MOVE_WAYS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [taken((1, size, size, channels), [1, 2], [[0, 0], [1, 1 + size % 2]], dtype)]
