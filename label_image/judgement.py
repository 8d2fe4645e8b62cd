# SPDX-License-Identifier: Apache-2.0
"""The verdict on a run: what its paths gave, how far they are apart, and what follows from that.

Everything here is a function of results: it runs, logs and prints nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from delegate.inspect import Graph
from label_image.compare import (
    CPU,
    GPU_JUDGED,
    REFERENCE,
    Distances,
    Outcome,
    Totals,
    distances_between,
)
from label_image.run_result import Outputs, RunResult
from tflite_opencl.console.exit_codes import LOST, NO_DEVICE, NOT_SO, SUCCESS
from tflite_opencl.harness.chain import Shares
from tflite_opencl.harness.job import Job
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.oracle.difference import Difference
from tflite_opencl.oracle.finite import not_finite
from tflite_opencl.oracle.node_kernels import NodeKernels

ENDED = "Ctrl-C ended the run before"

Messages = Sequence[tuple[int, str]]  # levels of logging, and texts


@dataclass(frozen=True, slots=True, eq=False)
class PathResults:
    """What the paths of a run gave.

    Attributes:
        job: of the first path; `job.reference`: compare with it. graph: the model's. gpu: of the
            OpenCL path; None: there is none, or it failed. beside: of the paths it is compared
            with, by compare.py's names; None: not compared. reasons: why each missing path is
            missing. substitute: of the path that replaces OpenCL's. untuned: of OpenCL's path
            before tuning, if `gpu` was tuned later. gave_up: why OpenCL failed. shares: of two
            delegates, for the one picture. is_interrupted: Ctrl-C ended the comparison.
    """

    job: Job
    runtime: Runtime
    graph: Graph
    gpu: RunResult | None = None
    beside: Mapping[str, RunResult] | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    substitute: RunResult | None = None
    untuned: RunResult | None = None
    gave_up: str = ""
    shares: Shares | None = None
    is_interrupted: bool = False

    @property
    def outputs(self) -> Outputs:
        """The first path's outputs for the one picture; none after Ctrl-C."""
        first = self.gpu or self.substitute
        return first.outputs if first else ()

    @property
    def cpu(self) -> RunResult | None:
        """The result of the CPU's path, or of an external delegate's."""
        return self.substitute or (self.beside or {}).get(CPU)

    @property
    def cpu_name(self) -> str:
        """That path's name in the document."""
        is_beside = CPU in (self.beside or {})
        return "external" if self.job.external and not is_beside else "cpu"

    @property
    def by_name(self) -> dict[str, RunResult]:
        """The results by the paths' names in the document."""
        paths = {self.cpu_name: self.cpu, "gpu": self.gpu}
        return {name: result for name, result in paths.items() if result is not None}

    @property
    def device_name(self) -> str:
        """The name of OpenCL's device."""
        return self.gpu.device_name if self.gpu else "the device"

    @property
    def reference(self) -> str:
        """The name of the kernels that OpenCL's outputs are compared with."""
        return f"TFLite's {self._judged_by.name}" if self._judged_by else self.runtime.reference

    @property
    def other_kernels(self) -> str:
        """The nodes compared with other kernels than the reference's, and why; "": none."""
        return self._judged_by.reasons if self._judged_by else ""

    @property
    def _judged_by(self) -> NodeKernels | None:
        judge = (self.beside or {}).get(REFERENCE)
        return judge.judged_by if judge and not self.runtime.why_not else None

    @property
    def speedup(self) -> float | None:
        """CPU time over OpenCL time for a picture; None: one has too few runs."""
        both = [result for result in (self.cpu, self.gpu) if result and result.has_run_enough]
        return both[0].picture_ms / both[1].picture_ms if len(both) == 2 else None

    @property
    def have_run(self) -> bool:
        """Whether both OpenCL and the CPU have a time for a picture."""
        return all(result and result.picture_ms for result in (self.gpu, self.cpu))

    def outcome(
        self, gpu: Outputs, others: Mapping[str, Outputs], shares: Shares | None
    ) -> Outcome:
        """Return a picture's outcome; the CPU's outputs replace wrong ones of OpenCL.

        `others`: outputs by compare.py's names. Without GPU_JUDGED, OpenCL's own are judged.
        """
        taken = self.gpu.delegation if self.gpu else None
        if GPU_JUDGED not in self.reasons:
            others = {GPU_JUDGED: gpu, **others}
        distances = distances_between(
            gpu, others, self.reasons, self.graph, shares,
            is_promised=not (taken and taken.others) and not self.job.allows_fp16,
        )  # fmt: skip
        outcome = Outcome("", outputs=gpu, distances=distances)
        if outcome.is_wrong and CPU in others:
            return Outcome("", outputs=others[CPU], distances=distances)
        return outcome


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """The verdict on a run.

    Attributes:
        totals: of all pictures so far. answer: the outputs of the one picture; none after Ctrl-C.
        left_out: why a device was excluded that had already run pictures nobody compared.
        not_finite: which results are NaN or infinite, of the first such picture; "": none.
    """

    results: PathResults
    totals: Totals = field(default_factory=Totals)
    answer: Outputs = ()
    left_out: str = ""
    not_finite: str = ""

    @property
    def is_sample(self) -> bool:
        """Whether some OpenCL results were compared and others were not."""
        return 0 < self.totals.compared < self.totals.classified

    @property
    def where(self) -> str:
        """Say for how many of several pictures OpenCL computed wrong results."""
        if self.results.job.is_timed:
            return ""
        sample = " that were compared" if self.is_sample else ""
        return f", in {self.totals.wrong} of {self.totals.compared} pictures{sample}"

    @property
    def failure(self) -> str:
        """Why OpenCL failed or computed wrong results; "": neither."""
        why, totals = self.results.gave_up or self.left_out, self.totals
        if why or not totals.wrong or totals.distances is None:
            return why
        results = self.results
        return totals.distances.wrong_text(results.device_name, results.reference) + self.where

    @property
    def not_compared(self) -> str:
        """Say how many classified pictures were not compared; "": none."""
        count = self.totals.classified - self.totals.compared
        return f"{count} pictures before were not compared" if count else ""

    def wrong_messages(self, distances: Distances | None, path: str = "") -> Messages:
        """Return what to log about the first picture if OpenCL's result for it is wrong.

        `distances`: of this picture, the last one in the totals. `path`: of several; "": the one.
        """
        if self.totals.wrong != 1 or distances is None or not distances.wrong_by:
            return ()
        results, which = self.results, f" for {path}" if path else ""
        text = distances.wrong_text(results.device_name, results.reference, which)
        messages = [(logging.ERROR, text)]
        if results.cpu is not None:
            of_such = " of such pictures" if which else ""
            messages.append((logging.WARNING, f"the results{of_such} are the CPU's"))
        if self.not_compared:
            messages.append((logging.WARNING, f"{self.not_compared}: from now on each one is"))
        return messages

    @property
    def exit_code(self) -> int:
        """The exit code of a run with results."""
        if self.failure:
            return NO_DEVICE
        taken = self.results.gpu.delegation if self.results.gpu else None
        if taken is not None and 2 * taken.lost > len(taken.verdicts):
            return LOST
        return NOT_SO if self.not_finite else SUCCESS

    @property
    def end_messages(self) -> Messages:
        """What to log last: few nodes were delegated."""
        taken = self.results.gpu.delegation if self.results.gpu else None
        if taken is None or self.exit_code != LOST:
            return ()
        text = (
            f"the CPU ran {taken.lost} of {len(taken.verdicts)} nodes, because child processes "
            "died of their OpenCL kernels: `tflite-opencl info --bans` says which are left out, "
            "and --lift_bans tries them again"
        )
        return [(logging.ERROR, text)]


def judge(results: PathResults) -> Judgement:
    """Return the verdict on a run on one picture."""
    gpu, totals, answer = results.gpu, Totals(), results.outputs
    if results.is_interrupted:
        ended = Difference(None, ENDED)
        totals = Totals(distances=Distances(ended, ended, ended))
    elif gpu is not None and results.beside is not None:
        others = {name: result.outputs for name, result in results.beside.items()}
        outcome = results.outcome(gpu.outputs, others, results.shares)
        totals, answer = totals.plus(outcome), outcome.outputs
    why = not_finite(answer, results.graph.outputs)
    return Judgement(results, totals, answer, not_finite=why)
