# SPDX-License-Identifier: Apache-2.0
"""Inputs on which TFLite's kernels fail: so does a run with the delegate, and the next is right."""

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
_SAID = ("a divisor is ", "an index is ", "an input is ")


def divided(job: CaseJob) -> tuple[CaseJob, list[Arrays]]:
    """Return the job with the input sets that TFLite runs, and those on which it fails."""
    runs: list[Arrays] = []
    fails: list[Arrays] = []
    for inputs in job.sets:
        made = opened(job.subject.runtime, job.graph, job.model)
        try:
            invoke(made, inputs)
        except (RuntimeError, ValueError):
            fails.append(inputs)
        else:
            runs.append(inputs)
    return replace(job, inputs=runs), fails


def run_failing(fails: Sequence[Arrays], way: str, job: CaseJob, known: Oracle) -> CaseResult:
    """Run each set of inputs that fails, and after each the job's own sets.

    Raises: RuntimeError: a run does not fail, or for another reason, or the next one is wrong.
    """
    made = job.subject.open(job.graph, job.model, known.cpu_kernels)
    for inputs in fails:
        try:
            invoke_of(made, inputs)
        except RuntimeError as error:
            is_ours = any(words in str(error) for words in _SAID)
            if not is_ours and not _is_tflites(str(error), inputs, job, known):
                raise
        else:
            raise RuntimeError("TFLite fails on some inputs, and the delegate does not")
        for number, others in enumerate(job.sets):
            expect(job, known, number, invoke_of(made, others), "after a run that failed")
    return CaseResult(PASS, f"1 {way}")


def _is_tflites(said: str, inputs: Arrays, job: CaseJob, known: Oracle) -> bool:
    """Whether a failure is told in the words with which TFLite alone fails on the same inputs.

    They are those of a node that the delegate left, such as a FLOOR_DIV whose divisor of 0 follows
    from constants and sizes. Before them TFLite repeats those of the runs that failed earlier.
    """
    try:
        invoke(allocated(job.subject.runtime, job.model, known.cpu_kernels), inputs)
    except (RuntimeError, ValueError) as error:
        return said.endswith(one_line(error))
    return False
