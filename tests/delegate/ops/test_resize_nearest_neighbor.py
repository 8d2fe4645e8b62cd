# SPDX-License-Identifier: Apache-2.0
"""RESIZE_NEAREST_NEIGHBOR: its launches, what it refuses, every pixel against the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from delegate.target import Rules
from tests.support.cases import (
    GROUPS,
    LANES_8,
    PLAIN,
    SIMT,
    WAYS,
    Way,
    assert_exact_way,
    changed,
    only_launch,
    refusal,
    retyped,
)
from tests.support.compare import RUNTIME
from tests.support.factories import drawn, refused
from tests.support.model import chain_model
from tests.support.moves import assert_moved, assert_moved_or_refused
from tests.support.resizing import CENTERS, SIZES, Resizing, resizings

OP = "RESIZE_NEAREST_NEIGHBOR"
DTYPES = ("uint8", "int8", "int16", "float32")
NEWER = ("int32", "bool")


@pytest.mark.parametrize(
    ("way", "depth", "dtype", "names"),
    [
        (SIMT, 3, "uint8", ["plain"]),
        (SIMT, 1, "float32", ["vector 4", "plain"]),
        (LANES_8, 21, "int8", ["vector 16", "plain"]),
        (LANES_8, 5, "int16", ["vector 8", "plain"]),
        (LANES_8, 1, "int16", ["plain"]),
    ],
)
def test_alternatives(way: Way, depth: int, dtype: str, names: list[str]) -> None:
    node = Resizing(op=OP, shape=(1, 3, 5, depth), dtype=dtype).node()
    assert [found.name for found in ops.lower(node, way.target)] == names


def test_no_launch_where_no_pixel_moves() -> None:
    node = Resizing(op=OP, size=(3, 5)).node()
    both = changed(node, options={"align_corners": True, "half_pixel_centers": True})
    assert [found.name for found in ops.lower(node, SIMT.target)] == ["view"]
    assert [found.name for found in ops.lower(both, SIMT.target)] == ["plain"]


def test_launch() -> None:
    node = Resizing(op=OP, shape=(2, 3, 5, 21), size=(7, 11), dtype="int16").node()
    vector, plain = (only_launch(found) for found in ops.lower(node, LANES_8.target))
    assert (vector.params["units"], vector.defines) == (42, {"ELEM": "uchar", "LANES": 16})
    assert (plain.params["units"], plain.defines) == (21, {"ELEM": "ushort", "LANES": 1})
    assert (vector.params["items"], plain.params["items"]) == (2 * 7 * 3, 2 * 7 * 21)


NODE = Resizing(op=OP).node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "computed_size": (changed(NODE, 1, data=None), "height and width are not constant"),
    "output": (
        changed(NODE, -1, shape=(1, 7, 12, 3)),
        "shapes 1x3x5x3 -> 1x7x12x3: 1x7x11x3 is computed",
    ),
    "int64": (
        retyped(NODE, "int64"),
        "int64 in, int64 out: one of uint8, int8, int16, float32, int32, bool, float16 is needed",
    ),
    "rank": (
        changed(NODE, 1, shape=(), data=np.array(3, np.int32)),
        "size int32 of scalar: int32 of 2 is needed",
    ),
}

test_refusals = refused(REFUSALS)


def test_older_kernels_know_fewer_types() -> None:
    node = Resizing(op=OP, dtype="int32").node()
    old = replace(SIMT.target, rules=Rules(resizes_newer_types=False))
    assert refusal(node, old).endswith("one of uint8, int8, int16, float32 is needed")
    assert ops.lower(node, SIMT.target)


@pytest.mark.parametrize("way", [PLAIN, *GROUPS], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("centers", CENTERS)
def test_exact(device: DeviceInfo, way: Way, dtype: str, centers: str) -> None:
    for shape, size in SIZES:
        case = Resizing(op=OP, shape=shape, size=size, centers=centers, dtype=dtype)
        assert_moved(case.node(), device, way)


@pytest.mark.parametrize("dtype", NEWER)
def test_types_of_newer_kernels(device: DeviceInfo, dtype: str) -> None:
    if RUNTIME.name != "ai-edge-litert":
        pytest.skip(f"{RUNTIME.name} has no kernel for {dtype}")
    for way in (PLAIN, *GROUPS):
        assert_exact_way(Resizing(op=OP, shape=(1, 3, 5, 7), dtype=dtype).model(), device, way)


def test_both_options(device: DeviceInfo) -> None:
    for size in ((7, 11), (2, 1), (3, 5)):
        node = Resizing(op=OP, size=size).node()
        both = changed(node, options={"align_corners": True, "half_pixel_centers": True})
        assert_exact_way(chain_model([both]), device)


test_drawn = drawn(resizings(OP, DTYPES).map(Resizing.node), WAYS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [
        Resizing(
            op=OP, shape=(1, size, size, channels), size=(2 * size, 3 * size), dtype=dtype
        ).node()
    ]


BUILT = [Resizing(op=OP, shape=(1, 3, 3, 17), dtype=dtype).node() for dtype in DTYPES]
