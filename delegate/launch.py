# SPDX-License-Identifier: Apache-2.0
"""The frozen records that cross from ops to compiler to runtime.

Nothing here touches OpenCL: a launch names a kernel, it does not hold one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor


@dataclass(frozen=True, slots=True)
class Rules:
    """The arithmetic of the installed TFLite where its versions differ."""

    runtime: str = "ai-edge-litert"  # whose reference kernels are the oracle
    version: str = ""  # "" = unknown, taken as the newest
    fully_connected_double_rounding: bool = False  # tflite-runtime's; ai-edge-litert rounds once
    older_comparisons: bool = False  # of int16: tflite-runtime takes them as they are, or fails
    # tflite-runtime's sums of int16 inputs are int32 unless the bias is int64; else they are int64.
    int16_sums_of_int32: bool = False
    # tflite-runtime's BATCH_MATMUL, of transposed left matrices with one right matrix for several.
    batch_matmul_mixes_rows: bool = False
    # tflite-runtime's REVERSE_V2, of several axes the first alone.
    reverses_first_axis: bool = False
    saturating_cast: bool = True  # from floats; tflite-runtime leaves those out of range to C
    # DIV of int8 and int16, SQRT of int8 and PRELU of int16 run; in tflite-runtime they fail.
    newer_types: bool = True
    # A negative alpha's multiplier is its size's, with the sign put on what that rounds to.
    leaky_relu_by_size: bool = True
    # The C library's float function of a name ("tanhf"), which TFLite fills its tables with; None
    # where it is not found.
    float_function: Callable[[str], Callable[[float], float] | None] = field(
        default=lambda name: None, compare=False, repr=False
    )


@dataclass(frozen=True, slots=True)
class Target:
    """What lowering may know of a device; every fact was asked or measured, none is a name."""

    device_type: str = "gpu"  # "gpu", "accelerator", "cpu" or "custom"
    vector_width: int = 1  # native lanes of a 32-bit integer vector; 1 = one lane a work-item
    compute_units: int = 1
    # Instructions beyond OpenCL C 1.2 that a numeric self-test proved: "vnni", "avx2", "dp4a", ...
    isa: frozenset[str] = frozenset()
    rules: Rules = field(default_factory=Rules)

    @property
    def group_items(self) -> int:
        """Work-items a work-group: 1 where one item's vectors fill the lanes, else 64."""
        return 1 if self.device_type == "cpu" and self.vector_width > 1 else 64


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Bytes the kernels read: packed when the executor uploads them, never during a verdict."""

    size_bytes: int
    pack: Callable[[], NDArray[Any]]  # -> exactly size_bytes bytes


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """One kernel run: what it computes is `params`, how it is built is `defines`."""

    file: str  # stem of the .cl file
    kernel: str  # function in it
    tiles: int  # work-groups; a tile is what one work-group computes
    group_items: int  # work-items wanted a work-group; the kernel's own limit may lower it
    # What kernels read as macros: ints, or a tensor or constant, which give their byte offset.
    params: Mapping[str, int | Tensor | Constant]
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    defines: Mapping[str, int | str] = field(default_factory=dict)  # compile-time macros


@dataclass(frozen=True, slots=True, eq=False)
class Alternative:
    """One way to run a node. Without launches it is a view: the output is the input's bytes."""

    name: str  # for people and for tune: "tiled 4x32", "plain"
    launches: tuple[Launch, ...]
    view: tuple[Tensor, Tensor] | None = None  # (input, output) that share their bytes


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A node of a program and the alternative it runs as."""

    node_index: int
    op: str
    alternative: Alternative


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """All that the runtime needs to run one partition."""

    steps: tuple[Step, ...]
    inputs: tuple[Tensor, ...]  # copied in before a run
    outputs: tuple[Tensor, ...]  # copied out after it

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Every launch in execution order."""
        return tuple(launch for step in self.steps for launch in step.alternative.launches)


def size_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's values, dense.

    Raises:
        TypeError: the dtype has no fixed size (strings).
    """
    return math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize


def first_that_runs(
    alternatives: Iterable[Alternative], check: Callable[[Alternative], str | None]
) -> Alternative:
    """Return the first alternative without a reason against it.

    Raises:
        Unsupported: there is none; the last reason, which is the plain one's.
    """
    reason: str | None = None
    for alternative in alternatives:
        reason = check(alternative)
        if reason is None:
            return alternative
    raise Unsupported(reason or "no way to run it")
