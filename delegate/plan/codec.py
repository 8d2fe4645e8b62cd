# SPDX-License-Identifier: Apache-2.0
"""Encoding of plans: compressed JSON that refers to tensors by index in a table.

Constants are stored as digests of their contents. A plan written by another version of this package
is never read, as its key differs.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Tensor
from delegate.launch import Requirement
from delegate.plan.contents import save
from delegate.plan.record import (
    ArenaConstant,
    BufferPlan,
    CallPlan,
    LaunchPlan,
    MemoryPlan,
    PartitionPlan,
    ProgramPlan,
    Region,
    SegmentPlan,
    StepPlan,
)

_LEVEL = 1  # of compression: sources repeat their includes, and startup waits for it


@dataclass(frozen=True, slots=True, eq=False)
class TunedPlan:
    """A partition's plan, and how completely its choices were measured."""

    plan: PartitionPlan
    constants: tuple[BufferPlan, ...]  # by CallPlan.constants
    mode: str  # of tuning
    unmeasured: int  # number of choices
    unmeasured_seconds: float  # estimated time to measure them; 0: unknown


class UnreadablePlan(Exception):
    """The bytes are not a plan."""


def encode(tuned: TunedPlan) -> bytes:
    """Return a plan as bytes; constants in the arena are saved as contents."""
    table, plan = _TensorTable(), tuned.plan
    programs = [*dict.fromkeys(call.program for call in plan.calls)]
    memory = plan.memory
    steps = [_packed_step(step, table) for step in plan.steps]
    ends = [table.of(some) for some in (plan.inputs, plan.outputs, plan.watched)]
    body = {
        "ends": ends,
        "steps": steps,
        "memory": [memory.batch, memory.slot_bytes, memory.arena_bytes, memory.constant_bytes],
        "crossing": [memory.inputs, memory.outputs],
        "region": memory.region,
        "stored": [[s.offset, save(s.values), s.values.nbytes] for s in memory.arena_constants],
        "programs": [[p.file, p.source, p.digest, p.is_binary] for p in programs],
        "calls": [_packed_call(call, programs.index(call.program)) for call in plan.calls],
        "ints": _text(np.array(plan.ints, "<i4").tobytes()),
        "whole": [
            plan.control_ints,
            plan.dispatch_mode,
            plan.copy_strategy,
            plan.uses_fp16,
            plan.has_no_threads,
        ],
        "constants": [
            [each.size_bytes, [[s.digest, s.offset, s.size_bytes] for s in each.segments]]
            for each in tuned.constants
        ],
        "tuning": [tuned.mode, tuned.unmeasured, tuned.unmeasured_seconds],
        "offsets": [memory.offsets.get(tensor, -1) for tensor in table.tensors],
        "tensors": [
            [t.index, t.name, t.shape, t.dtype, t.state_name, t.is_variable] for t in table.tensors
        ],
    }
    return zlib.compress(json.dumps(body, separators=(",", ":"), default=_plain).encode(), _LEVEL)


def decode(
    content: bytes,
    ends: tuple[Sequence[Tensor], Sequence[Tensor]],
    load: Callable[[str, int], NDArray[np.uint8]],
) -> TunedPlan:
    """Return a decoded plan. `ends`: the inputs and outputs to substitute for the plan's.

    `load`: returns a content by digest and size. Raises: UnreadablePlan; whatever `load` raises.
    """
    try:
        return _tuned_plan(json.loads(zlib.decompress(content)), ends, load)
    except (
        *(ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError),
        *(OverflowError, zlib.error),
    ) as error:
        raise UnreadablePlan(str(error)) from error


def _tuned_plan(
    body: Mapping[str, Any],
    ends: tuple[Sequence[Tensor], Sequence[Tensor]],
    load: Callable[[str, int], NDArray[np.uint8]],
) -> TunedPlan:
    tensors = [
        Tensor(index, name, tuple(shape), dtype, state_name=kept, is_variable=is_variable)
        for index, name, shape, dtype, kept, is_variable in body["tensors"]
    ]
    for places, given in zip(body["ends"], ends, strict=False):
        for place, tensor in zip(places, given, strict=False):
            if (tensors[place].shape, tensors[place].dtype) != (tensor.shape, tensor.dtype):
                raise ValueError(f"tensor {tensor.index} is another one")
            tensors[place] = tensor
    inputs, outputs, watched = (tuple(tensors[at] for at in places) for places in body["ends"])
    if len(inputs) != len(ends[0]) or len(outputs) - len(watched) != len(ends[1]):
        raise ValueError("a plan of other ends")
    programs = [ProgramPlan(*each) for each in body["programs"]]
    batch, slot_bytes, arena_bytes, constant_bytes = body["memory"]
    inside, outside = (tuple((at, size) for at, size in some) for some in body["crossing"])
    stored = tuple(
        ArenaConstant(offset, load(digest, size)) for offset, digest, size in body["stored"]
    )
    offsets = zip(tensors, body["offsets"], strict=True)
    memory = MemoryPlan(
        batch,
        slot_bytes,
        arena_bytes,
        inside,
        outside,
        {tensor: offset for tensor, offset in offsets if offset >= 0},
        stored,
        constant_bytes,
        Region(*body["region"]),
    )
    calls = tuple(
        CallPlan(programs[at], name, items, group, used, number, base64.b64decode(block), launches)
        for at, name, (items, group), used, number, block, launches in body["calls"]
    )
    control_ints, dispatch_mode, copy_strategy, uses_fp16, has_no_threads = body["whole"]
    ints = np.frombuffer(base64.b64decode(body["ints"]), "<i4").tolist()
    steps = tuple(_step(each, tensors) for each in body["steps"])
    plan = PartitionPlan(
        *(inputs, outputs, watched, steps, memory, calls),
        *(tuple(ints), control_ints, dispatch_mode, copy_strategy, uses_fp16, has_no_threads),
    )
    constants = tuple(
        BufferPlan(size, tuple(SegmentPlan(*each) for each in segments))
        for size, segments in body["constants"]
    )
    return TunedPlan(plan, constants, *body["tuning"])


def contents_of(content: bytes) -> tuple[list[tuple[str, int]], list[tuple[str, str]]]:
    """Return the contents that a plan needs, by digest and size, and its programs with binaries.

    Programs are given by file name and digest. Both are empty if the answer is not a plan.
    """
    try:
        body = json.loads(zlib.decompress(content))
    except (zlib.error, ValueError):
        return [], []
    stored = [(digest, size) for _, digest, size in body["stored"]]
    packed = [(s[0], s[2]) for _, segments in body["constants"] for s in segments]
    programs = [(file, digest) for file, _, digest, is_binary in body["programs"] if is_binary]
    return stored + packed, programs


class _TensorTable:
    """The tensors of a plan, by index."""

    def __init__(self) -> None:
        self._places: dict[Tensor, int] = {}

    @property
    def tensors(self) -> list[Tensor]:
        """All of them, in order."""
        return [*self._places]

    def of(self, tensors: Iterable[Tensor]) -> list[int]:
        """Return the indices of tensors; new ones are appended."""
        return [self._places.setdefault(tensor, len(self._places)) for tensor in tensors]


def _packed_call(call: CallPlan, program: int) -> list[Any]:
    sizes = call.global_size, call.local_size
    own = call.constants, call.number, _text(call.block), call.launches
    return [program, call.kernel, sizes, *own]


def _packed_step(step: StepPlan, table: _TensorTable) -> list[Any]:
    return [
        *(step.node_index, step.op, step.alternative, step.names),
        [
            [e.file, e.kernel, e.macros, e.params, e.live_bytes, e.is_specialised]
            for e in step.launches
        ],
        table.of(step.reads),
        table.of(step.writes),
        [
            [*table.of([n.tensor]), n.subject, n.rule, n.least, n.most, n.excluded]
            for n in step.requirements
        ],
    ]


def _step(packed: Sequence[Any], tensors: Sequence[Tensor]) -> StepPlan:
    node, op, alternative, names, launches, reads, writes, needs = packed
    return StepPlan(
        *(node, op, alternative, tuple(names)),
        tuple(
            LaunchPlan(file, kernel, tuple(macros), tuple(params), live, is_specialised)
            for file, kernel, macros, params, live, is_specialised in launches
        ),
        tuple(tensors[at] for at in reads),
        tuple(tensors[at] for at in writes),
        tuple(_requirement(tensors[at], *own) for at, *own in needs),
    )


def _requirement(
    tensor: Tensor, subject: str, rule: str, least: int | None, most: Any, excluded: int | None
) -> Requirement:
    limit = tuple(most) if isinstance(most, list) else most
    return Requirement(tensor, subject, rule, least, limit, excluded)


def _text(values: bytes) -> str:
    return base64.b64encode(values).decode()


def _plain(value: Any) -> Any:
    return value.item()  # a NumPy scalar
