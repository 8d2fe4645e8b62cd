# SPDX-License-Identifier: Apache-2.0
"""A whole graph on one device: used by a Model directly, or by MultiDevice for each device."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from delegate.engine import Engine, open_engine
from delegate.errors import DelegateError, DeviceError, InvalidValue, TooLarge, Unsupported
from delegate.format.schema import numpy_dtype
from delegate.graph.ir import Graph, Tensor
from delegate.graph.partition import Partition, partition_of
from delegate.graph.persistent import persistent_tensors
from delegate.guard.children import progress
from delegate.guard.isolation.backend import AnyExecutor, AnyState
from delegate.host.tflite.library import installed_rules
from delegate.model.run import Array, Run, TensorDetails, batch_shape
from delegate.options import FP32, Options
from delegate.plan.layout import as_bytes
from delegate.run.device_list import DeviceInfo
from delegate.run.range_watch import RangeWatch
from delegate.run.requirements import requirements_of
from delegate.target import Target

# While one slot computes, another's input is uploaded and output downloaded.
SLOTS = 2
# Slots of a device with its own memory, if space permits: the kernels of two slots share the
# device, and if both end at once it would idle while both inputs are uploaded.
SLOTS_FAR = 4


class OneDevice:
    """A graph that is ready to run on a device.

    Attributes:
        slots: maximum number of runs in flight.
        state: the persistent tensors; None: there are none.
    Raises: as Model.
    """

    def __init__(
        self, graph: Graph, options: Options, batch: int, owner: OneDevice | None = None
    ) -> None:
        """Open the device that the options select, build and upload everything.

        `owner`: the instance whose device is used, and which is closed after this; None: open one.
        """
        self._engine: Engine = open_engine(options, owner._engine.device if owner else None)
        self._owns_device = owner is None
        target = self._engine.target(installed_rules())
        partition = self._partition(graph, target)
        kept = persistent_tensors(graph)
        self.state = self._engine.state(batch) if kept else None
        if self.state is not None:
            self.state.add(kept, graph.resources.initial)
        with progress.share(progress.AT_GROUPS, 1):
            executor = self._engine.executor(partition, target, batch, state=self.state)
        self._graph = graph
        self._batch = batch
        self._make_in_fp32 = partial(self._fp32_executor, options, partition)
        self.slots = SLOTS_FAR if self._engine.device.is_far else SLOTS
        if self.state is not None:
            self.slots = 1  # a run depends on the previous one
        self._lock = threading.Lock()  # guards `slots` and the three attributes below
        self._slots = [_Slot(executor, graph, batch, self._watch())]
        self._next = 0
        self._is_closed = False

    @property
    def device(self) -> DeviceInfo:
        """What the device reports about itself."""
        return self._engine.device.info

    @property
    def tuning_left(self) -> int:
        """The number of choices that were not measured."""
        return self._engine.unmeasured

    def run(self, arrays: Sequence[Array], count: int, is_given: bool = False) -> list[Array]:
        """Return the outputs; `is_given`: arrays are from `empty_input`. Raises: DeviceError."""
        if count == self._batch and not is_given:
            return self._slot(0).run(arrays)
        return self._slot(0).start(arrays, count, is_given=True).result()

    def start(self, arrays: Sequence[Array], count: int, is_given: bool = False) -> Run:
        """Start a run, with fewer than `slots` in flight; arguments, Raises: as `run`."""
        return self._next_slot().start(arrays, count, is_given)

    @contextlib.contextmanager
    def at_rest(self) -> Iterator[AnyState]:
        """Yield the persistent tensors between two runs; raises DelegateError if there are none."""
        if self.state is None:
            raise DelegateError("the model has no persistent tensors: give it `carry`")
        with self._slot(0).ended():
            yield self.state

    def empty_input(self, details: TensorDetails) -> Array:
        """Return memory for a batch that the device reads without an extra copy."""
        return self._slot(0).host_array(details.shape, details.dtype)

    def close(self) -> None:
        """Wait for running work, then free the device memory; a second call does nothing."""
        with self._lock:
            self._is_closed = True
            slots, self._slots = self._slots, []
        for slot in slots:
            slot.close()
        if self.state is not None:
            self.state.close()
        if self._owns_device:
            self._engine.close()

    def _partition(self, graph: Graph, target: Target) -> Partition:
        """Return the whole graph as a partition, or raise Unsupported."""
        verdicts = self._engine.verdicts(graph, target)
        refused = [verdict for verdict in verdicts if not verdict.is_taken]
        if refused:
            index, op, reason = refused[0]
            all_of_them = f" ({len(refused)} of {len(graph.nodes)} nodes are not supported)"
            raise Unsupported(f"node {index} ({op}): {reason}{all_of_them if refused[1:] else ''}")
        for side, tensors in (("input", graph.inputs), ("output", graph.outputs)):
            for tensor in tensors:
                if numpy_dtype(tensor.dtype) is None:
                    name = f"{side} {tensor.index} ({tensor.name})"
                    raise Unsupported(f"{name} is of type {tensor.dtype}")
        partition = partition_of(graph, range(len(graph.nodes)))
        for wanted, found, why in (
            (partition.inputs, graph.inputs, "is read, and neither computed nor an input"),
            (graph.outputs, partition.outputs, "is an output, and no node computes it"),
        ):
            for tensor in wanted:
                if tensor not in found and not tensor.state_name:
                    raise Unsupported(f"tensor {tensor.index} ({tensor.name}) {why}")
        return partition

    def _watch(self) -> RangeWatch[AnyExecutor]:
        return RangeWatch(self._make_in_fp32 if self.state is None else None)

    def _fp32_executor(self, options: Options, partition: Partition) -> AnyExecutor:
        engine = open_engine(replace(options, precision=FP32), device=self._engine.device)
        target = self._engine.target(installed_rules())
        return engine.executor(partition, target, self._batch)

    def _next_slot(self) -> _Slot:
        """Return the slot with the oldest run, or a new one while space permits."""
        with self._lock:
            number, self._next = self._next, (self._next + 1) % self.slots
        try:
            return self._slot(number)
        except TooLarge:
            if number < SLOTS:
                raise
            with self._lock:
                self.slots, self._next = number, 1
            return self._slot(0)

    def _slot(self, number: int) -> _Slot:
        with self._lock:
            if self._is_closed:
                raise DeviceError("the model was closed")
            while len(self._slots) <= number:
                executor = self._engine.sibling(self._slots[0].executor)
                self._slots.append(_Slot(executor, self._graph, self._batch, self._watch()))
            return self._slots[number]


class _Slot:
    """An executor, its host memory, and its last run."""

    def __init__(
        self, executor: AnyExecutor, graph: Graph, batch: int, watch: RangeWatch[AnyExecutor]
    ) -> None:
        self.executor = executor
        self._watch = watch
        # kept alive, as arrays may use its memory
        self._fp16_executor: AnyExecutor | None = None
        self._graph = graph
        self._batch = batch
        self._lock = threading.Lock()
        self._last: Run | None = None
        self._staged: dict[Tensor, Array] = {}
        self._requirements = requirements_of(executor.plan, executor.inputs, executor.outputs)
        places = {tensor: place for place, tensor in enumerate(graph.inputs)}
        self._places = [places[tensor] for tensor in executor.inputs]  # in the graph's order
        self._results = {
            tensor: self.host_array(batch_shape(tensor, batch), np.dtype(tensor.dtype))
            for tensor in executor.outputs
        }

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the outputs of a whole batch, by the fastest strategy for a single run."""
        with self._lock:
            self._finish_last()
            results = {tensor: np.empty_like(array) for tensor, array in self._results.items()}
            inputs, outputs = self._read(arrays), [as_bytes(each) for each in results.values()]
            self._require_inputs(inputs, self._batch)
            self.executor.run(inputs, outputs)
            self._look(inputs, outputs)
            self._require(results, self._batch)
            return [results[tensor] for tensor in self._graph.outputs]

    def start(self, arrays: Sequence[Array], count: int, is_given: bool) -> Run:
        """Submit a run of the first `count` pictures after the previous one has ended.

        `is_given`: the arrays do not change until the end.
        """
        with self._lock:
            self._finish_last()
            if not is_given or count < self._batch:
                named = zip(self._graph.inputs, arrays, strict=True)
                arrays = [self._stage(tensor, array) for tensor, array in named]
            run = Run(self._finish, self._read(arrays), count, is_given)
            run.is_started = True
            try:
                self._require_inputs(run.arrays, count)
            except InvalidValue as error:
                run.end(error)
                return run
            self.executor.submit(run.arrays, [as_bytes(each) for each in self._results.values()])
            self._last = run
            return run

    def host_array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return memory that the device copies from and to quickly."""
        size = math.prod(shape) * dtype.itemsize
        return self.executor.copy_strategy.host_array(size).view(dtype).reshape(shape)

    @contextlib.contextmanager
    def ended(self) -> Iterator[None]:
        """End the last run, and block new ones in this context."""
        with self._lock:
            self._finish_last()
            yield

    def close(self) -> None:
        """End the last run and close the executor."""
        with self._lock:
            self._finish_last()
            self.executor.close()
            self._watch.close()
            if self._fp16_executor is not None:
                self._fp16_executor.close()

    def _finish(self, run: Run) -> None:
        """Wait for the end of a run, unless it has ended because a later one began."""
        with self._lock:
            if run is self._last:
                self._finish_last()

    def _finish_last(self) -> None:
        """Wait for the end of the last run; requires the lock."""
        if (run := self._last) is not None:
            try:
                self.executor.copy_strategy.wait()
                self._look(run.arrays, [*map(as_bytes, self._results.values())], run.count)
                self._require(self._results, run.count)
                results = (self._results[tensor] for tensor in self._graph.outputs)
                run.end([result[: run.count].copy() for result in results])
            except DelegateError as error:
                run.end(error)
            run.arrays = ()
            self._last = None

    def _look(self, inputs: Sequence[Array], outputs: Sequence[Array], count: int = 0) -> None:
        """Switch to float32 if the outputs show that fp16 overflowed."""
        after = self._watch.checked(self.executor, inputs, outputs, count)
        if after is not self.executor:
            self._fp16_executor, self.executor = self.executor, after
            self._requirements = requirements_of(after.plan, after.inputs, after.outputs)

    def _require_inputs(self, inputs: Sequence[Array], count: int) -> None:
        if self._requirements is not None:
            self._requirements.require_inputs(inputs, count)

    def _require(self, results: Mapping[Tensor, Array], count: int) -> None:
        """Check computed values; the state is lost if they are invalid. Raises: InvalidValue."""
        if self._requirements is not None:
            with self.executor.guard():
                found = [as_bytes(results[tensor]) for tensor in self.executor.outputs]
                self._requirements.require_outputs(found, count)

    def _read(self, arrays: Sequence[Array]) -> list[Array]:
        return [as_bytes(arrays[place]) for place in self._places]

    def _stage(self, tensor: Tensor, array: Array) -> Array:
        if tensor not in self._staged:
            shape = batch_shape(tensor, self._batch)
            self._staged[tensor] = self.host_array(shape, array.dtype)
        # The rest is from an earlier batch: its outputs are ignored.
        self._staged[tensor][: len(array)] = array
        return self._staged[tensor]
