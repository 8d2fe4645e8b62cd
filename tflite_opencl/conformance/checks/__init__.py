# SPDX-License-Identifier: Apache-2.0
"""What is asked of a delegate for one model: its values, and how it behaves; -> an Outcome.

Runs inside a worker process: whatever a driver does here costs one case.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable

from tflite_opencl.common.oracle import NoOracle, Oracle, oracle
from tflite_opencl.conformance.checks.alternatives import run_each
from tflite_opencl.conformance.checks.behaviour import (
    inputs_unchanged,
    reopen,
    twice,
    two_interpreters,
)
from tflite_opencl.conformance.checks.guards import guard_bytes
from tflite_opencl.conformance.checks.job import Job, NotDelegated, own_answers
from tflite_opencl.conformance.checks.leaks import reopen_100
from tflite_opencl.conformance.checks.outputs import values
from tflite_opencl.conformance.checks.shapes import reallocate, resize
from tflite_opencl.conformance.outcome import FAIL, NOT_DELEGATED, SKIP, Outcome

_CHECKS: dict[str, Callable[[Job, Oracle], Outcome]] = {
    "values": values,
    "twice": twice,
    "inputs_unchanged": inputs_unchanged,
    "guard_bytes": guard_bytes,
    "reallocate": reallocate,
    "resize": resize,
    "two_interpreters": two_interpreters,
    "reopen": reopen,
    "reopen_100": reopen_100,
}
BEHAVIOURS = tuple(name for name in _CHECKS if name != "values")
# They look for a difference from run to run: such a failure is not tried again.
NOT_REPEATED = frozenset({"twice", "reopen_100"})


# They are about what an opening leaves behind, a context included.
_REOPENING = frozenset({"reopen", "reopen_100"})


def run_check(check: str, job: Job) -> Outcome:
    """Return what came of a case; only what ends the process escapes."""
    try:
        known = oracle(job.subject.runtime, job.graph, job.model, job.sets)
    except NoOracle as error:
        return Outcome(SKIP, f"TFLite itself does not run it: {error}")
    if check in _REOPENING:
        subject = dataclasses.replace(job.subject, own_context=True)
        job = dataclasses.replace(job, subject=subject)
    job.on_delegate()
    if job.on_alternative is None:
        return _run(check, job, known)
    return run_each(job, lambda each: _run(check, each, known), job.on_alternative)


def _run(check: str, job: Job, known: Oracle) -> Outcome:
    count = len(job.graph.nodes)
    try:
        if check != "values":
            known = own_answers(job, known)
        return dataclasses.replace(_CHECKS[check](job, known), nodes=count)
    except NotDelegated as error:
        return Outcome(NOT_DELEGATED, str(error), nodes=count)
    except (RuntimeError, ValueError, OSError) as error:
        return Outcome(FAIL, " ".join(str(error).split()) or type(error).__name__, nodes=count)
    finally:
        gc.collect()
