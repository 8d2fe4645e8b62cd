# SPDX-License-Identifier: Apache-2.0
"""The plan of a partition: everything its executor does, resolved to numbers. Frozen plain data.

Planning lowers, chooses and lays out everything. Execution opens the device, loads programs,
creates buffers, sets arguments and enqueues: it makes no decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Tensor
from delegate.launch import Requirement

# Dispatch modes: one call per launch; one call for consecutive launches of few tiles; or all
# launches in one persistent kernel, which claims their tiles.
ONE_BY_ONE, FUSED, PERSISTENT = DISPATCH_MODES = ("one by one", "fused", "persistent")


class Region(NamedTuple):
    """The start of an arena that executors of several schedules share: persistent values."""

    offsets: Mapping[str, int]  # by name, in bytes
    size_bytes: int


NO_REGION = Region({}, 0)


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """Input of the driver's compiler."""

    file: str  # stem of the .cl file, which determines build options
    source: str  # in full, except for the lines that a device profile prepends
    digest: str  # of the source, the options, the device and the driver
    is_binary: bool  # whether it is loaded from a cached binary, else built from source


@dataclass(frozen=True, slots=True)
class CallPlan:
    """One kernel call and its arguments.

    They are the arena, the constants, and either `block` or the buffers of `PartitionPlan.ints`
    with the offset of the launch's parameters in them.
    """

    program: ProgramPlan
    kernel: str
    global_size: int  # work-items
    local_size: int  # work-items of a work-group
    constants: int | None  # index of the buffer of constants; None: it reads none
    number: int  # the last argument, after the buffers of ints
    block: bytes = b""  # its parameters, if they are an argument; b"": they are in memory
    launches: int = 1  # that it runs


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One launch of a node, for tools."""

    file: str  # stem of the .cl file
    kernel: str
    macros: tuple[str, ...]  # "NAME=VALUE", its build defines
    params: tuple[str, ...]  # "name=value", the scalars of its parameter block
    live_bytes: int  # of all tensors needed then or later
    is_specialised: bool  # whether its parameters are constants in the source


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """A node and the alternative that runs it."""

    node_index: int  # TFLite's
    op: str  # TFLite's name, or the delegate's own for a fused node
    alternative: str
    names: tuple[str, ...]  # of all alternatives of the node
    launches: tuple[LaunchPlan, ...]  # none: the output aliases the input, or is constant
    reads: tuple[Tensor, ...]  # computed tensors read from other nodes
    writes: tuple[Tensor, ...]  # temporaries included
    requirements: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """Consecutive constants of a buffer, stored as one content file."""

    digest: str  # of its bytes
    offset: int  # in the buffer, in bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BufferPlan:
    """A buffer of constants. Another plan's may extend it by more segments."""

    size_bytes: int
    segments: tuple[SegmentPlan, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ArenaConstant:
    """A constant that launches read from the arena."""

    offset: int  # in each slot, in bytes
    values: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class MemoryPlan:
    """Memory layout of an arena; offsets and sizes are in bytes."""

    batch: int
    slot_bytes: int  # the arena of one batch element; slots are contiguous
    arena_bytes: int
    inputs: tuple[tuple[int, int], ...]  # (offset, size) of run inputs, in each slot
    outputs: tuple[tuple[int, int], ...]
    offsets: Mapping[Tensor, int]  # in each slot
    arena_constants: tuple[ArenaConstant, ...]
    constant_bytes: int
    region: Region = NO_REGION


@dataclass(frozen=True, slots=True, eq=False)
class PartitionPlan:
    """Everything an executor needs, except the contents of constants."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]  # those read by requirements alone come last
    watched: tuple[Tensor, ...]  # these last ones
    steps: tuple[StepPlan, ...]
    memory: MemoryPlan
    calls: tuple[CallPlan, ...]
    ints: tuple[int, ...]  # the buffer of parameter blocks and tables
    control_ints: int  # size of a persistent kernel's buffer of counters, zero at first; 0: none
    dispatch_mode: str  # one of DISPATCH_MODES
    copy_strategy: str  # name of the copy strategy
    uses_fp16: bool  # its float32 tensors are stored as fp16 between launches
    has_no_threads: bool = False  # it is of the device of Device.without_threads

    @property
    def batch(self) -> int:
        """Batch size of a run."""
        return self.memory.batch

    def requirements(self) -> Iterator[tuple[StepPlan, Requirement]]:
        """Yield the requirements of its nodes on values."""
        for step in self.steps:
            yield from ((step, need) for need in step.requirements)
