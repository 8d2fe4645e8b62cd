# SPDX-License-Identifier: Apache-2.0
"""DEPTH_TO_SPACE, BATCH_TO_SPACE_ND and their ways back: refusals, and blocks against TFLite's."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo
from delegate.inspect import Node
from tests.support.cases import LANES_8, SEEDS, Strategy, changed, strategy_on, zero_points
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import (
    ANY,
    MOVE_STRATEGIES,
    assert_moved,
    assert_moved_or_refused,
    like,
    numbers,
)
from tests.support.refusals import rescaled

OPS = ("DEPTH_TO_SPACE", "SPACE_TO_DEPTH")
each_op = pytest.mark.parametrize("name", OPS)


def blocks(name: str, n: int, h: int, w: int, c: int, block: int, dtype: str = "uint8") -> Node:
    """Return a node; height, width and channels are those of the deep side's pixels and blocks."""
    deep = like((n, h, w, c * block * block), dtype)
    wide = like((n, h * block, w * block, c), dtype)
    source, result = (deep, wide) if name == "DEPTH_TO_SPACE" else (wide, deep)
    return op(name, [source], [result], {"block_size": block})


SIZES = {
    "one_channel": (2, 3, 5, 1, 2),
    "channels": (1, 7, 5, 16, 2),
    "odd": (2, 3, 4, 5, 3),
    "block_1": (2, 3, 4, 5, 1),
    "one_pixel": (1, 1, 1, 3, 4),
    "large": (1, 33, 37, 3, 2),
}
TYPES = ("uint8", "int8", "int32", "int64", "float32")
DEEP, WIDE = "1x2x3x16", "1x4x6x4"
_WHOLE = "only whole blocks of rank 4"
REFUSALS = {
    f"{name}-{why}": case
    for name, source, result in ((OPS[0], DEEP, WIDE), (OPS[1], WIDE, DEEP))
    for node in [blocks(name, 1, 2, 3, 4, 2)]
    for why, case in {
        "block_0": (changed(node, options={"block_size": 0}), f"block 0 of {source}: {_WHOLE}"),
        "block_5": (changed(node, options={"block_size": 5}), f"block 5 of {source}: {_WHOLE}"),
        "rank": (changed(node, 0, shape=(4, 4, 4)), f"block 2 of 4x4x4: {_WHOLE}"),
        "output": (
            changed(node, -1, shape=(1, 4, 6, 3)),
            f"output 1x4x6x3: the inputs give {result}",
        ),
        "int16": (
            blocks(name, 1, 2, 3, 4, 2, "int16"),
            "int16: only uint8, int8, int32, int64, float32",
        ),
    }.items()
}
CASES = {f"{name}-{size}": blocks(name, *SIZES[size]) for name in OPS for size in SIZES}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_STRATEGIES, assert_moved)


@each_op
@pytest.mark.parametrize("dtype", TYPES)
def test_types(name: str, dtype: str, device: DeviceInfo) -> None:
    assert_moved(blocks(name, 2, 3, 4, 5, 2, dtype), device, strategy_on(device, LANES_8))


@each_op
@given(data=st.data(), strategy=st.sampled_from(MOVE_STRATEGIES), seed=SEEDS)
def test_drawn(
    device: DeviceInfo, name: str, data: st.DataObject, strategy: Strategy, seed: int
) -> None:
    few, small, types = st.integers(1, 3), st.integers(1, 5), st.sampled_from(TYPES)
    channels, block = st.integers(1, 9), st.integers(1, 4)
    node = st.builds(partial(blocks, name), few, small, small, channels, block, types)
    assert_moved_or_refused(data.draw(node), device, strategy, seed)


def spread(
    shape: tuple[int, ...], blocks: list[int], crops: list[list[int]], dtype: str = "uint8"
) -> Node:
    sizes = [n * b - sum(c) for n, b, c in zip(shape[1:], blocks, crops, strict=False)]
    result = (shape[0] // math.prod(blocks), *sizes, shape[-1])
    inputs = [like(shape, dtype), numbers(blocks), numbers(crops)]
    return op("BATCH_TO_SPACE_ND", inputs, [like(result, dtype)])


TO_SPACE_NODE = spread((4, 2, 3, 5), [2, 2], [[0, 1], [1, 0]])
TO_SPACE_REFUSALS = {
    "computed_blocks": (
        changed(TO_SPACE_NODE, 1, data=None),
        "block sizes: not constant",
    ),
    "computed_crops": (
        changed(TO_SPACE_NODE, 2, data=None),
        "crops: not constant",
    ),
    "blocks": (
        changed(TO_SPACE_NODE, 1, data=np.array([0, 2])),
        "block sizes [0, 2]: at least 1 is needed",
    ),
    "crops": (
        changed(TO_SPACE_NODE, 2, data=np.array([[0, 1], [-1, 0]])),
        "crops [[0, 1], [-1, 0]] of 4x2x3x5: 2 pairs of 0 or more are needed",
    ),
    "batch": (
        changed(TO_SPACE_NODE, 0, shape=(6, 2, 3, 5)),
        "batch 6: blocks of 4 do not divide it",
    ),
    "rank": (changed(TO_SPACE_NODE, 0, shape=(4, 6)), "input 4x6: only rank 3 and 4"),
    "output": (
        changed(TO_SPACE_NODE, -1, shape=(1, 3, 6, 5)),
        "output 1x3x6x5: the inputs give 1x3x5x5",
    ),
    "scales": rescaled(TO_SPACE_NODE, -1),
}
TO_SPACE_CASES = {
    "no_crops": spread((4, 3, 5, 16), [2, 2], [[0, 0], [0, 0]]),
    "crops": spread((4, 3, 5, 3), [2, 2], [[1, 0], [0, 1]]),
    "wide_crops": spread((12, 3, 5, 2), [4, 3], [[5, 2], [4, 7]]),
    "batch": spread((12, 3, 2, 5), [2, 3], [[1, 1], [2, 1]]),
    "inside_a_block": spread((16, 1, 1, 3), [4, 4], [[1, 1], [2, 1]]),
    "block_1": spread((2, 3, 5, 3), [1, 1], [[1, 1], [0, 2]]),
    "one_dimension": spread((6, 5, 4), [3], [[2, 2]]),
    "large": spread((4, 17, 19, 32), [2, 2], [[0, 1], [1, 0]]),
}

test_to_space_refusal = refused(TO_SPACE_REFUSALS)
test_to_space_exact = exact(TO_SPACE_CASES, MOVE_STRATEGIES, assert_moved)
test_to_space_types = types(
    lambda dtype: spread((4, 2, 3, 5), [2, 2], [[0, 1], [1, 0]], dtype), ANY, assert_moved
)


@st.composite
def to_space_nodes(draw: st.DrawFn) -> Node:
    blocks = draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
    sizes = [draw(st.integers(1, 5)) for _ in blocks]
    crops = []
    for size, block in zip(sizes, blocks, strict=True):
        first = draw(st.integers(0, size * block - 1))
        crops.append([first, draw(st.integers(0, size * block - 1 - first))])
    batch = math.prod(blocks) * draw(st.integers(1, 3))
    shape = (batch, *sizes, draw(st.integers(1, 9)))
    return spread(shape, blocks, crops, draw(st.sampled_from(ANY)))


test_to_space_drawn = drawn(to_space_nodes(), MOVE_STRATEGIES, assert_moved_or_refused)


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


TO_BATCH_NODE = taken((1, 3, 5, 2), [2, 2], [[0, 1], [1, 0]])
TO_BATCH_REFUSALS = {
    "computed_blocks": (
        changed(TO_BATCH_NODE, 1, data=None),
        "block sizes: not constant",
    ),
    "computed_paddings": (
        changed(TO_BATCH_NODE, 2, data=None),
        "paddings: not constant",
    ),
    "divided": (
        changed(TO_BATCH_NODE, 2, data=np.array([[0, 0], [1, 0]])),
        "1x3x5x2 padded to [3, 6]: blocks of [2, 2] do not fit",
    ),
    "negative": (
        changed(TO_BATCH_NODE, 2, data=np.array([[2, -1], [1, 0]])),
        "paddings [[2, -1], [1, 0]] of 1x3x5x2: 2 pairs of 0 or more are needed",
    ),
    "rank": (changed(TO_BATCH_NODE, 0, shape=(4, 6)), "input 4x6: only rank 3 and 4"),
    "output": (
        changed(TO_BATCH_NODE, -1, shape=(4, 3, 2, 2)),
        "output 4x3x2x2: the inputs give 4x2x3x2",
    ),
    "zero_point": (
        taken((1, 3, 5, 2), [2, 2], [[0, 1], [1, 0]], zero=256),
        "zero point 256: outside uint8",
    ),
}
TO_BATCH_CASES = {
    "no_padding": taken((1, 6, 4, 16), [2, 2], [[0, 0], [0, 0]]),
    "padding": taken((1, 5, 7, 3), [2, 2], [[1, 0], [0, 1]]),
    "wide_padding": taken((2, 3, 2, 5), [3, 4], [[5, 4], [1, 9]], zero=255),
    "batch": taken((3, 4, 6, 5), [2, 3], [[1, 1], [2, 1]], zero=0),
    "inside_a_block": taken((1, 2, 1, 3), [4, 4], [[1, 1], [2, 1]]),
    "block_1": taken((2, 3, 5, 3), [1, 1], [[1, 1], [0, 2]]),
    "one_dimension": taken((2, 5, 4), [3], [[2, 2]]),
    "large": taken((1, 33, 37, 32), [2, 2], [[0, 1], [1, 0]]),
}

test_to_batch_refusal = refused(TO_BATCH_REFUSALS)
test_to_batch_exact = exact(TO_BATCH_CASES, MOVE_STRATEGIES, assert_moved)
test_to_batch_types = types(
    lambda dtype: taken((1, 3, 5, 2), [2, 2], [[0, 1], [1, 0]], dtype), ANY, assert_moved
)


@st.composite
def to_batch_nodes(draw: st.DrawFn) -> Node:
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


test_to_batch_drawn = drawn(to_batch_nodes(), MOVE_STRATEGIES, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return these ops' nodes of a size and an 8-bit type, for the tests of all ops."""
    return [
        *[blocks(name, 1, size, size, channels, 2, dtype) for name in OPS],
        spread((4, size, size, channels), [2, 2], [[0, 1], [1, 0]], dtype),
        taken((1, size, size, channels), [1, 2], [[0, 0], [1, 1 + size % 2]], dtype),
    ]
