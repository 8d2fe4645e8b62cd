# SPDX-License-Identifier: Apache-2.0
"""TOPK_V2: launches, refusals, ties, and rows of all lengths against TFLite's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from tests.support.cases import (
    DRAWN_STRATEGIES,
    GROUPS,
    SEEDS,
    SIMT,
    Strategy,
    assert_exact_or_refused,
    assert_exact_strategy,
    changed,
    only_launch,
    retyped,
)
from tests.support.factories import refused
from tests.support.model import chain_model, const, op, t

TYPES = ("uint8", "int8", "int16", "int32", "float32")


def node(shape: tuple[int, ...], k: int, dtype: str = "float32", index: str = "int32") -> Node:
    result = (*shape[:-1], k)
    k_of = const(np.array(k, np.int32))
    return op("TOPK_V2", [t(shape, dtype), k_of], [t(result, dtype), t(result, index)])


def test_short_rows_are_ranked_at_once() -> None:
    (plain,) = ops.lower(node((3, 65), 5), SIMT.target)
    launch = only_launch(plain)
    assert (launch.kernel, launch.params["items"], launch.params["count"]) == ("topk_v2", 195, 65)


def test_of_long_rows_only_the_selected_are_ranked() -> None:
    (plain,) = ops.lower(node((3, 1001), 5), SIMT.target)
    assert [launch.kernel for launch in plain.launches] == ["topk_v2_select", "topk_v2"]
    assert [launch.tiles for launch in plain.launches] == [3, 1]


VALID = node((3, 65), 5)
test_refusal = refused(
    {
        "type": (retyped(VALID, "int64"), f"int64 -> int64: one of {', '.join(TYPES)}"),
        "computed": (changed(VALID, 1, data=None), "k: not constant"),
        "large": (node((3, 65), 66), "k 66: not within 1 and the 65 elements of a row"),
        "long_k": (node((1, 40000), 40000), "k 40000: more than 32767"),
        "long": (
            node((1, 1 << 20), 5),
            "rows of 1048576 elements: too many for the loops of a work-item",
        ),
        "short_index": (
            node((1, 40000), 5, index="int16"),
            "rows of 40000 elements: more than int16 can index",
        ),
        "output": (changed(VALID, -1, shape=(3, 4)), "output 3x4: the inputs give 3x5"),
    }
)

SIZES = [((5,), 5), ((1, 1), 1), ((3, 65), 5), ((2, 3, 300), 17), ((2, 257), 257), ((1, 5000), 99)]


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("shape", "k"), SIZES, ids=str)
def test_exact(
    shape: tuple[int, ...], k: int, dtype: str, strategy: Strategy, device: DeviceInfo
) -> None:
    rng = np.random.default_rng(0)
    few = rng.integers(0, 9, shape).astype(dtype)  # many of them equal
    if dtype == "float32":
        many = (rng.standard_normal(shape) * 10.0 ** rng.integers(-30, 30, shape)).astype(dtype)
        many.flat[0] = -np.inf
        few = np.where(few == 0, np.float32(-0.0), few % 3)  # the zeros are equal, too
    else:
        limits = np.iinfo(dtype)
        many = rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)
    made = node(shape, k, dtype)
    model = chain_model([made], outputs=made.outputs)
    assert_exact_strategy(model, device, strategy, inputs=[[few], [many]])


@given(
    shape=st.lists(st.integers(1, 6), max_size=2),
    length=st.integers(1, 700),
    data=st.data(),
    dtype=st.sampled_from(TYPES),
    index=st.sampled_from(["int32", "int16"]),
    strategy=DRAWN_STRATEGIES,
    seed=SEEDS,
)
def test_drawn(
    device: DeviceInfo,
    shape: list[int],
    length: int,
    data: st.DataObject,
    dtype: str,
    index: str,
    strategy: Strategy,
    seed: int,
) -> None:
    made = node((*shape, length), data.draw(st.integers(1, length)), dtype, index)
    assert_exact_or_refused(chain_model([made], outputs=made.outputs), device, strategy, seed)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [node((size, 300 + channels), 3, dtype)]  # so long that it is selected first


NODES = {"TOPK_V2": VALID}
BUILT = [
    node(shape, 5, dtype, index)
    for shape in ((3, 65), (3, 1001))
    for dtype in TYPES
    for index in ("int32", "int16")
]
