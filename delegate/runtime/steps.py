# SPDX-License-Identifier: Apache-2.0
"""Runs a program a node at a time, and reads back what each node computed."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from delegate.errors import DeviceError
from delegate.graph.ir import Tensor
from delegate.launch import Launch, Program, Step, size_bytes
from delegate.runtime.device import Device
from delegate.runtime.layout import Bytes, Layout, as_bytes

Values = Mapping[int, NDArray[Any]]  # tensor index -> its values, in its shape


@dataclass(frozen=True, slots=True)
class LaunchSize:
    """One launch of a node: its kernel, how that is built, and its sizes."""

    file: str  # stem of the .cl file
    kernel: str
    global_size: int  # work-items
    local_size: int  # work-items of a work-group
    macros: tuple[str, ...]  # "NAME=VALUE", what it is built with
    params: tuple[str, ...]  # "name=value", the plain numbers of its parameter block
    microseconds: float  # on the host's clock, from the call to the end of the wait for it


@dataclass(frozen=True, slots=True, eq=False)
class StepRun:
    """One node of a program that ran a node at a time."""

    node: int  # TFLite's node index
    op: str  # TFLite's name, or the delegate's own for a node that a pass made of several
    alternative: str
    inputs: tuple[int, ...]  # indices of the computed tensors that it read
    launches: tuple[LaunchSize, ...]  # none: the output is the input's bytes, or a constant
    values: Values  # what it computed


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """A program of one picture, its kernels in launch order, and the arena they work in."""

    device: Device
    queue: cl.CommandQueue
    arena: cl.Buffer
    layout: Layout
    program: Program
    kernels: Sequence[tuple[cl.Kernel, tuple[int], tuple[int]]]

    def run(
        self,
        inputs: Sequence[Bytes],
        outputs: Sequence[Bytes],
        wanted: Collection[Tensor],
        given: Values | None = None,
    ) -> list[StepRun]:
        """Run each node by itself and wait for it; return what each computed of `wanted`.

        `inputs`, `outputs`: of the program, as Executor.run takes them. `given`: what a node reads
        in the place of what the nodes before it computed, where it holds that.

        Raises:
            DeviceError: a failed OpenCL call.
        """
        kernels = iter(self.kernels)
        made = []
        with self.device.calling("running a node at a time"):
            for tensor, values in zip(self.program.inputs, inputs, strict=True):
                self._write(tensor, values)
            self.queue.finish()
            for step in self.program.steps:
                read = _read(step)
                for tensor in read if given is not None else ():
                    if given is not None and tensor.index in given:
                        self._write(tensor, as_bytes(given[tensor.index]))
                sizes = []
                for launch in step.alternative.launches:
                    kernel = next(kernels)
                    begin = time.perf_counter()
                    cl.enqueue_nd_range_kernel(self.queue, *kernel)
                    self.queue.finish()
                    spent = (time.perf_counter() - begin) * 1e6
                    sizes.append(_size(launch, kernel[1], kernel[2], spent))
                made.append(
                    StepRun(
                        step.node_index,
                        step.op,
                        step.alternative.name,
                        tuple(tensor.index for tensor in read),
                        tuple(sizes),
                        {t.index: self._values(t) for t in _written(step) if t in wanted},
                    )
                )
            for tensor, result in zip(self.program.outputs, outputs, strict=True):
                np.copyto(result, as_bytes(self._values(tensor)))
        return made

    def _write(self, tensor: Tensor, values: Bytes) -> None:
        if values.nbytes != size_bytes(tensor):
            raise DeviceError(
                f"tensor {tensor.index} is given {values.nbytes} bytes of another size"
            )
        cl.enqueue_copy(self.queue, self.arena, values, dst_offset=self.layout.offsets[tensor])

    def _values(self, tensor: Tensor) -> NDArray[Any]:
        content = np.empty(size_bytes(tensor), np.uint8)
        cl.enqueue_copy(self.queue, content, self.arena, src_offset=self.layout.offsets[tensor])
        return content.view(tensor.dtype).reshape(tensor.shape)


def _written(step: Step) -> list[Tensor]:
    view = step.alternative.view
    written = [t for launch in step.alternative.launches for t in launch.writes]
    return list(dict.fromkeys([*written, *(() if view is None else view[1:])]))


def _read(step: Step) -> list[Tensor]:
    """Return the computed tensors that a step reads, and no other step of its own wrote."""
    view = step.alternative.view
    read = [t for launch in step.alternative.launches for t in launch.reads]
    own = set(_written(step))
    every = dict.fromkeys([*(() if view is None else view[:1]), *read])
    return [t for t in every if t.data is None and t not in own]


def _size(launch: Launch, whole: tuple[int], group: tuple[int], microseconds: float) -> LaunchSize:
    return LaunchSize(
        launch.file,
        launch.kernel,
        whole[0],
        group[0],
        tuple(f"{name}={value}" for name, value in launch.defines.items()),
        tuple(f"{name}={v}" for name, v in launch.params.items() if isinstance(v, int)),
        microseconds,
    )
