# SPDX-License-Identifier: Apache-2.0
"""DEPTH_TO_SPACE and SPACE_TO_DEPTH: refusals, and blocks of every size against TFLite's."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo
from delegate.inspect import Node
from tests.support.cases import LANES_8, SEEDS, Way, changed, way_on
from tests.support.deal import any_driver
from tests.support.factories import exact, refused
from tests.support.model import op
from tests.support.moves import MOVE_WAYS, assert_moved, assert_moved_or_refused, like

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
test_exact = exact(CASES, MOVE_WAYS, assert_moved)


@each_op
@pytest.mark.parametrize("dtype", TYPES)
def test_types(name: str, dtype: str, device: DeviceInfo) -> None:
    assert_moved(blocks(name, 2, 3, 4, 5, 2, dtype), device, way_on(device, LANES_8))


@any_driver
@each_op
@given(data=st.data(), way=st.sampled_from(MOVE_WAYS), seed=SEEDS)
def test_drawn(device: DeviceInfo, name: str, data: st.DataObject, way: Way, seed: int) -> None:
    few, small, types = st.integers(1, 3), st.integers(1, 5), st.sampled_from(TYPES)
    channels, block = st.integers(1, 9), st.integers(1, 4)
    node = st.builds(partial(blocks, name), few, small, small, channels, block, types)
    assert_moved_or_refused(data.draw(node), device, way, seed)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return these ops' nodes of a size and an 8-bit type, for the tests of all ops."""
    return [blocks(name, 1, size, size, channels, 2, dtype) for name in OPS]
