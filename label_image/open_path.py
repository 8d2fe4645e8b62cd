# SPDX-License-Identifier: Apache-2.0
"""Opens a path: timed on one input through TFLite, or for many pictures, in TFLite or a Model.

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
from label_image.console import delegate_failures, interpreter_state, profile_lines
from label_image.heads.final_boxes import zero_unused_rows
from label_image.path import Array, Outputs, Path, model_path, outputs_of_each
from tflite_opencl.console import bars, interrupts
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

_OF_MODELS = (
    "tune",
    "exclude_isa",
    "device_profile",
    "precision",
    "isolate",
    "run_timeout",
)  # options that class Model supports, too

log = logging.getLogger("label_image")
results = logging.getLogger("label_image.results")
stdout = logging.getLogger("tflite_opencl.stdout")


@contextlib.contextmanager
def open_path(job: Job, runtime: Runtime, graph: Graph) -> Iterator[Path]:
    """Yield the job's path; after Ctrl-C a timed one has the times so far and no outputs.

    Raises:
        RunError: TFLite cannot run the model, or the external delegate cannot be used.
        NoDeviceError: there is no OpenCL device, or not the requested one.
        DelegateFailed: the OpenCL delegate, or a run with it, failed.
    """
    with contextlib.ExitStack() as stack:
        with delegate_failures():
            path = None
            if job.is_timed:
                path = _timed(job, runtime, graph)
            elif job.own_batch > 1:
                pass  # neither class Model nor a resized interpreter runs it
            elif job.opencl is not None and runtime.why_not:
                path = _without_tflite(stack, job, runtime, graph)
            elif job.opencl is not None and job.batch is not None:
                path = _whole_or_none(stack, job, graph)
            if path is None:
                opened = stack.enter_context(open_interpreter(_on_one(job), runtime, graph))
                path = _through_tflite(opened, job, runtime, graph)
        if not (job.is_timed or job.quiet):
            log_applied(delegate_names(job))
            _warn_of_nothing_taken(path.delegation, graph)
        yield path


def _timed(job: Job, runtime: Runtime, graph: Graph) -> Path:
    announced = [] if job.quiet else delegate_names(job)
    with open_interpreter(job, runtime, graph, announced) as opened:
        taken = opened.delegation
        path = Path(opened.load_ms, delegation=taken, load_parts=opened.load_parts)
        if not job.quiet:
            _warn_of_nothing_taken(taken, graph)
            if job.verbose:
                reasons = {each.node: each.reason for each in taken.verdicts} if taken else None
                stdout.info("%s", interpreter_state(graph, reasons))
        path.times = opened.measure(job.count, job.warmup_runs)
        if not job.quiet:
            log.info("invoked")
            results.info("average time: %g ms", path.times.average_ms)
            if taken and job.profile_rows:
                for line in profile_lines(opened.profile(), job.profile_rows):
                    results.info("%s", line)
        if interrupts.was_pressed():  # Ctrl-C may have left outputs of the last run incomplete
            return path
        path.outputs, path.judged_by = zero_unused_rows(graph, opened.outputs()), opened.judge
        path.profile = opened.node_profile(graph) if job.profile_rows else None
        path.trace = opened.trace(f"label_image, {taken.device}") if taken and job.traces else None
        path.longer = opened.measure_longer(job.longer_s) if job.longer_s else None
        return path


def _warn_of_nothing_taken(taken: Delegation | None, graph: Graph) -> None:
    """Warn if the OpenCL delegate, or the other one, took no node."""
    if taken is not None and not graph.nodes:
        log.warning("the model has no operators: OpenCL has nothing to run")
    elif taken is not None and not taken.delegated:
        who = f"{taken.library} and the CPU run" if taken.others else "the CPU runs"
        text = "the OpenCL delegate took none of the model's %d nodes: %s them all"
        log.warning(text, len(graph.nodes), who)
    if taken is not None and taken.library and graph.nodes and not taken.others:
        text = "%s took none of the model's %d nodes; the delegate of the first flag chooses first"
        log.warning(text, taken.library, len(graph.nodes))


def _on_one(job: Job) -> Job:
    """Return the job, restricted to the first of several devices that passes its self-test."""
    several = () if job.opencl is None else several_devices(job.opencl.device)
    if job.opencl is None or not several:
        return job
    one = next((info for info in several if examine(info).failure is None), several[0])
    return replace(job, opencl=replace(job.opencl, device=one.index))


def _without_tflite(stack: contextlib.ExitStack, job: Job, runtime: Runtime, graph: Graph) -> Path:
    """Return the path of a model that OpenCL runs whole; nothing else can without TFLite."""
    try:
        return _whole_model(stack, job, graph)
    except Unsupported as refusal:
        raise RunError(not_whole(refusal, runtime.why_not)) from refusal


def _whole_or_none(stack: contextlib.ExitStack, job: Job, graph: Graph) -> Path | None:
    """Return the path of a model that OpenCL runs whole; None: it cannot."""
    try:
        return _whole_model(stack, job, graph)
    except Unsupported as refusal:
        assert job.opencl is not None
        where = ", on one device" if several_devices(job.opencl.device) else ""
        if not job.quiet:
            text = "--batch: OpenCL runs the pictures one by one through TFLite%s: %s"
            log.warning(text, where, refusal)
        return None


def _whole_model(stack: contextlib.ExitStack, job: Job, graph: Graph) -> Path:
    """Return the path of a Model. Raises: Unsupported: OpenCL cannot run all of it."""
    options, begin_s = job.opencl, time.perf_counter()
    assert options is not None
    limits = {
        "exclude_ops": options.exclude_ops,
        "min_nodes_per_partition": options.min_nodes_per_partition > len(graph.nodes),
        "max_delegated_partitions": options.max_delegated_partitions,
    }
    if job.external is not None:
        raise Unsupported("--external_delegate_path: delegates share nodes in TFLite alone")
    if limit := next(filter(limits.get, limits), None):  # class Model cannot enforce these
        raise Unsupported(f"--{limit} leaves nodes to the CPU")
    with bars.start() as watch:
        kept = {name: getattr(options, name) for name in _OF_MODELS}
        model = stack.enter_context(Model(graph, options.device, job.batch or 1, **kept))
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
    return model_path(model, job, graph, load_ms=load_ms, delegation=taken, load_parts=parts)


def _through_tflite(opened: OpenInterpreter, job: Job, runtime: Runtime, graph: Graph) -> Path:
    batch, own, has_warned = job.batch or 1, job.own_batch, job.quiet

    def run(pixels: Array) -> list[Outputs]:
        nonlocal has_warned
        if len(pixels) % own and not has_warned:
            has_warned = True
            text = "the model takes %d pictures at once, and the last one fills what is left"
            log.warning(text, own)
        outputs = opened.run_each(job.input_number, pixels, own)
        path.judged_by = opened.judge
        return [zero_unused_rows(graph, each) for each in outputs]

    path = Path(
        opened.load_ms, run, own, delegation=opened.delegation, load_parts=opened.load_parts
    )

    if job.opencl is None and job.external is None and batch > 1 and own == 1:
        begin_s = time.perf_counter()
        values = np.random.default_rng(1).integers(0, 128, (batch, *job.input.shape[1:]))
        sample = values.astype(job.input.dtype)
        with contextlib.suppress(RunError, RuntimeError, ValueError):  # for example a fixed RESHAPE
            at_once = _resized(job, runtime, graph, batch)
            load_ms = 1e3 * (time.perf_counter() - begin_s)
            ours, theirs = at_once(sample), run(sample)
            if len(ours) == batch and all(
                all(map(np.array_equal, *each)) for each in zip(ours, theirs, strict=True)
            ):
                # A last, partial batch is not worth another resize.
                return Path(
                    load_ms,
                    lambda pixels: at_once(pixels) if len(pixels) == batch else run(pixels),
                    batch,
                )
    return path


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
