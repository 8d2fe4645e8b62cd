# SPDX-License-Identifier: Apache-2.0
"""Inputs on which TFLite's kernels fail: the delegate must fail, too, and run correctly next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tflite_opencl.conformance.checks.job import CaseJob, expect, invoke_of
from tflite_opencl.conformance.results import PASS, CaseResult
from tflite_opencl.console.errors import one_line
from tflite_opencl.interpreters.interpreter import allocated, invoke
from tflite_opencl.oracle.oracle import Oracle, opened
from tflite_opencl.oracle.values import Arrays

FAILING = "failing inputs"  # the way's name
_MESSAGE = ("a divisor is ", "an index is ", "an input is ")


def divided(job: CaseJob) -> tuple[CaseJob, list[Arrays]]:
    """Return the job with the input sets that TFLite runs, and those on which it fails."""
    runs: list[Arrays] = []
    fails: list[Arrays] = []
    for inputs in job.sets:
        interp = opened(job.subject.runtime, job.graph, job.model)
        try:
            invoke(interp, inputs)
        except (RuntimeError, ValueError):
            fails.append(inputs)
        else:
            runs.append(inputs)
    return replace(job, inputs=runs), fails


def run_failing(fails: Sequence[Arrays], way: str, job: CaseJob, known: Oracle) -> CaseResult:
    """Run each failing input set, followed by the job's sets.

    Raises: RuntimeError: a run does not fail, has another reason, or the next one is wrong.
    """
    result = job.subject.open(job.graph, job.model, known.cpu_kernels)
    for inputs in fails:
        try:
            invoke_of(result, inputs)
        except RuntimeError as error:
            is_ours = any(words in str(error) for words in _MESSAGE)
            if not is_ours and not _is_tflites(str(error), inputs, job, known):
                raise
        else:
            raise RuntimeError("TFLite fails on some inputs, and the delegate does not")
        for number, others in enumerate(job.sets):
            expect(job, known, number, invoke_of(result, others), "after a run that failed")
    return CaseResult(PASS, f"1 {way}")


def _is_tflites(said: str, inputs: Arrays, job: CaseJob, known: Oracle) -> bool:
    """Whether a failure has the message of TFLite alone with the same inputs.

    That is a node that the delegate did not claim, such as a FLOOR_DIV whose divisor 0 follows
    from constants and sizes. TFLite repeats the messages of earlier failed runs before it.
    """
    try:
        invoke(allocated(job.subject.runtime, job.model, known.cpu_kernels), inputs)
    except (RuntimeError, ValueError) as error:
        return said.endswith(one_line(error))
    return False
