# SPDX-License-Identifier: Apache-2.0
"""The plan of a partition: all that its executor does, resolved to numbers. Frozen, and plain data.

Whoever plans has lowered, chosen and laid out everything. Whoever executes opens the device, loads
programs, makes buffers, sets arguments and enqueues: it decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Tensor
from delegate.launch import Requirement

# Dispatch modes: each launch by a call; neighbours of few tiles by one call; or all as the tiles of
# one launch.
ONE_BY_ONE, JOINED, PERSISTENT = DISPATCH_MODES = ("one by one", "joined", "persistent")


class Region(NamedTuple):
    """The begin of an arena that executors of several programs have: each kept value's place."""

    offsets: Mapping[str, int]  # by name, in bytes
    size_bytes: int


NO_REGION = Region({}, 0)


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """What a driver compiles."""

    file: str  # stem of the .cl file, on which build options depend
    source: str  # all of it, but for what a device profile forbids
    digest: str  # of the source, of the options, and of the device and driver
    is_binary: bool  # whether it was made of a binary in the cache, else of the source


@dataclass(frozen=True, slots=True)
class CallPlan:
    """One kernel enqueued, with its arguments.

    They are the arena, the constants, and either `block` or the buffers of `PartitionPlan.ints`
    with the place of the launch's parameters in them.
    """

    program: ProgramPlan
    kernel: str
    global_size: int  # work-items
    local_size: int  # work-items of a work-group
    constants: int | None  # which of the buffers of constants; None: it reads none
    number: int  # the last argument beside the buffers of ints
    block: bytes = b""  # its parameters, where they are an argument; b"": they lie in memory
    launches: int = 1  # that it runs


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One launch of a node, as tools show it."""

    file: str  # stem of the .cl file
    kernel: str
    macros: tuple[str, ...]  # "NAME=VALUE", what it is built with
    params: tuple[str, ...]  # "name=value", the plain numbers of its parameter block
    live_bytes: int  # of all tensors that are needed then or later
    is_specialised: bool  # whether these numbers are literals in its source


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """A node and the alternative that runs it."""

    node_index: int  # TFLite's
    op: str  # TFLite's name, or the delegate's own for a node that a pass made of several
    alternative: str
    names: tuple[str, ...]  # of all alternatives of the node
    launches: tuple[LaunchPlan, ...]  # none: the output is the input's bytes, or a constant
    reads: tuple[Tensor, ...]  # computed tensors that it reads, made by other nodes
    writes: tuple[Tensor, ...]  # temporaries included
    requirements: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """Neighbouring constants, as they lie in a buffer; a file of the cache has them ready."""

    digest: str  # of its bytes
    offset: int  # in the buffer, in bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BufferPlan:
    """A buffer of constants. Another plan may have one with more segments behind the same ones."""

    size_bytes: int
    segments: tuple[SegmentPlan, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ArenaConstant:
    """A constant that launches read from the arena."""

    offset: int  # in each slot, in bytes
    values: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class MemoryPlan:
    """What lies where in the arena; offsets and sizes are in bytes."""

    batch: int
    slot_bytes: int  # the arena of one picture; the pictures' arenas follow each other
    arena_bytes: int
    inputs: tuple[tuple[int, int], ...]  # (offset, size) of what a run is given, in each slot
    outputs: tuple[tuple[int, int], ...]
    offsets: Mapping[Tensor, int]  # in each slot
    arena_constants: tuple[ArenaConstant, ...]
    constant_bytes: int
    region: Region = NO_REGION


@dataclass(frozen=True, slots=True, eq=False)
class PartitionPlan:
    """All that an executor needs, beside the contents of constants."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]  # those that nobody but requirements reads come last
    watched: tuple[Tensor, ...]  # these last ones
    steps: tuple[StepPlan, ...]
    memory: MemoryPlan
    calls: tuple[CallPlan, ...]
    ints: tuple[int, ...]  # the buffer of parameter blocks and tables
    control_ints: int  # of the buffer of counters of a persistent kernel, zero at first; 0: none
    dispatch_mode: str  # one of DISPATCH_MODES
    copy_strategy: str  # how bytes cross
    uses_fp16: bool  # values of its float32 tensors are halves between launches

    @property
    def batch(self) -> int:
        """Pictures of a run."""
        return self.memory.batch

    def requirements(self) -> Iterator[tuple[StepPlan, Requirement]]:
        """Yield what its nodes require of values."""
        for step in self.steps:
            yield from ((step, need) for need in step.requirements)
