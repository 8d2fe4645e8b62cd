# SPDX-License-Identifier: Apache-2.0
"""Runs again, beside each other and after reopening: the answers and the inputs stay the same."""

from __future__ import annotations

import gc
import threading

import numpy as np

from tflite_opencl.common.oracle import Oracle
from tflite_opencl.conformance.checks.job import Job, invoke_of, open_job
from tflite_opencl.conformance.checks.outputs import expect
from tflite_opencl.conformance.outcome import FAIL, PASS, Outcome
from tflite_opencl.conformance.subject import Opened

_RUNS = 8


def twice(job: Job, known: Oracle) -> Outcome:
    """Run the same inputs again and again: all results are the first, bit for bit."""
    opened, taken = open_job(job, known)
    first = invoke_of(opened, job.sets[0])
    for run in range(2, _RUNS + 1):
        again = invoke_of(opened, job.sets[0])
        for got, before in zip(again, first, strict=True):
            if got.tobytes() != before.tobytes():
                wrong = int(np.count_nonzero(got != before))
                return Outcome(FAIL, f"run {run} differs from run 1 in {wrong} elements", 0, taken)
    expect(job, known, 0, first, "the first run")
    return Outcome(PASS, taken=taken)


def inputs_unchanged(job: Job, known: Oracle) -> Outcome:
    """After a run the inputs hold what was put there."""
    opened, taken = open_job(job, known)
    made = opened.interpreter
    for number, inputs in enumerate(job.sets):
        expect(job, known, number, invoke_of(opened, inputs), "a run")
        for detail, values in zip(made.get_input_details(), inputs, strict=True):
            now = made.get_tensor(detail["index"])
            if now.tobytes() != values.tobytes():
                return Outcome(FAIL, f"input {detail['name']} was changed by the run", 0, taken)
    return Outcome(PASS, taken=taken)


def two_interpreters(job: Job, known: Oracle) -> Outcome:
    """Two interpreters, in turns and at the same time."""
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
    return Outcome(FAIL if problems else PASS, "; ".join(problems), taken=taken)


def reopen(job: Job, known: Oracle) -> Outcome:
    """Closed and opened again, the answer is the same."""
    for number in (0, 1, 2, 0):
        opened, taken = open_job(job, known)
        expect(job, known, number, invoke_of(opened, job.sets[number]), "after reopening")
        del opened
        gc.collect()
    return Outcome(PASS, taken=taken)
