# SPDX-License-Identifier: Apache-2.0
"""Fused launches have the same outputs as separate ones, on every device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo
from delegate.inspect import Graph
from delegate.launch import Constant, Launch, Schedule
from delegate.plan.dispatch.fused_launches import fusible_groups
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.planned import planned_executor
from delegate.plan.record import FUSED, ONE_BY_ONE
from delegate.run.device import Device
from tests.support.cases import LANES_4, SIMT, Strategy, require_isa
from tests.support.model import graph_of, op, t
from tests.support.nets import conv_pool, net
from tests.support.schedules import assert_same_runs, schedule_of
from tests.support.tiers import slow

pytestmark = pytest.mark.usefixtures("one_context")
CHAIN = net([("ADD", [0, 0], 1), ("ADD", [1, 0], 2), ("ADD", [2, 1], 3)], [1])


def rows() -> Graph:
    """Return SOFTMAX, whose work-group shares a row in scratch memory, between two ADDs."""
    a, b, c, d = (t((3, 300), "uint8", 1 / 256) for _ in range(4))
    return graph_of(
        [op("ADD", [a, a], [b]), op("SOFTMAX", [b], [c], {"beta": 1.0}), op("ADD", [c, b], [d])]
    )


def assert_same(device: DeviceInfo, schedule: Schedule) -> None:
    """Assert that the fused program has the same outputs with fewer calls."""
    calls = len(fusible_groups(schedule.launches))
    assert calls < len(schedule.launches)
    opened = Device(device)
    kernels = Kernels(opened)
    with (
        planned_executor(opened, kernels, schedule) as apart,
        planned_executor(opened, kernels, schedule, dispatch_mode=FUSED) as joined,
    ):
        assert (apart.dispatch_mode, joined.dispatch_mode) == (ONE_BY_ONE, FUSED)
        assert len(apart.copy_strategy.kernels) == len(schedule.launches)
        assert len(joined.copy_strategy.kernels) == calls
        assert_same_runs(apart, joined, 10)


@pytest.mark.parametrize("is_literal", [False, True], ids=["loaded", "literal"])
@pytest.mark.parametrize(
    ("graph", "strategy"),
    [(CHAIN, SIMT), (CHAIN, LANES_4), (rows(), SIMT), (rows(), LANES_4), (conv_pool(), SIMT)],
    ids=["chain-simt", "chain-lanes4", "rows-simt", "rows-lanes4", "conv-simt"],
)
def test_the_same_outputs(
    device: DeviceInfo, graph: Graph, strategy: Strategy, is_literal: bool
) -> None:
    require_isa(strategy, device)
    schedule = schedule_of(graph, strategy)
    assert len(fusible_groups(schedule.launches)) == 1
    assert_same(device, schedule.specialised() if is_literal else schedule)


def test_launches_with_few_tiles_and_equal_groups_are_fused() -> None:
    def launch(tiles: int, items: int = 64, weights: int = 8192) -> Launch:
        constant = Constant(weights, lambda: np.zeros(weights, np.uint8))
        return Launch("f", "f", tiles, items, {"weights": constant}, (), ())

    a, b, c, large, other, heavy, last = (
        launch(1), launch(4), launch(2, 256), launch(5), launch(5), launch(1, weights=8193),
        launch(1, 1),
    )  # fmt: skip
    result = fusible_groups([a, b, c, large, other, heavy, last])
    assert result == [(a, b, c), (large,), (other,), (heavy,), (last,)]
    many = [launch(1) for _ in range(19)]
    assert fusible_groups(many) == [tuple(many[:8]), tuple(many[8:16]), tuple(many[16:])]


@slow
def test_larger_groups_have_scratch_for_each_item(device: DeviceInfo) -> None:
    schedule = schedule_of(rows(), SIMT)
    first, softmax, last = schedule.steps
    (own,), (launch,) = softmax.alternative.launches, last.alternative.launches
    assert "SCRATCH_INTS" in own.defines
    assert own.group_items == 64
    wide = replace(last.alternative, launches=(replace(launch, group_items=256),))
    schedule = replace(schedule, steps=(first, softmax, replace(last, alternative=wide)))
    assert_same(device, schedule)


@pytest.mark.parametrize("why", ["batch", "does not build"])
def test_unsuitable_launches_stay_separate(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    batch = 3 if why == "batch" else 1
    if why == "does not build":
        monkeypatch.setattr("delegate.plan.dispatch.fused_launches.KERNEL_NAME", "missing")
    opened = Device(device)
    with planned_executor(
        opened, Kernels(opened), schedule_of(CHAIN, SIMT), batch, FUSED
    ) as executor:
        assert executor.dispatch_mode == ONE_BY_ONE
        assert len(executor.copy_strategy.kernels) == 3
