# SPDX-License-Identifier: Apache-2.0
"""Fused launches have the same outputs as separate ones, on every device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delegate import DeviceInfo
from delegate.inspect import Graph
from delegate.launch import Schedule
from delegate.plan.call_groups import call_groups, reordered
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.planned import planned_executor
from delegate.plan.layout import layout_of
from delegate.plan.record import FUSED, ONE_BY_ONE
from delegate.run.device import Device
from tests.support.cases import AVX2, LANES_4, SIMT, VNNI, Strategy, require_isa
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


def branches() -> Graph:
    """Return a chain that few work-groups repeat, and large launches that share calls.

    Nodes alternate between the branches, so that only another order brings launches together.
    """
    x, row = t((40, 64), "uint8", 0.5, 128), t((1, 64), "uint8", 0.5, 128)
    small = [t((1, 64), "uint8", 0.5, 128) for _ in range(3)]
    large = [t((40, 64), "uint8", 0.5, 128) for _ in range(6)]
    return graph_of(
        [
            op("ADD", [row, row], [small[0]]),
            op("MUL", [small[0], row], [small[1]]),
            op("ADD", [x, small[1]], [large[0]]),
            op("ADD", [small[1], small[0]], [small[2]]),
            op("ADD", [x, small[2]], [large[1]]),
            op("ADD", [large[0], large[0]], [large[2]]),
            op("ADD", [large[1], large[0]], [large[3]]),
            op("ADD", [large[2], large[3]], [large[4]]),
            op("ADD", [large[4], small[2]], [large[5]]),
        ],
        [x, row],
        [large[5], large[1]],
    )


def assert_same(device: DeviceInfo, schedule: Schedule) -> None:
    """Assert that the fused program has the same outputs with fewer calls."""
    calls = len(call_groups(reordered(schedule)))
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
    [
        (CHAIN, SIMT),
        (CHAIN, LANES_4),
        (rows(), SIMT),
        (rows(), LANES_4),
        (conv_pool(), SIMT),
        (conv_pool(), AVX2),
        (conv_pool(), VNNI),  # functions with a target of their own
    ],
    ids=["chain-simt", "chain-lanes4", "rows-simt", "rows-lanes4", "conv-simt", "avx2", "vnni"],
)
def test_the_same_outputs(
    device: DeviceInfo, graph: Graph, strategy: Strategy, is_literal: bool
) -> None:
    require_isa(strategy, device)
    schedule = schedule_of(graph, strategy)
    assert len(call_groups(schedule)) == 1
    assert_same(device, schedule.specialised() if is_literal else schedule)


@pytest.mark.parametrize("is_literal", [False, True], ids=["loaded", "literal"])
def test_branches_have_the_same_outputs(device: DeviceInfo, is_literal: bool) -> None:
    schedule = schedule_of(branches(), SIMT)
    groups = call_groups(reordered(schedule))
    kinds = [(len(group.chain), len(group.spread)) for group in groups]
    assert kinds == [(3, 1), (0, 1), (0, 2), (0, 1), (0, 1)]
    assert_same(device, schedule.specialised() if is_literal else schedule)


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


@pytest.mark.parametrize("why", ["batch", "does not build", "does not fit"])
def test_unsuitable_launches_stay_separate(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    batch = 3 if why == "batch" else 1
    if why == "does not build":
        monkeypatch.setattr("delegate.plan.dispatch.fused_launches.KERNEL_NAME", "missing")
    if why == "does not fit":
        # Separate launches share memory that launches of one call cannot.
        most = layout_of(schedule_of(CHAIN, SIMT)).arena_bytes
        monkeypatch.setattr("delegate.plan.dispatch.calls.LARGEST_BYTES", most)
    opened = Device(device)
    with planned_executor(
        opened, Kernels(opened), schedule_of(CHAIN, SIMT), batch, FUSED
    ) as executor:
        assert executor.dispatch_mode == ONE_BY_ONE
        assert len(executor.copy_strategy.kernels) == 3
