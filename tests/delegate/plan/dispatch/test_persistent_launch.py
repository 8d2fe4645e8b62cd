# SPDX-License-Identifier: Apache-2.0
"""The persistent launch has the same outputs as separate launches; its phases and fallbacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from delegate import DeviceInfo, Options
from delegate.guard.children.trials import BUILD, Trial
from delegate.guard.probing.opening import open_device
from delegate.inspect import Graph, read_model, write_model
from delegate.isa import ORDERS
from delegate.launch import Alternative, Schedule
from delegate.plan import sources
from delegate.plan.dispatch import multi_kernel_source, persistent_launch
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.persistent_launch import persistent_kernel
from delegate.plan.dispatch.planned import planned_executor
from delegate.plan.layout import layout_of, phases_of
from delegate.plan.per_group_copies import no_group_copies
from delegate.plan.record import FUSED, ONE_BY_ONE, PERSISTENT
from delegate.run.device import Device
from tests.support.cases import LANES_4, LANES_16, SIMT, Strategy, require_isa
from tests.support.compare import inputs_for, interpreter, invoke, oracle
from tests.support.model import graph_of, op, t
from tests.support.nets import conv_pool, net
from tests.support.process import run_python
from tests.support.schedules import assert_same_runs, schedule_of
from tests.support.shared import model_path
from tests.support.tiers import slow

pytestmark = pytest.mark.usefixtures("one_context")
CHAIN = net([("ADD", [0, 0], 1), ("ADD", [1, 0], 2), ("ADD", [2, 1], 3)], [1])
# Four nodes that need the first one, two that need two of them each, and one that needs all.
BRANCHES = net(
    [
        ("ADD", [0, 0], 1),
        *(("MUL" if n % 2 else "ADD", [1, 0], n) for n in range(2, 6)),
        ("ADD", [2, 3], 6),
        ("ADD", [4, 5], 7),
        ("ADD", [6, 7], 8),
    ],
    [8],
)
# Name prefix of PoCL's threaded devices -> its driver without threads.
THREADLESS = {"pthread": "basic", "cpu": "cpu-minimal"}
IN_THE_CALLING_THREAD = """
import sys
import numpy as np
from delegate import Model
from tests.support.compare import inputs_for
from tests.support.nets import conv_pool

graph = conv_pool()
with Model(graph, "portable", tune="off") as model:
    (outputs,) = zip(*(model.run(*given) for given in inputs_for(graph)))
np.save(sys.argv[1], outputs)
print(model.device.name)
"""


def ordered(info: DeviceInfo, strategy: Strategy = SIMT) -> Device:
    """Open a device that passed the self-test of memory order between groups, or skip."""
    require_isa(strategy, info)
    device = open_device(Options(info.index))
    if not device.proven & ORDERS:
        pytest.skip(f"{info.name} does not order memory between work-groups")
    return device


def assert_same(device: Device, schedule: Schedule, batch: int = 1, runs: int = 30) -> None:
    kernels = Kernels(device)
    apart = planned_executor(device, kernels, schedule, batch)
    whole = planned_executor(device, kernels, schedule, batch, PERSISTENT)
    assert (whole.dispatch_mode, apart.dispatch_mode) == (PERSISTENT, ONE_BY_ONE)
    kernels_of = [len(each.copy_strategy.kernels) for each in (whole, apart)]
    assert kernels_of == [1, len(schedule.launches)]
    assert_same_runs(apart, whole, runs)
    apart.close()
    whole.close()


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("strategy", [SIMT, LANES_4, LANES_16], ids=str)
@pytest.mark.parametrize("graph", [CHAIN, conv_pool()], ids=["chain", "conv_pool"])
def test_the_same_outputs(device: DeviceInfo, graph: Graph, strategy: Strategy, batch: int) -> None:
    assert_same(ordered(device, strategy), schedule_of(graph, strategy), batch)


def test_specialised_kernels_are_a_separate_file(device: DeviceInfo) -> None:
    # A slow child gives up the specialised file.
    opened, loaded = ordered(device, LANES_16), schedule_of(CHAIN, LANES_16)
    for schedule, file in (
        (loaded, "persistent"),
        (loaded.specialised(), "persistent_specialised"),
    ):
        layout = layout_of(schedule, is_whole=True)
        result = persistent_kernel(opened, Kernels(opened), schedule.launches, layout)
        assert result is not None
        assert result.program.file == f"runtime_{file}"
        assert Trial(BUILD, result.program.file).is_of_a_model
    assert_same(opened, loaded.specialised(), runs=2)


@pytest.mark.parametrize("groups", [1, 2, 7])
def test_any_number_of_groups_terminates(device: DeviceInfo, groups: int) -> None:
    opened = ordered(device, LANES_16)
    opened.compute_units = groups
    for graph in (CHAIN, BRANCHES):
        assert_same(opened, schedule_of(graph, LANES_16))


def test_independent_launches_share_a_phase() -> None:
    schedule = schedule_of(BRANCHES, LANES_16)
    assert phases_of(schedule, no_group_copies(schedule)) == (0, 1, 1, 1, 1, 2, 2, 3)


@slow
@pytest.mark.model
def test_whole_model(device: DeviceInfo) -> None:
    graph = read_model(model_path("mobilenet_v1_0.25_128_quant"))
    assert_same(ordered(device, LANES_16), schedule_of(graph, LANES_16), runs=5)


def test_kernels_with_different_group_sizes(device: DeviceInfo) -> None:
    opened = ordered(device, LANES_4)
    schedule = schedule_of(CHAIN, LANES_4)
    one = schedule.launches
    many = tuple(replace(launch, group_items=64) for launch in one)
    kernels = Kernels(opened)
    for launches, items in ((one, 1), (many, 64), ((*one, *many), 1)):
        strategies = Alternative("", launches)
        all_at_once = replace(schedule, steps=(replace(schedule.steps[0], alternative=strategies),))
        layout = layout_of(all_at_once, is_whole=True)
        result = persistent_kernel(opened, kernels, launches, layout)
        assert result is not None
        assert result.group_items == items


def test_larger_groups_have_scratch_for_each_item(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = ordered(device)
    rows, shares, sums = (t((5, 300), "uint8", 1 / 256) for _ in range(3))
    nodes = [op("SOFTMAX", [rows], [shares], {"beta": 1.0}), op("ADD", [shares, shares], [sums])]
    softmax, add = schedule_of(graph_of(nodes), SIMT).steps
    (own,), (launch,) = softmax.alternative.launches, add.alternative.launches
    assert own.group_items == 64
    wide = replace(add.alternative, launches=(replace(launch, group_items=256),))
    schedule = Schedule((softmax, replace(add, alternative=wide)), (rows,), (sums,))
    scratch = []

    def source_of(file: str, defines: Mapping[str, str]) -> str:
        scratch.append((file, defines.get("SCRATCH_INTS")))
        return sources.source_of(file, defines)

    for module in (persistent_launch, multi_kernel_source):
        monkeypatch.setattr(module, "source_of", source_of)
    assert_same(opened, schedule)
    needed = str(4 * int(own.defines["SCRATCH_INTS"]))
    assert scratch == [("softmax", needed), (launch.file, None), ("runtime_persistent", needed)]


@pytest.mark.parametrize(("batch", "calls", "mode"), [(1, 1, FUSED), (2, 3, ONE_BY_ONE)])
def test_unproven_device_uses_other_modes(
    device: DeviceInfo, batch: int, calls: int, mode: str
) -> None:
    opened = Device(device)
    executor = planned_executor(
        opened, Kernels(opened), schedule_of(CHAIN, SIMT), batch, dispatch_mode=PERSISTENT
    )
    assert executor.dispatch_mode == mode
    assert len(executor.copy_strategy.kernels) == calls


def test_build_error_falls_back_to_fused_launches(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = ordered(device)
    monkeypatch.setattr("delegate.plan.dispatch.persistent_launch.KERNEL_NAME", "missing")
    executor = planned_executor(
        opened, Kernels(opened), schedule_of(CHAIN, SIMT), dispatch_mode=PERSISTENT
    )
    assert executor.dispatch_mode == FUSED


@slow
def test_driver_without_threads(device: DeviceInfo, tmp_path: Path) -> None:
    threads, *_ = device.name.split("-")
    if "Portable" not in device.platform or threads not in THREADLESS:
        pytest.skip(f"{device.name} has no driver without threads")
    driver, saved, graph = THREADLESS[threads], tmp_path / "outputs.npy", conv_pool()
    message = run_python(IN_THE_CALLING_THREAD, saved, POCL_DEVICES=driver)
    assert message.startswith(driver)
    model = write_model(graph)
    reference = interpreter(model, cpu_kernels=oracle(model))
    expected = [invoke(reference, given)[0] for given in inputs_for(graph)]
    np.testing.assert_array_equal(np.load(saved), expected)
