# SPDX-License-Identifier: Apache-2.0
"""RESHAPE, EXPAND_DIMS, SQUEEZE: views, and what they refuse."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node, Tensor
from tests.support.cases import GROUPS, SIMT, assert_exact_strategy, changed, retyped
from tests.support.factories import drawn, exact, refused, types
from tests.support.model import chain_model, const, op, t
from tests.support.moves import ANY, assert_moved, assert_moved_or_refused, like, numbers
from tests.support.refusals import rescaled, sparse


def reshape(
    before: tuple[int, ...], after: tuple[int, ...], dtype: str = "uint8", shape_input: bool = True
) -> Node:
    source, result = t(before, dtype, 0.5, 3), t(after, dtype, 0.5, 3)
    shape = [const(np.array(after, np.int32))] if shape_input else []
    return op("RESHAPE", [source, *shape], [result], {"new_shape": after})


@pytest.mark.parametrize("dtype", ANY)
@pytest.mark.parametrize("shape_input", [False, True], ids=["option", "input"])
def test_view(dtype: str, shape_input: bool) -> None:
    node = reshape((2, 3, 5), (30,), dtype, shape_input)
    (view,) = ops.lower(node, SIMT.target)
    assert (view.name, view.launches) == ("view", ())
    assert view.view == (node.inputs[0], node.outputs[0])


def by_option(before: tuple[int, ...], new_shape: object, after: tuple[int, ...]) -> Node:
    """Return a node whose new shape is an option."""
    source, result = t(before, "uint8", 0.5, 3), t(after, "uint8", 0.5, 3)
    return op("RESHAPE", [source], [result], {"new_shape": new_shape})


NODE = reshape((2, 3, 5), (30,))
REFUSALS: dict[str, tuple[Node, str]] = {
    "computed_shape": (changed(NODE, 1, data=None), "the new shape is computed at run time"),
    "size_changes": (
        changed(NODE, -1, shape=(31,)),
        "uint8 2x3x5 -> uint8 31: type and size must stay",
    ),
    "type_changes": (
        changed(NODE, -1, dtype="int8"),
        "uint8 2x3x5 -> int8 30: type and size must stay",
    ),
    "strings": (retyped(NODE, "string"), "string: only types of a fixed size"),
    "bfloat16": (retyped(NODE, "bfloat16"), "bfloat16: only types of a fixed size"),
    "sparse": sparse(NODE, 0),
    "another_shape": (
        changed(NODE, 1, data=np.array([15, 2], np.int32)),
        "the new shape is (15, 2), the output's (30,)",
    ),
    "another_option": (
        by_option((2, 3), (3, 2), (6,)),
        "the new shape is (3, 2), the output's (6,)",
    ),
    "two_unknown": (
        by_option((2, 3), (-1, -1), (6, 1)),
        "the new shape is (-1, -1), the output's (6, 1)",
    ),
    "no_shape": (
        by_option((2, 3), None, (6,)),
        "the new shape is None, the output's (6,)",
    ),
    "empty": (by_option((2, 0), (0, 2), (0, 2)), "shape 0x2: it is empty"),
    "no_input": (replace(NODE, inputs=()), "0 inputs: 1 to 2 expected"),
    "left_out_input": (replace(NODE, inputs=(None,)), "1 inputs: 1 to 2 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

# A program that imports this gives NumPy a bfloat16.
with contextlib.suppress(ImportError):
    import ml_dtypes  # noqa: F401

test_refusal = refused(REFUSALS)


@pytest.mark.parametrize("shape_input", [False, True], ids=["option", "input"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32"])
@pytest.mark.parametrize(
    ("before", "after"),
    [((2, 3, 5), (30,)), ((1,), (1, 1, 1, 1)), ((17, 2), (2, 17)), ((), (1,))],
    ids=["flatten", "unsqueeze", "swap", "from_scalar"],
)
def test_reshape(
    before: tuple[int, ...],
    after: tuple[int, ...],
    dtype: str,
    shape_input: bool,
    device: DeviceInfo,
) -> None:
    model = chain_model([reshape(before, after, dtype, shape_input)])
    assert assert_exact_strategy(model, device) == {"view"}


@pytest.mark.parametrize(
    "node",
    [
        by_option((2, 3, 5), (5, -1), (5, 6)),
        by_option((1, 1), (0,), ()),  # how old converters write a scalar
        by_option((), (1, 1), (1, 1)),
        op(
            "RESHAPE",
            [t((2, 3), "int64"), const(np.array([3, -1], np.int32))],
            [t((3, 2), "int64")],
            {"new_shape": ()},
        ),
    ],
    ids=["rest", "old_scalar", "from_scalar", "rest_by_input"],
)
def test_wanted_shapes(device: DeviceInfo, node: Node) -> None:
    assert assert_exact_strategy(chain_model([node]), device) == {"view"}


@pytest.mark.parametrize("dtype", ANY)
def test_types(device: DeviceInfo, dtype: str) -> None:
    node = op("RESHAPE", [t((2, 3), dtype)], [t((3, 2), dtype)], {"new_shape": (3, 2)})
    assert assert_exact_strategy(chain_model([node]), device) == {"view"}


def _add(left: Tensor, right: Tensor) -> tuple[Node, Tensor]:
    result = t(left.shape, "uint8", 0.5, 3)
    return op("ADD", [left, right], [result], {}, version=2), result


def test_view_of_a_computed_tensor_that_is_read_again(device: DeviceInfo) -> None:
    # The source outlives its view's last reader, and the other way round.
    source = t((2, 3, 5), "uint8", 0.5, 3)
    first, doubled = _add(source, source)
    view = op("RESHAPE", [doubled, const(np.array([30], np.int32))], [t((30,), "uint8", 0.5, 3)])
    second, flat = _add(view.outputs[0], view.outputs[0])
    third, same = _add(doubled, doubled)
    back = op(
        "RESHAPE", [flat, const(np.array([2, 3, 5], np.int32))], [t((2, 3, 5), "uint8", 0.5, 3)]
    )
    last, result = _add(same, back.outputs[0])
    model = chain_model([first, view, second, third, back, last], outputs=[result, flat])
    assert "view" in assert_exact_strategy(model, device)


@given(
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
    dtype=st.sampled_from(["uint8", "int8", "int16", "int32"]),
)
def test_drawn_reshape(
    device: DeviceInfo, sizes: list[int], order: random.Random, dtype: str
) -> None:
    after = list(sizes)
    order.shuffle(after)
    assert_exact_strategy(chain_model([reshape(tuple(sizes), tuple(after), dtype)]), device)


def expand(shape: tuple[int, ...], axis: int, dtype: str = "uint8", index: str = "int32") -> Node:
    place = axis + (len(shape) + 1 if axis < 0 else 0)
    result = (*shape[:place], 1, *shape[place:])
    return op("EXPAND_DIMS", [like(shape, dtype), numbers(axis, index)], [like(result, dtype)])


EXPAND_DIMS_NODE = expand((3, 5), 1)
EXPAND_DIMS_REFUSALS = {
    "computed": (changed(EXPAND_DIMS_NODE, 1, data=None), "axis: not constant"),
    "axis": (changed(EXPAND_DIMS_NODE, 1, data=np.array(3)), "axis 3: outside of 3 dimensions"),
    "output": (
        changed(EXPAND_DIMS_NODE, -1, shape=(1, 3, 5)),
        "output 1x3x5: the inputs give 3x1x5",
    ),
    "types": (
        changed(EXPAND_DIMS_NODE, -1, dtype="int8"),
        "uint8 3x5 -> int8 3x1x5: type and size must stay",
    ),
    "scales": rescaled(EXPAND_DIMS_NODE, -1),
}
EXPAND_DIMS_CASES = {
    "first": expand((3, 5), 0),
    "inside": expand((3, 5), 1),
    "last": expand((3, 5), -1),
    "negative": expand((3, 5), -3),
    "scalar": expand((), 0),
    "int64": expand((3, 5), 1, index="int64"),
}

test_expand_dims_refusal = refused(EXPAND_DIMS_REFUSALS)
test_expand_dims_exact = exact(EXPAND_DIMS_CASES, GROUPS, assert_moved)
test_expand_dims_types = types(lambda dtype: expand((3, 5), 1, dtype), ANY, assert_moved)


def test_expand_dims_view() -> None:
    (view,) = ops.lower(EXPAND_DIMS_NODE, SIMT.target)
    assert (view.name, view.launches) == ("view", ())
    assert view.view == (EXPAND_DIMS_NODE.inputs[0], EXPAND_DIMS_NODE.outputs[0])


@st.composite
def expand_dims_nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.integers(1, 7), max_size=4))
    axis = draw(st.integers(-len(shape) - 1, len(shape)))
    dtype, index = draw(st.sampled_from(ANY)), draw(st.sampled_from(["int32", "int64"]))
    return expand(tuple(shape), axis, dtype, index)


test_expand_dims_drawn = drawn(expand_dims_nodes(), GROUPS, assert_moved_or_refused)


def squeeze(shape: tuple[int, ...], dims: tuple[int, ...] = (), dtype: str = "uint8") -> Node:
    gone = {axis % len(shape) for axis in dims} or {i for i, n in enumerate(shape) if n == 1}
    result = [n for i, n in enumerate(shape) if i not in gone]
    return op("SQUEEZE", [like(shape, dtype)], [like(result, dtype)], {"squeeze_dims": dims})


SQUEEZE_NODE = squeeze((1, 3, 1, 5), (0,))
SQUEEZE_REFUSALS = {
    "not_1": (
        changed(SQUEEZE_NODE, options={"squeeze_dims": (1,)}),
        "dimensions [1] of 1x3x1x5: not all are 1",
    ),
    "axis": (
        changed(SQUEEZE_NODE, options={"squeeze_dims": (-5,)}),
        "axis -5: outside of 4 dimensions",
    ),
    "no_list": (
        changed(SQUEEZE_NODE, options={"squeeze_dims": 1}),
        "squeeze_dims is 1: a list is needed",
    ),
    "output": (changed(SQUEEZE_NODE, -1, shape=(3, 5)), "output 3x5: the inputs give 3x1x5"),
    "types": (
        changed(SQUEEZE_NODE, -1, dtype="int8"),
        "uint8 1x3x1x5 -> int8 3x1x5: type and size must stay",
    ),
    "empty": (squeeze((1, 0)), "shape 0: it is empty"),
    "string": (retyped(SQUEEZE_NODE, "string"), "string: only types of a fixed size"),
}
SQUEEZE_CASES = {
    "all": squeeze((1, 3, 1, 5)),
    "first": squeeze((1, 3, 1, 5), (0,)),
    "negative": squeeze((1, 3, 1, 5), (-2,)),
    "none": squeeze((3, 5)),
    "to_a_scalar": squeeze((1, 1)),
}

test_squeeze_refusal = refused(SQUEEZE_REFUSALS)
test_squeeze_exact = exact(SQUEEZE_CASES, GROUPS, assert_moved)
test_squeeze_types = types(lambda dtype: squeeze((1, 3, 1), (2,), dtype), ANY, assert_moved)


def test_squeeze_view() -> None:
    (view,) = ops.lower(SQUEEZE_NODE, SIMT.target)
    assert (view.name, view.launches) == ("view", ())
    assert view.view == (SQUEEZE_NODE.inputs[0], SQUEEZE_NODE.outputs[0])


@st.composite
def squeeze_nodes(draw: st.DrawFn) -> Node:
    shape = draw(st.lists(st.sampled_from([1, 1, 2, 3, 7]), min_size=1, max_size=5))
    ones = [i - draw(st.sampled_from([0, len(shape)])) for i, n in enumerate(shape) if n == 1]
    dims = draw(st.sets(st.sampled_from(ones))) if ones else set()
    return squeeze(tuple(shape), tuple(dims), draw(st.sampled_from(ANY)))


test_squeeze_drawn = drawn(squeeze_nodes(), GROUPS, assert_moved_or_refused)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return these ops' nodes of a size and an 8-bit type, for the tests of all ops."""
    return [
        reshape((1, size, size, channels), (size * size * channels,), dtype),
        expand((1, size, size, channels), 0, dtype),
        squeeze((1, size, size, channels), dtype=dtype),
    ]
