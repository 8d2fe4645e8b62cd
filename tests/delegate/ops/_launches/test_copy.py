# SPDX-License-Identifier: Apache-2.0
"""Boxes that move: how they are merged and joined, their launches, and none beyond a tensor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import Unsupported
from delegate.inspect import Tensor
from delegate.launch import Launch
from delegate.ops._launches.copy import Box, Move, by_moves, fill, steps_of
from tests.support.cases import LANES_8, SIMT
from tests.support.model import t

WIDTHS = {"uchar": 1, "ushort": 2, "uint": 4, "uint2": 8, "uint4": 16}


def launched(box: Box, source: Tensor, result: Tensor) -> dict[str, Launch]:
    """Return the launches for groups of one work-item, by the alternatives' names."""
    found = by_moves([Move(source, result, box)], LANES_8.target)
    return {alternative.name: alternative.launches[0] for alternative in found}


def number(launch: Launch, name: str) -> int:
    value = launch.params[name]
    assert isinstance(value, int)
    return value


def columns(launch: Launch) -> list[tuple[int, int, int]]:
    """Return the size and steps of a launch's dimensions, innermost first."""
    if launch.kernel == "copy_columns":
        of_row = int(launch.defines["COLUMNS"])
        return [(of_row, number(launch, "in_0"), 1), (number(launch, "elements"), 1, of_row)]
    axes = range(number(launch, "dims"))
    return [
        (number(launch, f"size_{i}"), number(launch, f"in_{i}"), number(launch, f"out_{i}"))
        for i in axes
    ]


def test_channels_of_pixels() -> None:
    # 5 of 12 channels: pixels of all rows and pictures are one dimension.
    box = Box((2, 3, 4, 5), steps_of((2, 3, 4, 12)), steps_of((2, 3, 4, 5)), 7)
    source, result = t((2, 3, 4, 12), "uint8"), t((2, 3, 4, 5), "uint8")
    row, plain = launched(box, source, result).values()
    for launch in (row, plain):
        assert columns(launch) == [(5, 1, 1), (24, 12, 5)]
        assert (launch.params["in_start"], launch.defines) == (7, {"ELEM": "uchar"})
        assert (launch.reads, launch.writes) == ((source,), (result,))
    assert (row.kernel, row.params["rows"], row.params["parts"]) == ("copy_row", 24, 1)
    assert (plain.kernel, plain.params["elements"]) == ("copy", 120)


@pytest.mark.parametrize(
    ("dtype", "channels", "start", "elem"),
    [
        ("uint8", 48, 16, "uint4"),
        ("uint8", 24, 8, "uint2"),
        ("uint8", 48, 8, "uint2"),
        ("uint8", 48, 4, "uint"),
        ("uint8", 48, 18, "ushort"),
        ("uint8", 48, 5, "uchar"),
        ("uint8", 17, 1, "uchar"),
        ("float32", 12, 4, "uint4"),
        ("float32", 12, 3, "uint"),
        ("int64", 6, 2, "uint4"),
        ("int64", 5, 1, "uint2"),
    ],
)
def test_joined_elements(dtype: str, channels: int, start: int, elem: str) -> None:
    # The channels from `start` on go to a result of 6 pixels that has as many before them.
    shape = (6, channels)
    box = Box((6, channels - start), (channels, 1), (channels, 1), start, start)
    (row, plain) = launched(box, t(shape, dtype), t(shape, dtype)).values()
    assert row.defines == plain.defines == {"ELEM": elem}


def test_a_value_is_joined_too() -> None:
    move = fill(np.array([7], np.uint8), t((4, 48), "uint8"), (4, 16), 32)
    (plain,) = by_moves([move], SIMT.target)
    (launch,) = plain.launches
    assert (launch.reads, launch.defines) == ((), {"ELEM": "uint4"})
    assert columns(launch) == [(4, 0, 3)]  # a pixel's 16 bytes are one element
    value = launch.params["input"]
    assert not isinstance(value, (int, Tensor))
    assert value.pack().tobytes() == b"\x07" * 16


def test_long_rows_are_cut() -> None:
    box = Box((2, 100_001), (100_003, 1), (100_001, 1))
    row = launched(box, t((2, 100_003), "uint8"), t((2, 100_001), "uint8"))["row"]
    assert (row.params["rows"], row.params["tile_rows"]) == (2, 1)
    assert row.tiles == 2 * number(row, "parts")
    assert number(row, "parts") * number(row, "part") >= 100_001


def test_a_whole_tensor_is_a_view() -> None:
    source, result = t((3, 1, 5), "uint8"), t((3, 5), "uint8")
    (view,) = by_moves([Move(source, result, Box((3, 5), (5, 1), (5, 1)))], SIMT.target)
    assert (view.launches, view.view) == ((), (source, result))
    part = by_moves([Move(source, t((2, 5), "uint8"), Box((2, 5), (5, 1), (5, 1)))], SIMT.target)
    assert part[0].view is None


@pytest.mark.parametrize(
    ("box", "reason"),
    [
        (Box((3,), (1,), (1,), 3), "elements 3 to 5 of 5: outside of the tensor"),
        (Box((3,), (2,), (1,), 1), "elements 1 to 5 of 5: outside of the tensor"),
        (Box((3,), (-1,), (1,), 1), "elements -1 to 1 of 5: outside of the tensor"),
        (Box((3,), (1,), (3,)), "elements 0 to 6 of 5: outside of the tensor"),
        (Box((3,), (1,), (1,), 0, -1), "elements -1 to 1 of 5: outside of the tensor"),
    ],
)
def test_nothing_beyond_a_tensor(box: Box, reason: str) -> None:
    with pytest.raises(Unsupported) as caught:
        by_moves([Move(t((5,), "uint8"), t((5,), "uint8"), box)], SIMT.target)
    assert str(caught.value) == reason


def test_too_many_dimensions() -> None:
    shape = (3,) * 9
    box = Box((2,) * 9, steps_of(shape), steps_of((2,) * 9))
    with pytest.raises(Unsupported, match=r"^9 dimensions that differ: at most 8$"):
        by_moves([Move(t(shape, "uint8"), t((2,) * 9, "uint8"), box)], SIMT.target)


def moved_bytes(launch: Launch, source: NDArray[Any], result: NDArray[Any]) -> None:
    """Do what a launch asks of kernels/copy.cl."""
    width = WIDTHS[str(launch.defines["ELEM"])]
    place_in, place_out = number(launch, "in_start"), number(launch, "out_start")
    wide_in, wide_out = source.view(f"V{width}"), result.view(f"V{width}")
    sizes, inwards, outwards = zip(*columns(launch), strict=True) if columns(launch) else ((),) * 3
    for at in np.ndindex(*sizes):
        wide_out[place_out + int(np.dot(at, outwards))] = wide_in[
            place_in + int(np.dot(at, inwards))
        ]


@given(data=st.data())
def test_drawn_boxes_keep_their_elements(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    dtype = data.draw(st.sampled_from(["uint8", "int16", "float32"]))
    around = [data.draw(st.sampled_from([0, 0, 1, 4])) for _ in sizes]
    shape = [n + more for n, more in zip(sizes, around, strict=True)]
    order = data.draw(st.permutations(range(len(sizes))))
    steps = [s * data.draw(st.sampled_from([1, 1, 1, -1])) for s in steps_of(shape)]
    start = sum((n - 1) * -s for n, s in zip(sizes, steps, strict=True) if s < 0)
    out_shape = [sizes[axis] for axis in order]
    box = Box(tuple(out_shape), tuple(steps[axis] for axis in order), steps_of(out_shape), start)
    tensors = t(shape, dtype), t(out_shape, dtype)
    values = np.random.default_rng(0).integers(0, 256, math.prod(shape) * np.dtype(dtype).itemsize)
    source = np.resize(values.astype(np.uint8), -(-values.size // 16) * 16)
    expected = np.zeros(math.prod(out_shape), dtype)
    elements = source[: values.size].view(dtype)
    for number, at in enumerate(np.ndindex(*out_shape)):
        expected[number] = elements[
            start + sum(i * s for i, s in zip(at, box.in_steps, strict=True))
        ]
    for alternative in by_moves([Move(*tensors, box)], LANES_8.target):
        if alternative.view:
            assert expected.tobytes() == elements[: expected.size].tobytes()
            continue
        result = np.zeros(-(-expected.nbytes // 16) * 16, np.uint8)
        moved_bytes(alternative.launches[0], source, result)
        assert result[: expected.nbytes].tobytes() == expected.tobytes()
