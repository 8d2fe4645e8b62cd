# SPDX-License-Identifier: Apache-2.0
"""A child process that runs a batch of cases: a job as JSON on stdin, a line of JSON an event.

Events: ready, start, delegate (from here on it is the delegate's fault), result, fatal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, TextIO

import numpy as np

from delegate import DelegateError, Graph, read_model, write_model
from delegate_test.build import Case
from delegate_test.cases import all_cases
from delegate_test.checks import run_check
from delegate_test.checks.job import Job
from delegate_test.outcome import FAIL, SKIP, Outcome
from delegate_test.subject import Subject, SubjectError
from tflite_opencl.common.runtime import ENVIRONMENT_VARIABLE, RuntimeMissing, find_runtime


def main() -> int:
    """Run the batch on stdin and answer on stdout."""
    request = json.loads(sys.stdin.read())
    if request["runtime"]:
        os.environ[ENVIRONMENT_VARIABLE] = request["runtime"]
    with _stdout_kept_apart() as answer:
        try:
            subject = Subject(
                request["delegate"], request["options"], request["device"], find_runtime()
            )
            device = subject.describe()
        except (DelegateError, SubjectError, RuntimeMissing) as error:
            _say(answer, event="fatal", text=" ".join(str(error).split()))
            return 0
        runtime = f"{subject.runtime.name} {subject.runtime.version}"
        _say(answer, event="ready", device=device, runtime=runtime)
        wanted = {item["name"] for item in request["items"]}
        known = {case.name: case for case in all_cases() if case.name in wanted}
        gc.freeze()  # what is there now stays: collecting after each case then takes no time
        for item in request["items"]:
            _run(answer, subject, item, known.get(item["name"]), request["tolerance"])
    return 0


def _run(
    answer: TextIO, subject: Subject, item: dict[str, Any], case: Case | None, tolerance: int | None
) -> None:
    name = item["name"]
    _say(answer, event="start", name=name)
    begun = time.monotonic()
    try:
        graph, model = _model(item, case)
    except (DelegateError, ValueError, OSError) as error:
        # A file may be no model; a case of this suite always is one.
        result = FAIL if case else SKIP
        outcome = Outcome(result, f"no model: {' '.join(str(error).split())}")
    else:
        inputs = None
        if item.get("inputs"):
            with np.load(item["inputs"]) as saved:
                inputs = [[saved[key] for key in sorted(saved.files)]]
        job = Job(subject, graph, model, tolerance, inputs, lambda: _say(answer, event="delegate"))
        try:
            outcome = run_check(case.check if case else "values", job)
        except Exception as error:  # a fault of this suite or of the delegate's Python
            outcome = Outcome(FAIL, f"{type(error).__name__}: {' '.join(str(error).split())}")
        del job
        gc.collect()
    took = round(time.monotonic() - begun, 4)
    _say(answer, event="result", name=name, seconds=took, **dataclasses.asdict(outcome))


def _model(item: dict[str, Any], case: Case | None) -> tuple[Graph, bytes | str]:
    if case is None:
        path = item.get("model")
        if path is None:
            raise ValueError("there is no case of this name")
        return read_model(path), path
    graph = case.make()
    return graph, write_model(graph)


@contextlib.contextmanager
def _stdout_kept_apart() -> Iterator[TextIO]:
    """Give a private stdout; what drivers write there goes to stderr."""
    sys.stdout.flush()
    with open(os.dup(1), "w", encoding="utf-8") as stream:
        os.dup2(2, 1)
        yield stream


def _say(answer: TextIO, **event: Any) -> None:
    answer.write(json.dumps(event) + "\n")
    answer.flush()


if __name__ == "__main__":
    sys.exit(main())
