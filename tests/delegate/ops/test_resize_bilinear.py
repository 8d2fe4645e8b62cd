# SPDX-License-Identifier: Apache-2.0
"""RESIZE_BILINEAR: its launches, what it refuses, and every pixel."""

from __future__ import annotations

import numpy as np
import pytest

from delegate import ops
from delegate.inspect import Node
from tests.support.cases import (
    LANES_8,
    LANES_16,
    SIMT,
    STRATEGIES,
    Strategy,
    changed,
    only_launch,
    retyped,
)
from tests.support.factories import drawn, refused
from tests.support.model import op
from tests.support.resizing import resizings
from tests.support.suite_cases import assert_graph_or_refused, from_suite
from tflite_opencl.conformance.cases.resizes import resize

DTYPES = ("uint8", "int8", "int16", "float32")

test_resize_bilinear = from_suite("RESIZE_BILINEAR", first="in1x3x3x19")


def node(
    shape: tuple[int, ...] = (1, 3, 5, 3),
    size: tuple[int, int] = (7, 11),
    dtype: str = "uint8",
    *centers: str,
) -> Node:
    return resize("RESIZE_BILINEAR", shape, size, *centers).graph(dtype).nodes[0]


@pytest.mark.parametrize(
    ("strategy", "node", "names"),
    [
        (SIMT, node(), ["plain"]),
        (SIMT, node((1, 3, 5, 21), (6, 10)), ["vector 4", "plain"]),
        (LANES_8, node((1, 3, 5, 9)), ["vector 8", "plain"]),
        (LANES_8, node((1, 3, 5, 21), (12, 5)), ["short 16", "vector 8", "plain"]),
        # 32 times as many: weights of 1/32
        (LANES_8, node((1, 3, 5, 21), (96, 5)), ["vector 8", "plain"]),
        (
            LANES_8,
            node((1, 3, 5, 21), (33, 65), "uint8", "align_corners"),
            ["short 16", "vector 8", "plain"],
        ),
        (LANES_16, node((1, 3, 5, 17), dtype="float32"), ["vector 16", "plain"]),
        (LANES_16, node((1, 3, 5, 17), (6, 10), "int16"), ["vector 16", "plain"]),
        (SIMT, node((1, 3, 5, 21), (3, 5)), ["view"]),
        (SIMT, node((1, 3, 5, 21), (3, 5), "float32"), ["vector 4", "plain"]),
    ],
)
def test_alternatives(strategy: Strategy, node: Node, names: list[str]) -> None:
    assert [found.name for found in ops.lower(node, strategy.target)] == names


def test_launch() -> None:
    launch = only_launch(ops.lower(node((2, 3, 5, 21)), SIMT.target)[0])
    assert (launch.file, launch.kernel) == ("resize_bilinear", "resize_bilinear")
    assert launch.defines == {"ELEM": "uchar", "IS_FLOAT": 1, "IS_SHORT": 0, "LANES": 4}
    # 2 x 7 rows of 3 runs, 4 pixels each, by 6 blocks of channels
    assert (launch.params["items"], launch.tiles, launch.group_items) == (252, 4, 64)


def test_no_work_item_makes_too_many_rounds() -> None:
    for strategy in (SIMT, LANES_8):
        launch = only_launch(ops.lower(node((1, 2, 2, 1), (513, 20001)), strategy.target)[-1])
        run, tile_items = launch.params["run"], launch.params["tile_items"]
        assert isinstance(run, int)
        assert isinstance(tile_items, int)
        assert run * tile_items // launch.group_items <= 32768


NODE = node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "computed_size": (changed(NODE, 1, data=None), "height and width are not constant"),
    "sizes": (
        changed(NODE, 1, shape=(3,), data=np.ones(3, np.int32)),
        "size int32 of 3: int32 of 2 is needed",
    ),
    "int64_size": (changed(NODE, 1, dtype="int64"), "size int64 of 2: int32 of 2 is needed"),
    "output": (
        changed(NODE, -1, shape=(1, 7, 12, 3)),
        "shapes 1x3x5x3 -> 1x7x12x3: the output must be 1x7x11x3",
    ),
    "negative": (
        changed(NODE, 1, data=np.array([-7, 11], np.int32)),
        "shapes 1x3x5x3 -> 1x7x11x3: the output must be 1x-7x11x3",
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
        node((1, 4001, 1, 1), (6000, 1), "int8", "align_corners"),
        "4001 to 6000 pixels: TFLite would read outside of the input",
    ),
    "one_input": (op("RESIZE_BILINEAR", NODE.inputs[:1], NODE.outputs), "1 inputs: 2 expected"),
}

test_refusals = refused(REFUSALS)


test_drawn = drawn(resizings("RESIZE_BILINEAR", DTYPES), STRATEGIES, assert_graph_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [node((1, size, size, channels), (2 * size, 3 * size), dtype)]


BUILT = [node((1, 3, 3, 17), size, dtype) for dtype in DTYPES for size in ((6, 6), (6, 7))]
