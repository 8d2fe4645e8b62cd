# SPDX-License-Identifier: Apache-2.0
"""class Model: a whole .tflite graph on one device without TFLite, many pictures at once.

There is no CPU to fall back to: a graph with a node that is not supported is refused.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import progress
from delegate.errors import DeviceError, Unsupported
from delegate.graph.ir import Graph, Tensor
from delegate.graph.known import known
from delegate.graph.partition import Partition, partition_of
from delegate.profiles import read_device_profile
from delegate.rehearsal import open_engine
from delegate.runtime.device_list import DeviceInfo
from delegate.slots import Pending, Slot, batch_shape
from delegate.target import Target
from delegate.tflite.library import installed_rules
from delegate.tflite.reader import read_model
from delegate.tflite.schema import numpy_dtype

Array = NDArray[Any]
# While one slot computes, the other's input goes up and its output comes down.
_SLOTS = 2


@dataclass(frozen=True, slots=True)
class TensorDetails:
    """An input or output of a Model, under the names of TFLite's interpreter."""

    name: str
    index: int  # of the tensor in the file
    shape: tuple[int, ...]  # of a whole batch
    dtype: np.dtype[Any]
    scale: float  # real = scale * (value - zero_point); 0.0: not quantised, or by channel
    zero_point: int

    @property
    def quantization(self) -> tuple[float, int]:
        """The scale and the zero point."""
        return self.scale, self.zero_point


class Model:
    """A .tflite model for batches of pictures, bit-equal to TFLite's reference kernels.

    A batch is the model run for each of its pictures: where a tensor's first dimension is 1, it
    becomes the batch; other tensors get the batch as a dimension before their own.

    Attributes:
        batch: pictures at once; device: what the device says of itself.
        input_details, output_details: a TensorDetails each.
    Raises:
        Unsupported: a node does not run on OpenCL; names it, its op and the reason.
        ModelError: the model cannot be read. OSError: nor can its file.
        NoDeviceError: no device, none that matches `device`, or none that passes its self-test.
        DeviceError: the batch does not fit into the device's memory.
        ProfileError: the device profile is unknown or wrong.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        device: str | int | None = None,
        batch: int = 1,
        tune: str = "quick",
        exclude_isa: Iterable[str] = (),
        device_profile: str | None = None,
        own_context: bool = False,
        in_child_first: bool = True,
    ) -> None:
        """Read the model, open a device, build and upload everything.

        All but `batch` mean what they mean to OpenCLDelegate; see Options.
        Where TFLite's runtimes round differently, the arithmetic is that of the one installed.
        """
        if batch < 1:
            raise ValueError(f"a batch of {batch}: at least one picture must be run")
        graph = known(read_model(model))
        profile = None if device_profile is None else read_device_profile(device_profile)
        self._engine = open_engine(
            in_child_first, graph, device, tune, exclude_isa, False, profile, own_context
        )
        target = self._engine.target(installed_rules())
        partition = self._partition(graph, target)
        with progress.share(progress.AT_GROUPS, 1):
            executor = self._engine.executor(partition, target, batch)
        self._graph = graph
        self.batch = batch
        self.input_details = tuple(_details(tensor, batch) for tensor in graph.inputs)
        self.output_details = tuple(_details(tensor, batch) for tensor in graph.outputs)
        self._lock = threading.Lock()  # of the three below
        self._slots = [Slot(executor, graph, batch)]
        self._next = 0
        self._is_closed = False
        self._given: set[int] = set()  # addresses of what empty_input gave and somebody holds

    @property
    def device(self) -> DeviceInfo:
        """What the device says of itself."""
        return self._engine.device.info

    @property
    def tuning_left(self) -> int:
        """Count the choices that wait for a later start to be measured."""
        return self._engine.tuner.left

    def run(self, inputs: Array | Sequence[Array]) -> list[Array]:
        """Return the outputs, an array each.

        Shapes:
            (n, ...) -> (n, ...) with n up to the batch; several inputs as a list of arrays
        Raises:
            ValueError: a wrong number of arrays, dtype or shape. DeviceError: the run failed.
        """
        arrays, count = self._checked(inputs)
        if count == self.batch and not self._are_given(arrays):
            return self._slot(0).run(arrays)
        return self._slot(0).start(arrays, count, copy=False).result()

    def run_async(self, inputs: Array | Sequence[Array]) -> Pending:
        """Start a run and return before it ends; `result()` of what is returned gives its outputs.

        Two runs may be under way; a third call waits for the first of them. Arrays of
        `empty_input` may be filled again after `result()`, all others at once: they are copied.

        Shapes, Raises: as `run`.
        """
        arrays, count = self._checked(inputs)
        with self._lock:
            number, self._next = self._next, (self._next + 1) % _SLOTS
        return self._slot(number).start(arrays, count, copy=not self._are_given(arrays))

    def empty_input(self) -> Array | list[Array]:
        """Return memory for a whole batch that the device reads without another copy.

        Its values are undefined. An array, or a list of them where the model has several inputs.
        """
        arrays = []
        for details in self.input_details:
            array = self._slot(0).host_array(details.shape, details.dtype)
            self._given.add(_address(array))
            weakref.finalize(array, self._given.discard, _address(array))
            arrays.append(array)
        return arrays[0] if len(arrays) == 1 else arrays

    def close(self) -> None:
        """Wait for what runs, then give the device's memory back; a second call does nothing."""
        with self._lock:
            self._is_closed = True
            slots, self._slots = self._slots, []
        for slot in reversed(slots):  # the first one has the constants
            slot.close()
        self._engine.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _partition(self, graph: Graph, target: Target) -> Partition:
        """Return the whole graph as a partition, or raise Unsupported."""
        verdicts = self._engine.verdicts(graph, target)
        refused = [verdict for verdict in verdicts if not verdict.is_taken]
        if refused:
            index, op, reason = refused[0]
            all_of_them = f" ({len(refused)} of {len(graph.nodes)} nodes are not supported)"
            raise Unsupported(f"node {index} ({op}): {reason}{all_of_them if refused[1:] else ''}")
        for tensor in graph.inputs:
            if numpy_dtype(tensor.dtype) is None:
                raise Unsupported(f"input {tensor.index} ({tensor.name}) is of type {tensor.dtype}")
        partition = partition_of(graph, range(len(graph.nodes)))
        for wanted, found, why in (
            (partition.inputs, graph.inputs, "is read, and neither computed nor an input"),
            (graph.outputs, partition.outputs, "is an output, and no node computes it"),
        ):
            for tensor in wanted:
                if tensor not in found:
                    raise Unsupported(f"tensor {tensor.index} ({tensor.name}) {why}")
        return partition

    def _slot(self, number: int) -> Slot:
        with self._lock:
            if self._is_closed:
                raise DeviceError("the model was closed")
            while len(self._slots) <= number:
                executor = self._engine.sibling(self._slots[0].executor)
                self._slots.append(Slot(executor, self._graph, self.batch))
            return self._slots[number]

    def _are_given(self, arrays: Sequence[Array]) -> bool:
        return all(_address(array) in self._given for array in arrays)

    def _checked(self, inputs: Array | Sequence[Array]) -> tuple[list[Array], int]:
        """Return the arrays in one piece each, and how many pictures they are."""
        given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        if len(given) != len(self.input_details):
            raise ValueError(
                f"{len(given)} arrays are given, and the model has {len(self.input_details)} inputs"
            )
        for number, (array, details) in enumerate(zip(given, self.input_details, strict=True)):
            if not isinstance(array, np.ndarray):
                found = f"a {type(array).__name__}"
            elif (
                array.dtype == details.dtype
                and array.ndim == len(details.shape)
                and array.shape[1:] == details.shape[1:]
                and 0 < len(array) <= self.batch
            ):
                continue
            else:
                found = f"{array.dtype} of shape {_shown(array.shape)}"
            counts = "1" if self.batch == 1 else f"1..{self.batch}"
            raise ValueError(
                f"input {number} ({details.name}) is {found}, not {details.dtype} of shape "
                f"{_shown((counts, *details.shape[1:]))}"
            )
        counts_given = [len(array) for array in given]
        if len(set(counts_given)) > 1:
            raise ValueError(f"the inputs are of {_shown(counts_given)} pictures: one number each")
        return [np.ascontiguousarray(array) for array in given], counts_given[0]


def _details(tensor: Tensor, batch: int) -> TensorDetails:
    quantization = tensor.quantization
    scale, zero_point = 0.0, 0
    if quantization is not None and len(quantization.scale) == 1:
        scale, zero_point = quantization.scale[0], quantization.zero_point[0]
    return TensorDetails(
        name=tensor.name,
        index=tensor.index,
        shape=batch_shape(tensor, batch),
        dtype=np.dtype(tensor.dtype),
        scale=scale,
        zero_point=zero_point,
    )


def _address(array: Array) -> int:
    return int(array.ctypes.data)


def _shown(sizes: Sequence[object]) -> str:
    return f"({', '.join(map(str, sizes))})"
