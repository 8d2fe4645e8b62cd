# SPDX-License-Identifier: Apache-2.0
"""A model through the delegate against every peer, in turns -> a RowResult."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from benchmarks import before
from benchmarks.layers import beside_peaks
from benchmarks.measure import Contender, PathTimes, Skipped, timed
from benchmarks.network import one_pool
from benchmarks.peers import Peers, Workload, peers
from benchmarks.results import OPENCL, DelegationStats, Figure, Goal, RowResult
from benchmarks.setup import POCL, Setup, TableRow
from delegate import DeviceInfo, OpenCLDelegate
from tflite_opencl.interpreters.interpreter import outputs_of
from tflite_opencl.oracle import difference as outputs
from tflite_opencl.timing.machine import has_vnni
from tflite_opencl.timing.profile import profile_of

PORTABLE = "portable kernels on PoCL"
FEWEST_RUNS = 100  # that a figure is made of


def against_peers(row: TableRow, setup: Setup, info: DeviceInfo, model: str) -> RowResult:
    """Measure the delegate and every peer."""
    workload = setup.workload(model)
    others = peers(workload, with_tinygrad=row.has_tinygrad)
    with contextlib.ExitStack() as stack:
        if setup.before is not None:
            try:
                older = before.contender(setup.before, model, setup, info)
                others.contenders.append(stack.enter_context(older))
            except Skipped as reason:
                others.missing[before.NAME] = str(reason)
        return _against(others, not_judged(setup, info), row, setup, info, workload)


def against_pocl(row: TableRow, setup: Setup, info: DeviceInfo, model: str) -> RowResult:
    """Measure a device against PoCL with the kernels that any device can run."""
    workload, pocl = setup.workload(model), replace(setup, device=None).find(POCL)
    portable = workload.interpreter("auto", [setup.delegate(model, pocl, exclude_isa=["all"])])
    others = Peers([Contender(PORTABLE, portable.invoke)])
    reason = "" if "llvmpipe" in info.name else "the figure is for llvmpipe"
    return _against(others, reason, row, setup, info, workload)


def _against(
    others: Peers, reason: str, row: TableRow, setup: Setup, info: DeviceInfo, workload: Workload
) -> RowResult:
    """Measure the delegate in turns with others; `reason`: why no goal holds here, or ""."""
    delegate = setup.delegate(workload.model, info, exclude_isa=row.exclude_isa)
    ours, runs = workload.interpreter("auto", [delegate]), row.runs(setup)
    exact = _exactness(workload, delegate, ours)  # after one run: what a model keeps is equal then
    paths = timed([Contender(OPENCL, ours.invoke), *others.contenders], runs)
    delegation = _delegation(row, setup, workload, delegate)
    if not reason and delegation.delegated < delegation.nodes:
        reason = f"only {delegation.delegated} of {delegation.nodes} nodes are on OpenCL"
    return RowResult(
        paths=paths,
        figures=ratios(row.goals, paths, reason or too_few(runs), others.missing),
        delegation=delegation,
        exact=exact,
        missing=others.missing,
        notes=others.notes,
    )


def beside_kernels(row: TableRow, setup: Setup, info: DeviceInfo, _: str) -> RowResult:
    """Time a model of one small node, and take off what the driver's events say of its kernel.

    What is left is the call, the copies and the driver's threads.
    """
    model = setup.written("one_node", one_pool())
    workload = setup.workload(model)
    ours = workload.interpreter("auto", [setup.delegate(model, info)])
    profiled = setup.delegate(model, info, profiling=True)
    apart = workload.interpreter("auto", [profiled])
    kernel_us: list[float] = []

    def run_profiled() -> None:
        apart.invoke()
        kernel_us.append(sum(launch.microseconds for launch in profiled.profile()))

    contenders = [
        Contender(OPENCL, ours.invoke),
        Contender(f"{OPENCL}, profiled", run_profiled),
        Contender(setup.runtime.kernels("auto"), workload.interpreter("auto").invoke),
    ]
    paths = timed(contenders, row.runs(setup))
    beside_ms = paths[OPENCL].min_ms - min(kernel_us) / 1e3
    reason = not_judged(setup, info) or too_few(row.runs(setup))
    note = f"the kernel takes {min(kernel_us):.1f} us by the driver's events, the least of all"
    return RowResult(paths=paths, figures=[Figure(row.goals[0], beside_ms, reason)], notes=[note])


def ratios(
    goals: Sequence[Goal], paths: Mapping[str, PathTimes], reason: str, missing: Mapping[str, str]
) -> list[Figure]:
    """Return our minimum over that of the fastest path a goal names, for each goal that has one.

    `reason`: why no goal holds here, or "".
    """
    figures = []
    for goal in goals:
        there = [paths[name].ratio for name in goal.against if name in paths]
        absent = [f"without {name}" for name in goal.against if name in missing]
        if there:
            figures.append(Figure(goal, max(there), reason or ", ".join(absent)))
    return figures


def not_judged(setup: Setup, info: DeviceInfo) -> str:
    """Return why the table's figures for PoCL do not hold here, or ""."""
    if "Portable Computing Language" not in info.platform or setup.threads != 2 or not has_vnni():
        return "the figure is for PoCL on 2 cores with AVX-512 VNNI"
    return ""


def too_few(runs: int, needed: int = FEWEST_RUNS) -> str:
    """Return why so many runs do not make a figure, or ""."""
    return "" if runs >= needed else f"{runs} runs: a figure needs {needed}"


def _exactness(workload: Workload, delegate: OpenCLDelegate, ours: Any) -> str:
    """Return how far the outputs are from those of TFLite's reference kernels."""
    if not all(verdict.is_taken for verdict in delegate.verdicts):
        ours = workload.interpreter("reference", [delegate])  # for what the CPU has
    return difference(outputs_of(ours), workload.reference())


def difference(ours: Sequence[NDArray[Any]], reference: Sequence[NDArray[Any]]) -> str:
    """Return in words whether the outputs are equal; "NOT equal" where integers are not."""
    apart = outputs.difference(ours, reference, "")
    if apart.quanta or not apart.each:
        message = f"{apart.quanta} apart" if apart.quanta else apart.reason
        return f"NOT equal to the reference kernels: {message}"
    if apart.floats:
        return f"within {apart.floats:.1g} of the reference kernels"
    return "equal to the reference kernels"


def _delegation(
    row: TableRow, setup: Setup, workload: Workload, delegate: OpenCLDelegate
) -> DelegationStats:
    isa, device = row.exclude_isa, delegate.device
    counter = setup.delegate(workload.model, device, exclude_isa=isa, profiling=True)
    run = workload.interpreter("auto", [counter]).invoke
    counted = profile_of(counter, workload.graph, run)
    beside = beside_peaks(workload.model, counted, device, setup)
    limits = [beside.limit_us(layer) for layer in beside.layers]
    return DelegationStats(
        nodes=len(delegate.verdicts),
        delegated=sum(verdict.is_taken for verdict in delegate.verdicts),
        partitions=len(delegate.partitions),
        launches=counted.launches,
        up_bytes=counted.up_bytes,
        down_bytes=counted.down_bytes,
        limit_ms=sum(us for us, _ in limits) / 1e3,
        limit_of_work_ms=sum(us for us, is_work in limits if is_work) / 1e3,
    )
