# SPDX-License-Identifier: Apache-2.0
"""Adapts LiteRT's CompiledModel on an accelerator to the interface of TFLite's Interpreter."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, accelerators
from tflite_opencl.console.errors import OneLineError
from tflite_opencl.interpreters.runtime import Runtime

OPTIONS_VARIABLE = "TFLITE_OPENCL_OPTIONS"
# LiteRT compiles under a lock, and its Python binding holds the GIL while waiting for that lock.
# The compiling thread then waits for the GIL in the delegate: serialise compilation.
_compiling = threading.Lock()
_KERNEL_MODES = {"auto": "XNNPACK", "reference": "REFERENCE", "builtin": "BUILTIN"}


class CompiledInterpreter:
    """The first signature of a CompiledModel, with TFLite's tensor indices.

    Attributes:
        delegate: ours inside it; None: the accelerator is another, or the CPU runs everything.
    """

    def __init__(
        self,
        runtime: Runtime,
        model: bytes | str,
        folder: str,
        options: Mapping[str, Any],
        cpu_kernels: str = "auto",
        threads: int | None = 1,
    ) -> None:
        """Compile the model for the GPU, and the remaining nodes for the CPU.

        `folder`: with libLiteRtGpuAccelerator.so; "": compile only for the CPU.
        `options`: ours; None: unchanged.

        Raises:
            RuntimeError, ValueError: LiteRT rejects the model.
            OneLineError: the runtime has no suitable CompiledModel.
        """
        self._plain = runtime.interpreter(model, threads, cpu_kernels)
        compiled_model, settings = _litert("compiled_model"), _litert("options")
        hardware = settings.HardwareAccelerator
        wanted = hardware.GPU | hardware.CPU if folder else hardware.CPU
        mode = getattr(settings.CpuKernelMode, _KERNEL_MODES[cpu_kernels])
        with _compiling, _as_file(model) as path:
            os.environ[OPTIONS_VARIABLE] = options_text(options)
            known = accelerators()
            self._model = compiled_model.CompiledModel.from_file(
                path,
                environment=_environment(folder),
                options=settings.Options(
                    hardware_accelerators=wanted,
                    cpu_options=settings.CpuOptions(num_threads=threads or 0, kernel_mode=mode),
                ),
            )
            self.delegate = next((each for each in accelerators() if each not in known), None)
        self._changed: dict[int, NDArray[Any]] = {}  # since the last run, by tensor index
        self.allocate_tensors()

    def taken(self, graph: Graph) -> set[int]:
        """Return the nodes of the file that the accelerator runs, as far as it reports them."""
        if self.delegate is not None:
            return {each.node for each in self.delegate.verdicts if each.is_taken}
        is_whole = self._model.is_fully_accelerated()
        return {node.index for node in graph.nodes} if is_whole else set()

    def get_input_details(self) -> list[dict[str, Any]]:
        """Return TFLite's details of the inputs, in their current shapes."""
        return self._details(self._plain.get_input_details(), "inputs")

    def get_output_details(self) -> list[dict[str, Any]]:
        """Return TFLite's details of the outputs, in their current shapes."""
        return self._details(self._plain.get_output_details(), "outputs")

    def resize_tensor_input(self, index: int, shape: Sequence[int]) -> None:
        """Resize an input."""
        self._model.resize_input_tensor(self._order("inputs").index(index), shape, strict=False)

    def allocate_tensors(self) -> None:
        """Allocate the buffers of inputs and outputs, zeroed or with their old content."""
        # Querying shapes makes LiteRT prepare TFLite. Otherwise its first run does so after binding
        # the outputs, and an output that TFLite's kernel makes dynamic loses its buffer: a scalar
        # of READ_VARIABLE. Source: litert/runtime/compiled_model.cc Run, GetOutputTensorShapes
        self._model.get_output_tensor_details(self._model.get_signature_by_index(0)["key"])
        buffers = {
            "inputs": self._model.create_input_buffers(0),
            "outputs": self._model.create_output_buffers(0),
        }
        self._buffers = buffers
        self._by_index = {
            index: buffer
            for which, made in buffers.items()
            for index, buffer in zip(self._order(which), made, strict=True)
        }

    def reset_all_variables(self) -> None:
        """Do nothing: LiteRT loads no variable tensors, and never resets resource variables."""

    def set_tensor(self, index: int, values: NDArray[Any]) -> None:
        """Copy values into an input."""
        # LiteRT's Python API has fewer types than its C API, and does not check them here.
        self._by_index[index].write(np.frombuffer(values.tobytes(), np.int8))

    def get_tensor(self, index: int) -> NDArray[Any]:
        """Return a copy of an input or output."""
        details = self._plain._get_tensor_details(index, 0)
        buffer = self._by_index[index]
        shape = buffer.get_tensor_details()["shape"]
        dtype = np.dtype(details["dtype"])
        size_bytes = int(np.prod(shape)) * dtype.itemsize
        return np.asarray(buffer.read(size_bytes, np.int8).view(dtype).reshape(shape))

    def tensor(self, index: int) -> Callable[[], NDArray[Any]]:
        """Return a function that returns an array; writes to it are visible to the next run."""

        def view() -> NDArray[Any]:
            if index not in self._changed:
                self._changed[index] = self.get_tensor(index)
            return self._changed[index]

        return view

    def invoke(self) -> None:
        """Run once; raises RuntimeError: LiteRT or the accelerator fails."""
        for index, values in self._changed.items():
            self.set_tensor(index, values)
        self._changed = {}
        self._model.run_by_index(0, self._buffers["inputs"], self._buffers["outputs"])

    def _details(self, found: Sequence[dict[str, Any]], which: str) -> list[dict[str, Any]]:
        buffers = dict(zip(self._order(which), self._buffers[which], strict=True))
        shapes = [buffers[each["index"]].get_tensor_details()["shape"] for each in found]
        return [
            {**each, "shape": np.array(shape, np.int32)}
            for each, shape in zip(found, shapes, strict=True)
        ]

    def _order(self, which: str) -> list[int]:
        """Return the tensor indices of the "inputs" or "outputs", in LiteRT's order."""
        signature = self._model.get_signature_by_index(0)
        found = self._plain._get_full_signature_list().get(signature["key"])
        if found is not None:
            return [found[which][name] for name in signature[which]]
        details = getattr(self._plain, f"get_{which[:-1]}_details")()
        return [each["index"] for each in details]


def options_text(options: Mapping[str, Any]) -> str:
    """Return options in the library's syntax: "tune:off;own_context:1"."""

    def text(value: Any) -> str:
        if isinstance(value, bool):
            return str(int(value))
        return str(value) if isinstance(value, str | int | float | os.PathLike) else ",".join(value)

    return ";".join(f"{key}:{text(value)}" for key, value in options.items() if value is not None)


@contextlib.contextmanager
def _as_file(model: bytes | str) -> Iterator[str]:
    """Yield the path of a model while it is opened; content becomes an in-memory file.

    The delegate searches for a model in the whole mapping that contains its names. A file has its
    own mapping; a buffer is on the heap, which takes longer to scan than a small model to compile.
    """
    if isinstance(model, str):
        yield model
        return
    with open(os.memfd_create("model"), "wb", buffering=0) as file:
        file.write(model)
        yield f"/proc/self/fd/{file.fileno()}"


def _litert(name: str) -> Any:
    try:
        return importlib.import_module(f"ai_edge_litert.{name}")
    except ImportError as error:
        words = f"a CompiledModel needs ai-edge-litert from 2.2.0 on: {error}"
        raise OneLineError(words) from None


@functools.cache
def _environment(folder: str) -> Any:
    return _litert("environment").Environment.create(runtime_path=folder or None)
