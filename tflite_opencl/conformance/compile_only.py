# SPDX-License-Identifier: Apache-2.0
"""`--compile_only`: whether a device's compiler accepts the kernels of a case; runs none.

So the device need not run anything, as with Mesa's drm-shims.
"""

from __future__ import annotations

from delegate import DelegateError
from delegate.inspect import KernelBuilder, KernelUse, device_limits, kernel_uses
from tflite_opencl.conformance.checks.job import CaseJob
from tflite_opencl.conformance.results import FAIL, NOT_DELEGATED, PASS, CaseResult
from tflite_opencl.conformance.subject import Subject
from tflite_opencl.console.errors import one_line


class CaseCompiler:
    """A device's compiler; each kernel is built once.

    Raises:
        OneLineError: no device matches. DelegateError: it cannot be opened.
    """

    def __init__(self, subject: Subject) -> None:
        info = subject.device_info()
        self._builder = KernelBuilder(info)
        # The builder holds the context, which this shares.
        self._info, self._limits = info, device_limits(info)
        self._allows_fp16 = subject.options.get("precision") == "fp16"
        self._failures: dict[str, str] = {}  # by source; "": it builds

    def check(self, job: CaseJob) -> CaseResult:
        """Build the kernels that a device without proven features is expected to run.

        With `job.on_alternative` those of all alternatives.
        """
        count = len(job.graph.nodes)
        uses = kernel_uses([job.model], self._info, self._limits, None, self._allows_fp16)
        if job.on_alternative is None:
            uses = tuple(use for use in uses if use.expected or use.is_specialised)
        if not uses:
            return CaseResult(NOT_DELEGATED, "no node has a kernel here", nodes=count)
        job.on_delegate()
        failures = [words for use in uses if (words := self._failure(use))]
        if failures:
            return CaseResult(FAIL, f"is not built: {'; '.join(failures)}", nodes=count)
        kernels = ", ".join(dict.fromkeys(use.kernel for use in uses))
        return CaseResult(PASS, f"builds: {kernels}", nodes=count)

    def _failure(self, use: KernelUse) -> str:
        """Return why a kernel is not built; "": it is."""
        if use.source not in self._failures:
            try:
                self._builder.build(use.file, use.kernel, use.source)
                self._failures[use.source] = ""
            except DelegateError as error:
                self._failures[use.source] = f"{use.kernel} ({use.variants[0]}): {one_line(error)}"
        return self._failures[use.source]
