# SPDX-License-Identifier: Apache-2.0
"""Timing of alternatives, in a persistent launch if possible, and of copy strategies."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from delegate import DeviceInfo, Options, ops
from delegate.engine import Engine
from delegate.isa import ORDERS
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.layout import Bytes
from delegate.plan.record import ONE_BY_ONE, PERSISTENT
from delegate.plan.tuning.bench import DeviceBench
from delegate.run.copy_strategies import DIRECT, STRATEGIES, MappedCopy
from delegate.run.executor import Executor
from delegate.target import Rules
from tests.support.convolution import Convolution

pytestmark = pytest.mark.device


@pytest.mark.parametrize("is_joined", [False, True], ids=["alone", "joined"])
def test_times_of_one_launch(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, is_joined: bool
) -> None:
    engine = Engine(Options(device.index, tune="off"))
    target = engine.target(Rules())
    alternatives = ops.lower(Convolution(size=(4, 4, 8), kernel=(1, 1), out_c=16).node(), target)
    seen: set[tuple[str, int]] = set()
    repeat = Executor.repeat

    def told(self: Executor, count: int, wait: bool = False) -> float:
        seen.add((self.dispatch_mode, sum(len(step.launches) for step in self.plan.steps)))
        repeat(self, count, wait)
        return 1e-3 * sum(len(step.launches) for step in self.plan.steps)

    monkeypatch.setattr(Executor, "repeat", told)
    bench = DeviceBench(engine.device, Kernels(engine.device))
    taken, times = bench.fastest(alternatives[-2:], 1, 1, is_joined)
    assert (taken, times) == (0, pytest.approx([1e-3, 1e-3]))
    is_one = is_joined and bool(engine.device.proven & ORDERS)
    assert seen == {(PERSISTENT, 16) if is_one else (ONE_BY_ONE, 1)}
    engine.close()


def test_wrong_copy_strategy_is_rejected(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(Options(device.index, tune="off"))
    bench = DeviceBench(engine.device, Kernels(engine.device))
    right = [*bench.copy_strategies()]
    assert [name for name in right if name != DIRECT] == [*STRATEGIES][:3]
    assert DIRECT not in right[1:]  # the one expected to be fastest comes first
    caplog.clear()
    take = MappedCopy.read_outputs

    def one_byte_is_other(self: MappedCopy, outputs: Sequence[Bytes]) -> None:
        take(self, outputs)
        outputs[0][-1] ^= 1

    monkeypatch.setattr(MappedCopy, "read_outputs", one_byte_is_other)
    assert [*bench.copy_strategies()] == [name for name in right if name != "mapped"]
    assert "'mapped' copies wrong bytes" in caplog.text
    engine.close()
