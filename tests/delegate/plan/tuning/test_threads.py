# SPDX-License-Identifier: Apache-2.0
"""Short partitions run in the calling thread where the driver can do that and it is faster."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from delegate import DeviceInfo
from delegate.engine import Engine
from delegate.inspect import Graph
from delegate.options import Options
from delegate.plan.codec import TunedPlan, decode, encode
from delegate.plan.contents import load
from delegate.plan.planners.child_planner import _CacheSource
from delegate.plan.record import PartitionPlan
from delegate.plan.tuning import threads
from delegate.plan.tuning.agreement import are_same, outputs_of, random_inputs
from delegate.plan.tuning.chooser import Chooser
from delegate.run.constant_files import save_constants
from delegate.run.device import Device
from delegate.run.local_backend import LocalBackend
from tests.support.nets import conv_pool
from tests.support.schedules import executor_of

pytestmark = pytest.mark.device


@pytest.fixture
def short(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> pytest.MonkeyPatch:
    """Let the calling thread win each comparison, on a device that has both."""
    opened = Device(device)
    if opened.without_threads() is None:
        pytest.skip(f"{device.name} has no driver without threads")
    opened.close()
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", str(tmp_path))
    monkeypatch.setattr(threads, "_LONGEST_SECONDS", 10.0)
    fastest = Chooser.fastest
    monkeypatch.setattr(
        Chooser,
        "fastest",
        lambda self, runs: threads.MODES[1] if threads.MODES[1] in runs else fastest(self, runs),
    )
    return monkeypatch


def plan_of(device: DeviceInfo, graph: Graph, tune: str = "quick", **options: Any) -> PartitionPlan:
    """Return the plan of a whole graph."""
    engine = Engine(Options(device.index, tune=tune, **options))
    with executor_of(engine, graph) as executor:
        return executor.plan


def test_outputs_are_the_same(device: DeviceInfo, short: pytest.MonkeyPatch) -> None:
    graph = conv_pool()
    with closing(Engine(Options(device.index, tune="quick"))) as engine:
        with executor_of(engine, graph) as executor:
            plan, own = executor.plan, outputs_of(executor, random_inputs(executor))
            with closing(executor.constants()) as constants:
                saved = TunedPlan(plan, save_constants(constants), "quick", 0, 0.0)
        assert plan.has_no_threads
        with executor_of(Engine(Options(device.index, tune="off")), graph) as executor:
            assert not executor.plan.has_no_threads
            expected = outputs_of(executor, random_inputs(executor))
    assert are_same(own, expected)
    # As another process executes it.
    ends = plan.inputs, plan.outputs
    content = encode(saved)
    backend, tuned = LocalBackend(Device(device)), decode(content, ends, load)
    constants = backend.constants(content, ends, tuned, _CacheSource({}))
    with backend.executor(tuned.plan, constants) as executor:
        assert are_same(outputs_of(executor, random_inputs(executor)), expected)


def test_long_runs_keep_the_threads(device: DeviceInfo, short: pytest.MonkeyPatch) -> None:
    short.setattr(threads, "_LONGEST_SECONDS", 0.0)
    assert not plan_of(device, conv_pool()).has_no_threads


@pytest.mark.parametrize("options", [{"tune": "off"}, {"profiling": True}])
def test_nothing_is_chosen(
    device: DeviceInfo, short: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    assert not plan_of(device, conv_pool(), **options).has_no_threads


def test_wrong_outputs_keep_the_threads(
    device: DeviceInfo, short: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    short.setattr(threads, "same_outputs", lambda *_: False)
    assert not plan_of(device, conv_pool()).has_no_threads
    assert "computes wrongly without threads" in caplog.text
