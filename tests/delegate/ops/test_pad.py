# SPDX-License-Identifier: Apache-2.0
"""PAD: what it refuses, and every border against the reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, Node, ops
from tests.support.cases import (
    DTYPES,
    GROUPS,
    SEEDS,
    SIMT,
    Way,
    assert_exact_or_refused,
    assert_exact_way,
    changed,
    only_launch,
    refusal,
    zero_points,
)
from tests.support.model import chain_model, const, op, t


def pad(
    shape: tuple[int, ...], amounts: list[list[int]], dtype: str = "uint8", zero: int = 3
) -> Node:
    after = tuple(n + sum(pair) for n, pair in zip(shape, amounts, strict=True))
    paddings = const(np.array(amounts, np.int32).reshape(len(shape), 2))
    return op("PAD", [t(shape, dtype, 0.5, zero), paddings], [t(after, dtype, 0.5, zero)])


NODE = pad((1, 3, 4, 2), [[0, 0], [1, 2], [0, 3], [0, 0]])


def test_launch() -> None:
    (plain,) = ops.lower(NODE, SIMT.target)
    launch = only_launch(plain)
    assert (launch.kernel, launch.tiles, dict(launch.defines)) == ("pad", 2, {"ELEM": "uchar"})
    assert [launch.params[f"before_{i}"] for i in range(5)] == [0, 0, 1, 0, 0]


REFUSALS = {
    "computed": (changed(NODE, 1, data=None), "paddings are not constant"),
    "negative": (
        changed(NODE, 1, data=np.array([[0, 0], [-1, 2], [0, 3], [0, 0]], np.int32)),
        "paddings [[0, 0], [-1, 2], [0, 3], [0, 0]] of shape 1x3x4x2",
    ),
    "rank_of_paddings": (
        changed(NODE, 1, data=np.zeros((3, 2), np.int32)),
        "paddings [[0, 0], [0, 0], [0, 0]] of shape 1x3x4x2",
    ),
    "size": (changed(NODE, -1, shape=(1, 6, 8, 2)), "shapes 1x3x4x2 -> 1x6x8x2 with "),
    "types": (changed(NODE, -1, dtype="int8"), "uint8 in, int8 out: one of 8 bits, float or int32"),
    "string": (
        changed(changed(NODE, 0, dtype="string"), -1, dtype="string"),
        "string in, string out: one of 8 bits, float or int32",
    ),
    "scales": (
        changed(NODE, -1, quantization=t((1,), "uint8", 0.25, 3).quantization),
        "input and output differ in scale or zero point",
    ),
    "six_dimensions": (
        pad((1,) * 6, [[1, 1]] * 6),
        "6 dimensions: 1 to 5 are implemented",
    ),
    "one_input": (op("PAD", NODE.inputs[:1], NODE.outputs), "1 inputs: 2 expected"),
}


@pytest.mark.parametrize(("node", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(node: Node, reason: str) -> None:
    assert refusal(node).startswith(reason)


@pytest.mark.parametrize("way", GROUPS, ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("shape", "amounts"),
    [
        ((1, 3, 4, 2), [[0, 0], [1, 2], [0, 3], [0, 0]]),
        ((2, 3, 1, 2), [[1, 0], [0, 0], [2, 1], [1, 1]]),
        ((5,), [[3, 4]]),
        ((7, 13), [[0, 0], [0, 0]]),
        ((2, 1, 3, 1, 2), [[1, 1], [0, 2], [2, 0], [1, 0], [0, 1]]),
        ((1, 33, 47, 5), [[0, 0], [1, 1], [1, 1], [0, 0]]),
    ],
)
def test_exact(
    device: DeviceInfo, way: Way, dtype: str, shape: tuple[int, ...], amounts: list[list[int]]
) -> None:
    assert assert_exact_way(chain_model([pad(shape, amounts, dtype)]), device, way) == {"plain"}


@given(
    rank=st.integers(1, 5),
    numbers=st.lists(st.integers(0, 4), min_size=15, max_size=15),
    dtype=DTYPES,
    way=st.sampled_from(GROUPS),
    seed=SEEDS,
    data=st.data(),
)
def test_drawn(
    device: DeviceInfo,
    rank: int,
    numbers: list[int],
    dtype: str,
    way: Way,
    seed: int,
    data: st.DataObject,
) -> None:
    shape = tuple(n + 1 for n in numbers[:rank])
    amounts = [
        list(pair) for pair in zip(numbers[5 : 5 + rank], numbers[10 : 10 + rank], strict=True)
    ]
    node = pad(shape, amounts, dtype, data.draw(zero_points(dtype)))
    assert_exact_or_refused(chain_model([node]), device, way, seed)
