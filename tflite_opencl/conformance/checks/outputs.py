# SPDX-License-Identifier: Apache-2.0
"""A delegate's outputs beside the oracle's: the check of values, and what others need of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tflite_opencl.common.build import Array
from tflite_opencl.common.oracle import Oracle
from tflite_opencl.common.values import SETS, Arrays, Difference, compare, worst
from tflite_opencl.conformance.checks.job import Job, invoke_of, open_job
from tflite_opencl.conformance.outcome import FAIL, PASS, Result
from tflite_opencl.conformance.subject import unsupported_ops

POISON = 0xA5


def values(job: Job, known: Oracle) -> Result:
    """Compare every input set's outputs with the oracle's."""
    opened, taken = open_job(job, known)
    found: list[Difference] = []
    for number, inputs in enumerate(job.sets):
        poison(opened.interpreter)
        outputs = invoke_of(opened, inputs)
        present = differences(job, known, number, outputs)
        if (wrong := worst(present)) and wrong.is_beyond:
            detail = f"{_kind_of_wrong(outputs, known, number)}{wrong}"
            return Result(FAIL, detail, wrong.greatest, taken)
        found += present
    greatest = worst(found)
    words = [f"within tolerance: {greatest}"] if greatest else []
    if left := unsupported_ops(job.graph, opened.taken(job.graph)):
        words.append(f"left {', '.join(left)}")
    return Result(PASS, "; ".join(words), greatest.greatest if greatest else 0, taken)


def differences(job: Job, known: Oracle, number: int, outputs: Arrays) -> list[Difference]:
    """Return how the outputs of an input set differ from the oracle's, one an output."""
    name = SETS[number] if job.inputs is None else "the given"
    found = []
    for index, (got, expected, bound) in enumerate(
        zip(outputs, known.outputs[number], known.bounds[number], strict=True)
    ):
        where = f"{name} inputs" + (f", output {index}" if len(outputs) > 1 else "")
        difference = compare(got, expected, bound, job.allowed, where)
        if difference is not None:
            found.append(difference)
    return found


def _kind_of_wrong(outputs: Arrays, known: Oracle, number: int) -> str:
    if any(_is_poison(values) for values in outputs):
        return "the output was never written: "
    if number and all(map(np.array_equal, outputs, known.outputs[number - 1])):
        return "the outputs are those of the run before: "
    for got, expected in zip(outputs, known.outputs[number], strict=True):
        steps = got.astype(np.float64) - expected.astype(np.float64)
        if got.dtype.kind in "iu" and steps.size > 1 and steps.flat[0] and np.ptp(steps) == 0:
            return f"every element is off by {steps.flat[0]:+g}: "
    return ""


def _poison_value(dtype: Any) -> Any:
    size = np.dtype(dtype).itemsize
    return np.frombuffer(bytes([POISON]) * size, dtype)[0]


def poison(made: Any) -> None:
    """Fill all outputs, so that one that is not written shows."""
    for detail in made.get_output_details():
        # Of a scalar the runtime gives a copy.
        if len(detail["shape"]) and detail["dtype"] not in (np.bool_, np.bytes_):
            made.tensor(detail["index"])()[...] = _poison_value(detail["dtype"])


def _is_poison(values: Array) -> bool:
    return bool(
        values.size > 3
        and values.dtype != np.bool_
        and np.all(values == _poison_value(values.dtype))
    )


def expect(job: Job, known: Oracle, number: int, outputs: Arrays, when: str) -> None:
    """Compare the outputs of an input set with the oracle's.

    Raises: RuntimeError: they differ by more than is allowed; the text begins with `when`.
    """
    wrong = worst(differences(job, known, number, outputs))
    if wrong and wrong.is_beyond:
        raise RuntimeError(f"{when}: {_kind_of_wrong(outputs, known, number)}{wrong}")
