# SPDX-License-Identifier: Apache-2.0
"""What a run's paths came to: how far OpenCL's is from the others', and what follows from that."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from label_image.compare import CPU, REFERENCE, Totals
from label_image.path import Outputs, Path
from tflite_opencl.console.exit_codes import LOST, NO_DEVICE, NOT_SO, SUCCESS
from tflite_opencl.harness.job import Job
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.oracle.node_kernels import Kernels

log = logging.getLogger("label_image")


@dataclass(frozen=True, slots=True)
class Judgement:
    """The state of a run: a new one follows each step.

    Attributes:
        job: of the first path; `job.reference`: compare it. gpu: the OpenCL path; None: there is
            none, or it failed. beside: what it is compared with, by compare.py's names; None:
            nothing is. reasons: for each path that is missing there, why it is. substitute: what
            runs in OpenCL's place. untuned: OpenCL's path before, where `gpu` was tuned after it.
            gave_up: why OpenCL failed. left_out: why one of several devices was, which gave
            pictures that nobody compared. totals: of all pictures so far. answer: the outputs of
            the one picture; after Ctrl-C there are none. is_finite: all results are numbers.
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
        """Whose kernels OpenCL's outputs are compared with, for people."""
        return f"TFLite's {self._judged_by.name}" if self._judged_by else self.runtime.reference

    @property
    def other_kernels(self) -> str:
        """Which nodes others than the reference kernels judge, and why; "": none."""
        return self._judged_by.reasons if self._judged_by else ""

    @property
    def _judged_by(self) -> Kernels | None:
        judge = (self.beside or {}).get(REFERENCE)
        return judge.judged_by if judge and not self.runtime.why_not else None

    @property
    def other(self) -> str:
        """The document's name of that path."""
        is_beside = CPU in (self.beside or {})
        return "external" if self.job.external and not is_beside else "cpu"

    @property
    def paths(self) -> dict[str, Path]:
        """Each path by its name in the document."""
        paths = {self.other: self.cpu, "gpu": self.gpu}
        return {name: path for name, path in paths.items() if path is not None}

    @property
    def speedup(self) -> float | None:
        """The time of a picture on the CPU over that on OpenCL; None: one ran too few times."""
        both = [path for path in (self.cpu, self.gpu) if path and path.has_run_enough]
        return both[0].picture_ms / both[1].picture_ms if len(both) == 2 else None

    @property
    def is_sample(self) -> bool:
        """Whether some pictures were classified by OpenCL and not compared, but others were."""
        return 0 < self.totals.compared < self.totals.classified

    @property
    def where(self) -> str:
        """Say in how many of several pictures OpenCL computed wrongly."""
        if self.job.is_timed:
            return ""
        sample = " that were compared" if self.is_sample else ""
        return f", in {self.totals.wrong} of {self.totals.compared} pictures{sample}"

    @property
    def failure(self) -> str:
        """Why OpenCL did not do it, or did it wrongly; "" = nothing to complain of."""
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
        """Say how many pictures were classified and not compared; "": none."""
        count = self.totals.classified - self.totals.compared
        return f"{count} pictures before were not compared" if count else ""

    def exit_code(self) -> int:
        """Return the exit code of a run with results; say at last where most nodes were lost."""
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
