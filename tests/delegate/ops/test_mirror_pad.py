# SPDX-License-Identifier: Apache-2.0
"""MIRROR_PAD: what it refuses, and mirrored borders against TFLite's."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from delegate.inspect import Node
from tests.support.cases import changed
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op
from tests.support.moves import ANY, MOVE_WAYS, assert_moved, assert_moved_or_refused, like, numbers


def mirrored(
    shape: tuple[int, ...],
    amounts: list[list[int]],
    mode: str = "REFLECT",
    dtype: str = "uint8",
    index: str = "int32",
) -> Node:
    after = [n + sum(pair) for n, pair in zip(shape, amounts, strict=True)]
    paddings = numbers(np.array(amounts).reshape(len(shape), 2), index)
    return op("MIRROR_PAD", [like(shape, dtype), paddings], [like(after, dtype)], {"mode": mode})


NODE = mirrored((3, 4), [[1, 2], [3, 0]])
REFUSALS = {
    "computed": (changed(NODE, 1, data=None), "computed paddings: only constant"),
    "negative": (
        changed(NODE, 1, data=np.array([[1, 2], [3, -1]])),
        "paddings [[1, 2], [3, -1]] of shape 3x4",
    ),
    "too_far": (
        mirrored((3, 4), [[1, 3], [0, 0]]),
        "paddings [1, 3] of 3 elements: more than there are to mirror",
    ),
    "too_far_symmetric": (
        mirrored((3, 4), [[4, 0], [0, 0]], "SYMMETRIC"),
        "paddings [4, 0] of 3 elements: more than there are to mirror",
    ),
    "mode": (
        changed(NODE, options={"mode": "WRAP"}),
        "mode WRAP: only REFLECT and SYMMETRIC exist",
    ),
    "output": (changed(NODE, -1, shape=(6, 8)), "output 6x8: the inputs give 6x7"),
    "scales": (
        changed(NODE, -1, quantization=None),
        "input and output differ in scale or zero point",
    ),
}
CASES = {
    "reflect": mirrored((1, 5, 7, 3), [[0, 0], [1, 2], [3, 1], [0, 0]]),
    "symmetric": mirrored((1, 5, 7, 3), [[0, 0], [1, 2], [3, 1], [0, 0]], "SYMMETRIC"),
    "rows_of_16": mirrored((2, 5, 7, 16), [[0, 0], [2, 2], [2, 2], [0, 0]]),
    "everywhere": mirrored((3, 4, 5), [[2, 1], [3, 3], [4, 2]]),
    "as_far_as_it_goes": mirrored((3, 4), [[3, 3], [4, 4]], "SYMMETRIC"),
    "one_side": mirrored((5, 3), [[0, 4], [0, 0]]),
    "nothing": mirrored((5, 3), [[0, 0], [0, 0]]),
    "int64": mirrored((5,), [[2, 3]], index="int64"),
    "large": mirrored((1, 33, 37, 5), [[0, 0], [3, 3], [3, 3], [0, 0]]),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_WAYS, assert_moved)
test_types = types(
    lambda dtype: mirrored((3, 4), [[1, 2], [3, 0]], "REFLECT", dtype), ANY, assert_moved
)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    mode = draw(st.sampled_from(["REFLECT", "SYMMETRIC"]))
    most = [n - (mode == "REFLECT") for n in shape]
    amounts = [[draw(st.integers(0, n)), draw(st.integers(0, n))] for n in most]
    return mirrored(tuple(shape), amounts, mode, draw(st.sampled_from(ANY)))


test_drawn = drawn(nodes(), MOVE_WAYS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [
        mirrored((1, size, size, channels), [[0, 0], [1, 1], [1, 1], [0, 0]], "SYMMETRIC", dtype)
    ]
