# SPDX-License-Identifier: Apache-2.0
"""Factories of the tests that most ops share, so that an op's test file is its tables of cases.

test_refusal = refused({"rank": (changed(NODE, 0, shape=(4,)), "rank 1: only 4")})
test_exact = exact({"rows": tile((3, 5), [3, 1])}, MOVE_WAYS, assert_moved)
test_types = types(lambda dtype: tile((2, 3), [1, 2], dtype), ["uint8", "int8"])
test_drawn = drawn(nodes(), MOVE_WAYS, assert_moved_or_refused)

A test's id has the case's name, the strategy and the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo
from delegate.inspect import Node
from tests.support.cases import (
    GROUPS,
    LANES_8,
    SEEDS,
    Strategy,
    assert_exact_or_refused,
    assert_exact_strategy,
    refusal,
    strategy_on,
)
from tests.support.model import chain_model

Test = Callable[..., None]
C = TypeVar("C")


class HasNode(Protocol):
    """Parameters of a node; str() of them is the name of the case."""

    def node(self) -> Node: ...


class HasSeeds(Protocol):
    """Parameters of a node with random weights and bias."""

    def node(self, seed: int) -> Node: ...


def node_of(case: Node | HasNode) -> Node:
    """Return the node of a case."""
    return case if isinstance(case, Node) else case.node()


def assert_case(case: Node | HasNode, device: DeviceInfo, strategy: Strategy) -> set[str]:
    """Assert as `assert_exact_strategy` does, for one node."""
    return assert_exact_strategy(chain_model([node_of(case)]), device, strategy)


def assert_case_or_refused(
    case: Node | HasNode, device: DeviceInfo, strategy: Strategy, seed: int
) -> None:
    """Assert the same for a drawn case; reject one that TFLite itself does not run."""
    assert_exact_or_refused(chain_model([node_of(case)]), device, strategy, seed)


def assert_seeded_or_refused(
    case: HasSeeds, device: DeviceInfo, strategy: Strategy, seed: int
) -> None:
    """Assert the same, with constants from the seed, too."""
    assert_exact_or_refused(chain_model([case.node(seed)]), device, strategy, seed)


def named(cases: Mapping[str, C] | Iterable[C]) -> list[Any]:
    """Return pytest parameters whose ids are the table's keys, or each case's str()."""
    pairs = cases.items() if isinstance(cases, Mapping) else ((str(case), case) for case in cases)
    return [pytest.param(case, id=name) for name, case in pairs]


def refused(table: Mapping[str, tuple[Node, str]], are_beginnings: bool = False) -> Test:
    """Return a test that each node is refused with its reason.

    `are_beginnings`: the table has prefixes of the reasons.
    """

    @pytest.mark.parametrize(("node", "reason"), table.values(), ids=table)
    def test_refusal(node: Node, reason: str) -> None:
        result = refusal(node)
        assert (result[: len(reason)] if are_beginnings else result) == reason

    return test_refusal


def exact(
    cases: Mapping[str, C] | Iterable[C],
    strategies: Sequence[Strategy] = GROUPS,
    check: Callable[[C, DeviceInfo, Strategy], object] = assert_case,
) -> Test:
    """Return a test that each case gives TFLite's results with each strategy.

    `check` runs a case and raises AssertionError if a result differs.
    """

    @pytest.mark.parametrize("strategy", strategies, ids=str)
    @pytest.mark.parametrize("case", named(cases))
    def test_exact(case: C, strategy: Strategy, device: DeviceInfo) -> None:
        check(case, device, strategy)

    return test_exact


def types(
    build: Callable[[str], C],
    dtypes: Sequence[str],
    check: Callable[[C, DeviceInfo, Strategy], object] = assert_case,
) -> Test:
    """Return a test that the case built for each type gives TFLite's results."""

    @pytest.mark.parametrize("dtype", dtypes)
    def test_types(dtype: str, device: DeviceInfo) -> None:
        check(build(dtype), device, strategy_on(device, LANES_8))

    return test_types


def drawn(
    cases: st.SearchStrategy[C],
    strategies: Sequence[Strategy] = GROUPS,
    check: Callable[[C, DeviceInfo, Strategy, int], object] = assert_case_or_refused,
) -> Test:
    """Return a property test: drawn cases, strategies and seeds of the inputs."""

    @given(case=cases, strategy=st.sampled_from(strategies), seed=SEEDS)
    def test_drawn(device: DeviceInfo, case: C, strategy: Strategy, seed: int) -> None:
        check(case, device, strategy, seed)

    return test_drawn
