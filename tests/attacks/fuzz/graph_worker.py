# SPDX-License-Identifier: Apache-2.0
"""The child that draws and runs graphs: the suite's worker with another check.

Random graphs run in some ways, given ones in all. The option `alternative` names
a single way. The option `kinds` has kinds of ways, of which one each
is run.
"""

from __future__ import annotations

import random
import sys
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from delegate.guard.children.channel import Channel
from delegate.inspect import Graph, read_model, write_model
from tests.attacks.fuzz import called, failing, stateful
from tests.attacks.fuzz.drawing import drawn, may_be_float16
from tests.attacks.fuzz.failing import FAILING
from tests.attacks.fuzz.pieces import PIECES
from tests.attacks.fuzz.pieces.required import may_fail
from tests.attacks.fuzz.ways import (
    PLAIN,
    again,
    remembers,
    run_way,
    some_of,
    ways_of,
    with_wider_bounds,
)
from tflite_opencl.conformance import worker
from tflite_opencl.conformance.checks.job import CaseJob, invoke_of
from tflite_opencl.conformance.results import FAIL, PASS, SKIP, CaseResult
from tflite_opencl.conformance.subject import Opened, Subject
from tflite_opencl.models.build import Case, in_float16
from tflite_opencl.oracle.node_kernels import NoOracle
from tflite_opencl.oracle.oracle import Oracle, oracle
from tflite_opencl.oracle.values import Arrays

_WAYS = 3  # ways per random graph, in addition to the default one
_RunWay = Callable[[str, CaseJob, Oracle], CaseResult]
_OPEN_GRAPHS = 3  # graphs that stay open, and run again after each way of later graphs


class GraphWorker(worker.Worker):
    """Draws the graph of a number, or reads one from a file, and runs it in several ways."""

    def __init__(self, parent: Channel, subject: Subject, request: dict[str, Any]) -> None:
        options = dict(subject.options)
        self._kinds = options.pop("kinds", "").split()
        super().__init__(parent, replace(subject, options=options), request)
        self._earlier: deque[tuple[str, Callable[[], Arrays], CaseJob, Oracle]] = deque(
            maxlen=_OPEN_GRAPHS
        )

    def model(self, item: dict[str, Any], case: Case | None) -> tuple[Graph, bytes | str]:
        """Return the model of the item's file, which is drawn if missing."""
        path = Path(item["model"])
        if not path.exists():
            # Atomically, because the process may end here.
            part = path.with_suffix(".part")
            part.write_bytes(write_model(of_number(int(item["name"]))))
            part.replace(path)
        return read_model(path), str(path)

    def check(self, name: str, job: CaseJob) -> CaseResult:
        """Run the graph as it is and in other ways; return the first wrong result.

        The detail of a PASS has the number of runs of each kind of way.
        """
        options = dict(job.subject.options)
        wanted, stem = options.pop("alternative", None), Path(str(job.model)).stem
        kinds = self._kinds
        job = replace(job, subject=replace(job.subject, options=options))
        fails: list[Arrays] = []
        try:
            if may_fail(job.graph) and not remembers(job.graph):
                job, fails = failing.divided(job)
            known = oracle(job.subject.runtime, job.graph, job.model, job.sets)
        except NoOracle as error:
            return CaseResult(SKIP, f"TFLite itself does not run it: {error}")
        job.on_delegate()
        ran: Counter[str] = Counter()
        if fails:
            known = with_wider_bounds(job, known) if job.sets else known
            failed = self._run(FAILING, job, known, partial(failing.run_failing, fails))
            if failed.result == FAIL or not job.sets:
                return failed
            ran[FAILING] = 1
        else:
            known = with_wider_bounds(job, known)
        names: list[str] = []
        opened: list[Opened] = []

        def hear(made: Opened) -> None:
            opened.append(made)
            names.extend(name for row in made.alternatives() for name in row.names)

        outcome = CaseResult(PASS, nodes=len(job.graph.nodes))
        if not kinds or wanted is not None:
            outcome = self._run(wanted or PLAIN, replace(job, on_opened=hear), known)
            if outcome.result != PASS or wanted is not None:
                return outcome
            ran[PLAIN] = 1
        ways = ways_of(job.graph, list(dict.fromkeys(names)))
        ways = [way for way in ways if not kinds or way.split()[0] in kinds]
        if may_fail(job.graph):  # with values that these ways draw
            ways = [way for way in ways if way not in (*stateful.ways(), *called.ways())]
        if stem.isdigit():
            always = [way for way in ways if way.startswith("apart ")]
            others = [way for way in ways if way not in always]
            ways = some_of(others, _WAYS, int(stem)) + some_of(always, 1, int(stem))
        for way in ways:
            result = self._run(way, job, known)
            if result.result == FAIL:
                return result
            ran[way.split()[0]] += result.result == PASS
        if remembers(job.graph) or not opened:
            return replace(outcome, detail="; ".join(f"{ran[kind]} {kind}" for kind in ran))
        run = partial(invoke_of, opened[0], job.sets[0])
        self._earlier.append((stem, run, job, known))
        return replace(outcome, detail="; ".join(f"{ran[kind]} {kind}" for kind in ran))

    def _run(self, way: str, job: CaseJob, known: Oracle, run: _RunWay = run_way) -> CaseResult:
        self._say(alternative=way)
        try:
            result = run(way, job, known)
            again(self._earlier)
        except Exception as error:
            result = CaseResult(FAIL, f"{type(error).__name__}: {' '.join(str(error).split())}")
        return replace(result, nodes=len(job.graph.nodes), alternative=way)


def of_number(number: int) -> Graph:
    """Return the graph of a number; one in eight of those that may be has float16 tensors."""
    graph = drawn(number, PIECES)
    is_narrow = random.Random(number).random() < 1 / 8 and may_be_float16(graph)
    return in_float16(graph) if is_narrow else graph


if __name__ == "__main__":
    sys.exit(worker.main(GraphWorker))
