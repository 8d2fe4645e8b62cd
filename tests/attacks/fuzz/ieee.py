# SPDX-License-Identifier: Apache-2.0
"""A random graph with precision "ieee": the reference's bits, and the same on every device."""

from __future__ import annotations

import dataclasses

import numpy as np

from delegate import Model, list_devices
from delegate.errors import Unsupported
from tflite_opencl.conformance.checks.job import CaseJob, NotDelegated, values
from tflite_opencl.conformance.results import FAIL, PASS, CaseResult
from tflite_opencl.models.build import Array
from tflite_opencl.oracle.oracle import Oracle
from tflite_opencl.oracle.values import Arrays


def on_every_device(job: CaseJob, known: Oracle) -> CaseResult:
    """Run with TFLite here, then the whole graph on every device, where it is taken."""
    options = {**job.subject.options, "precision": "ieee"}
    subject = dataclasses.replace(job.subject, options=options)
    try:
        outcome = values(
            dataclasses.replace(job, subject=subject), known.without_tolerance(job.graph)
        )
    except NotDelegated as error:
        return CaseResult(PASS, f"no node is taken: {error}")
    if outcome.result != PASS:
        return outcome
    first: tuple[str, list[Arrays]] | None = None
    for device in list_devices():
        try:
            outputs = _outputs(job, device.index)
        except Unsupported:
            continue
        if first is None:
            first = device.name, outputs
        elif wrong := _difference(first[1], outputs):
            return CaseResult(FAIL, f"{first[0]} and {device.name} differ: {wrong}")
    return outcome


def _outputs(job: CaseJob, device: int) -> list[Arrays]:
    options = {"precision": "ieee", "tune": "off", "in_child_first": False}
    with Model(job.graph, device, **options) as model:
        given = [
            [each if each.shape[:1] == (1,) else each[None] for each in inputs]
            for inputs in job.sets
        ]
        return [model.run(inputs) for inputs in given]


def _difference(one: list[Arrays], other: list[Arrays]) -> str:
    """Return the first output whose bits differ, "" if none do; NaN is NaN."""
    for number, (ours, theirs) in enumerate(zip(one, other, strict=True)):
        for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if not np.array_equal(_bits(a), _bits(b)):
                return f"input set {number}, output {place}"
    return ""


def _bits(values_: Array) -> Array:
    if values_.dtype != np.float32:
        return values_
    words = np.ascontiguousarray(values_).view(np.uint32)
    return np.where(np.isnan(values_), np.uint32(0x7FC00000), words)
