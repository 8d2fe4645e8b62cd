# SPDX-License-Identifier: Apache-2.0
"""The kernel calls of one node with all their memory: what a program needs to repeat them."""

from __future__ import annotations

from dataclasses import dataclass

from delegate.plan.layout import Bytes
from delegate.plan.record import CallPlan


@dataclass(frozen=True, slots=True)
class TensorSlice:
    """A tensor's place in the arena."""

    index: int  # TFLite's
    dtype: str
    shape: tuple[int, ...]
    offset: int  # in bytes
    size_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Reproducer:
    """The calls of a node, with the memory that they find, as in a plan.

    A call's arguments are those of `CallPlan`, with one buffer of constants.
    """

    op: str
    alternative: str
    calls: tuple[CallPlan, ...]
    fields: tuple[tuple[str, ...], ...]  # for each call, the names of its parameters in order
    options: tuple[str, ...]  # of the build
    arena: Bytes  # with the inputs; outputs hold the complement of the expected bytes, if any
    constants: Bytes
    ints: Bytes  # parameter blocks of all calls
    inputs: tuple[TensorSlice, ...]
    outputs: tuple[TensorSlice, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What happened when the calls of a Reproducer ran."""

    failure: str  # the failed call: its name and OpenCL's error; "": none
    log: str  # of the failed build
    group_sizes: tuple[int, ...]  # of the calls, as the driver limits them
    outputs: tuple[Bytes, ...]
