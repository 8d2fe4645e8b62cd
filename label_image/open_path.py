# SPDX-License-Identifier: Apache-2.0
"""A path that stays open for many pictures: a batch of tensors in, outputs out, the time between.

A path logs what it is made of when it opens. It neither reads pictures nor decodes results.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import DelegateError, Graph, Model, Options, Tensor, Unsupported, Verdict
from label_image.errors import DelegateFailed, RunError, delegate_failures
from label_image.interpreter import (
    OpenInterpreter,
    interpreter_for,
    open_interpreter,
    outputs_of,
    step,
)
from label_image.job import Delegation, Job
from label_image.scene import found_only
from tflite_opencl.common import bars
from tflite_opencl.common.runtime import Runtime

log = logging.getLogger("label_image")

Array = NDArray[Any]
Outputs = tuple[Array, ...]  # of one picture, in the model's own shapes


class OpenPath:
    """A model ready to run.

    Attributes:
        load_ms: from the file to allocated tensors, kernels built; batch: pictures at once.
        load_parts: of load_ms, by delegate.Watch's phases.
        delegation: what the OpenCL delegate took, if it is one.
        empty_batch: gives memory for a batch that this path reads faster than other memory.
        pictures, seconds, cpu_seconds: what `run` was given, and the time from tensors to outputs
            that took, by the clock and of all threads of this process.
    """

    def __init__(
        self,
        run: Callable[[Array], list[Outputs]],
        load_ms: float,
        batch: int = 1,
        delegation: Delegation | None = None,
        empty_batch: Callable[[], Array] | None = None,
        load_parts: Mapping[str, float] | None = None,
    ) -> None:
        self._run = run
        self.load_ms = load_ms
        self.load_parts = load_parts or {}
        self.batch = batch
        self.delegation = delegation
        self.empty_batch = empty_batch
        self.pictures = 0
        self.seconds = self.cpu_seconds = 0.0

    def warm_up(self, pixels: Array, runs: int) -> None:
        """Run so many times, and count none of them. Raises as `run`."""
        for _ in range(runs):
            self._run(pixels)

    def run(self, pixels: Array) -> list[Outputs]:
        """Return each picture's outputs.

        Shapes: (n, h, w, c), n up to the batch
        Raises:
            RunError: TFLite fails. DelegateFailed: the OpenCL delegate, or a run with it, failed.
        """
        begin_s, cpu_begin_s = time.perf_counter(), time.process_time()
        outputs = self._run(pixels)
        self.seconds += time.perf_counter() - begin_s
        self.cpu_seconds += time.process_time() - cpu_begin_s
        self.pictures += len(pixels)
        return outputs


@contextlib.contextmanager
def open_path(
    job: Job, runtime: Runtime, graph: Graph, batch: int | None = None
) -> Iterator[OpenPath]:
    """Give the job's path: its `input` is not run. With a batch, at once what can be at once.

    Raises:
        RunError: TFLite cannot run the model, or the external delegate cannot be used.
        NoDeviceError: there is no OpenCL device, or not the wanted one.
        DelegateFailed: the OpenCL delegate failed.
    """
    begin_s = time.perf_counter()
    with contextlib.ExitStack() as stack:
        with delegate_failures():
            path = None
            if job.opencl is not None and batch is not None:
                path = _whole_model(stack, job, graph, batch, begin_s)
            if path is None:
                opened = stack.enter_context(open_interpreter(job, runtime))
                path = _through_tflite(opened, job, runtime, graph, batch or 1, begin_s)
        yield path


def _whole_model(
    stack: contextlib.ExitStack, job: Job, graph: Graph, batch: int, begin_s: float
) -> OpenPath | None:
    options = job.opencl
    assert options is not None
    try:
        if limit := _limit_of(options, len(graph.nodes)):
            raise Unsupported(f"--{limit} leaves nodes to the CPU")
        with bars.start() as watch:
            model = stack.enter_context(
                Model(
                    job.model,
                    options.device,
                    batch,
                    options.tune,
                    options.exclude_isa,
                    options.device_profile,
                )
            )
    except Unsupported as refusal:
        log.warning("--batch: OpenCL runs the pictures one by one through TFLite: %s", refusal)
        return None
    inputs = [np.zeros(details.shape, details.dtype) for details in model.input_details]
    for number, value in job.other_inputs:
        inputs[number][...] = value

    def run(pixels: Array) -> list[Outputs]:
        arrays = [array[: len(pixels)] for array in inputs]
        arrays[job.input_number] = pixels
        try:
            outputs = model.run(arrays)
        except DelegateError as error:
            raise DelegateFailed(str(error)) from error
        return _of_each(outputs, graph.outputs)

    taken = Delegation(
        device=model.device.name,
        platform=model.device.platform,
        driver=model.device.driver,
        verdicts=tuple(Verdict(node.index, node.op, None) for node in graph.nodes),
        partitions=(tuple(node.index for node in graph.nodes),),
        tuning_left=model.tuning_left,
    )

    def empty_batch() -> Array:
        arrays = model.empty_input()
        return arrays[job.input_number] if isinstance(arrays, list) else arrays

    parts = {phase: seconds * 1e3 for phase, seconds in watch.seconds.items()}
    return OpenPath(run, _ms_since(begin_s), batch, taken, empty_batch, parts)


def _limit_of(options: Options, nodes: int) -> str | None:
    """Return the name of an option that leaves nodes to the CPU, which class Model cannot."""
    if options.exclude_ops:
        return "exclude_ops"
    if options.min_nodes_per_partition > nodes:
        return "min_nodes_per_partition"
    return "max_delegated_partitions" if options.max_delegated_partitions else None


def _through_tflite(
    opened: OpenInterpreter, job: Job, runtime: Runtime, graph: Graph, batch: int, begin_s: float
) -> OpenPath:
    load_ms = _ms_since(begin_s)

    def run(pixels: Array) -> list[Outputs]:
        return [found_only(graph, each) for each in opened.run_each(job.input_number, pixels)]

    if job.opencl is None and job.external is None and batch > 1:
        begin_s = time.perf_counter()
        sample = _sample(job.input, batch)
        with contextlib.suppress(RunError, RuntimeError, ValueError):  # as of a fixed RESHAPE
            at_once = _resized(job, runtime, graph, batch)
            at_once_load_ms = _ms_since(begin_s)
            if _are_equal(at_once(sample), run(sample)):
                # The last pictures, fewer than a batch, are not worth another resizing.
                return OpenPath(
                    lambda pixels: at_once(pixels) if len(pixels) == batch else run(pixels),
                    at_once_load_ms,
                    batch,
                )
    return OpenPath(run, load_ms, delegation=opened.delegation, load_parts=opened.load_parts)


def _resized(
    job: Job, runtime: Runtime, graph: Graph, batch: int
) -> Callable[[Array], list[Outputs]]:
    """Return what runs a whole batch at once; raises where the model is not made for that."""
    interpreter = interpreter_for(job, runtime, None)
    inputs = interpreter.get_input_details()
    for details in inputs:
        interpreter.resize_tensor_input(details["index"], [batch, *details["shape"][1:]])
    interpreter.allocate_tensors()
    values = dict(job.other_inputs)
    for number, details in enumerate(inputs):
        array = np.zeros((batch, *details["shape"][1:]), details["dtype"])
        if number in values:
            array[...] = values[number]
        interpreter.set_tensor(details["index"], array)
    taker = inputs[job.input_number]["index"]

    def run(pixels: Array) -> list[Outputs]:
        with step(None, "Failed to invoke tflite!"):
            interpreter.set_tensor(taker, pixels)
            interpreter.invoke()
            return _of_each(outputs_of(interpreter), graph.outputs)

    return run


def _of_each(outputs: Sequence[Array], tensors: Sequence[Tensor]) -> list[Outputs]:
    """Split the outputs of a batch.

    Raises: ValueError: they are not as many as pictures.
    """
    return [
        tuple(
            output[number].reshape(tensor.shape)
            for output, tensor in zip(outputs, tensors, strict=True)
        )
        for number in range(len(outputs[0]))
    ]


def _sample(like: Array, batch: int) -> Array:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 128, (batch, *like.shape[1:]))
    return values.astype(like.dtype)


def _are_equal(one: Sequence[Outputs], other: Sequence[Outputs]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(ours, theirs)
        for pair in zip(one, other, strict=True)
        for ours, theirs in zip(*pair, strict=True)
    )


def _ms_since(begin_s: float) -> float:
    return (time.perf_counter() - begin_s) * 1e3
