# SPDX-License-Identifier: Apache-2.0
"""A case ready to be checked: opens its delegate, and compares outputs with the oracle's."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from delegate.inspect import Graph, infer
from tflite_opencl.conformance.results import FAIL, PASS, CaseResult
from tflite_opencl.conformance.subject import Opened, Subject, failure_of, unsupported_ops
from tflite_opencl.console.errors import one_line
from tflite_opencl.interpreters.interpreter import allocated, invoke
from tflite_opencl.models.build import Array
from tflite_opencl.oracle.oracle import Oracle, oracle
from tflite_opencl.oracle.values import SETS, Arrays, OutputMismatch, compare, input_sets, worst

POISON = 0xA5


@dataclass(frozen=True, slots=True)
class CaseJob:
    """One case, ready to run."""

    subject: Subject
    graph: Graph
    model: bytes | str  # content, or a file
    tolerance: int  # allowed difference of an output in quanta
    inputs: Sequence[Arrays] | None  # None: input_sets'
    on_delegate: Callable[[], None]  # called before the delegate is first used
    # Called with the next alternative; None: run only the first one of each node.
    on_alternative: Callable[[str], None] | None = None
    on_opened: Callable[[Opened], None] = lambda opened: None  # called for each instance

    @property
    def sets(self) -> Sequence[Arrays]:
        """The input sets."""
        return input_sets(self.graph) if self.inputs is None else self.inputs


class NotDelegated(Exception):
    """The delegate takes no node of the model; the text says why."""


def open_job(job: CaseJob, known: Oracle) -> tuple[Opened, int]:
    """Return the job's model with the delegate, and the number of delegated nodes.

    Raises: NotDelegated: none, or TFLite rejects the model anyway. RuntimeError, ValueError: TFLite
        or the delegate fails.
    """
    try:
        opened = job.subject.open(job.graph, job.model, known.cpu_kernels)
    except (RuntimeError, ValueError) as error:
        if (refusal := _refusal_of_cpu(job, known)) and refusal == one_line(error):
            raise NotDelegated(f"nor does the CPU run what it leaves: {refusal}") from error
        raise
    job.on_opened(opened)
    taken = opened.taken(job.graph)
    if not taken:
        why = "; ".join(dict.fromkeys(opened.reasons()))
        raise NotDelegated(why or f"left {', '.join(unsupported_ops(job.graph, taken))}")
    return opened, len(taken)


def _refusal_of_cpu(job: CaseJob, known: Oracle) -> str:
    """Return why TFLite rejects the model without a delegate; "" if it does not."""
    try:
        allocated(job.subject.runtime, job.model, known.cpu_kernels)
    except (RuntimeError, ValueError) as error:
        return one_line(error)
    return ""


def beside_cpu(job: CaseJob, known: Oracle) -> Oracle:
    """Return the oracle with remaining nodes on the CPU's built-in kernels.

    Only if the reference kernels cannot run the whole model: otherwise they run these nodes.
    """
    if known.kernels is None or len({*known.kernels.by_node}) < 2:
        return known
    try:
        taken = job.subject.open(job.graph, job.model, known.cpu_kernels).taken(job.graph)
    except (RuntimeError, ValueError):  # the check reports it
        return known
    left = {node.index for node in job.graph.nodes} - taken
    return oracle(job.subject.runtime, job.graph, job.model, job.sets, left) if left else known


def own_answers(job: CaseJob, known: Oracle) -> Oracle:
    """Return the oracle with the delegate's own first results as the reference.

    A behaviour check compares a delegate with itself; a check of values finds wrong results.
    """
    opened, _ = open_job(job, known)
    outputs = [invoke_of(opened, inputs) for inputs in job.sets]
    return dataclasses.replace(known, outputs=outputs)


def invoke_of(opened: Opened, inputs: Arrays) -> Arrays:
    """Return the outputs.

    Raises: RuntimeError: the run failed; the text is the delegate's own error, if any.
    """
    try:
        return invoke(opened.interpreter, inputs)
    except (RuntimeError, ValueError) as error:
        raise RuntimeError(
            f"the run failed: {failure_of(opened.delegate) or one_line(error)}"
        ) from error


def values(job: CaseJob, known: Oracle) -> CaseResult:
    """Compare every input set's outputs with the oracle's."""
    opened, taken = open_job(job, known)
    found: list[OutputMismatch] = []
    for number, inputs in enumerate(job.sets):
        poison(opened.interpreter, job.graph)
        outputs = invoke_of(opened, inputs)
        present = differences(job, known, number, outputs)
        if (wrong := worst(present)) and wrong.is_beyond:
            detail = f"{_kind_of_wrong(outputs, known, number)}{wrong}"
            return CaseResult(FAIL, detail, wrong.greatest, taken)
        found += present
    greatest = worst(found)
    words = [f"within tolerance: {greatest}"] if greatest else []
    if left := unsupported_ops(job.graph, opened.taken(job.graph)):
        words.append(f"left {', '.join(left)}")
    return CaseResult(PASS, "; ".join(words), greatest.greatest if greatest else 0, taken)


def differences(job: CaseJob, known: Oracle, number: int, outputs: Arrays) -> list[OutputMismatch]:
    """Return the differences of an input set's outputs from the oracle's, one per output."""
    name = SETS[number] if job.inputs is None else "the given"
    found = []
    for index, (got, expected, bound) in enumerate(
        zip(outputs, known.outputs[number], known.bounds[number], strict=True)
    ):
        where = f"{name} inputs" + (f", output {index}" if len(outputs) > 1 else "")
        difference = compare(got, expected, bound, job.tolerance, where)
        if difference is not None:
            found.append(difference)
    return found


def _kind_of_wrong(outputs: Arrays, known: Oracle, number: int) -> str:
    if any(_is_poison(values) for values in outputs):
        return "the output was never written: "
    if number and all(map(np.array_equal, outputs, known.outputs[number - 1])):
        return "the outputs are those of the run before: "
    for got, expected in zip(outputs, known.outputs[number], strict=True):
        if got.dtype.kind not in "iu":
            continue
        steps = got.astype(np.float64) - expected.astype(np.float64)
        if steps.size > 1 and steps.flat[0] and np.ptp(steps) == 0:
            return f"every element is off by {steps.flat[0]:+g}: "
    return ""


def _poison_value(dtype: Any) -> Any:
    size = np.dtype(dtype).itemsize
    return np.frombuffer(bytes([POISON]) * size, dtype)[0]


def poison(made: Any, graph: Graph) -> None:
    """Overwrite all outputs, to detect unwritten ones."""
    # TFLite computes results that depend on shapes only once, at allocation.
    constants = {tensor.index for tensor in infer(graph).outputs if tensor.data is not None}
    for detail in made.get_output_details():
        # Scalars are returned as copies; constant outputs are in the file's memory.
        if (
            len(detail["shape"])
            and detail["dtype"] not in (np.bool_, np.bytes_)
            and detail["index"] not in constants
        ):
            with contextlib.suppress(ValueError):  # dynamic tensors are unallocated before a run
                made.tensor(detail["index"])()[...] = _poison_value(detail["dtype"])


def _is_poison(values: Array) -> bool:
    return bool(
        values.size > 3
        and values.dtype != np.bool_
        and np.all(values == _poison_value(values.dtype))
    )


def expect(job: CaseJob, known: Oracle, number: int, outputs: Arrays, when: str) -> None:
    """Compare the outputs of an input set with the oracle's.

    Raises: RuntimeError: they exceed the tolerance; the text begins with `when`.
    """
    wrong = worst(differences(job, known, number, outputs))
    if wrong and wrong.is_beyond:
        raise RuntimeError(f"{when}: {_kind_of_wrong(outputs, known, number)}{wrong}")
