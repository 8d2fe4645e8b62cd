# SPDX-License-Identifier: Apache-2.0
"""Opens a path for many pictures, in TFLite or a Model.

Prints label_image's own log lines. Neither reads pictures nor decodes results.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from delegate import Model, Unsupported, Verdict
from delegate.inspect import Graph, examine, several_devices
from label_image.console import delegate_failures, warn_of_nothing_taken
from label_image.heads.final_boxes import zero_unused_rows
from label_image.path import OpenPath, model_path, outputs_of_each, with_times
from label_image.run_result import Array, Outputs, RunResult
from tflite_opencl.console import bars
from tflite_opencl.console.errors import RunError
from tflite_opencl.harness.job import Delegation, Job
from tflite_opencl.harness.open_job import (
    OpenInterpreter,
    delegate_names,
    interpreter_for,
    log_applied,
    open_interpreter,
    step,
)
from tflite_opencl.interpreters.interpreter import outputs_of
from tflite_opencl.interpreters.own_interpreter import not_whole
from tflite_opencl.interpreters.runtime import Runtime

log = logging.getLogger("label_image")


@contextlib.contextmanager
def open_path(job: Job, runtime: Runtime, graph: Graph) -> Iterator[OpenPath]:
    """Yield the job's path, ready for pictures.

    Raises:
        RunError: TFLite cannot run the model, or the external delegate cannot be used.
        NoDeviceError: there is no OpenCL device, or not the requested one.
        DelegateFailed: the OpenCL delegate failed.
    """
    with contextlib.ExitStack() as stack:
        with delegate_failures():
            path = None
            if job.own_batch > 1:
                pass  # neither class Model nor a resized interpreter runs it
            elif job.opencl is not None and runtime.why_not:
                path = _without_tflite(stack, job, runtime, graph)
            elif job.opencl is not None and job.batch is not None:
                path = _whole_or_none(stack, job, graph)
            if path is None:
                opened = stack.enter_context(open_interpreter(_on_one(job), runtime, graph))
                path = _through_tflite(opened, job, runtime, graph)
        if not job.is_silent:
            log_applied(delegate_names(job))
            warn_of_nothing_taken(path.facts.delegation, graph)
        yield path


def _on_one(job: Job) -> Job:
    """Return the job, restricted to the first of several devices that passes its self-test."""
    several = () if job.opencl is None else several_devices(job.opencl.device)
    if job.opencl is None or not several:
        return job
    one = next((info for info in several if examine(info).failure is None), several[0])
    return replace(job, opencl=replace(job.opencl, device=one.index))


def _without_tflite(
    stack: contextlib.ExitStack, job: Job, runtime: Runtime, graph: Graph
) -> OpenPath:
    """Return the path of a model that OpenCL runs whole; nothing else can without TFLite."""
    try:
        return _whole_model(stack, job, graph)
    except Unsupported as refusal:
        raise RunError(not_whole(refusal, runtime.why_not)) from refusal


def _whole_or_none(stack: contextlib.ExitStack, job: Job, graph: Graph) -> OpenPath | None:
    """Return the path of a model that OpenCL runs whole; None: it cannot."""
    try:
        return _whole_model(stack, job, graph)
    except Unsupported as refusal:
        assert job.opencl is not None
        where = ", on one device" if several_devices(job.opencl.device) else ""
        if not job.is_silent:
            text = "--batch: OpenCL runs the pictures one by one through TFLite%s: %s"
            log.warning(text, where, refusal)
        return None


def _whole_model(stack: contextlib.ExitStack, job: Job, graph: Graph) -> OpenPath:
    """Return the path of a Model. Raises: Unsupported: OpenCL cannot run all of it."""
    options, begin_s = job.opencl, time.perf_counter()
    assert options is not None
    limits = {
        "exclude_ops": options.exclude_ops,
        "min_nodes_per_partition": options.min_nodes_per_partition > len(graph.nodes),
        "max_delegated_partitions": options.max_delegated_partitions,
        "placement": options.placement != "device",
    }
    if job.external is not None:
        raise Unsupported("--external_delegate_path: delegates share nodes in TFLite alone")
    if limit := next(filter(limits.get, limits), None):  # class Model cannot enforce these
        raise Unsupported(f"--{limit} leaves nodes to the CPU")
    with bars.start() as watch:
        model = stack.enter_context(Model(graph, batch=job.batch or 1, **options.of_model()))
    load_ms = 1e3 * (time.perf_counter() - begin_s)
    infos = [portion.device for portion in model.portions] or [model.device]
    taken = Delegation(
        device=" + ".join(info.name for info in infos),
        platform=" + ".join(dict.fromkeys(info.platform for info in infos)),
        driver=" + ".join(dict.fromkeys(info.driver for info in infos)),
        verdicts=tuple(Verdict(node.index, node.op, None) for node in graph.nodes),
        partitions=(tuple(node.index for node in graph.nodes),),
        tuning_left=model.tuning_left,
    )
    parts = {phase: seconds * 1e3 for phase, seconds in watch.seconds.items()}
    facts = RunResult(load_ms, delegation=taken, load_parts=parts)
    return model_path(model, job, graph, facts)


def _through_tflite(opened: OpenInterpreter, job: Job, runtime: Runtime, graph: Graph) -> OpenPath:
    batch, own, has_warned = job.batch or 1, job.own_batch, job.is_silent

    def run(pixels: Array) -> list[Outputs]:
        nonlocal has_warned
        if len(pixels) % own and not has_warned:
            has_warned = True
            text = "the model takes %d pictures at once, and the last one fills what is left"
            log.warning(text, own)
        outputs = opened.run_each(job.input_number, pixels, own)
        return [zero_unused_rows(graph, each) for each in outputs]

    if job.opencl is None and job.external is None and batch > 1 and own == 1:
        with contextlib.suppress(RunError, RuntimeError, ValueError):  # for example a fixed RESHAPE
            return _in_batches(job, runtime, graph, run)
    facts = RunResult(opened.load_ms, own, opened.delegation, opened.load_parts)
    return OpenPath(facts, with_times(run, lambda: opened.judge))


def _in_batches(
    job: Job, runtime: Runtime, graph: Graph, run: Callable[[Array], list[Outputs]]
) -> OpenPath:
    """Return a path that runs whole batches at once, and others as `run`, picture by picture.

    Raises: RunError, RuntimeError, ValueError: the model does not support the batch size.
    """
    begin_s, batch = time.perf_counter(), job.batch or 1
    at_once = _resized(job, runtime, graph, batch)
    facts = RunResult(1e3 * (time.perf_counter() - begin_s), batch)
    values = np.random.default_rng(1).integers(0, 128, (batch, *job.input.shape[1:]))
    sample = values.astype(job.input.dtype)
    ours, theirs = at_once(sample), run(sample)
    same = [all(map(np.array_equal, *each)) for each in zip(ours, theirs, strict=True)]
    if len(ours) != batch or not all(same):
        raise ValueError("the model mixes the pictures of a batch")
    # A last, partial batch is not worth another resize.
    run_batch = with_times(lambda pixels: at_once(pixels) if len(pixels) == batch else run(pixels))
    return OpenPath(facts, run_batch)


def _resized(
    job: Job, runtime: Runtime, graph: Graph, batch: int
) -> Callable[[Array], list[Outputs]]:
    """Return a runner of whole batches; raises if the model does not support the batch size."""
    interpreter = interpreter_for(job, runtime, graph)
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
        with step([], "Failed to invoke tflite!"):
            interpreter.set_tensor(taker, pixels)
            interpreter.invoke()
            return outputs_of_each(outputs_of(interpreter), graph.outputs)

    return run
