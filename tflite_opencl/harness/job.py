# SPDX-License-Identifier: Apache-2.0
"""A job, the configuration of one path; and the nodes that the OpenCL delegate took."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from delegate import Options, Verdict
from delegate.inspect import Graph, with_input_shapes


@dataclass(frozen=True, slots=True)
class Job:
    """The configuration of one path; can be sent to a child process."""

    model: str | bytes  # path, or content
    input: NDArray[Any]  # for the model's first input, or input_number
    # Whether only `input` is run, and timed; otherwise the path stays open for pictures, which it
    # runs in batches of this size if possible.
    is_timed: bool = False
    batch: int | None = None
    own_batch: int = 1  # batch size of the model itself
    count: int = 1
    warmup_runs: int = 0
    threads: int | None = None  # None: TFLite's default
    cpu_kernels: str = "auto"  # what runs the CPU's nodes; JUDGE: the reference
    left: Sequence[int] = ()  # with JUDGE: nodes that the CPU runs in the compared path
    opencl: Options | None = None  # None: no OpenCL
    external: tuple[str, Mapping[str, str]] | None = None  # a delegate library and its options
    is_external_last: bool = False  # of the two delegates
    announce_xnnpack: bool = False  # log that XNNPACK runs
    reference: bool = False  # compare the paths with the reference
    profile_rows: int = 0  # rows of node times to log, at most; 0: no profiling
    trace: str | None = None  # the file of a trace, for which additional runs are timed
    longer_s: float = 0.0  # minimum time of runs for the comparison; 0: `count` is enough
    level: int = logging.INFO  # lowest level to log
    is_silent: bool = False  # log none of label_image's own lines
    input_number: int = 0  # the index of the model input that `input` is for
    # Values of other inputs, each with its input's index; missing ones are zeros.
    other_inputs: Sequence[tuple[int, NDArray[Any]]] = ()
    signature: str | None = None  # selects one of the model's graphs; None: the first

    def on(self, graph: Graph) -> Graph:
        """Return the model's graph with the shapes of this job's inputs."""
        shapes = {number: values.shape for number, values in self.other_inputs}
        return with_input_shapes(graph, {**shapes, self.input_number: self.input.shape})

    def unreported(self) -> Job:
        """Return this job without log lines, profiles and traces."""
        return replace(self, is_silent=True, profile_rows=0, trace=None)

    @property
    def is_profiled(self) -> bool:
        """Whether each launch is timed."""
        return self.profile_rows > 0 or self.trace is not None

    @property
    def library(self) -> str:
        """The file name of the delegate library; "" = there is none."""
        return os.path.basename(self.external[0]) if self.external else ""

    @property
    def delegates(self) -> str:
        """The names of the delegates, in the order in which they take nodes."""
        names = [self.library] * (self.external is not None) + ["OpenCL"] * bool(self.opencl)
        return " + ".join(reversed(names) if self.is_external_last else names)

    @property
    def allows_fp16(self) -> bool:
        """Whether OpenCL may compute floats in half precision."""
        return self.opencl is not None and self.opencl.allows_fp16

    @property
    def verbose(self) -> bool:
        """Whether tables and tracebacks are logged, too."""
        return self.level <= logging.DEBUG


@dataclass(frozen=True, slots=True)
class Delegation:
    """The nodes that the OpenCL delegate took."""

    device: str
    platform: str
    driver: str
    verdicts: Sequence[Verdict]
    partitions: Sequence[Sequence[int]]  # node indices
    tuning_left: int = 0  # choices that were not measured
    lost: int = 0  # nodes moved to the CPU because their kernels killed child processes
    # Of another delegate in the same interpreter:
    library: str = ""  # its file's name; "" = there is none
    others: Sequence[int] = ()  # the nodes that it took

    @property
    def delegated(self) -> int:
        """Number of nodes that run on OpenCL."""
        return sum(verdict.is_taken for verdict in self.verdicts)

    @property
    def on_cpu(self) -> Sequence[Verdict]:
        """Return the verdicts of the nodes that no delegate took."""
        others = {*self.others}
        return [each for each in self.verdicts if not each.is_taken and each.node not in others]
