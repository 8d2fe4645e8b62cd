# SPDX-License-Identifier: Apache-2.0
"""What one path runs, and what the OpenCL delegate took of it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from delegate import Options, Verdict
from delegate.inspect import Graph, with_input_shapes


@dataclass(frozen=True, slots=True)
class Job:
    """What one path runs; all of it can cross to a child process."""

    model: str | bytes  # path, or content
    input: NDArray[Any]  # for the model's first input, or the one below
    # Whether `input` is all that it runs, and is timed; else it is open for pictures, of which it
    # runs so many at once where that can be.
    is_timed: bool = False
    batch: int | None = None
    own_batch: int = 1  # pictures that the model itself takes at once
    count: int = 1
    warmup_runs: int = 0
    threads: int | None = None  # None: TFLite's own choice
    cpu_kernels: str = "auto"  # what runs the CPU's part; JUDGE: what says how outputs must be
    left: Sequence[int] = ()  # JUDGE's: nodes that the CPU runs in what is judged
    opencl: Options | None = None  # None: no OpenCL
    external: tuple[str, Mapping[str, str]] | None = None  # a delegate library and its options
    is_external_last: bool = False  # of the two delegates
    announce_xnnpack: bool = False  # say that XNNPACK runs
    reference: bool = False  # compare the paths
    profile_rows: int = 0  # most rows to log of the nodes' times; 0: no profiling
    traces: bool = False  # whether to time some more runs for a trace
    longer_s: float = 0.0  # run for at least so long for the comparison; 0: `count` is enough
    level: int = logging.INFO  # the least of what is logged
    quiet: bool = False  # log none of label_image's own lines
    input_number: int = 0  # which of the model's inputs `input` is for
    # Values for other inputs, each with its input's number; what is not here gets zeros.
    other_inputs: Sequence[tuple[int, NDArray[Any]]] = ()
    signature: str | None = None  # which of the model's graphs runs; None: the first

    def on(self, graph: Graph) -> Graph:
        """Return the model's graph with the shapes of this job's inputs."""
        shapes = {number: values.shape for number, values in self.other_inputs}
        return with_input_shapes(graph, {**shapes, self.input_number: self.input.shape})

    @property
    def library(self) -> str:
        """The name of the delegate library, for people; "" = there is none."""
        return os.path.basename(self.external[0]) if self.external else ""

    @property
    def delegates(self) -> str:
        """The names of the delegates, in the order in which they take nodes, for people."""
        names = [self.library] * (self.external is not None) + ["OpenCL"] * bool(self.opencl)
        return " + ".join(reversed(names) if self.is_external_last else names)

    @property
    def allows_fp16(self) -> bool:
        """Whether floats may be halves on OpenCL."""
        return self.opencl is not None and self.opencl.allows_fp16

    @property
    def verbose(self) -> bool:
        """Whether tables and tracebacks are logged, too."""
        return self.level <= logging.DEBUG


@dataclass(frozen=True, slots=True)
class Delegation:
    """What the OpenCL delegate took."""

    device: str
    platform: str
    driver: str
    verdicts: Sequence[Verdict]
    partitions: Sequence[Sequence[int]]  # node indices
    tuning_left: int = 0  # choices that were not measured
    lost: int = 0  # nodes that the CPU ran because child processes died of their kernels
    # Of another delegate in the same interpreter:
    library: str = ""  # its file's name; "" = there is none
    others: Sequence[int] = ()  # the nodes that it took

    @property
    def delegated(self) -> int:
        """Count the nodes that ran on OpenCL."""
        return sum(verdict.is_taken for verdict in self.verdicts)

    @property
    def on_cpu(self) -> Sequence[Verdict]:
        """Return the verdicts of the nodes that no delegate took."""
        others = {*self.others}
        return [each for each in self.verdicts if not each.is_taken and each.node not in others]
