# SPDX-License-Identifier: Apache-2.0
"""DYNAMIC_UPDATE_SLICE and SCATTER_ND: launches, refusals, and where elements go by TFLite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.graph.ranges import with_ranges
from delegate.inspect import Node
from tests.support.cases import (
    DRAWN_STRATEGIES,
    GROUPS,
    LANES_8,
    SEEDS,
    SIMT,
    Strategy,
    assert_exact_or_refused,
    assert_exact_strategy,
    changed,
    retyped,
)
from tests.support.factories import refused
from tests.support.model import chain_model, const, graph_of, op, t

Shape = tuple[int, ...]
MOVED = ("uint8", "int16", "float32", "int64", "bool")
ADDED = ("uint8", "int8", "int32", "int64", "float32")


def update(shape: Shape, part: Shape, at: Any, dtype: str = "float32") -> Node:
    """`at`: the starts, or the type of those that a run says."""
    starts = t((len(shape),), at) if isinstance(at, str) else const(np.array(at, np.int32))
    return op("DYNAMIC_UPDATE_SLICE", [t(shape, dtype), t(part, dtype), starts], [t(shape, dtype)])


def scatter(shape: Shape, places: Any, dtype: str = "float32") -> Node:
    indices = np.array(places, np.int32)
    updates = t((*indices.shape[:-1], *shape[indices.shape[-1] :]), dtype)
    return op(
        "SCATTER_ND", [const(indices), updates, const(np.array(shape, np.int32))], [t(shape, dtype)]
    )


def test_known_starts_are_copies_alone() -> None:
    for at, files in (((1, 2), {"copy"}), ("int32", {"copy", "dynamic_update_slice"})):
        for found in ops.lower(update((5, 7), (2, 3), at), LANES_8.target):
            assert {launch.file for launch in found.launches} == files


UPDATE, SCATTER = update((5, 7), (2, 3), "int32"), scatter((5, 3), [[1], [4]])
test_refusal = refused(
    {
        "types": (changed(UPDATE, 1, dtype="int8"), "int8 in, float32 out: they must be equal"),
        "starts": (changed(UPDATE, 2, dtype="int16"), "int16 starts: only int32 and int64"),
        "rank": (
            update((1,) * 7, (1,) * 7, "int32"),
            "7 dimensions: 1 to 6 are implemented",
        ),
        "fit": (
            changed(UPDATE, 1, shape=(2, 3, 1)),
            "update 2x3x1 and starts 2 for 5x7: they do not fit",
        ),
        "large": (changed(UPDATE, 1, shape=(2, 8)), "update 2x8: larger than 5x7"),
        "scatter_type": (
            retyped(SCATTER, "int16", (1, -1)),
            "int16: only float32, uint8, int8, int32, int64, bool",
        ),
        "index_type": (
            changed(SCATTER, 0, dtype="int64", data=None),
            "int64 indices, int32 shape: only int32",
        ),
        "computed_shape": (changed(SCATTER, 2, data=None), "sizes: not constant"),
        "outside": (scatter((5, 3), [[1], [5]]), "an index is 5: outside of 5 elements"),
        "updates": (changed(SCATTER, 1, shape=(2, 4)), "updates 2x4: not one for each index"),
    }
)

UPDATES: list[tuple[Shape, Shape, Shape]] = [
    ((9,), (3,), (7,)),
    ((5, 7), (2, 3), (-1, 2)),
    ((5, 7), (5, 7), (0, 3)),
    ((1, 8, 4, 16), (1, 1, 4, 16), (0, 5, 0, 0)),
    ((2, 3, 2, 3, 2, 2), (1, 2, 2, 1, 1, 2), (1, 0, 0, 2, 1, 0)),
]


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("case", UPDATES, ids=str)
def test_known_starts(
    case: tuple[Shape, Shape, Shape], dtype: str, strategy: Strategy, device: DeviceInfo
) -> None:
    assert_exact_strategy(chain_model([update(*case, dtype)]), device, strategy)


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("case", UPDATES, ids=str)
def test_computed_starts(case: tuple[Shape, Shape, Shape], index: str, device: DeviceInfo) -> None:
    shape, part, at = case
    rng, limits = np.random.default_rng(0), np.iinfo(index)
    ends = [
        at,
        [limits.min] * len(at),
        [limits.max] * len(at),
        [2**31 - 1] * len(at),
        [0] * len(at),
    ]
    operands = [rng.integers(-9, 9, sizes).astype(np.float32) for sizes in (shape, part)]
    inputs = [[*operands, np.array(each, index)] for each in ends]
    assert_exact_strategy(chain_model([update(shape, part, index)]), device, SIMT, inputs=inputs)


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("dtype", ADDED)
@pytest.mark.parametrize(
    "case",
    [
        ((8,), [[4], [3], [1], [7]]),
        ((4, 3), [[1], [3], [1], [1]]),
        ((5, 4, 3), [[0, 2], [4, 3], [0, 0], [0, 2]]),
        ((3, 2, 2), [[[0], [2]], [[2], [0]]]),
    ],
    ids=str,
)
def test_scattered(
    case: tuple[Shape, Any], dtype: str, strategy: Strategy, device: DeviceInfo
) -> None:
    assert_exact_strategy(chain_model([scatter(*case, dtype)]), device, strategy)


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
def test_scattered_where_a_run_says(strategy: Strategy, device: DeviceInfo) -> None:
    """Counts of the places of the largest elements, which stay inside."""
    places = t((6,), "int32")
    top = op("ARG_MAX", [t((6, 4), "int8", 0.1)], [places], {"output_type": "int32"})
    top = replace(top, inputs=(top.inputs[0], const(np.int32(1))))
    column = t((6, 1), "int32")
    rest = op("RESHAPE", [places, const(np.array([6, 1], np.int32))], [column])
    node = scatter((4, 2), [[0]] * 6)
    node = replace(node, inputs=(column, *node.inputs[1:]))
    graph = with_ranges(graph_of([top, rest, node]))
    (found,) = ops.lower(graph.nodes[-1], strategy.target)
    assert found.launches[0].kernel == "scatter_nd_computed"
    assert_exact_strategy(chain_model([top, rest, node]), device, strategy)


@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    data=st.data(),
    dtype=st.sampled_from(MOVED),
    strategy=DRAWN_STRATEGIES,
    seed=SEEDS,
)
def test_drawn_updates(
    device: DeviceInfo,
    shape: list[int],
    data: st.DataObject,
    dtype: str,
    strategy: Strategy,
    seed: int,
) -> None:
    part = tuple(data.draw(st.integers(1, size)) for size in shape)
    at = tuple(data.draw(st.integers(-2, size + 1)) for size in shape)
    for starts in (at, "int32"):
        model = chain_model([update(tuple(shape), part, starts, dtype)])
        assert_exact_or_refused(model, device, strategy, seed)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return these ops' nodes of a size and an 8-bit type, for the tests of all ops."""
    return [
        update((size, size, channels), (1, size, channels), "int32", dtype),
        scatter((size + 1, channels), [[0], [size], [0]], dtype),
    ]


# What a run says of an index, if it is known to stay inside.
RANGES = np.zeros((2, 1), np.int64), np.full((2, 1), 4, np.int64)


def segments(ids: list[int], inner: Shape = (7,), dtype: str = "float32") -> Node:
    """Return a SEGMENT_SUM of as many layers as there are ids."""
    data, result = t((len(ids), *inner), dtype), t((ids[-1] + 1, *inner), dtype)
    return op("SEGMENT_SUM", [data, const(np.array(ids, np.int32))], [result])


SEGMENTS = segments([0, 0, 1, 2, 2, 2])


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("inner", [(), (7,), (3, 65)], ids=str)
def test_segments(inner: Shape, dtype: str, strategy: Strategy, device: DeviceInfo) -> None:
    for ids in ([0, 0, 1, 2, 2, 2], [0], [0, 1, 2, 3]):
        assert_exact_strategy(chain_model([segments(ids, inner, dtype)]), device, strategy)


test_refused_segments = refused(
    {
        "computed": (changed(SEGMENTS, 1, data=None), "segments: not constant"),
        "first": (
            changed(SEGMENTS, 1, data=np.array([1, 1, 1, 2, 2, 2])),
            "segments that are not numbered from 0 upwards",
        ),
        "gap": (
            changed(SEGMENTS, 1, data=np.array([0, 0, 2, 2, 2, 2])),
            "segments that are not numbered from 0 upwards",
        ),
        "layers": (
            changed(SEGMENTS, 0, shape=(5, 7)),
            "segments of 6 layers: 5x7 has others",
        ),
        "type": (segments([0], dtype="int8"), "int8: only float32, int32"),
    }
)

NODES = {"DYNAMIC_UPDATE_SLICE": UPDATE, "SCATTER_ND": SCATTER, "SEGMENT_SUM": SEGMENTS}
BUILT = [
    *(update((5, 7), (2, 3), at, dtype) for at in ("int32", "int64") for dtype in MOVED),
    *(scatter((4, 3), [[1], [3]], dtype) for dtype in (*ADDED, "bool")),
    *(
        changed(scatter((5, 3), [[1], [4]], dtype), 0, data=None, ranges=RANGES)
        for dtype in (*ADDED, "bool")
    ),
]
