# SPDX-License-Identifier: Apache-2.0
"""Bytes around the outputs, and inputs that no node reads, are not written to."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from delegate.inspect import write_model
from tflite_opencl.common.build import Array, tensor
from tflite_opencl.common.oracle import Oracle
from tflite_opencl.common.values import Arrays
from tflite_opencl.conformance.checks.job import Job, open_job
from tflite_opencl.conformance.checks.outputs import POISON, expect
from tflite_opencl.conformance.outcome import FAIL, PASS, SKIP, Outcome
from tflite_opencl.conformance.subject import Opened

_ALIGNMENT = 64  # kDefaultTensorAlignment, tflite/util.h


def guard_bytes(job: Job, known: Oracle) -> Outcome:
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
    made = opened.interpreter
    for _ in range(2):
        filled = _fill_guards(made, len(job.graph.inputs))
        outputs = _run_with_guards(opened, job.sets[0], len(job.graph.inputs))
        expect(job, known, 0, outputs, "with guards")
        for name, before, now in _read_guards(made, len(job.graph.inputs), filled):
            if before != now:
                at = next(i for i, (a, b) in enumerate(zip(before, now, strict=True)) if a != b)
                return Outcome(FAIL, f"wrote outside the outputs: byte {at} {name}", 0, taken)
    if not filled:
        return Outcome(SKIP, "TFLite put no bytes between its tensors", taken=taken)
    return Outcome(PASS, f"{sum(map(len, filled.values()))} guard bytes", taken=taken)


def _run_with_guards(opened: Opened, inputs: Arrays, count: int) -> Arrays:
    made = opened.interpreter
    for detail, values in zip(made.get_input_details()[:count], inputs, strict=True):
        made.set_tensor(detail["index"], values)
    made.invoke()
    return [np.array(made.get_tensor(detail["index"])) for detail in made.get_output_details()]


def _gaps(made: Any) -> list[tuple[int, int, str]]:
    """Return (tensor index, bytes of padding behind it, words)."""
    spans = []
    for detail in [*made.get_input_details(), *made.get_output_details()]:
        if not len(detail["shape"]):
            continue
        view = made.tensor(detail["index"])()
        spans.append((view.__array_interface__["data"][0], view.nbytes, detail["index"]))
    spans.sort()
    found = []
    for (start, size, index), (following, _, _) in itertools.pairwise(spans):
        end = start + size
        # Between neighbours lies nothing but what the alignment leaves.
        if 0 < following - end < _ALIGNMENT:
            found.append((index, following - end, f"behind tensor {index}"))
    return found


def _padding(made: Any, index: int, count: int) -> Array:
    view = made.tensor(index)().reshape(-1).view(np.uint8)
    return as_strided(view, (view.size + count,), (1,))[view.size :]


def _fill_guards(made: Any, count: int) -> dict[str, bytes]:
    filled = {}
    for detail in made.get_input_details()[count:]:
        size = int(np.prod(detail["shape"]))
        made.set_tensor(detail["index"], np.full(size, POISON, np.uint8))
        filled[f"of {detail['name']}"] = bytes([POISON]) * size
    for index, size, words in _gaps(made):
        _padding(made, index, size)[:] = POISON
        filled[words] = bytes([POISON]) * size
    return filled


def _read_guards(made: Any, count: int, filled: dict[str, bytes]) -> list[tuple[str, bytes, bytes]]:
    found = []
    for detail in made.get_input_details()[count:]:
        name = f"of {detail['name']}"
        found.append((name, filled[name], made.get_tensor(detail["index"]).tobytes()))
    for index, size, words in _gaps(made):
        if words in filled:
            found.append((words, filled[words], _padding(made, index, size).tobytes()))
    return found
