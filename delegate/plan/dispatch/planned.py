# SPDX-License-Identifier: Apache-2.0
"""Program + dispatch mode -> plan and executor, each step guarded by trials."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from delegate.graph.ir import Tensor
from delegate.guard.children import progress
from delegate.guard.children.trials import EXECUTOR, Trial
from delegate.launch import Schedule, Step, size_bytes
from delegate.plan.dispatch.calls import KernelCalls, calls_of
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.record import NO_REGION, ONE_BY_ONE, LaunchPlan, PartitionPlan, Region, StepPlan
from delegate.run.copy_strategies import COPIED
from delegate.run.device import Device
from delegate.run.executor import Executor
from delegate.run.state import State
from delegate.run.weights import Lease, Weights


def planned_executor(
    device: Device,
    kernels: Kernels,
    schedule: Schedule,
    batch: int = 1,
    dispatch_mode: str = ONE_BY_ONE,
    copy_strategy: str = COPIED,
    weights: Weights | None = None,
    state: State | None = None,
    region: Region = NO_REGION,
) -> Executor:
    """Plan a schedule, and return an executor of the plan.

    `dispatch_mode`: falls back to one by one if the device cannot do it. `copy_strategy`: one
    of STRATEGIES. `weights`: constants shared with other executors;
    None: not shared. `state`: as for Executor. `region`: of persistent values in the arena.

    Raises:
        DeviceError: as Executor. KernelBuildError: a kernel fails to build.
    """
    trials = kernels.trials
    calls = calls_of(device, kernels, schedule, batch, dispatch_mode, region)
    layout = calls.layout
    facts = calls.runs, calls.dispatch_mode, copy_strategy, layout.arena_bytes, layout.inputs
    trial = Trial.of(EXECUTOR, *facts)
    with trials.attempt(trial):
        plan, constants = _plan(device, calls, copy_strategy, weights or Weights(device))
        made = Executor(
            device,
            kernels.programs,
            plan,
            constants,
            state=state,
            trying=partial(trials.attempt, trial),
        )
        try:
            for number, run in enumerate(calls.runs):
                if trials.is_due(run):
                    with trials.attempt(run):
                        made.run_call(number)
        except BaseException:
            made.close()
            raise
    return made


def _plan(
    device: Device, calls: KernelCalls, copy_strategy: str, weights: Weights
) -> tuple[PartitionPlan, Lease]:
    layout, as_one = calls.layout, calls.dispatch_mode != ONE_BY_ONE
    kib = (layout.arena_bytes + layout.constant_bytes) >> 10
    with progress.phase("upload"), device.calling(f"allocating {kib} KiB"):
        constants = weights.lease(device.queue, calls.launches, as_one)
    try:
        return _numbers(calls, copy_strategy, constants), constants
    except BaseException:
        constants.close()
        raise


def _numbers(calls: KernelCalls, copy_strategy: str, constants: Lease) -> PartitionPlan:
    schedule, layout, persistent = calls.schedule, calls.layout, calls.persistent
    launches = schedule.launches
    slices = constants.slices
    blocks = layout.blocks(launches, [{} if p is None else p.offsets for p in slices])
    buffers = [None if p is None else constants.cl_buffers.index(p.buffer) for p in slices]
    more = () if persistent is None else (*layout.strides(launches), *persistent.table)
    return PartitionPlan(
        inputs=schedule.inputs,
        outputs=schedule.outputs,
        watched=schedule.watched,
        steps=_steps(schedule),
        memory=layout.memory(),
        calls=calls.call_plans(buffers, blocks),
        ints=(*blocks, *more),
        control_ints=0 if persistent is None else persistent.control_ints,
        dispatch_mode=calls.dispatch_mode,
        copy_strategy=copy_strategy,
        uses_fp16=any(step.op == "to_halves" for step in schedule.steps),
    )


def _steps(schedule: Schedule) -> tuple[StepPlan, ...]:
    live = iter(_live_bytes(schedule))
    return tuple(
        StepPlan(
            step.node_index,
            step.op,
            step.alternative.name,
            step.names,
            tuple(
                LaunchPlan(
                    launch.file,
                    launch.kernel,
                    tuple(f"{name}={value}" for name, value in launch.defines.items()),
                    tuple(f"{n}={v}" for n, v in launch.params.items() if isinstance(v, int)),
                    next(live),
                    launch.is_specialised,
                )
                for launch in step.alternative.launches
            ),
            _read(step),
            _written(step),
            step.alternative.requirements,
        )
        for step in schedule.steps
    )


def _live_bytes(schedule: Schedule) -> list[int]:
    """Return for each launch the bytes of live tensors."""
    first, last = dict.fromkeys(schedule.inputs, 0), dict.fromkeys(schedule.inputs, 0)
    root, launches = schedule.roots(), schedule.launches
    for number, launch in enumerate(launches):
        for tensor in (root.get(t, t) for t in (*launch.reads, *launch.writes)):
            first.setdefault(tensor, number)
            last[tensor] = number
    end = len(launches)
    last |= {root.get(tensor, tensor): end for tensor in schedule.outputs}
    change = [0] * (end + 1)  # from one launch to the next
    for tensor, begin in first.items():
        change[begin] += size_bytes(tensor)
        if last[tensor] < end:
            change[last[tensor] + 1] -= size_bytes(tensor)
    found, now = [], 0
    for each in change[:end]:
        now += each
        found.append(now)
    return found


def _written(step: Step) -> tuple[Tensor, ...]:
    view = step.alternative.view
    written = [t for launch in step.alternative.launches for t in launch.writes]
    return tuple(dict.fromkeys([*written, *(() if view is None else view[1:])]))


def _read(step: Step) -> tuple[Tensor, ...]:
    """Return the computed tensors that a step reads and did not write itself."""
    view = step.alternative.view
    read = [t for launch in step.alternative.launches for t in launch.reads]
    own = set(_written(step))
    every: Sequence[Tensor] = [*dict.fromkeys([*(() if view is None else view[:1]), *read])]
    # Of persistent tensors, TFLite sees variable tensors, with their value before the run.
    is_seen = [not t.state_name or (t.is_variable and t.index >= 0) for t in every]
    every_seen = [t for t, seen in zip(every, is_seen, strict=True) if seen]
    return tuple(t for t in every_seen if t.data is None and t not in own)
