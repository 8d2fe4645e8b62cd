# SPDX-License-Identifier: Apache-2.0
"""Integers of 64 bits, which kernels have as two words: each op against TFLite, carries and all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

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
)
from tests.support.factories import refused
from tests.support.model import chain_model, const, op, t

COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
PAIRS = ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", *COMPARISONS)
REDUCTIONS = ("SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
DIVISORS = (1, 2, -3, 7, 2**31, -(2**31) - 5, 2**32 + 1, -(2**62), 2**63 - 1, -(2**63))
# Around each place where a word or a sign begins.
EDGES = sorted({sign * (2**at) + off for at in (0, 31, 32, 62) for sign in (1, -1)
                for off in (-1, 0, 1)} | {2**63 - 1, -(2**63), 2**63 - 2, 1 - 2**63})  # fmt: skip


def numbers(shape: tuple[int, ...], seed: int = 0) -> NDArray[np.int64]:
    """Return integers of every size, the edges among them."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-(2**63), 2**63 - 1, shape, endpoint=True) >> rng.integers(0, 63, shape)
    return np.where(rng.random(shape) < 0.5, values, rng.choice(EDGES, shape)).astype(np.int64)


def pair(name: str, left: tuple[int, ...], right: tuple[int, ...]) -> Node:
    result = t(np.broadcast_shapes(left, right), "bool" if name in COMPARISONS else "int64")
    options = {"fused_activation_function": "NONE"} if name in ("ADD", "SUB", "MUL") else {}
    return op(name, [t(left, "int64"), t(right, "int64")], [result], options, version=2)


def modulo(shape: tuple[int, ...], divisors: tuple[int, ...] = DIVISORS) -> Node:
    by = const(np.array(divisors, np.int64).reshape(-1, 1))
    result = t((len(divisors), *shape), "int64")
    return op("FLOOR_MOD", [t(shape, "int64"), by], [result])


def reduction(
    name: str, shape: tuple[int, ...], axes: tuple[int, ...], keeps: bool = False
) -> Node:
    over = {axis % len(shape) for axis in axes}
    sizes = tuple(1 if axis in over else size for axis, size in enumerate(shape))
    result = sizes if keeps else tuple(n for axis, n in enumerate(sizes) if axis not in over)
    where = const(np.array(axes, np.int32))
    return op(name, [t(shape, "int64"), where], [t(result, "int64")], {"keep_dims": keeps})


def test_launches() -> None:
    for node, kernel in (
        (pair("ADD", (4, 20), (20,)), "binary_int64"),
        (reduction("SUM", (4, 20), (1,)), "reduce_int64"),
        (op("NEG", [t((3,), "int64")], [t((3,), "int64")]), "unary_int64"),
    ):
        (plain,) = ops.lower(node, SIMT.target)
        assert only_launch(plain).kernel == kernel


ADD = pair("ADD", (3,), (3,))
test_refusal = refused(
    {
        "activation": (
            changed(ADD, options={"fused_activation_function": "RELU"}),
            "RELU of int64: only NONE",
        ),
        "zero": (modulo((3,), (5, 0)), "a divisor is 0, TFLite cannot divide by 0"),
        "minus_one": (modulo((3,), (5, -1)), "a divisor is -1"),
        "division": (
            pair("DIV", (3,), (3,)),
            "int64: only uint8, int8, int16, int32, float32 are implemented",
        ),
    }
)


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_every_pair_of_edges(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    edges = np.array(EDGES, np.int64)
    count = len(edges)
    model = chain_model([pair(name, (count, 1), (1, count))])
    inputs = [[edges.reshape(-1, 1), edges.reshape(1, -1)]]
    assert_exact_strategy(model, device, strategy, inputs=inputs)


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
def test_what_a_division_leaves(strategy: Strategy, device: DeviceInfo) -> None:
    model = chain_model([modulo((300,))])
    assert_exact_strategy(
        model, device, strategy, inputs=[[numbers((300,))], [np.resize(EDGES, 300)]]
    )


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("axes", [(1,), (0,), (0, 2), (-1, 0, 1), (1, 2)], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(
    name: str, axes: tuple[int, ...], strategy: Strategy, device: DeviceInfo
) -> None:
    shape = (3, 5, 17)
    model = chain_model([reduction(name, shape, axes, keeps=0 in axes)])
    assert_exact_strategy(
        model, device, strategy, inputs=[[numbers(shape, seed)] for seed in range(2)]
    )


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
def test_opposites(strategy: Strategy, device: DeviceInfo) -> None:
    values = np.array([*EDGES, *numbers((300,))])
    node = op("NEG", [t(values.shape, "int64")], [t(values.shape, "int64")])
    assert_exact_strategy(chain_model([node]), device, strategy, inputs=[[values]])


@given(
    name=st.sampled_from(PAIRS),
    shape=st.lists(st.integers(1, 9), max_size=4),
    axis=st.integers(0, 4),
    strategy=DRAWN_STRATEGIES,
    seed=SEEDS,
)
def test_drawn(
    device: DeviceInfo, name: str, shape: list[int], axis: int, strategy: Strategy, seed: int
) -> None:
    narrow = tuple(1 if at == axis else size for at, size in enumerate(shape))
    assert_exact_or_refused(chain_model([pair(name, tuple(shape), narrow)]), device, strategy, seed)


BUILT = [
    *(pair(name, (4, 20), (20,)) for name in PAIRS),
    modulo((20,)),
    *(reduction(name, (4, 20), (1,)) for name in REDUCTIONS),
    op("NEG", [t((3,), "int64")], [t((3,), "int64")]),
]
