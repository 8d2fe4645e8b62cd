# SPDX-License-Identifier: Apache-2.0
"""Behaviour checks: repeated and concurrent runs, reopening, reallocation and resizing are stable.

Also memory leaks, and writes outside of the outputs.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import mmap
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from delegate.inspect import Graph, write_model
from tflite_opencl.conformance.checks.job import (
    POISON,
    CaseJob,
    expect,
    invoke_of,
    open_job,
    poison,
)
from tflite_opencl.conformance.results import FAIL, PASS, SKIP, CaseResult
from tflite_opencl.conformance.subject import Opened
from tflite_opencl.interpreters.compiled_model import CompiledInterpreter
from tflite_opencl.interpreters.interpreter import allocated, outputs_of
from tflite_opencl.models.build import Array, tensor
from tflite_opencl.oracle.in_builtins import model_in_builtins
from tflite_opencl.oracle.oracle import Oracle
from tflite_opencl.oracle.values import compare
from tflite_opencl.timing import drm

_RUNS = 8
_OPENINGS, _SETTLED = 100, 40
# Average growth per instance that the C library and a driver's caches may cause.
_LEAK_BYTES = 32 * 1024
_ALIGNMENT = 64  # kDefaultTensorAlignment, tflite/util.h


def twice(job: CaseJob, known: Oracle) -> CaseResult:
    """Repeated runs on the same inputs are bit-identical."""
    opened, taken = open_job(job, known)
    first = invoke_of(opened, job.sets[0])
    for run in range(2, _RUNS + 1):
        again = invoke_of(opened, job.sets[0])
        for got, before in zip(again, first, strict=True):
            if got.tobytes() != before.tobytes():
                wrong = int(np.count_nonzero(got != before))
                return CaseResult(
                    FAIL, f"run {run} differs from run 1 in {wrong} elements", 0, taken
                )
    expect(job, known, 0, first, "the first run")
    return CaseResult(PASS, taken=taken)


def inputs_unchanged(job: CaseJob, known: Oracle) -> CaseResult:
    """A run does not modify its inputs."""
    opened, taken = open_job(job, known)
    made = opened.interpreter
    for number, inputs in enumerate(job.sets):
        expect(job, known, number, invoke_of(opened, inputs), "a run")
        for detail, values in zip(made.get_input_details(), inputs, strict=True):
            now = made.get_tensor(detail["index"])
            if now.tobytes() != values.tobytes():
                return CaseResult(FAIL, f"input {detail['name']} was changed by the run", 0, taken)
    return CaseResult(PASS, taken=taken)


def two_interpreters(job: CaseJob, known: Oracle) -> CaseResult:
    """Two interpreters, alternating and concurrent."""
    (first, taken), (second, _) = open_job(job, known), open_job(job, known)
    for number in (0, 1, 2):
        one = invoke_of(first, job.sets[number])
        other = invoke_of(second, job.sets[(number + 1) % 3])
        expect(job, known, number, one, "the first of two")
        expect(job, known, (number + 1) % 3, other, "the second of two")
    problems: list[str] = []

    def runs(opened: Opened, number: int) -> None:
        try:
            for _ in range(10):
                expect(job, known, number, invoke_of(opened, job.sets[number]), "side by side")
        except (RuntimeError, ValueError) as error:
            problems.append(str(error))

    threads = [threading.Thread(target=runs, args=pair) for pair in ((first, 0), (second, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return CaseResult(FAIL if problems else PASS, "; ".join(problems), taken=taken)


def reallocate(job: CaseJob, known: Oracle) -> CaseResult:
    """TFLite's tensors may move: reallocate, grow and shrink, then run as before."""
    opened, taken = open_job(job, known)
    made = opened.interpreter
    expect(job, known, 0, invoke_of(opened, job.sets[0]), "the first run")
    made.allocate_tensors()
    expect(job, known, 1, invoke_of(opened, job.sets[1]), "after allocate_tensors()")
    shapes = _shapes(job.graph, 7)
    if not why_not_resized(job, known, shapes):
        resize_to(made, shapes)
        resize_to(made, [(i, list(t.shape)) for i, t in enumerate(job.graph.inputs)])
        poison(made, job.graph)
        outputs = invoke_of(opened, job.sets[2])
        expect(job, known, 2, outputs, "after resizing there and back")
    return CaseResult(PASS, taken=taken)


def resize(job: CaseJob, known: Oracle) -> CaseResult:
    """A batch of three gives the same results as its pictures one by one."""
    shapes = _shapes(job.graph, 3)
    if why := why_not_resized(job, known, shapes):
        return CaseResult(SKIP, f"TFLite itself does not resize it: {why}")
    opened, taken = open_job(job, known)
    single, _ = open_job(job, known)
    expect(job, known, 0, invoke_of(opened, job.sets[0]), "before")
    resize_to(opened.interpreter, shapes)
    for number, inputs in enumerate(job.sets):
        # Several different pictures.
        pictures = [[np.roll(values, number + i) for i in range(3)] for values in inputs]
        each = [invoke_of(single, list(parts)) for parts in zip(*pictures, strict=True)]
        got = invoke_of(opened, [np.concatenate(parts) for parts in pictures])
        for index, one in enumerate(got):
            other = np.concatenate([outputs[index] for outputs in each])
            bound = known.bounds[number][index]
            bound = None if bound is None else np.full(other.shape, bound.max(initial=0) * 4)
            difference = compare(one, other, bound, job.tolerance, f"at batch 3, output {index}")
            if difference is not None and difference.is_beyond:
                return CaseResult(FAIL, str(difference), difference.greatest, taken)
    return CaseResult(PASS, taken=taken)


def why_not_resized(job: CaseJob, known: Oracle, shapes: Sequence[tuple[int, list[int]]]) -> str:
    """Return why TFLite itself cannot resize the inputs; "": it can."""
    model = model_in_builtins(job.graph, job.model)
    made = allocated(job.subject.runtime, model, known.cpu_kernels)
    try:
        resize_to(made, shapes)
    except (RuntimeError, ValueError) as error:
        return str(error) or type(error).__name__
    return ""


def _shapes(graph: Graph, batch: int) -> list[tuple[int, list[int]]]:
    return [(i, [batch, *t.shape[1:]]) for i, t in enumerate(graph.inputs) if t.shape]


def resize_to(made: Any, shapes: Sequence[tuple[int, list[int]]]) -> None:
    """Resize inputs, by position.

    Raises: RuntimeError, ValueError: TFLite rejects it.
    """
    details = made.get_input_details()
    for position, shape in shapes:
        made.resize_tensor_input(details[position]["index"], shape)
    made.allocate_tensors()


def reopen(job: CaseJob, known: Oracle) -> CaseResult:
    """Closing and reopening does not change results."""
    for number in (0, 1, 2, 0):
        opened, taken = open_job(job, known)
        expect(job, known, number, invoke_of(opened, job.sets[number]), "after reopening")
        del opened
        gc.collect()
    return CaseResult(PASS, taken=taken)


def reopen_100(job: CaseJob, known: Oracle) -> CaseResult:
    """Memory, file descriptors and GPU memory do not grow over 100 reopenings."""
    seen: list[dict[str, int]] = []
    taken = 0
    for number in range(1, _OPENINGS + 1):
        opened, taken = open_job(job, known)
        outputs = invoke_of(opened, job.sets[0])
        del opened
        gc.collect()
        if number in (_SETTLED, (_SETTLED + _OPENINGS) // 2, _OPENINGS):
            seen.append(_held())
            expect(job, known, 0, outputs, f"opening {number}")
    half = (_OPENINGS - _SETTLED) / 2
    for name, unit, limit in (
        ("file handles", "", 0.05),
        ("memory", " bytes", _LEAK_BYTES),
        ("GPU memory", " bytes", _LEAK_BYTES),
    ):
        growth = [(b[name] - a[name]) / half for a, b in itertools.pairwise(seen)]
        if min(growth) > limit:
            grown = sum(growth) / 2
            return CaseResult(FAIL, f"each opening leaks {grown:.4g}{unit} of {name}", 0, taken)
    return CaseResult(PASS, taken=taken)


def _held() -> dict[str, int]:
    handles = list(Path("/proc/self/fd").iterdir())
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "file handles": len(handles),
        "memory": pages * mmap.PAGESIZE,
        "GPU memory": drm.usage().memory,
    }


def guard_bytes(job: CaseJob, known: Oracle) -> CaseResult:
    """Memory around the outputs, and inputs that no node reads, are not modified."""
    sizes = [max(1, int(np.prod(out.shape)) * 4) for out in job.graph.outputs]
    guards = [
        dataclasses.replace(tensor((size,), "uint8", name=f"guard{i}"), index=i)
        for i, size in enumerate(
            [*sizes, *sizes, 64, 128, *(size // 4 for size in sizes)], len(job.graph.tensors)
        )
    ]
    tensors, inputs = (*job.graph.tensors, *guards), (*job.graph.inputs, *guards)
    graph = dataclasses.replace(job.graph, tensors=tensors, inputs=inputs)
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
                return CaseResult(FAIL, f"wrote outside the outputs: byte {at} {name}", 0, taken)
    if not filled:
        return CaseResult(SKIP, "TFLite put no bytes between its tensors", taken=taken)
    return CaseResult(PASS, f"{sum(map(len, filled.values()))} guard bytes", taken=taken)


def _fill(made: Any, count: int) -> None:
    for _, guard in _guards(made, count):
        guard[...] = POISON


def _read(made: Any, count: int) -> dict[str, bytes]:
    return {name: guard.tobytes() for name, guard in _guards(made, count)}


def _guards(made: Any, count: int) -> Iterator[tuple[str, Array]]:
    """Yield inputs after the first `count`, and gaps between tensors; they must not be kept.

    TFLite refuses to run while arrays refer to its memory.
    """
    for detail in made.get_input_details()[count:]:
        yield f"of {detail['name']}", made.tensor(detail["index"])()
    if isinstance(made, CompiledInterpreter):
        return  # its arrays are copies: gaps between them are not TFLite's memory
    spans = []
    for detail in [*made.get_input_details(), *made.get_output_details()]:
        if len(detail["shape"]):
            view = made.tensor(detail["index"])()
            spans.append((view.__array_interface__["data"][0], view.nbytes, detail["index"]))
    for (start, size, index), (following, _, _) in itertools.pairwise(sorted(spans)):
        gap = following - start - size
        # Neighbours are separated by alignment padding only.
        if 0 < gap < _ALIGNMENT:
            view = made.tensor(index)().reshape(-1).view(np.uint8)
            yield f"behind tensor {index}", as_strided(view, (size + gap,), (1,))[size:]
