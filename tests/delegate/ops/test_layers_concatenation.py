# SPDX-License-Identifier: Apache-2.0
"""CONCATENATION and PACK: what they refuse, and tables of other scales, against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from tests.support.cases import LANES_8, SIMT, assert_exact_strategy, changed
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import chain_model, op, t
from tests.support.moves import ANY, MOVE_STRATEGIES, assert_moved, assert_moved_or_refused, like
from tests.support.refusals import rescaled, sparse, unquantised


def joined(
    shapes: list[tuple[int, ...]],
    axis: int = -1,
    dtype: str = "uint8",
    scales: list[tuple[float, int]] | None = None,
) -> Node:
    """Return the node of these inputs; `scales`: theirs and, last, the output's."""
    total = list(shapes[0])
    total[axis] = sum(shape[axis] for shape in shapes)
    tensors = [like(shape, dtype) for shape in (*shapes, tuple(total))]
    if scales:
        tensors = [t(each.shape, dtype, *s) for each, s in zip(tensors, scales, strict=True)]
    options = {"axis": axis, "fused_activation_function": "NONE"}
    return op("CONCATENATION", tensors[:-1], tensors[-1:], options)


NODE = joined([(1, 2, 3, 4), (1, 2, 3, 5)])
INT8 = joined([(3, 4), (3, 5)], dtype="int8")
REFUSALS = {
    "axis": (changed(NODE, options={"axis": 4}), "axis 4: outside of 4 dimensions"),
    "fused": (
        changed(NODE, options={"fused_activation_function": "RELU"}),
        "fused activation RELU: only NONE",
    ),
    "rank": (
        changed(NODE, 1, shape=(2, 3, 4)),
        "1x2x3x4 and 2x3x4: they may differ on axis 3 alone",
    ),
    "size": (
        changed(NODE, 1, shape=(1, 3, 3, 5)),
        "1x2x3x4 and 1x3x3x5: they may differ on axis 3 alone",
    ),
    "output": (changed(NODE, -1, shape=(1, 2, 3, 8)), "output 1x2x3x8: the inputs give 1x2x3x9"),
    "types": (changed(NODE, 1, dtype="int8"), "int8 in, uint8 out: they must be equal"),
    "empty": (changed(NODE, 1, shape=(1, 2, 3, 0)), "shape 1x2x3x0: it is empty"),
    "int8_scales": (
        changed(INT8, 1, quantization=t((), "int8", 0.25, 3).quantization),
        "input and output differ in scale or zero point",
    ),
    "uint8_without_a_scale": unquantised(NODE, 0),
    "a_scale_too_large": (
        changed(NODE, 0, quantization=t((), "uint8", 3e9, 3).quantization),
        "a scale ratio of 6e+09: beyond 32 bits",
    ),
    "no_input": (replace(NODE, inputs=()), "0 inputs: 1 expected"),
    "sparse": sparse(NODE, 1),
}
CASES = {
    "channels": joined([(2, 5, 7, 16), (2, 5, 7, 32)]),
    "odd_channels": joined([(1, 8, 8, 3), (1, 8, 8, 1), (1, 8, 8, 2)]),
    "rows": joined([(2, 3, 5, 7), (2, 1, 5, 7), (2, 4, 5, 7)], 1),
    "batch": joined([(1, 3, 5), (2, 3, 5)], 0),
    "one_input": joined([(3, 5)]),
    "a_tile_and_one_more": joined([(4097,), (4095,)]),
    "long_rows": joined([(3, 40001), (3, 2)]),
    "other_scale": joined([(3, 5), (3, 4)], -1, "uint8", [(0.5, 3), (0.3, 200), (0.4, 9)]),
    "all_other_scales": joined([(3, 5), (3, 4)], -1, "uint8", [(0.1, 0), (2, 255), (1, 128)]),
    "rescaled_rows": joined([(2, 3), (4, 3)], 0, "uint8", [(1, 3), (0.5, 3), (1, 3)]),
}

test_refusal = refused(REFUSALS)
test_exact = exact(CASES, MOVE_STRATEGIES, assert_moved)
test_types = types(lambda dtype: joined([(2, 3, 5), (2, 3, 4)], dtype=dtype), ANY, assert_moved)


def test_one_input_is_a_view() -> None:
    (view,) = ops.lower(CASES["one_input"], SIMT.target)
    assert (view.name, view.launches) == ("view", ())


def test_tables_come_after_the_copies() -> None:
    kernels = {
        each.name: [launch.kernel for launch in each.launches]
        for each in ops.lower(CASES["rescaled_rows"], LANES_8.target)
    }
    assert kernels == {
        "row": ["copy_row", "concatenation_quant8"],
        "plain": ["copy", "concatenation_quant8"],
    }


SCALES = [(0.5, 3), (0.5, 4), (0.499, 3), (1.0, 0), (1.5, 255), (0.003, 128), (70.0, 77)]


@pytest.mark.parametrize("output", SCALES, ids=str)
def test_every_byte_at_another_scale(device: DeviceInfo, output: tuple[float, int]) -> None:
    node = joined([(1, 1000)] * len(SCALES), -1, "uint8", [*SCALES, output])
    values = np.resize(np.arange(256), (1, 1000)).astype(np.uint8)
    assert_exact_strategy(chain_model([node]), device, SIMT, inputs=[[values] * len(SCALES)])


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    shapes = []
    for size in draw(st.lists(st.integers(1, 20), min_size=1, max_size=4)):
        shape[axis] = size
        shapes.append(tuple(shape))
    dtype = draw(st.sampled_from(("uint8", *ANY)))
    pairs = st.tuples(st.floats(0.01, 10), st.integers(0, 255))
    some = st.lists(pairs, min_size=len(shapes) + 1, max_size=len(shapes) + 1)
    return joined(shapes, axis, dtype, draw(some) if dtype == "uint8" else None)


test_drawn = drawn(nodes(), MOVE_STRATEGIES, assert_moved_or_refused)


def pack(shape: tuple[int, ...], count: int, axis: int = 0, dtype: str = "uint8") -> Node:
    total = list(shape)
    total.insert(axis if axis >= 0 else len(shape) + 1 + axis, count)
    sources = [like(shape, dtype) for _ in range(count)]
    return op("PACK", sources, [like(total, dtype)], {"axis": axis, "values_count": count})


PACK_NODE = pack((2, 3), 2)
PACK_REFUSALS = {
    "axis": (changed(PACK_NODE, options={"axis": 3}), "axis 3: outside of 3 dimensions"),
    "count": (
        changed(PACK_NODE, options={"values_count": 3}),
        "3 layers, 2 inputs: they must be equal",
    ),
    "shapes": (changed(PACK_NODE, 1, shape=(3, 2)), "layers 2x3 and 3x2: they must be equal"),
    "output": (changed(PACK_NODE, -1, shape=(3, 2)), "output 3x2: the inputs give 2x2x3"),
    "scales": rescaled(PACK_NODE, 1),
    "types": (changed(PACK_NODE, 1, dtype="int8"), "int8 in, uint8 out: they must be equal"),
    "no_input": (replace(PACK_NODE, inputs=()), "0 inputs: 1 expected"),
}
PACK_CASES = {
    "outermost": pack((3, 5), 3),
    "innermost": pack((1, 17), 2, 2),
    "last": pack((2, 5, 16), 4, -1),
    "inside": pack((4, 3, 5), 2, 1),
    "scalars": pack((), 3),
    "one": pack((3, 5), 1, 1),
    "same_twice": replace(pack((7, 3), 2, 1), inputs=pack((7, 3), 2, 1).inputs[:1] * 2),
    "with_a_constant": changed(
        pack((2, 3), 2, 1), 0, data=np.arange(6, dtype="uint8").reshape(2, 3)
    ),
}

test_pack_refusal = refused(PACK_REFUSALS)
test_pack_exact = exact(PACK_CASES, MOVE_STRATEGIES, assert_moved)
test_pack_types = types(
    lambda dtype: pack((4, 5), 3, 1, dtype),
    ["uint8", "int8", "int16", "int32", "int64", "float32"],
    assert_moved,
)


@st.composite
def pack_nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 7), max_size=4))
    axis = draw(st.integers(-len(shape) - 1, len(shape)))
    return pack(tuple(shape), draw(st.integers(1, 5)), axis, draw(st.sampled_from(ANY)))


test_pack_drawn = drawn(pack_nodes(), MOVE_STRATEGIES, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return these ops' nodes of a size and an 8-bit type, for the tests of all ops."""
    second = 0.25 if dtype == "uint8" else 0.5
    scales = [(0.5, 3), (second, 3), (0.5, 3)]
    return [
        joined([(1, size, size, channels)] * 2, dtype=dtype, scales=scales),
        pack((1, size, size, channels), 2, 1, dtype),
    ]
