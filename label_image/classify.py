# SPDX-License-Identifier: Apache-2.0
"""One path's run of a model on one input: on the CPU, or through a delegate.

A path logs label_image's own lines as it goes. It neither reads pictures nor decodes results.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import DelegateError, Graph, NoDeviceError, OpenCLDelegate, Verdict
from label_image.verbose import interpreter_state, profile_lines
from tflite_opencl.common.runtime import Runtime
from tflite_opencl.common.timing import Times, measure

log = logging.getLogger("label_image")
# TFLite writes a few lines to stdout: their text is whole, "INFO: " included.
stdout = logging.getLogger("label_image.stdout")


class RunError(Exception):
    """The run cannot go on; the text is label_image's own line for it, at that log level."""

    def __init__(self, text: str, level: int = logging.ERROR) -> None:
        super().__init__(text)
        self.level = level


class DelegateFailed(Exception):
    """The delegate's path failed and the CPU can take over; the text is one line that says why."""


@dataclass(frozen=True, slots=True)
class Job:
    """What one path runs; all of it can cross to a child process."""

    model: str | bytes  # path, or content
    input: NDArray[Any]  # for the model's first input, or the one below
    count: int = 1
    warmup_runs: int = 0
    threads: int | None = None  # None: TFLite's own choice
    cpu_kernels: str = "auto"  # what runs the CPU's part
    opencl: Mapping[str, Any] | None = None  # OpenCLDelegate's keyword arguments; None: no OpenCL
    external: tuple[str, Mapping[str, str]] | None = None  # a delegate library and its options
    announce_xnnpack: bool = False  # say that XNNPACK runs
    reference: bool = False  # also run once with the CPU's part on the reference kernels
    profile_rows: int = 0  # most rows to log of the nodes' times; 0: no profiling
    verbose: bool = False
    quiet: bool = False  # log none of label_image's own lines
    input_number: int = 0  # which of the model's inputs `input` is for
    # Values for other inputs, each with its input's number; what is not here gets zeros.
    other_inputs: Sequence[tuple[int, NDArray[Any]]] = ()


@dataclass(frozen=True, slots=True)
class Delegation:
    """What the OpenCL delegate took."""

    device: str
    platform: str
    driver: str
    verdicts: Sequence[Verdict]
    partitions: Sequence[Sequence[int]]  # node indices
    # With what is left to the CPU on the reference kernels; None: not run, or not possible.
    reference_outputs: tuple[NDArray[Any], ...] | None = None
    reference_failure: str = ""  # why it was not possible

    @property
    def delegated(self) -> int:
        """Count the nodes that ran on OpenCL."""
        return sum(verdict.is_taken for verdict in self.verdicts)


@dataclass(frozen=True, slots=True)
class PathRun:
    """What one path gave."""

    times: Times
    load_ms: float  # from the file to allocated tensors, kernels built
    outputs: tuple[NDArray[Any], ...] = field(repr=False)
    delegation: Delegation | None = None  # of the OpenCL delegate


def run_path(job: Job, runtime: Runtime, graph: Graph) -> PathRun:
    """Return the job's times and outputs.

    Raises:
        RunError: TFLite cannot run the model, or the external delegate cannot be used.
        NoDeviceError: there is no OpenCL device, or not the wanted one.
        DelegateFailed: the OpenCL delegate, or a run with it, failed.
    """
    started_s = time.perf_counter()
    try:
        with delegate_for(job, runtime) as delegate:
            return _run(job, runtime, graph, delegate, started_s)
    except NoDeviceError:
        raise
    except DelegateError as error:
        raise DelegateFailed(str(error)) from error


def run_once(job: Job, runtime: Runtime) -> tuple[NDArray[Any], ...]:
    """Return the outputs of a single run, and log nothing.

    Raises: as run_path.
    """
    with delegate_for(job, runtime) as delegate:
        interpreter = interpreter_for(job, runtime, delegate)
        allocate(job, interpreter, delegate)
        with step(delegate, "Failed to invoke tflite!"):
            interpreter.invoke()
        return outputs_of(interpreter)


def _run(job: Job, runtime: Runtime, graph: Graph, delegate: Any, started_s: float) -> PathRun:
    name = "GPU" if job.opencl is not None else "EXTERNAL" if job.external else ""
    names = [name] * bool(name) + ["XNNPACK"] * job.announce_xnnpack
    speak = not job.quiet
    if speak and names:
        # Only the first delegate of the process is announced so.
        stdout.info("INFO: %s delegate created.", names[0])
    interpreter = interpreter_for(job, runtime, delegate)
    if speak:
        for name in names:
            log.info("Applied %s delegate.", name)
    allocate(job, interpreter, delegate)
    load_ms = (time.perf_counter() - started_s) * 1e3
    opencl = delegate if job.opencl is not None else None
    if speak and opencl and not any(verdict.is_taken for verdict in opencl.verdicts):
        log.warning(
            "the OpenCL delegate took none of the model's %d nodes: the CPU runs them all",
            len(graph.nodes),
        )
    if speak and job.verbose:
        reasons = {index: reason for index, _, reason in opencl.verdicts} if opencl else None
        stdout.info("%s", interpreter_state(graph, reasons))

    with step(delegate, "Failed to invoke tflite!"):
        times = measure(interpreter.invoke, job.count, job.warmup_runs)
    if speak:
        log.info("invoked")
        log.info("average time: %g ms", times.average_ms)
        if opencl and job.profile_rows:
            for line in profile_lines(opencl.profile(), job.profile_rows):
                log.info("%s", line)
    outputs = outputs_of(interpreter)
    delegation = _with_reference(job, runtime, opencl, outputs) if opencl else None
    return PathRun(times, load_ms, outputs, delegation)


def delegation_of(delegate: OpenCLDelegate) -> Delegation:
    """Return what the delegate of an allocated interpreter took."""
    return Delegation(
        device=delegate.device.name,
        platform=delegate.device.platform,
        driver=delegate.device.driver,
        verdicts=tuple(delegate.verdicts),
        partitions=tuple(tuple(nodes) for nodes in delegate.partitions),
    )


def _with_reference(
    job: Job, runtime: Runtime, delegate: OpenCLDelegate, outputs: tuple[NDArray[Any], ...]
) -> Delegation:
    taken = delegation_of(delegate)
    if not job.reference:
        return taken
    if taken.delegated == len(taken.verdicts) or job.cpu_kernels == "reference":
        return replace(taken, reference_outputs=outputs)
    try:
        return replace(
            taken, reference_outputs=run_once(replace(job, cpu_kernels="reference"), runtime)
        )
    except (RunError, DelegateFailed, DelegateError) as error:
        return replace(taken, reference_failure=reason_of(error))


@contextlib.contextmanager
def delegate_for(job: Job, runtime: Runtime) -> Iterator[Any]:
    """Give the job's delegate, ours or an external one, and close it in the end; None: the CPU.

    Raises: RunError: the external delegate cannot be used. DelegateError: ours cannot.
    """
    if job.opencl is not None:
        delegate = OpenCLDelegate(job.model, profiling=job.profile_rows > 0, **job.opencl)
        try:
            yield delegate
        finally:
            delegate.close()
    elif job.external is not None:
        path, options = job.external
        try:
            loaded = runtime.load_delegate(path, options)
        except (OSError, ValueError, AttributeError, RuntimeError) as error:
            raise RunError(f"cannot load the delegate {path}: {one_line(error)}") from error
        yield loaded
    else:
        yield None


def interpreter_for(job: Job, runtime: Runtime, delegate: Any) -> Any:
    """Return the job's interpreter; its tensors are not yet allocated. Raises as `step`."""
    delegates = [] if delegate is None else [delegate]
    external = job.external is not None
    line = "Failed to apply EXTERNAL delegate." if external else "Failed to construct interpreter"
    with step(delegate, line):
        return runtime.interpreter(job.model, job.threads, job.cpu_kernels, delegates)


def allocate(job: Job, interpreter: Any, delegate: Any) -> None:
    """Allocate tensors; set the inputs to the job's, others to zeros. Raises as `step`."""
    with step(delegate, "Failed to allocate tensors!"):
        interpreter.allocate_tensors()
        values = {job.input_number: job.input, **dict(job.other_inputs)}
        for number, details in enumerate(interpreter.get_input_details()):
            value = values.get(number)
            if value is None:  # else it holds whatever was in that memory
                value = np.zeros(interpreter.get_tensor(details["index"]).shape, details["dtype"])
            interpreter.set_tensor(details["index"], value)


def outputs_of(interpreter: Any) -> tuple[NDArray[Any], ...]:
    """Return copies of all outputs."""
    return tuple(
        interpreter.get_tensor(details["index"]) for details in interpreter.get_output_details()
    )


@contextlib.contextmanager
def step(delegate: Any, line: str) -> Iterator[None]:
    """Turn TFLite's errors into label_image's line, or, with OpenCL, into one the CPU recovers.

    Raises: RunError, or with our delegate, where it took a node, DelegateFailed.
    """
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if isinstance(delegate, OpenCLDelegate) and not _is_left_out(delegate):
            raise DelegateFailed(delegate.failure or one_line(error)) from error
        raise RunError(line) from error


def _is_left_out(delegate: OpenCLDelegate) -> bool:
    """Whether the delegate took no node of the model, so that what fails is TFLite's own."""
    verdicts = delegate.verdicts
    return not delegate.failure and bool(verdicts) and not any(each.is_taken for each in verdicts)


def one_line(error: BaseException) -> str:
    """Return the error's text as one line."""
    return " ".join(str(error).split()) or type(error).__name__


def reason_of(error: BaseException) -> str:
    """Return the error and its cause as one line."""
    text = one_line(error)
    if isinstance(error, RunError) and error.__cause__ is not None:
        text = f"{text.rstrip('.!')}: {one_line(error.__cause__)}"
    return text
