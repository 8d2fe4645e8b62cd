# SPDX-License-Identifier: Apache-2.0
"""Tensors that move and change their shapes: the answers stay right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from delegate.inspect import Graph
from tflite_opencl.common.build import Array
from tflite_opencl.common.interpreter import allocated
from tflite_opencl.common.oracle import Oracle
from tflite_opencl.common.values import compare
from tflite_opencl.conformance.checks.job import Job, invoke_of, open_job
from tflite_opencl.conformance.checks.outputs import expect, poison
from tflite_opencl.conformance.outcome import FAIL, PASS, SKIP, Outcome


def reallocate(job: Job, known: Oracle) -> Outcome:
    """TFLite's tensors may move: allocate again, grow and shrink, and run as before."""
    opened, taken = open_job(job, known)
    made = opened.interpreter
    expect(job, known, 0, invoke_of(opened, job.sets[0]), "the first run")
    made.allocate_tensors()
    expect(job, known, 1, invoke_of(opened, job.sets[1]), "after allocate_tensors()")
    original = [(i, list(t.shape)) for i, t in enumerate(job.graph.inputs)]
    if _can_resize(job, known):
        _resize_to(made, _resized(job.graph, 7))
        _resize_to(made, original)
        poison(made)
        outputs = invoke_of(opened, job.sets[2])
        expect(job, known, 2, outputs, "after resizing there and back")
    return Outcome(PASS, taken=taken)


def _can_resize(job: Job, known: Oracle) -> bool:
    try:
        made = allocated(job.subject.runtime, job.model, known.cpu_kernels)
        _resize_to(made, _resized(job.graph, 7))
    except (RuntimeError, ValueError):
        return False
    return True


def resize(job: Job, known: Oracle) -> Outcome:
    """A batch of three gives what its pictures give one by one."""
    shapes = _resized(job.graph, 3)
    reference = allocated(job.subject.runtime, job.model, known.cpu_kernels)
    try:
        _resize_to(reference, shapes)
    except (RuntimeError, ValueError) as error:
        return Outcome(SKIP, f"TFLite itself does not resize it: {error}")
    opened, taken = open_job(job, known)
    single, _ = open_job(job, known)
    expect(job, known, 0, invoke_of(opened, job.sets[0]), "before")
    _resize_to(opened.interpreter, shapes)
    for number, inputs in enumerate(job.sets):
        pictures = [_pictures(values, 3, number) for values in inputs]
        grown = [np.concatenate(parts) for parts in pictures]
        each = [invoke_of(single, list(parts)) for parts in zip(*pictures, strict=True)]
        got = invoke_of(opened, grown)
        for index, one in enumerate(got):
            other = np.concatenate([outputs[index] for outputs in each])
            bound = known.bounds[number][index]
            bound = None if bound is None else np.full(other.shape, bound.max(initial=0) * 4)
            difference = compare(one, other, bound, job.allowed, f"at batch 3, output {index}")
            if difference is not None and difference.is_beyond:
                return Outcome(FAIL, str(difference), difference.greatest, taken)
    return Outcome(PASS, taken=taken)


def _resized(graph: Graph, batch: int) -> list[tuple[int, list[int]]]:
    return [(i, [batch, *t.shape[1:]]) for i, t in enumerate(graph.inputs) if t.shape]


def _resize_to(made: Any, shapes: Sequence[tuple[int, list[int]]]) -> None:
    details = made.get_input_details()
    for position, shape in shapes:
        made.resize_tensor_input(details[position]["index"], shape)
    made.allocate_tensors()


def _pictures(values: Array, count: int, seed: int) -> list[Array]:
    """Return several pictures, each other than the first."""
    return [np.roll(values, seed + i) for i in range(count)]
