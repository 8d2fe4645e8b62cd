# SPDX-License-Identifier: Apache-2.0
"""class Model: a whole .tflite graph without TFLite, many pictures at once, on some devices.

There is no CPU to fall back to: a graph with a node that is not supported is refused.
"""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from delegate.errors import DelegateError, ModelError, NoDeviceError, ProfileError
from delegate.format.stateful import read_stateful
from delegate.graph.edit import with_named_shapes
from delegate.graph.infer import infer
from delegate.graph.ir import Graph
from delegate.graph.persistent import TensorRef, persistent_tensors, with_carry, with_variables
from delegate.guard.children import progress
from delegate.guard.isolation.backend import AnyState
from delegate.model.multi_device import MultiDevice, Portion
from delegate.model.one_device import OneDevice
from delegate.model.run import Array, Run, checked_arrays, details_of
from delegate.options import Options
from delegate.run.device_list import DeviceInfo, several_devices

# Options that mean nothing to a Model.
_OF_DELEGATES = frozenset(
    ("exclude_ops", "min_nodes_per_partition", "max_delegated_partitions", "profiling")
)
_log = logging.getLogger("delegate")


class Model:
    """A .tflite model for batches of pictures, bit-equal to TFLite's reference kernels.

    A batch is the model run for each of its pictures: where a tensor's first dimension is 1, it
    becomes the batch; other tensors get the batch as a dimension before their own.

    With several devices each takes the next batch when it is free, and the outputs come in the
    order of the inputs. A device that fails, or never answers, leaves its pictures to the others:
    a warning of the logger `delegate` names it. When the last one has failed, that is an error.

    Attributes:
        batch: pictures at once, on each device; device: what the device says of itself.
        input_details, output_details: a TensorDetails each.
    Raises:
        Unsupported: a node does not run on OpenCL; names it, its op and the reason.
        ModelError: the model cannot be read. OSError: nor can its file.
        SignatureError: it has no such signature.
        NoDeviceError: no device, none that matches `device`, or none that passes its self-test.
        DeviceError: the batch does not fit into the device's memory.
        ProfileError: the device profile is unknown or wrong.
        ValueError: `carry` or `shapes` names what the graph has not, or what differs.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | Graph,
        device: str | int | None = None,
        batch: int = 1,
        carry: Mapping[TensorRef, TensorRef] | None = None,
        signature: str | None = None,
        shapes: Mapping[TensorRef, Sequence[int]] | None = None,
        share_device_with: Model | None = None,
        **keywords: Any,
    ) -> None:
        """Read the model, open a device or several, build and upload everything.

        `model`: a file's path or content, or the Graph that was read of it. `device`: "all" means
        every device, "all WORDS" each that the words match, and "0,WORDS" each that one of the
        parts matches. `carry`: output -> input, each by name or index: the output stays on the
        device, and is the input of the next run. `signature`: which of a file's graphs runs, by its
        name; None: the first. `shapes`: of inputs, by name or index, whose sizes the file leaves
        open; without them they are 1. `share_device_with`: a model with the same options for
        another batch, whose device, or with `isolate` child process, this one uses; it is closed
        last. `keywords`: the other fields of Options, but those that say what stays on the CPU, and
        `profiling`.
        Where TFLite's runtimes round differently, the arithmetic is that of the one installed.
        """
        if batch < 1:
            raise ValueError(f"a batch of {batch}: at least one picture must be run")
        if none := _OF_DELEGATES & {*keywords}:
            raise TypeError(f"a Model runs the whole graph on the device: no {', '.join(none)}")
        options = Options(device, **keywords)
        if isinstance(model, Graph) and signature is not None:
            raise TypeError("a Graph is of one signature: give the file, or read_model its name")
        read = model if isinstance(model, Graph) else read_stateful(model, signature)
        read = with_named_shapes(with_variables(read), shapes or {})
        graph = infer(with_carry(read, carry) if carry else read)
        self._is_kept = bool(persistent_tensors(graph))
        self._on: OneDevice | MultiDevice
        if several := several_devices(device):
            if self._is_kept:
                raise ValueError(
                    "what a run keeps for the next is on one device: name a single one"
                )
            self._on = MultiDevice(_opened(several, graph, options, batch))
            # Its threads would keep the devices' memory.
            weakref.finalize(self, self._on.close, wait=False).atexit = False
        else:
            on = share_device_with._on if share_device_with else None
            self._on = OneDevice(graph, options, batch, on if isinstance(on, OneDevice) else None)
        if batch > 1 and (left := self.tuning_left):  # what is known of one picture is no help
            _log.warning(
                "a batch of %d runs with %d choices of kernels that were not measured: "
                "'tflite-opencl tune MODEL --batch %d' measures them, and so does tune=\"full\"",
                batch, left, batch,
            )  # fmt: skip
        self.batch = batch
        self.input_details = tuple(details_of(tensor, batch) for tensor in graph.inputs)
        self.output_details = tuple(details_of(tensor, batch) for tensor in graph.outputs)
        self._given: set[int] = set()  # addresses of what empty_input gave and somebody holds

    @property
    def device(self) -> DeviceInfo:
        """What the device says of itself; of several, the first that was opened."""
        if isinstance(self._on, MultiDevice):
            return self._on.portions[0].device
        return self._on.device

    @property
    def portions(self) -> tuple[Portion, ...]:
        """What each of several devices did until now, those that failed included; () of one."""
        return self._on.portions if isinstance(self._on, MultiDevice) else ()

    @property
    def tuning_left(self) -> int:
        """Count the choices that were not measured."""
        return self._on.tuning_left

    def run(self, inputs: Array | Sequence[Array]) -> list[Array]:
        """Return the outputs, an array each.

        Shapes:
            (n, ...) -> (n, ...) with n up to the batch, or with several devices any n; several
            inputs as a list of arrays
        Raises:
            ValueError: a wrong number of arrays, dtype or shape. DeviceError: the run failed, with
                several devices on the last of them.
        """
        if isinstance(self._on, OneDevice):
            arrays, count = self._checked(inputs)
            return self._on.run(arrays, count, self._are_given(arrays))
        arrays, count = checked_arrays(inputs, self.input_details, None)
        batch = self.batch
        runs = [
            self._on.start([array[at : at + batch] for array in arrays], min(batch, count - at))
            for at in range(0, count, batch)
        ]
        outputs = [run.result() for run in runs]
        if len(outputs) == 1:
            return outputs[0]
        return [np.concatenate(parts) for parts in zip(*outputs, strict=True)]

    def run_async(self, inputs: Array | Sequence[Array]) -> Run:
        """Start a run and return before it ends; `result()` of what is returned gives its outputs.

        Two runs a device may be under way, or four where its memory is not the host's and has room.
        With several devices one more a device may wait. Another call waits until one has ended.
        Arrays of `empty_input` may be filled again after `result()`, all others at once: they are
        copied.

        Shapes: (n, ...) -> (n, ...) with n up to the batch. Raises: as `run`.
        """
        arrays, count = self._checked(inputs)
        is_given = self._are_given(arrays)
        if isinstance(self._on, MultiDevice) and not is_given:
            arrays = [array.copy() for array in arrays]
        return self._on.start(arrays, count, is_given)

    def run_on_each(self, inputs: Array | Sequence[Array]) -> list[tuple[DeviceInfo, list[Array]]]:
        """Run the same pictures on each device, one after the other; return the outputs of each.

        A device that fails is left out, as in `run`. Shapes, Raises: as `run_async`.
        """
        arrays, count = self._checked(inputs)
        if isinstance(self._on, MultiDevice):
            return self._on.on_each(arrays, count)
        return [(self.device, self._on.run(arrays, count, self._are_given(arrays)))]

    def leave_out(self, device: DeviceInfo, why: str) -> None:
        """Give one of several devices no more pictures, such as one that computes wrongly."""
        if isinstance(self._on, MultiDevice):
            self._on.leave_out(device, why)

    def empty_input(self) -> Array | list[Array]:
        """Return memory for a whole batch that the device reads without another copy.

        Its values are undefined. An array, or a list of them where the model has several inputs.
        """
        arrays = []
        for details in self.input_details:
            array = self._on.empty_input(details)
            self._given.add(_address(array))
            weakref.finalize(array, self._given.discard, _address(array))
            arrays.append(array)
        return arrays[0] if len(arrays) == 1 else arrays

    def state(self) -> dict[str, Array]:
        """Return copies of what the last run kept for the next, by name: the carried input's.

        Shapes: (batch, *the tensor's). Raises: DelegateError: nothing is kept. DeviceError: a run
        failed, so that it is lost, or this was closed.
        """
        with self._at_rest() as state:
            return state.values()

    def set_state(self, values: Mapping[str, Array]) -> None:
        """Let the next run find these, as `state` returned them; what is left out stays.

        Raises: ValueError: another name, shape or type. Else as `state`.
        """
        with self._at_rest() as state:
            state.put(values)

    def reset(self) -> None:
        """Let the next run find what the first one found; also after one that failed.

        As TFLite's variables: an int8 value begins with its zero point, others with zero bytes.

        Raises: DelegateError: nothing is kept. DeviceError.
        """
        with self._at_rest() as state:
            state.reset()

    def _at_rest(self) -> AbstractContextManager[AnyState]:
        if isinstance(self._on, MultiDevice):
            raise DelegateError("a model on several devices keeps nothing over runs")
        return self._on.at_rest()

    def close(self) -> None:
        """Wait for what runs, then give the device's memory back; a second call does nothing."""
        self._on.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _checked(self, inputs: Array | Sequence[Array]) -> tuple[list[Array], int]:
        """Return the arrays of a run, and how many pictures they are; raises ValueError."""
        arrays, count = checked_arrays(inputs, self.input_details, self.batch)
        if self._is_kept:
            count = count if arrays else self.batch
            if count != self.batch:
                raise ValueError(f"{count} of {self.batch}: what is kept needs whole batches")
        return arrays, count

    def _are_given(self, arrays: Sequence[Array]) -> bool:
        given = self._given
        return bool(given) and all(_address(array) in given for array in arrays)


def _opened(
    devices: Sequence[DeviceInfo], graph: Graph, options: Options, batch: int
) -> list[OneDevice]:
    """Return the graph on each device that can run it, with a warning for each that cannot.

    Raises: what the first device raises, where none can run it.
    """
    failures: list[tuple[DeviceInfo, DelegateError]] = []
    opened = []
    with contextlib.ExitStack() as undo:
        for number, info in enumerate(devices):
            try:
                with progress.share(number / len(devices), (number + 1) / len(devices)):
                    opened.append(OneDevice(graph, replace(options, device=info.index), batch))
                undo.callback(opened[-1].close)
            except (ModelError, ProfileError):
                raise  # no device is better
            except DelegateError as error:
                failures.append((info, error))
        if not opened:
            # What the first device that passes its self-test raises, if there is one.
            for _, failure in failures:
                if not isinstance(failure, NoDeviceError):
                    raise failure
            reasons = (str(failure).partition(": ")[2] for _, failure in failures)
            raise NoDeviceError("no OpenCL device works: " + "; ".join(reasons))
        undo.pop_all()
    for info, failure in failures:
        if not isinstance(failure, NoDeviceError):  # which was said of it
            _log.warning("device %d (%s) is left out: %s", info.index, info.name, failure)
    return opened


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])  # array.ctypes takes four times as long
