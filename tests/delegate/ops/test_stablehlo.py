# SPDX-License-Identifier: Apache-2.0
"""STABLEHLO_PAD and STABLEHLO_GATHER: refusals, and where elements go by TFLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.graph.shapes import output_shapes
from delegate.inspect import Node, Tensor
from tests.support.cases import GROUPS, LANES_8, Strategy, changed
from tests.support.compare import RUNTIME
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import (
    ANY,
    MOVE_STRATEGIES,
    assert_moved,
    assert_moved_or_refused,
    like,
    numbers,
    one_value,
)

Shape = tuple[int, ...]
where_tflite_has_them = pytest.mark.skipif(
    RUNTIME.name == "tflite-runtime", reason="tflite-runtime lacks most of them"
)


def shaped(node: Node) -> Node:
    """Return a node whose output has the shape that follows."""
    shapes = output_shapes(node)
    assert shapes is not None
    return changed(node, -1, shape=shapes[0])


# STABLEHLO_PAD


def pad(
    shape: Shape,
    low: Sequence[int],
    high: Sequence[int],
    inner: Sequence[int] | None = None,
    dtype: str = "uint8",
    value: float | None = 7,
) -> Node:
    """`value`: what is put around; None: it is computed."""
    given = like((), dtype) if value is None else one_value(value, dtype)
    options = {
        "edge_padding_low": tuple(low),
        "edge_padding_high": tuple(high),
        "interior_padding": tuple(inner or (0,) * len(shape)),
    }
    return shaped(op("STABLEHLO_PAD", [like(shape, dtype), given], [like(shape, dtype)], options))


PAD = pad((4, 3), (1, 0), (0, 2))
PAD_REFUSALS = {
    "type": (changed(PAD, 1, dtype="int8"), "int8 in, uint8 out: they must be equal"),
    "value": (changed(PAD, 1, shape=(2,)), "value 2: one number is needed"),
    "rank": (
        changed(PAD, options={**PAD.options, "edge_padding_low": (1,)}),
        "paddings of 1, 2 and 2 dimensions for 4x3: as many are needed, 1 to 8",
    ),
    "inner": (
        changed(PAD, options={**PAD.options, "interior_padding": (0, -1)}),
        "interior_padding -1: 0 or more is needed",
    ),
    "large": (
        changed(PAD, options={**PAD.options, "edge_padding_low": (2**40, 0)}),
        "edge_padding_low is (1099511627776, 0): int32 numbers are needed",
    ),
    "output": (changed(PAD, -1, shape=(4, 3)), "output 4x3: the inputs give 5x5"),
}
PAD_CASES = {
    "border": pad((5, 4, 3), (1, 0, 2), (0, 2, 1)),
    "between": pad((5, 4, 3), (0, 0, 0), (0, 0, 0), (1, 0, 2)),
    "both": pad((2, 3, 17), (1, 2, 0), (3, 0, 0), (1, 1, 0)),
    "cut": pad((7, 33), (-2, -1), (-1, -16)),
    "cut_between": pad((5, 4), (-3, -1), (-2, 2), (1, 2)),
    "cut_to_a_gap": pad((5,), (-4,), (-3,), (2,)),
    "cut_beyond": pad((5, 3), (-12, 0), (14, 1), (1, 0)),
    "nothing": pad((5, 4), (0, 0), (0, 0)),
    "computed_value": pad((5, 4, 3), (1, 0, 2), (0, 2, 1), (0, 1, 0), value=None),
    "a_large_picture": pad((1, 33, 31, 16), (0, 1, 1, 0), (0, 1, 1, 0)),
    "eight": pad((1, 2, 1, 2, 3, 1, 2, 2), (1, 0, 0, 1, 0, 0, 0, 0), (0,) * 8, (0, 1) * 4),
}
test_pad_refusal = refused(PAD_REFUSALS)
test_pad_exact = exact(PAD_CASES, MOVE_STRATEGIES, assert_moved)
test_pad_types = types(
    lambda dtype: pad((4, 3), (1, -1), (0, 2), (0, 1), dtype, 1), ANY, assert_moved
)


def test_a_cut_alone_fills_nothing() -> None:
    (*_, plain) = ops.lower(PAD_CASES["cut"], LANES_8.target)
    assert len(plain.launches) == 1
    (nothing,) = ops.lower(PAD_CASES["nothing"], LANES_8.target)
    assert nothing.view is not None


@st.composite
def pads(draw: st.DrawFn) -> Node:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    rows = [draw(st.tuples(*[st.integers(-4, 5)] * 2, st.integers(0, 3))) for _ in shape]
    low, high, inner = (list(each) for each in zip(*rows, strict=True))
    for axis, size in enumerate(shape):  # something is left
        low[axis] += max(0, 1 - (low[axis] + (size - 1) * (inner[axis] + 1) + 1 + high[axis]))
    value = draw(st.sampled_from([None, 1]))
    return pad(shape, low, high, inner, draw(st.sampled_from(ANY)), value)


test_pad_drawn = where_tflite_has_them(drawn(pads(), MOVE_STRATEGIES, assert_moved_or_refused))


# STABLEHLO_GATHER


def gather(
    shape: Shape,
    slices: Shape,
    indices: Any,
    mapped: Shape = (0,),
    dropped: Shape = (),
    offsets: Shape | None = None,
    vectors: int = -1,
    dtype: str = "uint8",
    index: str = "int32",
) -> Node:
    """`indices`: constants, or the shape of computed ones; `offsets`: the last ones if left out."""
    places: Tensor = like(indices, index) if isinstance(indices, tuple) else numbers(indices, index)
    rank = len(shape) - len(dropped) + len(places.shape) - 1
    options = {
        "offset_dims": tuple(range(rank))[len(places.shape) - 1 :] if offsets is None else offsets,
        "collapsed_slice_dims": dropped,
        "start_index_map": mapped,
        "index_vector_dim": vectors % max(1, len(places.shape)),
        "slice_sizes": slices,
        "indices_are_sorted": False,
    }
    inputs = [like(shape, dtype), places]
    return shaped(op("STABLEHLO_GATHER", inputs, [like((1,) * rank, dtype)], options))


NODE = gather((4, 3), (1, 3), [[3], [0]], dropped=(0,))


def optioned(**options: Any) -> Node:
    return changed(NODE, options={**NODE.options, **options})


REFUSALS = {
    "index_type": (changed(NODE, 1, dtype="int16"), "int16 indices: only int32 and int64"),
    "type": (changed(NODE, 0, dtype="int8"), "int8 in, uint8 out: they must be equal"),
    "vectors": (
        optioned(index_vector_dim=2),
        "index_vector_dim 2 of 2x1: TFLite reads past its shape",
    ),
    "slices": (optioned(slice_sizes=(1, 4)), "slices [1, 4] of 4x3: they do not fit"),
    "rank": (optioned(slice_sizes=(1,)), "slices [1] of 4x3: they do not fit"),
    "map": (
        optioned(start_index_map=(2,)),
        "start_index_map [2] for 1 coordinates of 4x3: each needs a dimension of its own",
    ),
    "map_length": (
        optioned(start_index_map=(0, 1)),
        "start_index_map [0, 1] for 1 coordinates of 4x3: each needs a dimension of its own",
    ),
    "offsets": (
        optioned(offset_dims=(2,)),
        "offset_dims [2], collapsed_slice_dims [0]: 2 dimensions of slices and 2 of the output",
    ),
    "dropped": (
        optioned(collapsed_slice_dims=()),
        "offset_dims [1], collapsed_slice_dims []: 2 dimensions of slices and 3 of the output",
    ),
    "number": (optioned(offset_dims=(-1,)), "offset_dims is (-1,): int32 numbers are needed"),
    "output": (changed(NODE, -1, shape=(2, 4)), "output 2x4: the inputs give 2x3"),
}
COORDINATES = [[0, 9], [-3, 1], [2, 2], [4, 0], [1, 1]]
CASES = {
    "rows": gather((7, 16), (1, 16), [[6], [0], [3], [9], [-1]], dropped=(0,)),
    "windows": gather((7, 16), (2, 16), [[6], [0], [3]]),
    "columns": gather((5, 33), (5, 3), [[30], [0], [32]], (1,)),
    "places": gather((5, 4), (1, 1), COORDINATES, (0, 1), (0, 1)),
    "other_order": gather((5, 4, 3), (1, 1, 3), COORDINATES, (1, 0), (0, 1)),
    "slices_first": gather((5, 4, 3), (2, 1, 3), COORDINATES, (0, 1), (1,), (0, 2)),
    "vectors_first": gather((5, 3), (1, 3), [[4, 0, 7, 1]], dropped=(0,), vectors=0),
    "one_vector": gather((5, 4, 8), (2, 3, 8), [1, 9], (0, 1)),
    "matrix": gather((6, 5), (2, 2), np.arange(12).reshape(2, 3, 2), (0, 1)),
    "vectors_between": gather((6, 5), (2, 2), np.arange(12).reshape(3, 2, 2), (0, 1), vectors=1),
    "computed": gather((7, 16), (1, 16), (9, 1), dropped=(0,)),
    "computed_int64": gather((7, 16, 4), (2, 3, 4), (9, 2), (1, 0), index="int64"),
    "computed_words": gather((40, 5, 4), (3, 2, 4), (2, 5, 2), (0, 1), (), (0, 3, 4)),
    "int64": gather((5, 3), (1, 3), [[2**40], [-(2**40)], [1]], dropped=(0,), index="int64"),
    "one": gather((1,), (1,), [[0], [5]], dropped=(0,)),
    "large": gather((300, 129), (1, 129), [[n] for n in range(299, -1, -2)], dropped=(0,)),
}
test_refusal = refused(REFUSALS)
test_exact = exact(CASES, GROUPS, assert_moved)
test_types = types(
    lambda dtype: gather((6, 5), (2, 3), [[0, 1], [9, 9]], (0, 1), dtype=dtype), ANY, assert_moved
)


def test_rows_move_as_wide_elements() -> None:
    for slices, wide in (((1, 16), "uint4"), ((1, 8), "uint2"), ((1, 3), "uchar")):
        node = gather((7, 16), slices, [[6], [0]], dropped=(0,))
        ((launch,),) = (each.launches for each in ops.lower(node, LANES_8.target))
        assert launch.defines["ELEM"] == wide


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
def test_eight_dimensions(strategy: Strategy, device: DeviceInfo) -> None:
    node = gather(
        (1, 2, 1, 2, 3, 1, 2, 2), (1, 1, 1, 2, 2, 1, 1, 2), [[1, 0], [0, 1]], (1, 4), (0,)
    )
    assert_moved(node, device, strategy)


@st.composite
def gathers(draw: st.DrawFn) -> Node:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    slices = tuple(draw(st.integers(1, size)) for size in shape)
    axes = draw(st.permutations(range(len(shape))))
    mapped = tuple(axes[: draw(st.integers(1, len(shape)))])
    dropped = tuple(n for n, size in enumerate(slices) if size == 1 and draw(st.booleans()))
    more = draw(st.lists(st.integers(1, 4), max_size=2))
    vectors = draw(st.integers(0, len(more)))
    wanted = (*more[:vectors], len(mapped), *more[vectors:])
    kept, rank = len(shape) - len(dropped), len(shape) - len(dropped) + len(more)
    offsets = tuple(sorted(draw(st.permutations(range(rank)))[:kept]))
    index = draw(st.sampled_from(["int32", "int64"]))
    places: Any = wanted
    if draw(st.booleans()):
        some = draw(st.lists(st.integers(-3, 9), min_size=1, max_size=9))
        places = np.resize(np.array(some), wanted)
    dtype = draw(st.sampled_from(ANY))
    return gather(shape, slices, places, mapped, dropped, offsets, vectors, dtype, index)


test_drawn = where_tflite_has_them(drawn(gathers(), GROUPS, assert_moved_or_refused))


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return these ops' nodes of a size and an 8-bit type, for the tests of all ops."""
    whole = (1, size, size, channels)
    places = [[0, 0], [size - 1, size]]
    return [
        pad(whole, (0, 1, -(size > 1), 0), (0, 0, 1, 0), (0, 1, 0, 0), dtype),
        gather(whole, (1, 1, size, channels), places, (1, 2), (0, 1), dtype=dtype),
    ]


BUILT = [
    gather((2, 16), (1, width), (3, 1), dropped=(0,), index=index)
    for width in (1, 2, 4, 8, 16)
    for index in ("int32", "int64")
] + [PAD]
