# SPDX-License-Identifier: Apache-2.0
"""A small model + inputs + alternative -> its kernel calls with their memory. Builds nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from delegate.errors import Unsupported
from delegate.format.reader import read_model
from delegate.graph.infer import infer
from delegate.graph.ir import Node
from delegate.graph.partition import Partition, partitions
from delegate.guard.probing.opening import target_of
from delegate.host.tflite.library import installed_rules
from delegate.launch import Alternative, Launch, Schedule, constants_of
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.registers import registers
from delegate.plan.layout import Bytes, MemoryLayout, as_bytes, block_of, layout_of, plan_constants
from delegate.plan.lowering import compiler
from delegate.plan.record import CallPlan, ProgramPlan
from delegate.plan.reproducer import Reproducer, TensorSlice
from delegate.plan.sources import may_be_argument, source_for
from delegate.run.device import Device
from delegate.run.programs import Programs
from delegate.target import Target


def target_on(device: Device) -> Target:
    """Return the description of an opened device for the installed TFLite; raises DeviceError."""
    return target_of(device, installed_rules(), registers(device, Kernels(device)))


def node_reproducer(
    model: bytes,
    inputs: Sequence[Bytes],
    device: Device,
    target: Target,
    alternative: str | None,
    *,
    in_memory: bool = False,
    is_specialised: bool = False,
) -> Reproducer:
    """Return the calls of a model of one node, or of nodes that are fused into one.

    `inputs`: of the model, as bytes. `alternative`: its name; None: the first one. `in_memory`:
    parameters are in a buffer even if the device takes them as an argument. `is_specialised`:
    they are literals in the source.

    Raises:
        Unsupported: no partition, several, or no such alternative. ModelError: as read_model.
    """
    schedule = _schedule(model, target, alternative)
    if is_specialised:
        schedule = schedule.specialised()
    layout, (last, *others) = layout_of(schedule), schedule.steps[::-1]
    given = {t.index: values for t, values in zip(read_model(model).inputs, inputs, strict=True)}
    size, places = plan_constants(constants_of(schedule.launches))
    constants = np.zeros(size, np.uint8)
    for constant, offset in places.items():
        constants[offset : offset + constant.size_bytes] = as_bytes(constant.pack())
    ints = layout.blocks(schedule.launches, [places] * len(schedule.launches))
    options = tuple(Programs(device).options(schedule.launches[0].file))

    def call(launch: Launch, first: int) -> CallPlan:
        is_argument = not in_memory and may_be_argument(
            launch, device.proven, device.max_argument_bytes
        )
        count = len(launch.params)
        block = block_of(ints, first, count).tobytes() if is_argument else b""
        program = ProgramPlan(launch.file, source_for(launch, is_argument), "", False)
        items, used = launch.group_items, 0 if launch.constants else None
        return CallPlan(program, launch.kernel, launch.tiles * items, items, used, first, block)

    sizes = {tensor: (offset, size) for tensor, (offset, size) in zip(
        (*schedule.inputs, *schedule.outputs), (*layout.inputs, *layout.outputs), strict=True
    )}  # fmt: skip
    slices = {t: TensorSlice(t.index, t.dtype, t.shape, *sizes[t]) for t in sizes}
    return Reproducer(
        op=last.op,
        alternative=last.alternative.name if not others else "",
        calls=tuple(map(call, schedule.launches, layout.firsts)),
        fields=tuple(tuple(launch.params) for launch in schedule.launches),
        options=options,
        arena=_arena(schedule, layout, given),
        constants=constants,
        ints=as_bytes(np.array(ints or (0,), np.int32)),
        inputs=tuple(slices[t] for t in schedule.inputs),
        outputs=tuple(slices[t] for t in schedule.outputs if t not in schedule.watched),
    )


def _arena(schedule: Schedule, layout: MemoryLayout, given: Mapping[int, Bytes]) -> Bytes:
    """Return the arena with its constants and the inputs, by tensor index."""
    arena = np.zeros(layout.arena_bytes, np.uint8)
    for stored in layout.memory().arena_constants:
        arena[stored.offset : stored.offset + stored.values.nbytes] = stored.values
    for tensor, (offset, size) in zip(schedule.inputs, layout.inputs, strict=True):
        arena[offset : offset + size] = given[tensor.index]
    return arena


def alternatives_of(model: bytes, target: Target) -> list[tuple[str, tuple[str, ...]]]:
    """Return the alternatives of a small model's last node with kernels, and their kernel files.

    Raises: as node_reproducer.
    """
    found: list[tuple[str, tuple[str, ...]]] = []

    def choose(node: Node, alternatives: Sequence[Alternative]) -> Alternative:
        names = [(each.name, tuple(one.file for one in each.launches)) for each in alternatives]
        found[:] = [pair for pair in names if pair[1]] or found
        return alternatives[0]

    compiler.compile_partition(_partition(model, target), target, choose)
    return found


def _partition(model: bytes, target: Target) -> Partition:
    graph = infer(read_model(model))
    found = partitions(graph, {node.index for node in graph.nodes})
    if len(found) != 1:
        raise Unsupported(f"it has {len(found)} partitions")
    return compiler.rewritten(found[0], target, lambda _: None)


def _schedule(model: bytes, target: Target, alternative: str | None) -> Schedule:
    def choose(node: Node, alternatives: Sequence[Alternative]) -> Alternative:
        named = (each for each in alternatives if each.name == alternative)
        return next(named, alternatives[0])

    schedule = compiler.compile_partition(_partition(model, target), target, choose)
    if not schedule.launches:
        raise Unsupported("it launches no kernel")
    names = {step.alternative.name for step in schedule.steps}
    if alternative is not None and alternative not in names:
        raise Unsupported(f"it has no alternative '{alternative}'")
    return schedule
