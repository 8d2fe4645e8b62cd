# SPDX-License-Identifier: Apache-2.0
"""The checks of a delegate on one model: its values, and its behaviour; -> a CaseResult.

Runs inside a worker process: a driver crash costs a single case.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable

from delegate.inspect import NodeAlternatives
from tflite_opencl.conformance.checks import behaviour
from tflite_opencl.conformance.checks.job import (
    CaseJob,
    NotDelegated,
    beside_cpu,
    own_answers,
    values,
)
from tflite_opencl.conformance.checks.state import state
from tflite_opencl.conformance.results import FAIL, NOT_DELEGATED, PASS, SKIP, CaseResult, named
from tflite_opencl.conformance.subject import Opened
from tflite_opencl.console.errors import one_line
from tflite_opencl.oracle.node_kernels import NoOracle
from tflite_opencl.oracle.oracle import Oracle, oracle

_CHECKS: dict[str, Callable[[CaseJob, Oracle], CaseResult]] = {
    "values": values,
    "twice": behaviour.twice,
    "inputs_unchanged": behaviour.inputs_unchanged,
    "guard_bytes": behaviour.guard_bytes,
    "reallocate": behaviour.reallocate,
    "resize": behaviour.resize,
    "two_interpreters": behaviour.two_interpreters,
    "reopen": behaviour.reopen,
    "reopen_100": behaviour.reopen_100,
    "state": state,
}
# Of models without state.
BEHAVIOURS = tuple(name for name in _CHECKS if name not in ("values", "state"))
_WORSE = (PASS, SKIP, NOT_DELEGATED, FAIL)  # in ascending order of severity
# They look for differences between runs: such failures are not retried.
NOT_REPEATED = frozenset({"twice", "reopen_100"})
# They check for leaks of an instance, including its context.
_REOPENING = frozenset({"reopen", "reopen_100"})


def run_check(check: str, job: CaseJob) -> CaseResult:
    """Return the result of a case; only a crash escapes."""
    try:
        known = oracle(job.subject.runtime, job.graph, job.model, job.sets)
    except NoOracle as error:
        return CaseResult(SKIP, f"TFLite itself does not run it: {error}")
    if check in _REOPENING:
        subject = dataclasses.replace(job.subject, own_context=True)
        job = dataclasses.replace(job, subject=subject)
    job.on_delegate()
    known = beside_cpu(job, known)
    if job.subject.options.get("precision") == "fp16":
        known = known.in_halves()
    if job.subject.options.get("precision") == "ieee":
        known = known.without_tolerance(job.graph)
    if job.on_alternative is None:
        return _run(check, job, known)
    return _run_each(job, lambda each: _run(check, each, known), job.on_alternative)


def _run(check: str, job: CaseJob, known: Oracle) -> CaseResult:
    count = len(job.graph.nodes)
    try:
        if check != "values":
            known = own_answers(job, known)
        return dataclasses.replace(_CHECKS[check](job, known), nodes=count)
    except NotDelegated as error:
        return CaseResult(NOT_DELEGATED, str(error), nodes=count)
    except (RuntimeError, ValueError, OSError) as error:
        return CaseResult(FAIL, one_line(error), nodes=count)
    finally:
        gc.collect()


def _run_each(
    job: CaseJob, check: Callable[[CaseJob], CaseResult], tell: Callable[[str], None]
) -> CaseResult:
    """Run a check for each alternative; return the worst result, which names its alternative.

    The first run uses each node's first alternative, like a run without tuning. Each other name
    then gets a run, in which all nodes that have it use it. `tell` is called with the next one.
    """

    def run(wanted: str | None) -> tuple[CaseResult, list[NodeAlternatives]]:
        rows: list[NodeAlternatives] = []

        def opened(made: Opened) -> None:
            if not rows and wanted is None:
                tell(_taken(made.alternatives()))
            rows.extend(made.alternatives())

        told = {} if wanted is None else {"alternative": wanted}
        subject = dataclasses.replace(job.subject, options=job.subject.options | told)
        return check(dataclasses.replace(job, subject=subject, on_opened=opened)), rows

    result, rows = run(None)
    results = {_taken(rows): result}
    others = dict.fromkeys(name for row in rows for name in row.names if name != row.taken)
    for name in others:
        tell(name)
        result, rows = run(name)
        # An alternative that does not build is skipped, not failed: the delegate excludes it.
        if any(row.taken == name for row in rows) or (result.result == FAIL and not rows):
            results[name] = result
    return _worst(results)


def _taken(rows: list[NodeAlternatives]) -> str:
    """Return the names of the selected alternatives of nodes with several."""
    return ", ".join(dict.fromkeys(row.taken for row in rows if len(row.names) > 1))


def _worst(results: dict[str, CaseResult]) -> CaseResult:
    def badness(name: str) -> tuple[int, float]:
        return _WORSE.index(results[name].result), results[name].quanta

    name = max(results, key=badness)
    worst = results[name]
    if worst.result == PASS:
        ran = f"alternatives: {'; '.join(results)}" if len(results) > 1 else ""
        words = named(name, worst.detail) if worst.quanta else worst.detail
        return dataclasses.replace(worst, detail="; ".join(filter(None, [words, ran])))
    others = [n for n, each in results.items() if each.result == worst.result and n != name]
    detail = named(name, worst.detail) + (f"; also {'; '.join(others)}" if others else "")
    return dataclasses.replace(worst, detail=detail, alternative=name)
