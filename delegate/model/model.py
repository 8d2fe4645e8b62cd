# SPDX-License-Identifier: Apache-2.0
"""class Model: a whole .tflite graph without TFLite, in batches, on one or several devices.

There is no CPU fallback: a graph with an unsupported node is rejected.
"""

from __future__ import annotations

import contextlib
import logging
import operator
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
from delegate.options import DELEGATE_ONLY, Options
from delegate.run.device_list import DeviceInfo, several_devices

_log = logging.getLogger("delegate")


class Model:
    """A .tflite model for batches of pictures, bit-identical to TFLite's reference kernels.

    A batch runs the model for each picture: a first tensor dimension of 1 becomes the batch;
    other tensors get the batch as an additional first dimension.

    With several devices, each takes the next batch when it is free, and outputs are returned in
    the order of the inputs. If a device fails or hangs, the others take over its pictures, with a
    warning from the logger `delegate`. If the last one fails, that is an error.

    Attributes:
        batch: batch size on each device; device: what the device reports about itself.
        input_details, output_details: TensorDetails of each.
    Raises:
        Unsupported: a node is not supported; the message names it, its op and the reason.
        ModelError: the model cannot be read. OSError: the file cannot be read.
        SignatureError: it has no such signature.
        NoDeviceError: no device, none that matches `device`, or none that passes its self-test.
        DeviceError: the batch does not fit into the device's memory.
        ProfileError: the device profile is unknown or invalid.
        ValueError: `carry` or `shapes` names a tensor that does not exist or does not match.
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
        """Read the model, open one or several devices, build and upload everything.

        `model`: a file's path or content, or a parsed Graph. `device`: "all" selects every device,
        "all WORDS" each that matches the words, and "0,WORDS" each that matches one of the parts.
        `carry`: output -> input, by name or index: the output stays on the device, and is the input
        of the next run. `signature`: the graph of the file to run, by name; None: the first.
        `shapes`: of inputs with dynamic sizes, by name or index; by default these are 1.
        `share_device_with`: a model with the same options for another batch, whose device, or with
        `isolate` child process, is used; close that model last. `keywords`: the other fields of
        Options, except those about the CPU, and `profiling`.
        Where TFLite's runtimes round differently, the installed one is matched.
        """
        if (batch := int(operator.index(batch))) < 1:
            raise ValueError(f"a batch of {batch}: at least one picture must be run")
        if none := DELEGATE_ONLY & {*keywords}:
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
            # Its threads would keep the devices' memory alive.
            weakref.finalize(self, self._on.close, wait=False).atexit = False
        else:
            on = share_device_with._on if share_device_with else None
            self._on = OneDevice(graph, options, batch, on if isinstance(on, OneDevice) else None)
        if batch > 1 and (left := self.tuning_left):  # single-picture choices do not apply
            _log.warning(
                "a batch of %d runs with %d choices of kernels that were not measured: "
                "'tflite-opencl tune MODEL --batch %d' measures them, and so does tune=\"full\"",
                batch, left, batch,
            )  # fmt: skip
        self.batch = batch
        self.input_details = tuple(details_of(tensor, batch) for tensor in graph.inputs)
        self.output_details = tuple(details_of(tensor, batch) for tensor in graph.outputs)
        self._given: set[int] = set()  # addresses of live arrays from empty_input

    @property
    def device(self) -> DeviceInfo:
        """What the device reports about itself; of several, the first that was opened."""
        if isinstance(self._on, MultiDevice):
            return self._on.portions[0].device
        return self._on.device

    @property
    def portions(self) -> tuple[Portion, ...]:
        """Statistics of each of several devices, including failed ones; () with one device."""
        return self._on.portions if isinstance(self._on, MultiDevice) else ()

    @property
    def tuning_left(self) -> int:
        """The number of choices that were not measured."""
        return self._on.tuning_left

    def run(self, inputs: Array | Sequence[Array]) -> list[Array]:
        """Return the outputs as a list of arrays.

        Shapes:
            (n, ...) -> (n, ...) with n up to the batch size, or any n with several devices;
            several inputs as a list of arrays
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
        """Start a run without waiting; `result()` of the returned Run gives its outputs.

        Up to two runs per device may be in flight, or four if it has its own memory with enough
        space. With several devices one more per device may be queued. Further calls block.
        Arrays of `empty_input` may be refilled after `result()`, all others at once, as they are
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

        A failing device is dropped, as in `run`. Shapes, Raises: as `run_async`.
        """
        arrays, count = self._checked(inputs)
        if isinstance(self._on, MultiDevice):
            return self._on.on_each(arrays, count)
        return [(self.device, self._on.run(arrays, count, self._are_given(arrays)))]

    def leave_out(self, device: DeviceInfo, why: str) -> None:
        """Drop one of several devices, such as one with wrong results."""
        if isinstance(self._on, MultiDevice):
            self._on.leave_out(device, why)

    def empty_input(self) -> Array | list[Array]:
        """Return memory for a whole batch that the device reads without an extra copy.

        It is uninitialised. An array, or a list of arrays if the model has several inputs.
        """
        arrays = []
        for details in self.input_details:
            array = self._on.empty_input(details)
            self._given.add(_address(array))
            weakref.finalize(array, self._given.discard, _address(array))
            arrays.append(array)
        return arrays[0] if len(arrays) == 1 else arrays

    def state(self) -> dict[str, Array]:
        """Return copies of the persistent tensors, by name: those of the carried inputs.

        Shapes: (batch, *the tensor's). Raises: DelegateError: there are none. DeviceError: a run
        failed, so that they are lost, or this was closed.
        """
        with self._at_rest() as state:
            return state.values()

    def set_state(self, values: Mapping[str, Array]) -> None:
        """Replace persistent tensors, as returned by `state`; those not named are unchanged.

        Raises: ValueError: another name, shape or type. Else as `state`.
        """
        with self._at_rest() as state:
            state.put(values)

    def reset(self) -> None:
        """Reset the persistent tensors to their initial values, also after a failed run.

        Like TFLite's variables: int8 tensors to their zero point, others to zero bytes.

        Raises: DelegateError: there are none. DeviceError.
        """
        with self._at_rest() as state:
            state.reset()

    def _at_rest(self) -> AbstractContextManager[AnyState]:
        if isinstance(self._on, MultiDevice):
            raise DelegateError("a model on several devices has no persistent tensors")
        return self._on.at_rest()

    def close(self) -> None:
        """Wait for running work, then free the device memory; a second call does nothing."""
        self._on.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _checked(self, inputs: Array | Sequence[Array]) -> tuple[list[Array], int]:
        """Return the arrays of a run, and their number of pictures; raises ValueError."""
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
    """Return the graph on each device that can run it; warn about each that cannot.

    Raises: the first device's error, if none can run it.
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
                raise  # it would fail on every device
            except DelegateError as error:
                failures.append((info, error))
        if not opened:
            # Raise the error of the first device that passes its self-test, if any.
            for _, failure in failures:
                if not isinstance(failure, NoDeviceError):
                    raise failure
            reasons = (str(failure).partition(": ")[2] for _, failure in failures)
            raise NoDeviceError("no OpenCL device works: " + "; ".join(reasons))
        undo.pop_all()
    for info, failure in failures:
        if not isinstance(failure, NoDeviceError):  # already logged
            _log.warning("device %d (%s) is left out: %s", info.index, info.name, failure)
    return opened


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])  # four times as fast as array.ctypes
