# SPDX-License-Identifier: Apache-2.0
"""CAST: its launches, what it refuses, and its numbers against TFLite's."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo, ops
from delegate.host.tflite.library import installed_rules
from delegate.inspect import Node
from tests.support.cases import (
    GROUPS,
    LANES_8,
    SEEDS,
    SIMT,
    Strategy,
    assert_exact_or_refused,
    assert_exact_strategy,
    changed,
    only_launch,
)
from tests.support.factories import refused
from tests.support.model import chain_model, op, t

TYPES = (
    *("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64"),
    *("float16", "float32", "bool"),
)


def cast(before: str, after: str, shape: tuple[int, ...] = (3, 5)) -> Node:
    return op("CAST", [t(shape, before)], [t(shape, after)])


def test_launches() -> None:
    (plain,) = ops.lower(cast("int32", "float32", (4097,)), LANES_8.target)
    launch = only_launch(plain)
    assert (launch.file, launch.kernel, launch.tiles) == ("cast", "cast", 2)
    assert (launch.defines["SOURCE"], launch.defines["RESULT"]) == ("uint", "uint")
    kinds = {name for name, value in launch.defines.items() if value == 1}
    assert kinds == {"RESULT_IS_FLOAT"}
    vector, plain = ops.lower(cast("bool", "int32"), SIMT.target)
    assert (only_launch(vector).kernel, only_launch(plain).kernel) == ("lookup_vector", "lookup")
    (plain,) = ops.lower(cast("int16", "int64"), SIMT.target)
    assert only_launch(plain).defines == {"INDEX": "ushort", "ELEM": "uint2"}


@pytest.mark.parametrize("dtype", TYPES)
def test_to_the_same_type_is_a_view(dtype: str) -> None:
    node = cast(dtype, dtype)
    (view,) = ops.lower(node, SIMT.target)
    assert (view.launches, view.view) == ((), (node.inputs[0], node.outputs[0]))


NODE = cast("float32", "int32")
REFUSALS: dict[str, tuple[Node, str]] = {
    "from_string": (changed(NODE, 0, dtype="string"), f"string: only {', '.join(TYPES)}"),
    "to_float64": (changed(NODE, -1, dtype="float64"), f"float64: only {', '.join(TYPES)}"),
    "shape_changes": (changed(NODE, -1, shape=(15,)), "3x5 -> 15: the shape must stay"),
    "empty": (changed(changed(NODE, 0, shape=(0,)), -1, shape=(0,)), "shape 0: it is empty"),
    "large": (
        changed(changed(NODE, 0, shape=(2**29,)), -1, shape=(2**29,)),
        f"float32 {2**29}: 2^31 bytes or more",
    ),
    "no_input": (replace(NODE, inputs=()), "0 inputs: 1 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)


def values_of(dtype: str) -> NDArray[Any]:
    """Return values of every size, and those around which conversions change."""
    if dtype == "bool":
        return np.array([False, True, True, False, True])
    if dtype == "float32":
        powers = [2.0**n for n in (7, 8, 15, 16, 23, 24, 31, 32, 62, 63, 64, 100)]
        near = [
            *powers,
            2.0**-14,
            3 * 2.0**-25,
            2.0**-25,
            65504,
            65520,
            2049,
            2051,
            0,
            0.5,
            0.999,
            1,
            1.5,
            2.5,
            127.5,
            255.9,
            300.7,
            8388607.5,
            1e-40,
        ]
        around = np.float32([*near, *np.nextafter(np.float32(near), np.float32(0))])
        return np.concatenate([around, -around, np.float32([np.inf, -np.inf, np.nan])])
    if dtype == "float16":
        return np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    rng = np.random.default_rng(0)
    values = rng.integers(-(2**63), 2**63 - 1, 60, endpoint=True)
    near = [2**n + d for n in (7, 8, 24, 25, 31, 32, 33, 40, 62) for d in (-1, 0, 1, 3, 2**8)]
    ends = [-(2**63), 2**63 - 1, 2**40 + 2**16, 2**40 + 2**16 + 1, 2**40 + 3 * 2**16]
    parts = [values >> shift for shift in (0, 20, 32, 45, 58)]
    return np.concatenate([*parts, near, -np.array(near), ends]).astype(dtype)


# The older runtime leaves to the processor what becomes of these.
NEWER = set() if installed_rules().saturating_cast else {"uint16", "uint32", "float16"}
PAIRS = [(a, b) for a, b in product(TYPES, TYPES) if a != b and not {a, b} & NEWER]


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_cast(before: str, after: str, strategy: Strategy, device: DeviceInfo) -> None:
    values = values_of(before)
    model = chain_model([cast(before, after, values.shape)])
    assert_exact_strategy(model, device, strategy, inputs=[[values]])


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (63,), (64,), (65,), (4097,)], ids=str)
def test_shapes(shape: tuple[int, ...], strategy: Strategy, device: DeviceInfo) -> None:
    assert_exact_strategy(chain_model([cast("int32", "float32", shape)]), device, strategy)


def test_to_the_same_type(device: DeviceInfo) -> None:
    # Between two others: a partition that only copies is none.
    a, b, c = t((3, 5)), t((3, 5), "int32"), t((3, 5), "int32")
    nodes = [op("CAST", [a], [b]), op("CAST", [b], [c]), op("CAST", [c], [t((3, 5))])]
    assert_exact_strategy(chain_model(nodes), device)


@given(
    types=st.sampled_from(PAIRS),
    shape=st.lists(st.integers(1, 11), max_size=4),
    strategy=st.sampled_from(GROUPS),
    seed=SEEDS,
)
def test_drawn_cast(
    device: DeviceInfo, types: tuple[str, str], shape: list[int], strategy: Strategy, seed: int
) -> None:
    assert_exact_or_refused(chain_model([cast(*types, tuple(shape))]), device, strategy, seed)


NODES = {"CAST": NODE}
BUILT = [cast(before, after) for before, after in PAIRS]
