# SPDX-License-Identifier: Apache-2.0
"""Runs a served model: entirely on OpenCL in batches, or one picture at a time through TFLite.

A runner is open, timed and ready when its constructor function returns.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from delegate import Model, Options, TooLarge, Unsupported
from delegate.inspect import Graph
from tflite_opencl.console import bars
from tflite_opencl.console.errors import RunError, UsageError
from tflite_opencl.harness.job import Job
from tflite_opencl.harness.open_job import open_interpreter
from tflite_opencl.harness.open_sizes import Size, with_picture_size
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.serve.tensors import Array, Arrays, ModelSignature, signature_of

_TIMED_RUNS = 5
_GAIN = 0.95  # a batch that takes more than this fraction of smaller batches' time is not used


class Runner(Protocol):
    """Runs a model.

    Attributes:
        device: display name. sizes: supported batch sizes in ascending order, always
            including 1. nodes: how many of the model's nodes run there, of how many.
    """

    device: str
    sizes: Sequence[int]
    nodes: tuple[int, int]

    def run(self, arrays: Arrays, pictures: int) -> Arrays:
        """Return the outputs, (pictures, ...) each.

        Raises: DelegateError, DelegateFailed: the device failed. RunError: TFLite rejects it.
        """

    def close(self) -> None:
        """Release the memory."""


def sized(graph: Graph, size: Size | None) -> Graph:
    """Return the graph with a fixed size; `size`: for models that leave it open."""
    with contextlib.suppress(UsageError):
        return with_picture_size(graph, size)
    return graph


def open_runner(
    name: str, graph: Graph, path: str, options: Options | None, most: int, runtime: Runtime
) -> Runner:
    """Return a runner; on a device: with the fastest batch sizes for each number of pictures.

    `options`: None is TFLite on the CPU. `most`: pictures per run.
    Raises: DelegateError: there is no such device, or it fails. RunError: TFLite rejects it.
    """
    if options is not None:
        with contextlib.suppress(Unsupported):
            return _whole(name, graph, options, most)
    return _Interpreted(graph, path, options, runtime)


def cheapest(seconds: dict[int, float], most: int) -> Sequence[Sequence[int]]:
    """Return for 0, 1, ... `most` pictures the batch sizes with the least total time.

    `seconds`: of a run, by batch size; a run may be partially filled.
    """
    cost, plans = [0.0], [()]  # type: tuple[list[float], list[tuple[int, ...]]]
    for pictures in range(1, most + 1):
        first = min(seconds, key=lambda size: seconds[size] + cost[max(0, pictures - size)])
        rest = max(0, pictures - first)
        cost.append(seconds[first] + cost[rest])
        plans.append((first, *plans[rest]))
    return plans


class BatchRunner(Protocol):
    """An open model with a fixed batch size."""

    def run(self, arrays: list[Array]) -> list[Array]:
        """Return the outputs of the pictures. Raises: as Runner."""

    def close(self) -> None:
        """Release the memory."""


class Batched:
    """A model opened for each useful batch size; see Runner."""

    def __init__(
        self, open_batch: Callable[[int], BatchRunner], signature: ModelSignature, most: int
    ) -> None:
        """`open_batch`: opens the model for a batch size."""
        self._batches: dict[int, BatchRunner] = {}
        seconds: dict[int, float] = {}
        size = 1
        while size <= most:
            try:
                batch = open_batch(size)
            except TooLarge:
                if size == 1:
                    raise
                break
            taken = _seconds(batch, signature, size)
            if seconds and taken / size > _GAIN * min(s / n for n, s in seconds.items()):
                batch.close()
                break  # larger ones gain less
            self._batches[size], seconds[size] = batch, taken
            size = min(2 * size, most) if size < most else most + 1
        self._plans = cheapest(seconds, most)
        self.sizes: Sequence[int] = tuple(self._batches)
        self.device, self.nodes = "", (0, 0)

    def run(self, arrays: Arrays, pictures: int) -> Arrays:
        parts: list[list[Array]] = []
        at = 0
        for size in self._plans[pictures]:
            parts.append(self._batches[size].run([array[at : at + size] for array in arrays]))
            at += size
        if len(parts) == 1:
            return parts[0]
        return [np.concatenate(each) for each in zip(*parts, strict=True)]

    def close(self) -> None:
        for batch in reversed(self._batches.values()):
            batch.close()


def _seconds(batch: BatchRunner, signature: ModelSignature, size: int) -> float:
    """Return the time of a full batch: the minimum of some runs."""
    inputs = [np.zeros((size, *each.row), each.dtype) for each in signature.inputs]
    found = []
    for _ in range(1 + _TIMED_RUNS):
        begin_s = time.perf_counter()
        batch.run(inputs)
        found.append(time.perf_counter() - begin_s)
    return min(found[1:])


def _whole(name: str, graph: Graph, options: Options, most: int) -> Batched:
    """Return a runner of a model that OpenCL takes completely. Raises: Unsupported."""
    kept = "tune", "device_profile", "exclude_isa", "precision", "isolate", "run_timeout"
    told = {key: getattr(options, key) for key in kept}
    opened: list[Model] = []

    def open_batch(size: int) -> Model:
        with bars.start(f"{name}, batches of {size}"):
            first = opened[0] if opened else None
            opened.append(Model(graph, options.device, size, share_device_with=first, **told))
        return opened[-1]

    made = Batched(open_batch, signature_of(name, graph), most)
    made.device, made.nodes = opened[0].device.name, (len(graph.nodes), len(graph.nodes))
    return made


class _Interpreted:
    """A model in TFLite's interpreter, one picture at a time."""

    sizes: Sequence[int] = (1,)

    def __init__(self, graph: Graph, path: str, options: Options | None, runtime: Runtime) -> None:
        if options is not None:
            options = replace(options, min_nodes_per_partition=0)
        first = graph.inputs[0]
        job = Job(path, np.zeros(first.shape, first.dtype), opencl=options, is_silent=True)
        self._shapes = [tensor.shape for tensor in graph.inputs]
        self._outputs = graph.outputs
        self._stack = contextlib.ExitStack()
        self._opened = self._stack.enter_context(open_interpreter(job, runtime, graph))
        taken, count = self._opened.delegation, len(graph.nodes)
        self.device = "CPU" if taken is None else taken.device
        self.nodes = (0 if taken is None else taken.delegated), count
        self._opened.run([np.zeros(each.shape, each.dtype) for each in graph.inputs])

    def run(self, arrays: Arrays, pictures: int) -> Arrays:
        found = []
        for number in range(pictures):
            given = [
                array[number].reshape(shape)
                for array, shape in zip(arrays, self._shapes, strict=True)
            ]
            rows = zip(self._opened.run(given), self._outputs, strict=True)
            found.append(
                [each if tensor.shape[:1] == (1,) else each[None] for each, tensor in rows]
            )
        if pictures == 1:
            return found[0]
        if any(len(each) != 1 for one in found for each in one):  # known only after a run
            raise RunError("outputs are as large as their pictures ask for: one picture a request")
        return [np.concatenate(each) for each in zip(*found, strict=True)]

    def close(self) -> None:
        self._stack.close()
