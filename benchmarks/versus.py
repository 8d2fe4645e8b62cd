# SPDX-License-Identifier: Apache-2.0
"""A model through the delegate against every peer, in turns -> a RowResult."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Contender, PathTimes, compared, in_turns
from benchmarks.peers import Interpreter, Workload, peers
from benchmarks.results import OPENCL, Delegation, Figure, Goal, RowResult
from benchmarks.setup import POCL, Row, Setup
from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import Graph, Tensor
from tflite_opencl.common.machine import has_vnni

PORTABLE = "portable kernels on PoCL"
FEWEST_RUNS = 100  # that a figure is made of


def own_model(row: Row, setup: Setup) -> RowResult:
    """Measure a file that is no part of the table."""
    return _against_peers(row, setup, row.model)


def against_peers(row: Row, setup: Setup) -> RowResult:
    """Measure the delegate and every peer on a known model."""
    model, note = setup.model(row.model)
    result = _against_peers(row, setup, model)
    return replace(result, notes=[note]) if note else result


def _against_peers(row: Row, setup: Setup, model: str) -> RowResult:
    info = setup.find(row.device)
    workload = Workload(model, setup.runtime, setup.threads)
    delegate = new_delegate(model, info, setup, row.exclude_isa)
    ours = workload.interpreter("auto", [delegate])
    others = peers(workload, with_tinygrad=row.has_tinygrad)
    runs = setup.runs_of(row)
    paths = compared(in_turns([Contender(OPENCL, ours), *others.contenders], runs), OPENCL)
    delegation = _delegation(workload, delegate, setup, row.exclude_isa)
    reason = not_judged(setup, info) or _partly(delegation) or too_few(runs)
    return RowResult(
        row.name,
        row.case,
        device=named(info),
        paths=paths,
        figures=ratios(row.goals, paths, reason, others.missing),
        delegation=delegation,
        exact=_exactness(workload, delegate, ours),
        missing=others.missing,
    )


def against_pocl(row: Row, setup: Setup) -> RowResult:
    """Measure a device against PoCL with the kernels that any device can run."""
    model, note = setup.model(row.model)
    workload = Workload(model, setup.runtime, setup.threads)
    info, pocl = setup.find(row.device), replace(setup, device=None).find(POCL)
    delegate = new_delegate(model, info, setup)
    ours = workload.interpreter("auto", [delegate])
    portable = workload.interpreter("auto", [new_delegate(model, pocl, setup, ["all"])])
    contenders = [Contender(OPENCL, ours), Contender(PORTABLE, portable)]
    reason = "" if "llvmpipe" in info.name else "the figure is for llvmpipe"
    runs = setup.runs_of(row)
    paths = compared(in_turns(contenders, runs), OPENCL)
    return RowResult(
        row.name,
        row.case,
        device=named(info),
        paths=paths,
        figures=ratios(row.goals, paths, reason or too_few(runs), {}),
        delegation=_delegation(workload, delegate, setup),
        exact=_exactness(workload, delegate, ours),
        notes=[note] if note else [],
    )


def new_delegate(
    model: str,
    info: DeviceInfo,
    setup: Setup,
    exclude_isa: Collection[str] = (),
    profiling: bool = False,
) -> OpenCLDelegate:
    """Return a delegate on a device."""
    return OpenCLDelegate(
        model, info.index, tune=setup.tune, exclude_isa=exclude_isa, profiling=profiling
    )


def ratios(
    goals: Sequence[Goal],
    paths: Mapping[str, PathTimes],
    reason: str,
    missing: Mapping[str, str],
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


def _partly(delegation: Delegation) -> str:
    if delegation.delegated == delegation.nodes:
        return ""
    return f"only {delegation.delegated} of {delegation.nodes} nodes are on OpenCL"


def named(info: DeviceInfo) -> str:
    """Return a device in words."""
    return f"{info.name} ({info.platform}, {info.driver})"


def _exactness(workload: Workload, delegate: OpenCLDelegate, ours: Interpreter) -> str:
    """Return how far the outputs are from those of TFLite's reference kernels."""
    if any(reason is not None for _, _, reason in delegate.verdicts):
        ours = workload.interpreter("reference", [delegate])  # for what the CPU has
    reference = workload.interpreter("reference", threads=1)
    return difference(ours.outputs(), reference.outputs())


def difference(ours: Sequence[NDArray[Any]], reference: Sequence[NDArray[Any]]) -> str:
    """Return in words whether the outputs are equal; "NOT equal" where integers are not."""
    largest = 0.0
    for own, theirs in zip(ours, reference, strict=True):
        apart = np.abs(own.astype(np.float64) - theirs.astype(np.float64))
        largest = max(largest, float(apart.max(initial=0.0)))
        if largest and own.dtype.kind != "f":
            return f"NOT equal to the reference kernels: {largest:g} apart"
    if largest:
        return f"within {largest:.1g} of the reference kernels"
    return "equal to the reference kernels"


def _delegation(
    workload: Workload,
    delegate: OpenCLDelegate,
    setup: Setup,
    exclude_isa: Collection[str] = (),
) -> Delegation:
    counter = new_delegate(workload.model, delegate.device, setup, exclude_isa, profiling=True)
    counted = workload.interpreter("auto", [counter])
    launches = len(counter.profile())
    del counted  # and its interpreter, which must outlive the profile
    up_bytes, down_bytes = _transfers(workload.graph, delegate.partitions)
    return Delegation(
        nodes=len(delegate.verdicts),
        delegated=sum(reason is None for _, _, reason in delegate.verdicts),
        partitions=len(delegate.partitions),
        launches=launches,
        up_bytes=up_bytes,
        down_bytes=down_bytes,
    )


def _transfers(graph: Graph, partitions: Collection[Collection[int]]) -> tuple[int, int]:
    """Return the bytes of all tensors that cross into and out of these groups of nodes."""
    up_bytes = down_bytes = 0
    for members in partitions:
        inside = [node for node in graph.nodes if node.index in members]
        outside = [node for node in graph.nodes if node.index not in members]
        made = {tensor for node in inside for tensor in node.outputs}
        read = {tensor for node in inside for tensor in node.inputs}
        wanted = {tensor for node in outside for tensor in node.inputs} | set(graph.outputs)
        up_bytes += sum(map(_computed_bytes, read - made))
        down_bytes += sum(map(_computed_bytes, made & wanted))
    return up_bytes, down_bytes


def _computed_bytes(tensor: Tensor | None) -> int:
    if tensor is None or tensor.data is not None:
        return 0
    return prod(tensor.shape) * np.dtype(tensor.dtype).itemsize
