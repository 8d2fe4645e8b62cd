# SPDX-License-Identifier: Apache-2.0
"""RESIZE_BILINEAR: its launches, what it refuses, and every pixel against the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from tests.support.cases import (
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    WAYS,
    Way,
    assert_exact_way,
    changed,
    only_launch,
    retyped,
)
from tests.support.factories import drawn, refused
from tests.support.model import op
from tests.support.moves import assert_moved, assert_moved_or_refused
from tests.support.resizing import CENTERS, SIZES, Resizing, resizings

DTYPES = ("uint8", "int8", "int16", "float32")
VECTOR = replace(LANES_8, name="vector8", alternative="vector")


@pytest.mark.parametrize(
    ("way", "case", "names"),
    [
        (SIMT, Resizing(), ["plain"]),
        (SIMT, Resizing(shape=(1, 3, 5, 21), size=(6, 10)), ["vector 4", "plain"]),
        (LANES_8, Resizing(shape=(1, 3, 5, 9)), ["vector 8", "plain"]),
        (
            LANES_8,
            Resizing(shape=(1, 3, 5, 21), size=(12, 5)),
            ["short 16", "vector 8", "plain"],
        ),
        # 32 times as many: weights of 1/32
        (LANES_8, Resizing(shape=(1, 3, 5, 21), size=(96, 5)), ["vector 8", "plain"]),
        (
            LANES_8,
            Resizing(shape=(1, 3, 5, 21), size=(33, 65), centers="align_corners"),
            ["short 16", "vector 8", "plain"],
        ),
        (LANES_16, Resizing(shape=(1, 3, 5, 17), dtype="float32"), ["vector 16", "plain"]),
        (LANES_16, Resizing(shape=(1, 3, 5, 17), size=(6, 10), dtype="int16"),
         ["vector 16", "plain"]),
        (SIMT, Resizing(shape=(1, 3, 5, 21), size=(3, 5)), ["view"]),
        (SIMT, Resizing(shape=(1, 3, 5, 21), size=(3, 5), dtype="float32"), ["vector 4", "plain"]),
    ],
    ids=str,
)  # fmt: skip
def test_alternatives(way: Way, case: Resizing, names: list[str]) -> None:
    assert [found.name for found in ops.lower(case.node(), way.target)] == names


def test_launch() -> None:
    node = Resizing(shape=(2, 3, 5, 21), size=(7, 11)).node()
    launch = only_launch(ops.lower(node, SIMT.target)[0])
    assert (launch.file, launch.kernel) == ("resize_bilinear", "resize_bilinear")
    assert launch.defines == {"ELEM": "uchar", "IS_FLOAT": 1, "IS_SHORT": 0, "LANES": 4}
    # 2 x 7 rows of 3 runs, 4 pixels each, by 6 blocks of channels
    assert (launch.params["items"], launch.tiles, launch.group_items) == (252, 4, 64)


def test_no_work_item_makes_too_many_rounds() -> None:
    for way in (SIMT, LANES_8):
        node = Resizing(shape=(1, 2, 2, 1), size=(513, 20001)).node()
        launch = only_launch(ops.lower(node, way.target)[-1])
        run, tile_items = launch.params["run"], launch.params["tile_items"]
        assert isinstance(run, int)
        assert isinstance(tile_items, int)
        assert run * tile_items // launch.group_items <= 32768


NODE = Resizing().node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "computed_size": (changed(NODE, 1, data=None), "height and width are not constant"),
    "sizes": (
        changed(NODE, 1, shape=(3,), data=np.ones(3, np.int32)),
        "size int32 of 3: int32 of 2 is needed",
    ),
    "int64_size": (changed(NODE, 1, dtype="int64"), "size int64 of 2: int32 of 2 is needed"),
    "output": (
        changed(NODE, -1, shape=(1, 7, 12, 3)),
        "shapes 1x3x5x3 -> 1x7x12x3: 1x7x11x3 is computed",
    ),
    "negative": (
        changed(NODE, 1, data=np.array([-7, 11], np.int32)),
        "shapes 1x3x5x3 -> 1x7x11x3: 1x-7x11x3 is computed",
    ),
    "rank": (changed(NODE, 0, shape=(3, 5, 3)), "shapes 3x5x3 -> 1x7x11x3: only rank 4 (NHWC)"),
    "empty": (
        changed(changed(NODE, 0, shape=(1, 0, 5, 3)), -1, shape=(1, 7, 11, 3)),
        "shapes 1x0x5x3 -> 1x7x11x3: they are empty",
    ),
    "types": (
        changed(NODE, -1, dtype="int8"),
        "uint8 in, int8 out: one of uint8, int8, int16, float32 is needed",
    ),
    "int32": (
        retyped(NODE, "int32"),
        "int32 in, int32 out: one of uint8, int8, int16, float32 is needed",
    ),
    "both_options": (
        changed(NODE, options={"align_corners": True, "half_pixel_centers": True}),
        "align_corners and half_pixel_centers: only one of them",
    ),
    "no_flag": (
        changed(NODE, options={"align_corners": 7}),
        "align_corners is 7: true or false is needed",
    ),
    "outside": (
        Resizing(
            shape=(1, 4001, 1, 1), size=(6000, 1), centers="align_corners", dtype="int8"
        ).node(),
        "4001 to 6000 pixels: TFLite would read outside of the input",
    ),
    "one_input": (op("RESIZE_BILINEAR", NODE.inputs[:1], NODE.outputs), "1 inputs: 2 expected"),
}

test_refusals = refused(REFUSALS)


@pytest.mark.parametrize("way", [PLAIN, SIMT, LANES_8, LANES_16], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("centers", CENTERS)
def test_exact(device: DeviceInfo, way: Way, dtype: str, centers: str) -> None:
    for shape, size in SIZES:
        case = Resizing(shape=shape, size=size, centers=centers, dtype=dtype)
        assert_moved(case.node(), device, way)


@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_what_short_sums_fit_the_others_give_too(device: DeviceInfo, dtype: str) -> None:
    case = Resizing(shape=(1, 3, 3, 19), size=(33, 17), centers="align_corners", dtype=dtype)
    assert assert_exact_way(case.model(), device, LANES_8) == {"short 16"}
    assert assert_exact_way(case.model(), device, VECTOR) == {"vector 8"}


test_drawn = drawn(
    resizings("RESIZE_BILINEAR", DTYPES).map(Resizing.node), WAYS, assert_moved_or_refused
)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [
        Resizing(shape=(1, size, size, channels), size=(2 * size, 3 * size), dtype=dtype).node()
    ]


BUILT = [
    Resizing(shape=(1, 3, 3, 17), size=size, dtype=dtype).node()
    for dtype in DTYPES
    for size in ((6, 6), (6, 7))
]
