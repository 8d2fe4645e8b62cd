# SPDX-License-Identifier: Apache-2.0
"""RESHAPE: a view, what it refuses, and its values alone and between other ops."""

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
from tests.support.cases import SIMT, assert_exact_way, changed, retyped
from tests.support.deal import any_driver
from tests.support.factories import refused
from tests.support.model import chain_model, const, op, t
from tests.support.moves import ANY


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
    "int4": (retyped(NODE, "int4"), "int4: only types of a fixed size"),
    "sparse": (
        changed(NODE, 0, is_sparse=True),
        "input 0 is sparse: only dense tensors are implemented",
    ),
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
        "no new shape: neither an input nor an option has it",
    ),
    "empty": (by_option((2, 0), (0, 2), (0, 2)), "shape 0x2: it is empty"),
    "no_input": (replace(NODE, inputs=()), "0 inputs: 1 to 2 expected"),
    "left_out_input": (replace(NODE, inputs=(None,)), "1 inputs: 1 to 2 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

# A program that imports this gives NumPy an int4.
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
    assert assert_exact_way(model, device) == {"view"}


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
    assert assert_exact_way(chain_model([node]), device) == {"view"}


@pytest.mark.parametrize("dtype", ANY)
def test_types(device: DeviceInfo, dtype: str) -> None:
    node = op("RESHAPE", [t((2, 3), dtype)], [t((3, 2), dtype)], {"new_shape": (3, 2)})
    assert assert_exact_way(chain_model([node]), device) == {"view"}


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
    assert "view" in assert_exact_way(model, device)


@any_driver
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
    assert_exact_way(chain_model([reshape(tuple(sizes), tuple(after), dtype)]), device)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [reshape((1, size, size, channels), (size * size * channels,), dtype)]
