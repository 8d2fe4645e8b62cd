# SPDX-License-Identifier: Apache-2.0
"""GATHER and GATHER_ND: what they refuse, and picked rows against TFLite's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.graph.partition import partition_of
from delegate.inspect import Node
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.planned import planned_executor
from delegate.plan.lowering.compiler import compile_partition
from delegate.run.device import Device
from delegate.target import Target
from tests.support.cases import GROUPS, SIMT, Strategy, assert_exact_strategy, changed, retyped
from tests.support.compare import RUNTIME
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import chain_model, const, graph_of, op, t
from tests.support.moves import ANY, assert_moved, assert_moved_or_refused, like, numbers
from tflite_opencl.models.build import as_int4


def gather(
    shape: tuple[int, ...],
    indices: Any,
    axis: int = 0,
    batch_dims: int = 0,
    dtype: str = "uint8",
    index: str = "int32",
) -> Node:
    places = np.array(indices)
    batch = batch_dims + (places.ndim if batch_dims < 0 else 0)
    first = axis % len(shape)
    result = (*shape[:first], *places.shape[batch:], *shape[first + 1 :])
    return op(
        "GATHER",
        [like(shape, dtype), numbers(places, index)],
        [like(result, dtype)],
        {"axis": axis, "batch_dims": batch_dims},
    )


NODE = gather((4, 3), [3, 0])
REFUSALS = {
    "computed_int16": (
        changed(NODE, 1, data=None, dtype="int16"),
        "non-constant indices of int16: only int32 and int64",
    ),
    "too_large": (changed(NODE, 1, data=np.array([4, 0])), "an index is 4: outside of 4 elements"),
    "negative": (changed(NODE, 1, data=np.array([1, -1])), "an index is -1: outside of 4 elements"),
    "axis": (changed(NODE, options={"axis": 2}), "axis 2: outside of 2 dimensions"),
    "batch_dims": (
        changed(NODE, options={"batch_dims": 1}),
        "batch_dims 1: beyond axis 0 or 1 dimensions",
    ),
    "batches": (
        changed(gather((2, 3), [[0], [1]], 1, 1), 0, shape=(3, 3)),
        "batches 3x3 and 2x1: they differ",
    ),
    "output": (changed(NODE, -1, shape=(2, 4)), "output 2x4: the inputs give 2x3"),
    "odd_int4": (retyped(NODE, "int4"), "int4 rows of 3: TFLite takes 1 bytes of each"),
    "int2": (
        retyped(gather((4, 8), [3, 0]), "int2"),
        "int2: only uint8, int8, int16, int32, int64, float16, float32, bool, int4",
    ),
    "float_indices": (
        changed(NODE, 1, dtype="float32"),
        "float32 indices: only int16, int32 and int64",
    ),
}
CASES = {
    "rows": gather((7, 16), [6, 0, 3, 3]),
    "channels": gather((2, 3, 5), [4, 0, 0, 2], -1),
    "inside": gather((2, 5, 3, 4), [1, 4], 1),
    "matrix_of_indices": gather((5, 3), [[0, 1, 2], [4, 3, 0]]),
    "scalar_index": gather((5, 3), 2),
    "a_batch": gather((2, 5, 3), [[0, 4], [1, 1]], 1, 1),
    "a_batch_and_more": gather((2, 4, 5, 3), [[0, 4, 2], [1, 1, 0]], 2, 1),
    "two_batches": gather((2, 3, 4, 2), np.arange(12).reshape(2, 3, 2) % 4, 2, 2),
    "negative_batch": gather((2, 5), [[0, 4], [1, 1]], 1, -1),
    "int64": gather((5, 3), [4, 1], index="int64"),
    "large": gather((50, 129), [*range(49, -1, -1)] * 2),
}


def of_int4(
    shape: tuple[int, ...], indices: Any, axis: int = 0, batch_dims: int = 0, reads: str = ""
) -> list[Node]:
    """Return a GATHER in an int4 table, and the op that reads its result, if any."""
    values = np.random.default_rng(1).integers(-128, 127, shape, endpoint=True).astype(np.int8)
    node = gather(shape, indices, axis, batch_dims)
    found = replace(node.outputs[0], dtype="int4")
    inputs = (as_int4(const(values, 0.5, 3)), node.inputs[1])
    made = replace(node, inputs=inputs, outputs=(found,), version=5)
    return [made, *([op(reads, [found], [t(found.shape)], version=6)] if reads else [])]


INT4 = {
    "rows": ((9, 6), [8, 0, 3, 3]),
    "a_large_one": ((50, 66), [*range(49, -1, -1)] * 2),
    "inside": ((2, 5, 3, 2), [1, 4], 1),
    "matrix_of_indices": ((5, 8), [[0, 1, 2], [4, 3, 0]]),
    "scalar_index": ((5, 32), 2),
    "a_batch_and_more": ((2, 4, 5, 6), [[0, 4, 2], [1, 1, 0]], 2, 1),
}


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("reads", ["DEQUANTIZE", "CAST", ""], ids=["floats", "cast", "alone"])
@pytest.mark.parametrize("given", INT4.values(), ids=INT4)
def test_int4(device: DeviceInfo, given: Any, reads: str, strategy: Strategy) -> None:
    if RUNTIME.name == "tflite-runtime":
        pytest.skip("tflite-runtime has no GATHER of int4")
    nodes = of_int4(*given, reads=reads)
    model = chain_model(nodes, outputs=nodes[-1].outputs)
    assert_exact_strategy(model, device, replace(strategy, alternative=""))


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
def test_int4_at_computed_indices(device: DeviceInfo, strategy: Strategy) -> None:
    """What the device leaves for another reader is packed as TFLite has it."""
    if RUNTIME.name == "tflite-runtime":
        pytest.skip("tflite-runtime has no GATHER of int4")
    scores, places = t((6, 9), "int8", 0.1), t((6,), "int32")
    found = op("ARG_MAX", [scores, numbers(1)], [places], {"output_type": "int32"}, 2)
    rows, floats = of_int4((9, 34), [0] * 6, reads="DEQUANTIZE")
    rows = replace(rows, inputs=(rows.inputs[0], places))
    model = chain_model([found, rows, floats], outputs=[*rows.outputs, *floats.outputs])
    assert_exact_strategy(model, device, replace(strategy, alternative=""))


test_refusal = refused(REFUSALS)
test_exact = exact(CASES, GROUPS, assert_moved)
test_types = types(lambda dtype: gather((4, 3), [3, 0, 1], dtype=dtype), ANY, assert_moved)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    axis = draw(st.integers(0, len(shape) - 1))
    batch = draw(st.integers(0, axis))
    more = draw(st.lists(st.integers(1, 4), max_size=2))
    places = np.array(draw(st.lists(st.integers(0, shape[axis] - 1), min_size=1, max_size=9)))
    indices = np.resize(places, (*shape[:batch], *more))
    dtype, index = draw(st.sampled_from(ANY)), draw(st.sampled_from(["int32", "int64"]))
    axis -= len(shape) if draw(st.booleans()) else 0
    return gather(tuple(shape), indices, axis, batch, dtype, index)


test_drawn = drawn(nodes(), GROUPS, assert_moved_or_refused)


def gather_nd(
    shape: tuple[int, ...], indices: Any, dtype: str = "uint8", index: str = "int32"
) -> Node:
    places = np.array(indices)
    result = (*places.shape[:-1], *shape[places.shape[-1] :])
    return op("GATHER_ND", [like(shape, dtype), numbers(places, index)], [like(result, dtype)])


ND_NODE = gather_nd((4, 3, 5), [[3, 2], [0, 1]])
ND_REFUSALS = {
    "too_large": (
        changed(ND_NODE, 1, data=np.array([[3, 3], [0, 1]])),
        "an index is 3: outside of 3 elements",
    ),
    "negative": (
        changed(ND_NODE, 1, data=np.array([[3, 2], [-1, 1]])),
        "an index is -1: outside of 4 elements",
    ),
    "coordinates": (
        changed(ND_NODE, 0, shape=(4,)),
        "2 coordinates of 4: 1 to 1 are needed",
    ),
    "scalar": (
        changed(ND_NODE, 1, data=np.array(1), shape=()),
        "0 coordinates of 4x3x5: 1 to 3 are needed",
    ),
    "output": (changed(ND_NODE, -1, shape=(2, 3)), "output 2x3: the inputs give 2x5"),
}
ND_CASES = {
    "slices": gather_nd((1, 5, 7, 16), [[0, 4, 6], [0, 0, 0], [0, 2, 3]]),
    "rows": gather_nd((7, 3), [[6], [0], [6]]),
    "elements": gather_nd((4, 3), [[3, 2], [0, 0], [1, 2]]),
    "one": gather_nd((4, 3), [3, 2]),
    "matrix": gather_nd((4, 3, 5), np.arange(12).reshape(2, 3, 2) % 3),
    "int64": gather_nd((4, 3), [[3], [1]], index="int64"),
    "diagonal": gather_nd((17, 17, 2), [[i, i] for i in range(17)]),
}

test_nd_refusal = refused(ND_REFUSALS)
test_nd_exact = exact(ND_CASES, GROUPS, assert_moved)
test_nd_types = types(
    lambda dtype: gather_nd((4, 3, 5), [[3, 2], [0, 1]], dtype), ANY, assert_moved
)


LIMITS = {
    "none": None,
    "beyond": (np.zeros((2, 2)), np.full((2, 2), 3)),
    "below": (np.full((2, 2), -1), np.ones((2, 2))),
    "of another shape": (np.zeros(2), np.ones(2)),
    "inside": (np.zeros((2, 2)), np.tile([3, 2], (2, 1))),
}


@pytest.mark.parametrize("name", LIMITS)
def test_computed_indices_are_required_to_be_inside_unless_they_are_known_to(name: str) -> None:
    (plain,) = ops.lower(changed(ND_NODE, 1, data=None, ranges=LIMITS[name]), SIMT.target)
    assert [(n.least, n.most) for n in plain.requirements] == [(0, (3, 2))] * (name != "inside")


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("rows", [[[3, 2], [0, 1]], [[0, 0], [3, 0]]], ids=str)
def test_indices_that_a_run_brings(rows: list[list[int]], index: str, device: DeviceInfo) -> None:
    values = np.arange(60).reshape(4, 3, 5).astype(np.uint8)
    given = np.array(rows, index)
    model = chain_model([changed(gather_nd((4, 3, 5), rows, index=index), 1, data=None)])
    assert_exact_strategy(model, device, SIMT, inputs=[[values, given]])
    model = chain_model([changed(gather((4, 3, 5), rows[1], index=index), 1, data=None)])
    assert_exact_strategy(model, device, SIMT, inputs=[[values, given[1]]])


def looked_up(index: str, inner: int, dtype: str = "uint8") -> list[Node]:
    """Return the nodes that find where 7 maps of 5 x 3 pixels are largest, and look there.

    A map's place is one number; its row and column are the quotient and the remainder.
    """
    maps, pixels = like((1, 15, 7)), like((5, 3, inner), dtype)
    place, row, whole, column = (t((1, 7), index) for _ in range(4))
    flat = t((7,), index), t((7,), index)
    indices = t((7, 2), index)
    fused = {"fused_activation_function": "NONE"}
    return [
        op("ARG_MAX", [maps, numbers(1)], [place], {"output_type": index}),
        op("FLOOR_DIV", [place, numbers(3, index)], [row]),
        op("MUL", [row, numbers(3, index)], [whole], fused),
        op("SUB", [place, whole], [column], fused),
        op("RESHAPE", [row, numbers([7])], flat[:1], {"new_shape": (7,)}),
        op("RESHAPE", [column, numbers([7])], flat[1:], {"new_shape": (7,)}),
        op("PACK", flat, [indices], {"axis": 1, "values_count": 2}),
        op("GATHER_ND", [pixels, indices], [like((7, inner), dtype)]),
    ]


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("inner", [1, 3, 16])
def test_computed_indices(device: DeviceInfo, inner: int, strategy: Strategy) -> None:
    assert_exact_strategy(
        chain_model(looked_up("int32", inner)), device, replace(strategy, alternative="")
    )


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_only_the_look_up_is_delegated(device: DeviceInfo, index: str) -> None:
    # The limits hold for indices that TFLite computes, too.
    nodes = looked_up(index, 4)[:1]
    place = nodes[0].outputs[0]
    # Three rows that are looked up in by the same indices.
    nodes.append(op("GATHER", [like((3, 15, 4)), place], [like((3, 1, 7, 4))], {"axis": 1}))
    assert_exact_strategy(chain_model(nodes), device)


def test_indices_beyond_what_is_proven_read_nothing_else(device: DeviceInfo) -> None:
    # A child tries each kernel by itself, with whatever is in the memory.
    limits = np.zeros((3, 1), np.int32), np.full((3, 1), 4, np.int32)
    indices = replace(t((3, 1), "int32"), ranges=limits)
    node = op("GATHER_ND", [like((5, 2)), indices], [like((3, 2))])
    partition = partition_of(graph_of([node]), [0])
    program = compile_partition(partition, Target(), lambda _, alternatives: alternatives[0])
    opened = Device(device)
    given = {
        (5, 2): np.arange(10, dtype=np.uint8),
        (3, 1): np.array([-(2**29), 3, 2**29], np.int32).view(np.uint8),
    }
    result = np.zeros(6, np.uint8)
    executor = planned_executor(opened, Kernels(opened), program)
    executor.run([given[tensor.shape] for tensor in program.inputs], [result])
    assert result.tolist() == [0, 1, 6, 7, 8, 9]


@st.composite
def nd_nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    count = draw(st.integers(1, len(shape)))
    rows = draw(st.lists(st.tuples(*(st.integers(0, n - 1) for n in shape[:count])), min_size=1))
    dtype, index = draw(st.sampled_from(ANY)), draw(st.sampled_from(["int32", "int64"]))
    return gather_nd(tuple(shape), np.array(rows), dtype, index)


test_nd_drawn = drawn(nd_nodes(), GROUPS, assert_moved_or_refused)


def _computed(inner: int, index: str) -> Node:
    node = gather_nd((2, inner), np.zeros((3, 1)), index=index)
    return changed(node, 1, data=None, ranges=(np.zeros((3, 1)), np.ones((3, 1))))


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return these ops' nodes of a size and an 8-bit type, for the tests of all ops."""
    return [
        gather((1, size, size, channels), [0, 0, size - 1], 2, dtype=dtype),
        gather_nd((1, size, size, channels), [[0, 0], [0, size - 1]], dtype),
    ]


BUILT = [_computed(inner, index) for inner in (1, 2, 4, 8, 16) for index in ("int32", "int64")]
