# SPDX-License-Identifier: Apache-2.0
"""A case, ready to be checked, and the delegate opened for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from delegate.inspect import Graph
from tflite_opencl.common.errors import one_line
from tflite_opencl.common.interpreter import invoke
from tflite_opencl.common.oracle import Oracle
from tflite_opencl.common.values import Arrays, input_sets
from tflite_opencl.conformance.subject import Opened, Subject, failure_of, unsupported_ops

TEFLON_OP, TEFLON_MODEL = 2, 8  # Source: Mesa's test_teflon.cpp


@dataclass(frozen=True, slots=True)
class Job:
    """One case, ready to run."""

    subject: Subject
    graph: Graph
    model: bytes | str  # content, or a file
    tolerance: int | None  # quanta; None: Teflon's
    inputs: Sequence[Arrays] | None  # None: input_sets'
    on_delegate: Callable[[], None]  # told before the delegate is first used
    # Told which alternative runs next; None: only the first one of each node runs.
    on_alternative: Callable[[str], None] | None = None
    on_opened: Callable[[Opened], None] = lambda opened: None  # told of each opening

    @property
    def allowed(self) -> int:
        """Quanta that an output may be off."""
        if self.tolerance is not None:
            return self.tolerance
        return TEFLON_OP if len(self.graph.nodes) == 1 else TEFLON_MODEL

    @property
    def sets(self) -> Sequence[Arrays]:
        """The input sets."""
        return input_sets(self.graph) if self.inputs is None else self.inputs


class NotDelegated(Exception):
    """The delegate takes no node of the model; the text says why."""


def open_job(job: Job, known: Oracle) -> tuple[Opened, int]:
    """Return the job's model with the delegate, and how many of its nodes the delegate takes.

    Raises: NotDelegated: none. RuntimeError, ValueError: TFLite or the delegate refuses.
    """
    opened = job.subject.open(job.graph, job.model, known.cpu_kernels)
    job.on_opened(opened)
    taken = opened.taken(job.graph)
    if not taken:
        why = "; ".join(dict.fromkeys(opened.reasons()))
        raise NotDelegated(why or f"left {', '.join(unsupported_ops(job.graph, taken))}")
    return opened, len(taken)


def own_answers(job: Job, known: Oracle) -> Oracle:
    """Return the oracle with the delegate's own first answers as the right ones.

    A check of behaviour compares a delegate with itself; a check of values looks for wrong answers.
    """
    opened, _ = open_job(job, known)
    outputs = [invoke_of(opened, inputs) for inputs in job.sets]
    return dataclasses.replace(known, outputs=outputs)


def invoke_of(opened: Opened, inputs: Arrays) -> Arrays:
    """Return the outputs.

    Raises: RuntimeError: the run failed; the text is the delegate's own if it has one.
    """
    try:
        return invoke(opened.interpreter, inputs)
    except (RuntimeError, ValueError) as error:
        raise RuntimeError(
            f"the run failed: {failure_of(opened.delegate) or one_line(error)}"
        ) from error
