# SPDX-License-Identifier: Apache-2.0
"""STABLEHLO_SCATTER against TFLite, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node
from tests.support.cases import GROUPS, changed, retyped
from tests.support.factories import drawn, exact, refused
from tests.support.model import const, t
from tflite_opencl.conformance.cases.stablehlo import scattered

BODIES = ("", "STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MINIMUM", "STABLEHLO_MAXIMUM")


def scatter(
    shape: tuple[int, ...] = (7, 6),
    updates: tuple[int, ...] = (3, 6),
    indices: Any = ((5,), (0,), (5,)),
    window: tuple[int, ...] = (1,),
    inserted: tuple[int, ...] = (0,),
    mapped: tuple[int, ...] = (0,),
    vectors: int = 1,
    body: str = "STABLEHLO_ADD",
    dtype: str = "float32",
    of: str = "int32",
) -> Node:
    inputs = [t(shape, dtype), const(np.array(indices, of)), t(updates, dtype)]
    made: Node = scattered(inputs, body, window, inserted, mapped, vectors)
    return made


test_exact = exact(
    {
        **{f"rows{body}": scatter(body=body) for body in BODIES},
        **{dtype: scatter(dtype=dtype) for dtype in ("int8", "uint8", "int16", "int32")},
        "int64_indices": scatter(of="int64"),
        "vector_first": scatter((4, 5, 2), (2, 3), [[1, 0, 3], [4, 4, 0]], (0,), (0, 1), (0, 1), 0),
        "nowhere": scatter(indices=[[7], [8], [99]], body=""),
        "windows": scatter((6, 6), (2, 3, 2), [[4, 0], [5, 5]], (1, 2), (), (1, 0), body=""),
        "turned": scatter((6, 5), (3, 2, 2), [[4], [0]], (0, 2), (), (1,), 1),
    },
    GROUPS,
)


@st.composite
def scatters(draw: st.DrawFn) -> Node:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    rank = len(shape)
    inserted = tuple(axis for axis in range(rank) if draw(st.booleans()))
    mapped = tuple(draw(st.permutations(range(rank))))[: draw(st.integers(1, rank))]
    picks = draw(st.integers(1, 6))
    windows = [
        draw(st.integers(1, size)) for axis, size in enumerate(shape) if axis not in inserted
    ]
    place = draw(st.integers(0, len(windows)))
    updates = (*windows[:place], picks, *windows[place:])
    window = tuple(axis for axis in range(len(updates)) if axis != place)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    indices = rng.integers(0, 7, (picks, len(mapped)))
    body, dtype = draw(st.sampled_from(BODIES)), draw(st.sampled_from(["float32", "int8", "int32"]))
    return scatter(shape, updates, indices, window, inserted, mapped, 1, body, dtype)


test_drawn = drawn(scatters(), GROUPS)

NODE = scatter()
test_refusal = refused(
    {
        "computed": (changed(NODE, 1, data=None), "indices are not constant"),
        "below": (
            scatter(indices=[[5], [-1], [0]]),
            "index -1: below 0 TFLite writes before its tensor",
        ),
        "no_body": (
            replace(NODE, body=None),
            "the body must be empty, or one op such as STABLEHLO_ADD",
        ),
        "another_body": (
            scatter(body="ADD"),
            "the body must be empty, or one op such as STABLEHLO_ADD",
        ),
        "int64": (scatter(dtype="int64"), "int64: only uint8, int8, int16, int32, float32"),
        "uint8_indices": (retyped(NODE, "uint8", [1]), "uint8 indices: only int32 and int64"),
        "another_type": (retyped(NODE, "int32", [2]), "int32 in, float32 out: they must be equal"),
        "vectors": (scatter(vectors=2), "index_vector_dim 2 of 3x1: it is no dimension"),
        "large": (
            scatter((1 << 23,), (1,), [[0]], (), (0,), (0,)),
            "more than 4194304 elements: lowering would take too long",
        ),
        "dims": (
            scatter(window=(1, 1)),
            "update_window_dims (1, 1): not dimensions of 2",
        ),
        "shapes": (
            scatter(inserted=()),
            "indices 3x1, updates 3x6 of 7x6: the options do not fit",
        ),
        "updates_without_index": (
            scatter(updates=(4, 6)),
            "indices 3x1, updates 4x6 of 7x6: TFLite reads past the end",
        ),
        "few_updates": (
            scatter(updates=(2, 6)),
            "indices 3x1, updates 2x6 of 7x6: too few updates",
        ),
    }
)

NODES = {"STABLEHLO_SCATTER": NODE}
BUILT = [
    scatter(body=body, dtype=dtype)
    for body in BODIES
    for dtype in ("float32", "int32", "int16", "int8", "uint8")
]
