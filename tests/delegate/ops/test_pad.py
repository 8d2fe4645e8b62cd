# SPDX-License-Identifier: Apache-2.0
"""PAD, PADV2, MIRROR_PAD: what they refuse, launches, and borders against TFLite's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from delegate.launch import Launch
from tests.support.cases import (
    LANES_8,
    SEEDS,
    SIMT,
    Strategy,
    changed,
    only_launch,
    retyped,
    zero_points,
)
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import op, t
from tests.support.moves import (
    ANY,
    MOVE_STRATEGIES,
    assert_moved,
    assert_moved_or_refused,
    like,
    numbers,
    one_value,
)
from tests.support.nodes import CHANNELS, SIZES
from tests.support.refusals import rescaled


def pad(
    shape: tuple[int, ...],
    amounts: list[list[int]],
    dtype: str = "uint8",
    zero: int = 3,
    value: float | None = None,
    index: str = "int32",
) -> Node:
    """Return the node; a `value` makes it a PADV2."""
    after = tuple(n + sum(pair) for n, pair in zip(shape, amounts, strict=True))
    paddings = numbers(np.array(amounts).reshape(len(shape), 2), index)
    inputs = [like(shape, dtype, zero), paddings]
    if value is not None:
        inputs.append(one_value(value, dtype, zero))
    name = "PAD" if value is None else "PADV2"
    return op(name, inputs, [like(after, dtype, zero)])


NODE = pad((1, 3, 4, 2), [[0, 0], [1, 2], [0, 3], [0, 0]])
VALUE = pad((3, 4), [[1, 2], [0, 3]], value=7)
STRING = retyped(NODE, "string")
REFUSALS = {
    "computed": (changed(NODE, 1, data=None), "paddings: not constant"),
    "negative": (
        changed(NODE, 1, data=np.array([[0, 0], [-1, 2], [0, 3], [0, 0]], np.int32)),
        "paddings [[0, 0], [-1, 2], [0, 3], [0, 0]] of shape 1x3x4x2: "
        "4 pairs of 0 or more are needed",
    ),
    "rank_of_paddings": (
        changed(NODE, 1, data=np.zeros((3, 2), np.int32)),
        "paddings [[0, 0], [0, 0], [0, 0]] of shape 1x3x4x2: 4 pairs of 0 or more are needed",
    ),
    "size": (changed(NODE, -1, shape=(1, 6, 8, 2)), "output 1x6x8x2: the inputs give 1x6x7x2"),
    "types": (changed(NODE, -1, dtype="int8"), "uint8 in, int8 out: they must be equal"),
    "string": (STRING, "string: only uint8, int8, int16, int32, int64, float16, float32, bool"),
    "scales": (
        changed(NODE, -1, quantization=t((1,), "uint8", 0.25, 3).quantization),
        "input and output differ in scale or zero point",
    ),
    "zero_point": (pad((3,), [[1, 1]], zero=256), "zero point 256: outside uint8"),
    "six_dimensions": (pad((1,) * 6, [[1, 1]] * 6), "6 dimensions: 1 to 5 are implemented"),
    "one_input": (op("PAD", NODE.inputs[:1], NODE.outputs), "1 inputs: 2 expected"),
    "computed_value": (changed(VALUE, 2, data=None), "value: not constant"),
    "values": (changed(VALUE, 2, shape=(2,)), "value uint8 2: one uint8 is needed"),
    "type_of_value": (changed(VALUE, 2, dtype="int8"), "value int8 scalar: one uint8 is needed"),
    "scale_of_value": rescaled(VALUE, 2),
    "no_value": (op("PADV2", NODE.inputs, NODE.outputs), "2 inputs: 3 expected"),
}
CASES = {
    "picture": NODE,
    "channels_and_batch": pad((2, 3, 1, 2), [[1, 0], [0, 0], [2, 1], [1, 1]]),
    "line": pad((5,), [[3, 4]]),
    "nothing": pad((7, 13), [[0, 0], [0, 0]]),
    "five": pad((2, 1, 3, 1, 2), [[1, 1], [0, 2], [2, 0], [1, 0], [0, 1]]),
    "large": pad((1, 33, 47, 5), [[0, 0], [1, 1], [1, 1], [0, 0]]),
    "rows_of_16": pad((1, 9, 7, 16), [[0, 0], [0, 1], [0, 1], [0, 0]]),
    "joined_channels": pad((1, 9, 7, 16), [[0, 0], [0, 1], [0, 1], [4, 12]]),
    "wide_border": pad((2, 1, 1, 3), [[0, 0], [70, 1], [0, 80], [0, 0]]),
    "int64": pad((3, 4), [[1, 2], [0, 3]], index="int64"),
    "value": VALUE,
    "value_of_a_picture": pad((2, 5, 7, 8), [[0, 0], [1, 1], [2, 0], [0, 0]], value=255),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_STRATEGIES, assert_moved)
test_types = types(lambda dtype: pad((3, 4), [[1, 2], [0, 3]], dtype), ANY, assert_moved)


@pytest.mark.parametrize("dtype", ANY)
def test_types_of_values(device: DeviceInfo, dtype: str) -> None:
    assert_moved(pad((3, 4), [[1, 2], [0, 3]], dtype, value=1), device, SIMT)


def test_launch() -> None:
    (plain,) = ops.lower(NODE, SIMT.target)
    launch = only_launch(plain)
    # Two channels of a byte move as one element.
    assert (launch.kernel, launch.tiles, dict(launch.defines)) == ("pad", 1, {"ELEM": "ushort"})
    assert [launch.params[f"before_{i}"] for i in range(5)] == [0, 0, 1, 0, 0]
    assert [launch.params[f"out_{i}"] for i in range(5)] == [1, 1, 6, 7, 1]


def bytes_of(launch: Launch) -> int:
    """Return how many bytes a launch of kernels/copy.cl moves."""
    count = {"uchar": 1, "ushort": 2, "uint": 4, "uint2": 8, "uint4": 16}[
        str(launch.defines["ELEM"])
    ]
    for axis in range(8):
        size = launch.params[f"size_{axis}"]
        assert isinstance(size, int)
        count *= size
    return count


def test_slabs_then_the_input() -> None:
    row, plain = ops.lower(NODE, LANES_8.target)
    assert (row.name, plain.name) == ("row", "plain")
    assert [bool(launch.reads) for launch in row.launches] == [False, False, False, True]
    # A row above, two below, then three columns of the rows that are left, and the input.
    bytes_ = [bytes_of(launch) for launch in row.launches]
    assert bytes_ == [1 * 7 * 2, 2 * 7 * 2, 3 * 3 * 2, 3 * 4 * 2]


@given(
    rank=st.integers(1, 5),
    counts=st.lists(st.integers(0, 4), min_size=15, max_size=15),
    dtype=st.sampled_from(ANY),
    value=st.none() | st.integers(0, 1),
    strategy=st.sampled_from(MOVE_STRATEGIES),
    seed=SEEDS,
    data=st.data(),
)
def test_drawn(
    device: DeviceInfo,
    rank: int,
    counts: list[int],
    dtype: str,
    value: int | None,
    strategy: Strategy,
    seed: int,
    data: st.DataObject,
) -> None:
    shape = tuple(n + 1 for n in counts[:rank])
    amounts = [
        list(pair) for pair in zip(counts[5 : 5 + rank], counts[10 : 10 + rank], strict=True)
    ]
    zero = data.draw(zero_points(dtype)) if dtype in ("uint8", "int8") else 0
    assert_moved_or_refused(pad(shape, amounts, dtype, zero, value), device, strategy, seed)


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


MIRROR_PAD_NODE = mirrored((3, 4), [[1, 2], [3, 0]])
MIRROR_PAD_REFUSALS = {
    "computed": (changed(MIRROR_PAD_NODE, 1, data=None), "paddings: not constant"),
    "negative": (
        changed(MIRROR_PAD_NODE, 1, data=np.array([[1, 2], [3, -1]])),
        "paddings [[1, 2], [3, -1]] of shape 3x4: 2 pairs of 0 or more are needed",
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
        changed(MIRROR_PAD_NODE, options={"mode": "WRAP"}),
        "mode WRAP: only REFLECT and SYMMETRIC exist",
    ),
    "output": (changed(MIRROR_PAD_NODE, -1, shape=(6, 8)), "output 6x8: the inputs give 6x7"),
    "scales": rescaled(MIRROR_PAD_NODE, -1),
}
MIRROR_PAD_CASES = {
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

test_mirror_pad_refusal = refused(MIRROR_PAD_REFUSALS)
test_mirror_pad_exact = exact(MIRROR_PAD_CASES, MOVE_STRATEGIES, assert_moved)
test_mirror_pad_types = types(
    lambda dtype: mirrored((3, 4), [[1, 2], [3, 0]], "REFLECT", dtype), ANY, assert_moved
)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    mode = draw(st.sampled_from(["REFLECT", "SYMMETRIC"]))
    most = [n - (mode == "REFLECT") for n in shape]
    amounts = [[draw(st.integers(0, n)), draw(st.integers(0, n))] for n in most]
    return mirrored(tuple(shape), amounts, mode, draw(st.sampled_from(ANY)))


test_mirror_pad_drawn = drawn(nodes(), MOVE_STRATEGIES, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return these ops' nodes of a size and an 8-bit type, for the tests of all ops."""
    amounts = [[0, 0], [1, 1], [1, 1], [0, 0]]
    return [
        *[pad((1, size, size, channels), amounts, dtype, value=value) for value in (None, 7)],
        mirrored((1, size, size, channels), [[0, 0], [1, 1], [1, 1], [0, 0]], "SYMMETRIC", dtype),
    ]


BUILT = [
    *[
        pad((1, size, size, channels), [[0, 0]] * 4, dtype)
        for size in SIZES
        for channels in CHANNELS
        for dtype in ("uint8", "float32")
    ]
]
