# SPDX-License-Identifier: Apache-2.0
"""Checks of state across runs: it persists, resets as in TFLite, and is per interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tflite_opencl.conformance.checks.behaviour import resize_to, why_not_resized
from tflite_opencl.conformance.checks.job import CaseJob, expect, invoke_of, open_job
from tflite_opencl.conformance.results import PASS, CaseResult
from tflite_opencl.oracle.oracle import Oracle

_ROWS = 3  # of a resized input


def state(job: CaseJob, known: Oracle) -> CaseResult:
    """Run all input sets repeatedly, with a reset and a resize back and forth in between.

    Each of them resets variable tensors. Resource variables persist: they belong to the
    interpreter, and are initialised with it.

    Source: tflite/core/subgraph.cc AllocateTensors, ResetVariableTensors
    """
    renewals: tuple[tuple[str, Callable[[Any], object]], ...] = (
        ("in the first runs", lambda made: None),
        ("after reset_all_variables()", lambda made: made.reset_all_variables()),
        ("after a resize there and back", lambda made: _resize(job, known, made)),
    )
    count = len(job.sets)
    numbers = [*range(count)] * len(renewals)
    alone, taken = open_job(job, known)
    begun = [invoke_of(alone, job.sets[number]) for number in numbers]
    if any(tensor.is_variable for tensor in job.graph.tensors):
        begun = begun[:count] * len(renewals)
    known = replace(known, outputs=begun, bounds=[known.bounds[number] for number in numbers])
    own = replace(job, inputs=[job.sets[number] for number in numbers])
    first, _ = open_job(job, known)
    second, _ = open_job(job, known)
    for place, inputs in enumerate(own.sets):
        words, renew = renewals[place // count]
        if place % count == 0:
            renew(first.interpreter)
        expect(own, known, place, invoke_of(first, inputs), words)
        if count <= place < 2 * count:
            outputs = invoke_of(second, inputs)
            expect(own, known, place - count, outputs, "of a second interpreter, which began later")
    return CaseResult(PASS, taken=taken)


def _resize(job: CaseJob, known: Oracle, made: Any) -> None:
    """Resize an input that TFLite allows to resize, and restore it."""
    for place, tensor in enumerate(job.graph.inputs):
        shape = [*tensor.shape]
        more = [(place, [_ROWS, *shape[1:]])]
        if shape and not why_not_resized(job, known, more):
            resize_to(made, more)
            resize_to(made, [(place, shape)])
            return
    raise ValueError("TFLite resizes no input")
