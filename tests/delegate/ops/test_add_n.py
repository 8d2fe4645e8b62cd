# SPDX-License-Identifier: Apache-2.0
"""ADD_N: what it refuses, and sums of several tensors against TFLite's."""

from __future__ import annotations

import numpy as np
import pytest

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from tests.support.cases import LANES_8, SIMT, Strategy, assert_exact_strategy, changed
from tests.support.factories import refused
from tests.support.model import chain_model, op, t


def summed(count: int, dtype: str = "int32", shape: tuple[int, ...] = (2, 5, 33)) -> Node:
    """Return the node of so many tensors."""
    return op("ADD_N", [t(shape, dtype) for _ in range(count)], [t(shape, dtype)])


@pytest.mark.parametrize("strategy", [SIMT, LANES_8], ids=str)
@pytest.mark.parametrize("count", [2, 3, 5])
def test_integers(count: int, strategy: Strategy, device: DeviceInfo) -> None:
    assert_exact_strategy(chain_model([summed(count)]), device, strategy)


# Of two and three TFLite has one thread, whose order is known.
@pytest.mark.parametrize("strategy", [SIMT, LANES_8], ids=str)
@pytest.mark.parametrize("count", [2, 3])
def test_floats(count: int, strategy: Strategy, device: DeviceInfo) -> None:
    assert_exact_strategy(chain_model([summed(count, "float32")]), device, strategy)


# Each sum is clamped to finite floats before the next tensor is added to it.
@pytest.mark.parametrize("strategy", [SIMT, LANES_8], ids=str)
def test_sums_beyond_float32(strategy: Strategy, device: DeviceInfo) -> None:
    most, inf, nan = 3e38, np.inf, np.nan
    rows = [
        (most, most, -most), (inf, 1, -inf), (inf, 1, 1), (-inf, -inf, 1), (inf, -inf, 1),
        (nan, 1, inf), (-most, -most, most), (1, 1, -inf),
    ]  # fmt: skip
    node = summed(3, "float32", (1, len(rows)))
    inputs = [np.array([column], np.float32) for column in zip(*rows, strict=True)]
    assert_exact_strategy(chain_model([node]), device, strategy, inputs=[inputs])


def test_one_tensor_after_the_other() -> None:
    found = ops.lower(summed(4), LANES_8.target)
    assert [(each.name, len(each.launches)) for each in found] == [("vector 8", 3), ("plain", 3)]


NODE = summed(3)
test_refusal = refused(
    {
        "one": (summed(1), "1 inputs: 2 expected"),
        "types": (changed(NODE, 1, dtype="float32"), "float32 in, int32 out: they must be equal"),
        "shapes": (changed(NODE, 2, shape=(5, 33)), "5x33 -> 2x5x33: the shape must stay"),
        "int8": (summed(2, "int8"), "int8: only int32, float32"),
    }
)

NODES = {"ADD_N": NODE}
