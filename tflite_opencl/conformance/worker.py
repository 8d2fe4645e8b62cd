# SPDX-License-Identifier: Apache-2.0
"""A child process that runs cases: the first request configures it, each further one is a case.

Events of a case: delegate (from here on the delegate is to blame), alternative (its name; the
following events belong to it), result.
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
from tflite_opencl.conformance.checks.job import CaseJob
from tflite_opencl.conformance.compile_only import CaseCompiler
from tflite_opencl.conformance.results import FAIL, SKIP, CaseResult
from tflite_opencl.conformance.subject import LibraryError, Subject
from tflite_opencl.console.errors import OneLineError, one_line
from tflite_opencl.interpreters.runtime import (
    ENVIRONMENT_VARIABLE,
    find_runtime,
    runtime_if_any,
)
from tflite_opencl.models.build import Case, sizes
from tflite_opencl.oracle.values import Arrays

_WIDEST = 16  # bytes of an element


def main(worker: type[Worker] | None = None) -> int:
    """Serve case requests; `worker`: a replacement for Worker."""
    with serving() as parent:
        requests = parent.messages()
        request = next(requests)
        if request["runtime"]:
            os.environ[ENVIRONMENT_VARIABLE] = request["runtime"]
        try:
            find = runtime_if_any if request["compile_only"] else find_runtime
            own = request["delegate"], request["options"], request["device"], find()
            subject = Subject(*own)
            device = subject.describe()
            compiler = CaseCompiler(subject) if request["compile_only"] else None
        except (DelegateError, OneLineError) as error:
            parent.send(fatal=one_line(error), is_library=isinstance(error, LibraryError))
            return 0
        known = _known({*request["names"]})
        gc.freeze()  # exclude permanent objects: makes the collection after each case cheap
        parent.send(device=device, runtime=subject.runtime.text)
        made = (worker or Worker)(parent, subject, request)
        made.compiler = compiler
        for item in requests:
            made.run(item, known.get(item["name"]))
    return 0


class Worker:
    """Runs cases and reports their events."""

    compiler: CaseCompiler | None = None  # builds the cases' kernels in place of a run

    def __init__(self, parent: Channel, subject: Subject, request: dict[str, Any]) -> None:
        self._say, self._subject, self._request = parent.send, subject, request
        self._held: Any = None

    def run(self, item: dict[str, Any], case: Case | None) -> None:
        """Run a case, or a model from a file."""
        begun = time.monotonic()
        try:
            graph, model = self.model(item, case)
        except (DelegateError, ValueError, OSError) as error:
            # A file may not be a model; this suite's cases always are.
            result = CaseResult(FAIL if case else SKIP, f"no model: {one_line(error)}")
        else:
            told = self._alternative if self._request["alternatives"] else None
            tolerance = self._request["tolerance"]
            args = self._subject, graph, model, tolerance, _inputs(item), self._begin, told
            try:
                result = self.check(case.check if case else "values", CaseJob(*args))
            except Exception as error:  # an error in this suite or in the delegate's Python code
                result = CaseResult(FAIL, f"{type(error).__name__}: {one_line(error)}")
            gc.collect()
        took = round(time.monotonic() - begun, 4)
        result = dataclasses.replace(result, name=item["name"], seconds=took)
        self._say(result=dataclasses.asdict(result))

    def model(self, item: dict[str, Any], case: Case | None) -> tuple[Graph, bytes | str]:
        """Return the model to run; raises DelegateError, ValueError or OSError: there is none."""
        if case is not None:
            graph = case.make()
            return graph, write_model(graph)
        if (path := item["model"]) is None:
            raise ValueError("there is no case of this name")
        graph = read_model(path)
        _require_arrays(graph)
        return graph, path

    def check(self, name: str, job: CaseJob) -> CaseResult:
        """Return the result of a case; only a crash escapes."""
        if self.compiler is not None:
            return self.compiler.check(job)
        return run_check(name, job)

    def _alternative(self, name: str) -> None:
        self._say(alternative=name)

    def _begin(self) -> None:
        """Announce the use of the delegate, and keep its device open until the process ends."""
        self._say(delegate=True)
        if self._held is None and self.compiler is None:
            self._held = self._subject.hold()


def _require_arrays(graph: Graph) -> None:
    """Raise ValueError for a shape that numpy cannot represent, even if it has no elements."""
    for tensor in graph.tensors:
        # as numpy does: a size of 0 does not make the others valid
        if math.prod(max(1, size) for size in tensor.shape) > sys.maxsize // _WIDEST:
            shown = tensor.name or tensor.index
            raise ValueError(f"tensor {shown} is {sizes(tensor.shape)}: no array is so large")


def _known(names: set[str]) -> dict[str, Case]:
    """Return the existing cases with these names; stops listing after the last one."""
    found = (case for case in all_cases() if case.name in names)
    return {case.name: case for case in itertools.islice(found, len(names))}


def _inputs(item: dict[str, Any]) -> list[Arrays] | None:
    if item["inputs"] is None:
        return None
    with np.load(item["inputs"]) as saved:
        return [[saved[key] for key in sorted(saved.files)]]


if __name__ == "__main__":
    sys.exit(main())
