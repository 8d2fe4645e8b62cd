# SPDX-License-Identifier: Apache-2.0
"""The verdict on a run: OpenCL's differences from the other paths, and what follows from them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from label_image.compare import CPU, REFERENCE, Totals
from label_image.path import Outputs, Path
from tflite_opencl.console.exit_codes import LOST, NO_DEVICE, NOT_SO, SUCCESS
from tflite_opencl.harness.job import Job
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.oracle.node_kernels import NodeKernels

log = logging.getLogger("label_image")


@dataclass(frozen=True, slots=True)
class Judgement:
    """The state of a run: each step makes a new one.

    Attributes:
        job: of the first path; `job.reference`: compare with it. gpu: the OpenCL path; None: there
            is none, or it failed. beside: the paths it is compared with, by compare.py's names;
            None: not compared. reasons: why each missing path is missing. substitute: the path that
            replaces OpenCL's. untuned: OpenCL's path before tuning, if `gpu` was tuned later.
            gave_up: why OpenCL failed. left_out: why a device was excluded that had already run
            pictures nobody compared. totals: of all pictures so far. answer: the outputs of the one
            picture; none after Ctrl-C. is_finite: no result is NaN or infinite.
    """

    job: Job
    runtime: Runtime
    gpu: Path | None = None
    beside: Mapping[str, Path] | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    substitute: Path | None = None
    untuned: Path | None = None
    gave_up: str = ""
    left_out: str = ""
    totals: Totals = field(default_factory=Totals)
    answer: Outputs = ()
    is_finite: bool = True

    @property
    def cpu(self) -> Path | None:
        """The CPU's path, or an external delegate's."""
        return self.substitute or (self.beside or {}).get(CPU)

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
    def other(self) -> str:
        """That path's name in the document."""
        is_beside = CPU in (self.beside or {})
        return "external" if self.job.external and not is_beside else "cpu"

    @property
    def paths(self) -> dict[str, Path]:
        """The paths by their names in the document."""
        paths = {self.other: self.cpu, "gpu": self.gpu}
        return {name: path for name, path in paths.items() if path is not None}

    @property
    def speedup(self) -> float | None:
        """CPU time over OpenCL time for a picture; None: one has too few runs."""
        both = [path for path in (self.cpu, self.gpu) if path and path.has_run_enough]
        return both[0].picture_ms / both[1].picture_ms if len(both) == 2 else None

    @property
    def is_sample(self) -> bool:
        """Whether some OpenCL results were compared and others were not."""
        return 0 < self.totals.compared < self.totals.classified

    @property
    def where(self) -> str:
        """Say for how many of several pictures OpenCL computed wrong results."""
        if self.job.is_timed:
            return ""
        sample = " that were compared" if self.is_sample else ""
        return f", in {self.totals.wrong} of {self.totals.compared} pictures{sample}"

    @property
    def failure(self) -> str:
        """Why OpenCL failed or computed wrong results; "": neither."""
        why, totals = self.gave_up or self.left_out, self.totals
        if why or not totals.wrong or totals.distances is None:
            return why
        return totals.distances.wrong_text(self.device_name, self.reference) + self.where

    @property
    def device_name(self) -> str:
        """The name of OpenCL's device."""
        return self.gpu.device_name if self.gpu else "the device"

    @property
    def not_compared(self) -> str:
        """Say how many classified pictures were not compared; "": none."""
        count = self.totals.classified - self.totals.compared
        return f"{count} pictures before were not compared" if count else ""

    def exit_code(self) -> int:
        """Return the exit code of a run with results; warn last if few nodes were delegated."""
        if self.failure:
            return NO_DEVICE
        taken = self.gpu.delegation if self.gpu else None
        if taken is None or 2 * taken.lost <= len(taken.verdicts):
            return SUCCESS if self.is_finite else NOT_SO
        log.error(
            "the CPU ran %d of %d nodes, because child processes died of their OpenCL kernels: "
            "`tflite-opencl info --bans` says which are left out, and --lift_bans tries them again",
            taken.lost, len(taken.verdicts),
        )  # fmt: skip
        return LOST
