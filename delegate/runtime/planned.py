# SPDX-License-Identifier: Apache-2.0
"""A program in a dispatch mode -> its plan and its executor, each step tried as the trials say."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from delegate import progress
from delegate.graph.ir import Tensor
from delegate.launch import Program, Step, size_bytes
from delegate.plan.record import NOWHERE, ONE_BY_ONE, LaunchPlan, PartitionPlan, Region, StepPlan
from delegate.runtime.calls import Calls, calls_of
from delegate.runtime.device import Device
from delegate.runtime.executor import Executor
from delegate.runtime.kernels import Kernels
from delegate.runtime.state import State
from delegate.runtime.transfers import COPIED
from delegate.runtime.weights import Taken, Weights
from delegate.sandbox.trials import EXECUTOR, Trial


def planned_executor(
    device: Device,
    kernels: Kernels,
    program: Program,
    batch: int = 1,
    form: str = ONE_BY_ONE,
    transfer: str = COPIED,
    weights: Weights | None = None,
    state: State | None = None,
    region: Region = NOWHERE,
) -> Executor:
    """Plan a program, and return what runs the plan.

    `form`: one of FORMS; where the device cannot do it, launches go one by one. `transfer`: how
    bytes cross, one of TRANSFERS. `weights`: where constants are, shared with other executors;
    None: with none. `state`: as of Executor. `region`: where kept values begin the arena.

    Raises:
        DeviceError: as Executor. KernelBuildError: a kernel does not build.
    """
    trials = kernels.trials
    calls = calls_of(device, kernels, program, batch, form, region)
    layout = calls.layout
    facts = calls.runs, calls.form, transfer, layout.arena_bytes, layout.inputs
    trial = Trial.of(EXECUTOR, *facts)
    with trials.of(trial):
        plan, constants = _plan(device, program, calls, transfer, weights or Weights(device))
        made = Executor(
            device, kernels.programs, plan, constants, state=state, trying=partial(trials.of, trial)
        )
        try:
            for number, run in enumerate(calls.runs):
                if trials.is_due(run):
                    with trials.of(run):
                        made.run_call(number)
        except BaseException:
            made.close()
            raise
    return made


def _plan(
    device: Device, program: Program, calls: Calls, transfer: str, weights: Weights
) -> tuple[PartitionPlan, Taken]:
    layout, as_one = calls.layout, calls.form != ONE_BY_ONE
    kib = (layout.arena_bytes + layout.constant_bytes) >> 10
    with progress.phase("upload"), device.calling(f"allocating {kib} KiB"):
        constants = weights.take(device.queue, program.launches, as_one)
    try:
        return _numbers(program, calls, transfer, constants), constants
    except BaseException:
        constants.close()
        raise


def _numbers(program: Program, calls: Calls, transfer: str, constants: Taken) -> PartitionPlan:
    layout, launches, whole = calls.layout, program.launches, calls.whole
    places = constants.places
    blocks = layout.blocks(launches, [{} if p is None else p.offsets for p in places])
    buffers = [None if p is None else constants.buffers.index(p.buffer) for p in places]
    more = () if whole is None else (*layout.strides(launches), *whole.table)
    return PartitionPlan(
        inputs=program.inputs,
        outputs=program.outputs,
        watched=program.watched,
        steps=_steps(program),
        memory=layout.memory(),
        calls=calls.planned(buffers, blocks),
        ints=(*blocks, *more),
        control_ints=0 if whole is None else whole.control_ints,
        form=calls.form,
        transfer=transfer,
        has_halves=any(step.op == "to_halves" for step in program.steps),
    )


def _steps(program: Program) -> tuple[StepPlan, ...]:
    live = iter(_live_bytes(program))
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
                    launch.is_literal,
                )
                for launch in step.alternative.launches
            ),
            _read(step),
            _written(step),
            step.alternative.requirements,
        )
        for step in program.steps
    )


def _live_bytes(program: Program) -> list[int]:
    """Return for each launch the bytes of the tensors that were made and are still read."""
    first, last = dict.fromkeys(program.inputs, 0), dict.fromkeys(program.inputs, 0)
    root, launches = program.roots(), program.launches
    for number, launch in enumerate(launches):
        for tensor in (root.get(t, t) for t in (*launch.reads, *launch.writes)):
            first.setdefault(tensor, number)
            last[tensor] = number
    end = len(launches)
    last |= {root.get(tensor, tensor): end for tensor in program.outputs}
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
    """Return the computed tensors that a step reads, and no other step of its own wrote."""
    view = step.alternative.view
    read = [t for launch in step.alternative.launches for t in launch.reads]
    own = set(_written(step))
    every: Sequence[Tensor] = [*dict.fromkeys([*(() if view is None else view[:1]), *read])]
    # Of what is kept TFLite has variable tensors, as a run finds them.
    is_seen = [not t.kept or (t.is_variable and t.index >= 0) for t in every]
    every_seen = [t for t, seen in zip(every, is_seen, strict=True) if seen]
    return tuple(t for t in every_seen if t.data is None and t not in own)
