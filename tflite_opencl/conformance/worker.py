# SPDX-License-Identifier: Apache-2.0
"""A child process that runs cases: what to run them with is its first request, then each is one.

Events of a case: delegate (from here on it is the delegate's fault), alternative (its name; what
follows is of it), result.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import math
import os
import sys
import time
from typing import Any

import numpy as np

from delegate import DelegateError
from delegate.guard.children.channel import Channel, serving
from delegate.inspect import Graph, read_model, write_model
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.conformance.checks import run_check
from tflite_opencl.conformance.checks.job import Job
from tflite_opencl.conformance.results import FAIL, SKIP, Result
from tflite_opencl.conformance.subject import LibraryError, Subject
from tflite_opencl.console.errors import OneLineError, one_line
from tflite_opencl.interpreters.runtime import ENVIRONMENT_VARIABLE, find_runtime
from tflite_opencl.models.build import Case, sizes
from tflite_opencl.oracle.values import Arrays

_WIDEST = 16  # bytes of an element


def main(worker: type[Worker] | None = None) -> int:
    """Run the cases that are asked for; `worker`: what runs a case, if another."""
    with serving() as parent:
        requests = parent.messages()
        request = next(requests)
        if request["runtime"]:
            os.environ[ENVIRONMENT_VARIABLE] = request["runtime"]
        try:
            runtime, device = find_runtime(), request["device"]
            subject = Subject(request["delegate"], request["options"], device, runtime)
            device = subject.describe()
        except (DelegateError, OneLineError) as error:
            parent.send(fatal=one_line(error), is_library=isinstance(error, LibraryError))
            return 0
        known = _known({*request["names"]})
        gc.freeze()  # what is there now stays: collecting after each case then takes no time
        parent.send(device=device, runtime=subject.runtime.text)
        made = (worker or Worker)(parent, subject, request)
        for item in requests:
            made.run(item, known.get(item["name"]))
    return 0


class Worker:
    """Runs cases and tells their events."""

    def __init__(self, parent: Channel, subject: Subject, request: dict[str, Any]) -> None:
        self._say, self._subject, self._request = parent.send, subject, request
        self._held: Any = None

    def run(self, item: dict[str, Any], case: Case | None) -> None:
        """Run a case, or the model of a file."""
        begun = time.monotonic()
        try:
            graph, model = self.model(item, case)
        except (DelegateError, ValueError, OSError) as error:
            # A file may be no model; a case of this suite always is one.
            result = Result(FAIL if case else SKIP, f"no model: {one_line(error)}")
        else:
            told = self._alternative if self._request["alternatives"] else None
            tolerance = self._request["tolerance"]
            args = self._subject, graph, model, tolerance, _inputs(item), self._begin, told
            try:
                result = self.check(case.check if case else "values", Job(*args))
            except Exception as error:  # a fault of this suite or of the delegate's Python
                result = Result(FAIL, f"{type(error).__name__}: {one_line(error)}")
            gc.collect()
        took = round(time.monotonic() - begun, 4)
        result = dataclasses.replace(result, name=item["name"], seconds=took)
        self._say(result=dataclasses.asdict(result))

    def model(self, item: dict[str, Any], case: Case | None) -> tuple[Graph, bytes | str]:
        """Return what to run; raises DelegateError, ValueError or OSError: there is none."""
        if case is not None:
            graph = case.make()
            return graph, write_model(graph)
        if (path := item["model"]) is None:
            raise ValueError("there is no case of this name")
        graph = read_model(path)
        _require_arrays(graph)
        return graph, path

    def check(self, name: str, job: Job) -> Result:
        """Return what came of a case; only what ends the process escapes."""
        return run_check(name, job)

    def _alternative(self, name: str) -> None:
        self._say(alternative=name)

    def _begin(self) -> None:
        """Say that the delegate runs from here on, and open its device for this process's life."""
        self._say(delegate=True)
        if self._held is None:
            self._held = self._subject.hold()


def _require_arrays(graph: Graph) -> None:
    """Raise ValueError where no array has a tensor's shape, be it without elements."""
    for tensor in graph.tensors:
        # numpy counts so, too: a size of 0 makes the others no smaller.
        if math.prod(max(1, size) for size in tensor.shape) > sys.maxsize // _WIDEST:
            shown = tensor.name or tensor.index
            raise ValueError(f"tensor {shown} is {sizes(tensor.shape)}: no array is so large")


def _known(names: set[str]) -> dict[str, Case]:
    """Return the cases of these names that there are; nothing is listed after the last of them."""
    found = (case for case in all_cases() if case.name in names)
    return {case.name: case for case in itertools.islice(found, len(names))}


def _inputs(item: dict[str, Any]) -> list[Arrays] | None:
    if item["inputs"] is None:
        return None
    with np.load(item["inputs"]) as saved:
        return [[saved[key] for key in sorted(saved.files)]]


if __name__ == "__main__":
    sys.exit(main())
