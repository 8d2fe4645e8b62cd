# SPDX-License-Identifier: Apache-2.0
"""Bytes around the outputs, and inputs that no node reads, are not written to."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from delegate.inspect import write_model
from tflite_opencl.common.build import Array, tensor
from tflite_opencl.common.interpreter import outputs_of
from tflite_opencl.common.oracle import Oracle
from tflite_opencl.conformance.checks.job import POISON, Job, expect, open_job
from tflite_opencl.conformance.results import FAIL, PASS, SKIP, Result

_ALIGNMENT = 64  # kDefaultTensorAlignment, tflite/util.h


def guard_bytes(job: Job, known: Oracle) -> Result:
    """Bytes around the outputs, and inputs that no node reads, are not written to."""
    sizes = [max(1, int(np.prod(out.shape)) * 4) for out in job.graph.outputs]
    guards = [
        dataclasses.replace(
            tensor((size,), "uint8"), index=len(job.graph.tensors) + i, name=f"guard{i}"
        )
        for i, size in enumerate([*sizes, *sizes, 64, 128, *(size // 4 for size in sizes)])
    ]
    graph = dataclasses.replace(
        job.graph,
        tensors=(*job.graph.tensors, *guards),
        inputs=(*job.graph.inputs, *guards),
    )
    wide = dataclasses.replace(job, graph=graph, model=write_model(graph))
    opened, taken = open_job(wide, known)
    made, count = opened.interpreter, len(job.graph.inputs)
    for _ in range(2):
        _fill(made, count)
        filled = _read(made, count)
        for detail, values in zip(made.get_input_details()[:count], job.sets[0], strict=True):
            made.set_tensor(detail["index"], values)
        made.invoke()
        expect(job, known, 0, outputs_of(made), "with guards")
        for name, now in _read(made, count).items():
            before = filled.get(name, now)
            if before != now:
                at = next(i for i, (a, b) in enumerate(zip(before, now, strict=True)) if a != b)
                return Result(FAIL, f"wrote outside the outputs: byte {at} {name}", 0, taken)
    if not filled:
        return Result(SKIP, "TFLite put no bytes between its tensors", taken=taken)
    return Result(PASS, f"{sum(map(len, filled.values()))} guard bytes", taken=taken)


def _fill(made: Any, count: int) -> None:
    for _, guard in _guards(made, count):
        guard[...] = POISON


def _read(made: Any, count: int) -> dict[str, bytes]:
    return {name: guard.tobytes() for name, guard in _guards(made, count)}


def _guards(made: Any, count: int) -> Iterator[tuple[str, Array]]:
    """Yield the bytes of inputs after the first `count`, and between tensors; none may be kept.

    TFLite does not run while there is an array of its memory.
    """
    for detail in made.get_input_details()[count:]:
        yield f"of {detail['name']}", made.tensor(detail["index"])()
    spans = []
    for detail in [*made.get_input_details(), *made.get_output_details()]:
        if len(detail["shape"]):
            view = made.tensor(detail["index"])()
            spans.append((view.__array_interface__["data"][0], view.nbytes, detail["index"]))
    for (start, size, index), (following, _, _) in itertools.pairwise(sorted(spans)):
        gap = following - start - size
        # Between neighbours lies nothing but what the alignment leaves.
        if 0 < gap < _ALIGNMENT:
            view = made.tensor(index)().reshape(-1).view(np.uint8)
            yield f"behind tensor {index}", as_strided(view, (size + gap,), (1,))[size:]
