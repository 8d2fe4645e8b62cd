# SPDX-License-Identifier: Apache-2.0
"""A check, run once for each alternative that the nodes of a model have on this device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from delegate.inspect import NodeAlternatives
from tflite_opencl.conformance.checks.job import Job
from tflite_opencl.conformance.outcome import FAIL, NOT_DELEGATED, PASS, SKIP, Outcome, named
from tflite_opencl.conformance.subject import Opened

_WORSE = (PASS, SKIP, NOT_DELEGATED, FAIL)  # the last is the worst


def run_each(job: Job, check: Callable[[Job], Outcome], tell: Callable[[str], None]) -> Outcome:
    """Run a check for each alternative; return the worst outcome, which names its alternative.

    The first run takes each node's first alternative, as a run without measuring does. Each other
    name then gets a run, in which all nodes take it that have it. `tell` hears what runs next.
    """

    def run(wanted: str | None) -> tuple[Outcome, list[NodeAlternatives]]:
        rows: list[NodeAlternatives] = []

        def opened(made: Opened) -> None:
            if not rows and wanted is None:
                tell(_taken(made.alternatives()))
            rows.extend(made.alternatives())

        subject = dataclasses.replace(job.subject, alternative=wanted)
        return check(dataclasses.replace(job, subject=subject, on_opened=opened)), rows

    outcome, rows = run(None)
    outcomes = {_taken(rows): outcome}
    others = dict.fromkeys(name for row in rows for name in row.names if name != row.taken)
    for name in others:
        tell(name)
        outcome, rows = run(name)
        # One that does not build here is not run, and is no fault: the delegate leaves it out.
        if any(row.taken == name for row in rows) or (outcome.result == FAIL and not rows):
            outcomes[name] = outcome
    return _worst(outcomes)


def _taken(rows: list[NodeAlternatives]) -> str:
    """Return the names that were taken where there was a choice."""
    return ", ".join(dict.fromkeys(row.taken for row in rows if len(row.names) > 1))


def _worst(outcomes: dict[str, Outcome]) -> Outcome:
    def badness(name: str) -> tuple[int, float]:
        return _WORSE.index(outcomes[name].result), outcomes[name].quanta

    name = max(outcomes, key=badness)
    worst = outcomes[name]
    if worst.result == PASS:
        ran = f"alternatives: {'; '.join(outcomes)}" if len(outcomes) > 1 else ""
        words = named(name, worst.detail) if worst.quanta else worst.detail
        return dataclasses.replace(worst, detail="; ".join(filter(None, [words, ran])))
    others = [n for n, each in outcomes.items() if each.result == worst.result and n != name]
    detail = named(name, worst.detail) + (f"; also {'; '.join(others)}" if others else "")
    return dataclasses.replace(worst, detail=detail, alternative=name)
