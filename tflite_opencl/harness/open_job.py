# SPDX-License-Identifier: Apache-2.0
"""TFLite's interpreter for a job: on the CPU or through a delegate, ready to run."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import OpenCLDelegate
from delegate.inspect import Graph, LaunchTime, NotRestarted, infer, watched
from tflite_opencl.console import bars, interrupts
from tflite_opencl.console.errors import DelegateFailed, RunError, one_line
from tflite_opencl.harness.job import Delegation, Job
from tflite_opencl.interpreters.interpreter import (
    by_picture,
    delegates_for,
    outputs_of,
    overwrites,
    run,
    taken_nodes,
)
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.oracle.judge import JudgeInterpreter, open_judge
from tflite_opencl.oracle.node_kernels import JUDGE, NodeKernels
from tflite_opencl.timing.profile import Profile, launch_times, profile_of, timed_runs
from tflite_opencl.timing.timing import Stopwatch, Times
from tflite_opencl.timing.trace import Trace, trace_of

_TRACED_RUNS = 5
_PATIENCE = 3  # factor of the seconds, for the runs of a slow model
log = logging.getLogger("tflite_opencl")
# Lines that TFLite itself writes to stdout: the text includes the "INFO: " prefix.
stdout = logging.getLogger("tflite_opencl.stdout")


class OpenInterpreter:
    """An interpreter with allocated tensors; its inputs are the job's.

    Everything that runs it raises as `step` does.

    Attributes:
        interpreter: TFLite's own. load_ms: from the file to allocated tensors, kernels built.
        load_parts: of load_ms, by delegate.Watch's phases; empty without our delegate.
        delegation: the nodes that the OpenCL delegate took, if any. others: the nodes that a
            delegate library took.
    """

    def __init__(
        self,
        interpreter: Any,
        delegates: Sequence[Any],
        load_ms: float,
        seconds: Mapping[str, float],
        library: str = "",
        others: Sequence[int] = (),
    ) -> None:
        """`seconds`: of each start-up phase, by its name. `library`: as in Delegation."""
        self.interpreter = interpreter
        self.others = others
        self._delegates = delegates
        self._delegate: Any = _ours(delegates)
        self.load_ms = load_ms
        self.load_parts: Mapping[str, float] = {}
        self.delegation: Delegation | None = None
        if (delegate := _ours(delegates)) is not None:
            self.delegation = Delegation(
                device=delegate.device.name,
                platform=delegate.device.platform,
                driver=delegate.device.driver,
                verdicts=tuple(delegate.verdicts),
                partitions=tuple(tuple(nodes) for nodes in delegate.partitions),
                tuning_left=delegate.tuning_left,
                lost=sum(verdict.is_lost for verdict in delegate.verdicts),
                library=library,
                others=others,
            )
            self.load_parts = {phase: taken * 1e3 for phase, taken in seconds.items()}

    def measure(self, count: int, warmup_runs: int) -> Times:
        """Time this many runs, after warm-up runs. Raises: as `measured`."""
        return measured(lambda stopwatch: self.time(stopwatch, count, warmup_runs), count)

    def measure_longer(self, seconds: float) -> Times | None:
        """Time runs until their statistics are stable; None: interrupted by Ctrl-C."""
        stopwatch = Stopwatch()
        with contextlib.suppress(KeyboardInterrupt):
            with self._running():
                stopwatch.measure_for(self.interpreter.invoke, seconds, _PATIENCE * seconds)
            return stopwatch.times
        return None

    def time(self, stopwatch: Stopwatch, count: int, warmup_runs: int) -> None:
        """Time this many runs with a stopwatch, after warm-up runs.

        Raises: KeyboardInterrupt: the stopwatch has the times so far.
        """
        with self._running():
            stopwatch.measure(self.interpreter.invoke, count, warmup_runs)

    def run_each(
        self, input_number: int, pixels: NDArray[Any], batch: int = 1
    ) -> list[tuple[NDArray[Any], ...]]:
        """Return the outputs for each picture, passed to the input with this index.

        `batch`: batch size of the model itself; the last picture pads a partial batch.
        Shapes: (n, h, w, c)
        """
        index = self.interpreter.get_input_details()[input_number]["index"]
        outputs: list[tuple[NDArray[Any], ...]] = []
        with self._running():
            for number in range(0, len(pixels), batch):
                given = pixels[number : number + batch]
                missing = np.repeat(given[-1:], batch - len(given), axis=0)
                self.interpreter.set_tensor(index, np.concatenate([given, missing]))
                self.interpreter.invoke()
                interrupts.check()
                outputs += by_picture(self.outputs(), batch)
        return outputs[: len(pixels)]

    def run(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        """Return the outputs of a run on these inputs."""
        with self._running():
            run(self.interpreter, inputs)
            return self.outputs()

    @property
    def judge(self) -> NodeKernels | None:
        """The reference kernels of the last run; None: the job is not JUDGE's."""
        made = self.interpreter
        return made.kernels if isinstance(made, JudgeInterpreter) else None

    def outputs(self) -> tuple[NDArray[Any], ...]:
        """Return copies of all outputs of the last run."""
        return tuple(outputs_of(self.interpreter))

    def profile(self) -> Sequence[LaunchTime]:
        """Run a few more times; return the times of OpenCL launches; needs Job.profile_rows."""
        if not (self.delegation and self.delegation.delegated):
            return ()
        with self._running():
            return launch_times(self._delegate, self.interpreter.invoke, 1)[0]

    def node_profile(self, graph: Graph) -> Profile | None:
        """Run a few more times; return the profile; None: no node ran on OpenCL."""
        if not (self.delegation and self.delegation.delegated):
            return None
        with self._running():
            return profile_of(self._delegate, infer(graph), self.interpreter.invoke)

    def trace(self, name: str) -> Trace | None:
        """Run a few more times; return the timeline; None: no node ran on OpenCL."""
        taken = self.delegation
        if not (taken and taken.delegated):
            return None
        with self._running():
            runs = timed_runs(self._delegate, self.interpreter.invoke, _TRACED_RUNS)
        return trace_of(runs, taken.verdicts, taken.partitions, name)

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        with step(self._delegates, "Failed to invoke tflite!"):
            yield
        if (taken := self.delegation) is not None:
            lost = [str(each.reason) for each in self._delegate.verdicts if each.is_lost]
            if len(lost) > taken.lost:  # no child is left: TFLite's kernels ran it
                raise DelegateFailed(lost[-1]) from NotRestarted(lost[-1])


def measured(time: Callable[[Stopwatch], object], count: int) -> Times:
    """Return the times of `count` runs measured by `time`, or of those before Ctrl-C.

    Raises: KeyboardInterrupt only if no timed run has finished.
    """
    stopwatch = Stopwatch()
    try:
        time(stopwatch)
    except KeyboardInterrupt:
        if not stopwatch.count:
            raise
        log.warning("Ctrl-C ended it after %d of %d timed runs", stopwatch.count, count)
    return stopwatch.times


@contextlib.contextmanager
def open_interpreter(
    job: Job, runtime: Runtime, graph: Graph, announced: Sequence[str] = ()
) -> Iterator[OpenInterpreter]:
    """Yield the job's interpreter; nothing has run yet.

    `graph`: the model's, as read from the file.
    `announced`: delegates whose creation and application is logged as by TFLite.
    Raises: RunError: TFLite cannot run the model, or the external delegate cannot be used.
        DelegateError: the OpenCL delegate cannot be created. DelegateFailed: it failed later.
    """
    if job.external is not None and graph.subgraph:
        raise RunError("--signature: TFLite tells what a delegate library takes of no other graph")
    begin_s = time.perf_counter()
    with contextlib.ExitStack() as stack:
        # Only our delegate's start-up has phases to display.
        with watched() if job.opencl is None else bars.start() as watch:
            options = job.opencl and replace(job.opencl, profiling=job.is_profiled)
            delegates = stack.enter_context(
                delegates_for(graph, runtime, options, job.external, job.is_external_last)
            )
            if announced:
                # TFLite announces only the first delegate of the process this way.
                stdout.info("INFO: %s delegate created.", announced[0])
            interpreter = interpreter_for(job, runtime, graph, delegates)
            if isinstance(interpreter, JudgeInterpreter):
                stack.callback(interpreter.close)
            log_applied(announced)
            others = _of_library(job, interpreter, graph, _ours(delegates))
            allocate(job, interpreter, delegates)
        load_ms = (time.perf_counter() - begin_s) * 1e3
        yield OpenInterpreter(interpreter, delegates, load_ms, watch.seconds, job.library, others)


def _ours(delegates: Sequence[Any]) -> OpenCLDelegate | None:
    return next((each for each in delegates if isinstance(each, OpenCLDelegate)), None)


def _of_library(
    job: Job, interpreter: Any, graph: Graph, ours: OpenCLDelegate | None
) -> Sequence[int]:
    """Return the nodes that the job's delegate library took.

    Before allocation: TFLite then gives remaining nodes to XNNPACK, and does not tell which.
    """
    if job.external is None:
        return ()
    own = {verdict.node for verdict in ours.verdicts if verdict.is_taken} if ours else set()
    return tuple(sorted(taken_nodes(interpreter, graph) - own))


def delegate_names(job: Job) -> list[str]:
    """Return label_image's names of the delegates to announce."""
    names = ["EXTERNAL"] * (job.external is not None) + ["GPU"] * (job.opencl is not None)
    names = names[::-1] if job.is_external_last else names
    return names + ["XNNPACK"] * job.announce_xnnpack


def log_applied(names: Sequence[str]) -> None:
    """Log label_image's line for each of these delegates."""
    for name in names:
        log.info("Applied %s delegate.", name)


def interpreter_for(job: Job, runtime: Runtime, graph: Graph, delegates: Sequence[Any] = ()) -> Any:
    """Return the job's interpreter; its tensors are not allocated yet. Raises as `step`."""
    # A delegate would get each node as a separate partition.
    keeps_all = job.cpu_kernels == "reference" and not delegates and overwrites(graph)
    external = job.external is not None
    line = "Failed to apply EXTERNAL delegate." if external else "Failed to construct interpreter"
    with step(delegates, line):
        if job.cpu_kernels == JUDGE:
            return open_judge(runtime, graph, job.model, left=job.left, threads=job.threads)
        return runtime.interpreter(
            job.model, job.threads, job.cpu_kernels, delegates, keeps_all, graph
        )


def allocate(job: Job, interpreter: Any, delegates: Sequence[Any]) -> None:
    """Allocate tensors; set inputs to the job's values or to zeros. Raises as `step`."""
    with step(delegates, "Failed to allocate tensors!"):
        interpreter.allocate_tensors()
        values = {job.input_number: job.input, **dict(job.other_inputs)}
        for number, details in enumerate(interpreter.get_input_details()):
            value = values.get(number)
            if value is None:  # otherwise it would be uninitialised
                value = np.zeros(interpreter.get_tensor(details["index"]).shape, details["dtype"])
            interpreter.set_tensor(details["index"], value)


@contextlib.contextmanager
def step(delegates: Sequence[Any], line: str) -> Iterator[None]:
    """Convert TFLite's errors to label_image's line, or, with OpenCL, to a recoverable error.

    Raises: RunError, or DelegateFailed if our delegate took nodes. KeyboardInterrupt:
        Ctrl-C was pressed, whether or not the steps succeeded.
    """
    try:
        yield
        interrupts.check()
    except (RuntimeError, ValueError) as error:
        interrupts.check()
        if (delegate := _ours(delegates)) is not None:
            verdicts, is_alone = delegate.verdicts, len(delegates) == 1
            # Without any node of ours, the failure is TFLite's own, or the other delegate's.
            is_ours = is_alone and (not verdicts or any(each.is_taken for each in verdicts))
            if delegate.failure or is_ours:
                raise DelegateFailed(delegate.failure or one_line(error)) from error
        raise RunError(line) from error
