# SPDX-License-Identifier: Apache-2.0
"""OpenCL calls fail, or child processes die, while a model has state.

    python -m tests.attacks.keeping --device pocl --most 4

A model with state runs, is resized and reset, and runs again, while faults.c fails at one call.
Each run must equal TFLite's reference kernels or be an error, and after an error each run must be
an error until a reset. Exit code: 0 if all did, 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from delegate import DelegateError, Model, OpenCLDelegate
from delegate.inspect import Graph, write_model
from tests.attacks.faults import (
    CHILDREN,
    COMMAND,
    NO_COMPILER,
    STATUSES,
    Fault,
    build_library,
    calls_of,
)
from tests.support.compare import interpreter, invoke
from tests.support.delay import SHAPE, delays, variable
from tests.support.model import graph_of, op, t
from tests.support.process import ROOT
from tests.support.variables import beginning, handle

KINDS = ("variables", "tensors", "model")
STATE_LOST = "the state is lost"
_RUN, _RESIZE, _BEGIN = "run", "resize", "begin"
_STEPS = (*[_RUN] * 3, _RESIZE, *[_RUN] * 3, _BEGIN, *[_RUN] * 3)
_SECONDS = 300  # for all steps of a process, on a busy machine
_Z = (2, 3)  # shape of the input that is resized
# A step's name, whether it failed, and its outputs or its error.
Step = tuple[str, bool, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Inject faults, print findings and the counts of outcomes; return the exit code."""
    given = _parser().parse_args(arguments)
    if given.child:
        for step in step_results(given.child, given.device, given.lonely):
            print(json.dumps(step), flush=True)
        return 0
    results: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="keeping-") as scratch:
        library = build_library(Path(scratch))
        if library is None:
            print(NO_COMPILER)
            return 1
        for kind in KINDS:
            bed = Bed(kind, given.device, library, Path(scratch))
            with ThreadPoolExecutor(given.jobs) as pool:
                faults = [*bed.faults(given.most)]
                for fault, ended in zip(faults, pool.map(bed.ended, faults), strict=True):
                    results[ended] += 1
                    if ended not in ALLOWED:
                        print(f"{kind}: {fault}: {ended}", flush=True)
            results[f"{kind}, children killed: {bed.lonely()}"] += 1
    print("\n".join(f"{count} {ended}" for ended, count in results.most_common()))
    return 0 if all(each.rpartition(": ")[2] in ALLOWED for each in results) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.attacks.keeping",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--device", default="pocl", metavar="WORDS", help="of the OpenCL device's name")
    add("--most", type=int, default=4, metavar="N", help="calls of a function that fail, each")
    add("--jobs", type=int, default=1, metavar="N", help="processes at a time")
    add("--child", choices=KINDS, help=argparse.SUPPRESS)
    add("--lonely", action="store_true", help=argparse.SUPPRESS)
    return parser


RIGHT, REFUSED, RENEWED = "every run is right", "no start", "errors until it began anew, then right"
ENDED = "errors to the end"
ALLOWED = (RIGHT, REFUSED, RENEWED, ENDED)


class Bed:
    """A test bed for a kind of state on a device."""

    def __init__(self, kind: str, device: str, library: Path, folder: Path) -> None:
        self._kind, self._device, self._library, self._folder = kind, device, library, folder
        self._calls: Mapping[str, int] = {}

    def calls(self) -> Mapping[str, int]:
        """Return the number of calls of each function. Raises: RuntimeError: a run is wrong."""
        if not self._calls:
            counts = self._folder / f"counts {self._kind}"
            # The first start fills the cache.
            for _ in range(2):
                counts.unlink(missing_ok=True)
                ended = judged(self._kind, self._steps({"FAULT_COUNTS": str(counts)}))
                if ended != RIGHT:
                    raise RuntimeError(f"{self._kind} without a fault: {ended}")
            self._calls = calls_of(counts)[COMMAND]
        return self._calls

    def faults(self, most: int) -> Iterator[Fault]:
        """Yield faults at up to `most` calls of each function, with the first and last."""
        for call, count in sorted(self.calls().items()):
            places = sorted({int(place) for place in np.linspace(1, count, min(most, count))})
            for nth in places:
                status = STATUSES[nth % len(STATUSES)]
                yield Fault(call, nth, "error", status=status, lasts=nth % 3 == 0)

    def ended(self, fault: Fault) -> str:
        """Return the outcome of the steps with a fault: one of ALLOWED, or a description."""
        return judged(self._kind, self._steps(fault.environment))

    def lonely(self) -> str:
        """Return the outcome if children are killed between runs, and new ones at once."""
        return judged(self._kind, self._steps({}, "--lonely"))

    def _steps(self, environment: dict[str, str], *flags: str) -> Sequence[Step] | str:
        command = [sys.executable, "-W", "ignore", "-m", "tests.attacks.keeping", *flags]
        cache_folder = self._folder / f"cache of {self._kind}{''.join(flags)}"
        variables = {
            "LD_PRELOAD": str(self._library),
            "TFLITE_OPENCL_CACHE": str(cache_folder),
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(
            [*command, "--child", self._kind, "--device", self._device],
            cwd=ROOT, env=os.environ | variables | environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            return f"exit {done.returncode}: {done.stderr[-300:]}"
        return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def judged(kind: str, steps: Sequence[Step] | str) -> str:
    """Return the outcome of steps: one of ALLOWED, or a description."""
    if isinstance(steps, str):
        return steps
    if not steps:
        return REFUSED
    count, failed, failures = 0, "", 0
    is_built = True  # False: TFLite refuses to run after a failed resize or reset
    for place, (name, is_error, outcome) in enumerate(steps):
        if name == _RUN and not is_error:
            if failed:
                return f"step {place} goes on after {failed}"
            if not np.array_equal(outcome, right_of(kind)[count]):
                return f"step {place} gives {outcome} instead of {right_of(kind)[count]}"
            count += 1
        elif name == _RUN:
            if is_built and steps[place - 1][:2] == (_RUN, True) and STATE_LOST not in outcome:
                return f"step {place} does not say that {STATE_LOST}: {outcome}"
            failures, failed = failures + 1, failed or str(outcome)
        else:
            if name == _RESIZE or kind == "variables":  # other resets build nothing
                is_built = not is_error
            if not is_error and (name == _BEGIN or kind == "tensors"):
                count, failed = 0, ""
    if not failures:
        return RIGHT
    return ENDED if failed else RENEWED


@cache
def right_of(kind: str) -> Sequence[Any]:
    """Return the right outputs of consecutive runs after a reset."""
    interp = interpreter(write_model(_graph(kind)))
    return [run_once(interp, number) for number in range(len(_STEPS))]


def run_once(made: Any, number: int) -> Any:
    """Return the outputs of an interpreter or Model for the inputs of run `number`."""
    rows = 2 if isinstance(made, Model) else made.get_input_details()[1]["shape"][0]
    given = np.full(SHAPE, 3 + number, np.float32), np.ones((rows, *_Z[1:]), np.float32)
    if isinstance(made, Model):
        outputs = made.run([given[0], given[1][np.newaxis]])
    else:
        outputs = invoke(made, given)
    return [each.tolist() for each in outputs[:-1]]


def step_results(kind: str, device: str, is_lonely: bool) -> Iterator[Step]:
    """Yield the result of each step in this process."""
    try:
        with _StatefulModel(kind, device, is_lonely) as keeper:
            for name in _STEPS:
                if is_lonely:
                    _kill_children()
                try:
                    yield name, False, keeper.take(name)
                except (DelegateError, RuntimeError, ValueError) as error:
                    yield name, True, f"{keeper.failure} {error}"
    except (DelegateError, RuntimeError, ValueError):
        return


class _StatefulModel:
    """A model with state that can run, be resized and be reset."""

    def __init__(self, kind: str, device: str, is_lonely: bool) -> None:
        self._kind, self._model = kind, write_model(_graph(kind))
        self._options = {"device": device, "tune": "off", "in_child_first": is_lonely}
        self._delegate: OpenCLDelegate | None = None
        self._count = 0  # runs since the reset
        self._made = self._opened()

    def __enter__(self) -> _StatefulModel:
        return self

    def __exit__(self, *exception: object) -> None:
        if isinstance(self._made, Model):
            self._made.close()

    @property
    def failure(self) -> object:
        """The delegate's description of its last failure."""
        return "" if self._delegate is None else self._delegate.failure

    def take(self, step: str) -> Any:
        """Return the outputs of a run, else None. Raises: DelegateError, RuntimeError."""
        if step == _RUN:
            outputs = run_once(self._made, self._count)
            self._count += 1
            return outputs
        if step == _BEGIN:
            self._begin()
        elif not isinstance(self._made, Model):
            self._made.resize_tensor_input(self._made.get_input_details()[1]["index"], [5, _Z[1]])
            self._made.allocate_tensors()
        if step == _BEGIN or self._kind == "tensors":
            self._count = 0
        return None

    def _opened(self) -> Any:
        if self._kind == "model":
            return Model(self._model, **self._options)
        # Without ABS there are two partitions: a run may fail after one of them updated its state.
        options: Any = self._options | {"min_nodes_per_partition": 1, "exclude_ops": ["ABS"]}
        self._delegate = OpenCLDelegate(self._model, **options)
        return interpreter(self._model, self._delegate)

    def _begin(self) -> None:
        if self._kind == "variables":
            self._made = self._opened()
        elif self._kind == "tensors":
            self._made.reset_all_variables()
        else:
            self._made.reset()


def _kill_children() -> None:
    """Kill this process's children, and make new ones die at their first call."""
    os.environ |= Fault("clGetPlatformIDs", 1, "kill", place=CHILDREN).environment
    for path in Path("/proc/self/task").glob("*/children"):
        for number in path.read_text().split():
            os.kill(int(number), signal.SIGKILL)


def _graph(kind: str) -> Graph:
    """Return a graph with state before and after an ABS, and a separate node with an input."""
    z, doubled = t(_Z, "float32", name="z"), t(_Z, "float32", name="doubled")
    beside = op("ADD", [z, z], [doubled])
    if kind == "tensors":
        graph = delays([variable("a"), variable("b")], ["ABS"])
        return graph_of([*graph.nodes, beside], [*graph.inputs, z], [*graph.outputs, doubled])
    x, between, *each = (t(SHAPE, "float32", name=name) for name in "xyabcd")
    (first, a), (second, b) = handle("first"), handle("second")
    begun = beginning({name: np.full(SHAPE, 10, np.float32) for name in ("first", "second")})
    nodes = [
        replace(op("CALL_ONCE", [], []), body=begun),
        first, op("READ_VARIABLE", [a], [each[0]]), op("ADD", [each[0], x], [each[1]]),
        op("ASSIGN_VARIABLE", [a, each[1]], []), op("ABS", [each[1]], [between]),
        second, op("READ_VARIABLE", [b], [each[2]]), op("ADD", [each[2], between], [each[3]]),
        op("ASSIGN_VARIABLE", [b, each[3]], []), beside,
    ]  # fmt: skip
    return graph_of(nodes, [x, z], [each[1], each[3], doubled])


if __name__ == "__main__":
    sys.exit(main())
