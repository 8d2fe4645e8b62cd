# SPDX-License-Identifier: Apache-2.0
"""A language model's file as TFLite runs it: some tokens at a place -> the logits of the last."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import OpenCLDelegate, Options, SignatureError
from delegate.inspect import Graph
from tflite_opencl.common import bars, interrupts
from tflite_opencl.common.errors import CommandError
from tflite_opencl.common.interpreter import delegates_for, failures, read_graph
from tflite_opencl.common.runtime import find_runtime
from tflite_opencl.common.signature import OfSignature

Array = NDArray[Any]
_RUNTIME = "ai-edge-litert"


class Runner:
    """An interpreter with the graphs prefill and decode, on a device or on TFLite's CPU.

    Attributes:
        places: how many tokens the caches have room for.
        piece: how many tokens prefill takes.
        vocabulary: how many logits there are.
        device: the name of what runs it.
        nodes: how many nodes of decode the delegate runs, "1907 of 1908"; "" on the CPU.
        load_s: seconds that the start took.
    """

    def __init__(
        self, path: str, options: Options | None, cpu_kernels: str, threads: int | None
    ) -> None:
        """Open it. `options`: of the delegate; None: TFLite runs all, on these kernels.

        Raises: CommandError: it is no language model, or does not run. DelegateError: no device.
        RuntimeMissing: there is no TFLite.
        """
        self._path = path
        self._closing = contextlib.ExitStack()
        runtime, begun = find_runtime(), time.perf_counter()
        if runtime.name != _RUNTIME:  # its matrices with a scale a row give the bias alone
            raise CommandError(
                f"{runtime.name} multiplies a language model's matrices wrongly: "
                f"pip install {_RUNTIME}"
            )
        decode, prefill = (self._graph(name) for name in ("decode", "prefill"))
        self._delegate: OpenCLDelegate | None = None
        with self._closing, bars.start(os.path.basename(path)):
            delegates = self._closing.enter_context(delegates_for(decode, runtime, options))
            self._delegate = delegates[0] if delegates else None
            with failures(path, self._delegate):
                self._made = runtime.interpreter(path, threads, cpu_kernels, delegates)
                self._decode = _Graph(self._made, decode)
                self._prefill = _Graph(self._made, prefill)
            self._closing = self._closing.pop_all()
        self.piece = prefill.tensors[prefill.input_names["tokens"]].shape[0]
        self.vocabulary = decode.tensors[decode.output_names["logits"]].shape[-1]
        self.places = self._places(decode)
        self.load_s = time.perf_counter() - begun
        self.device, self.nodes = runtime.kernels(cpu_kernels), ""
        if self._delegate is not None:
            taken = sum(verdict.is_taken for verdict in self._delegate.verdicts)
            self.device, self.nodes = self._delegate.device_name, f"{taken} of {len(decode.nodes)}"

    def run(self, tokens: Sequence[int], place: int) -> Array:
        """Let the caches take up to `piece` tokens at a place; return the logits after the last.

        Shapes: -> (1, vocabulary)

        Raises: CommandError: the run fails.
        """
        start = np.array([place], np.int32)
        # What fills up a piece is overwritten before anybody sees it, and there must be room.
        if len(tokens) == 1 or place + self.piece > self.places:
            for number, token in enumerate(tokens):
                given = {"tokens": np.array([token], np.int32), "start": start + number}
                found = self._run(self._decode, given)
            return found["logits"]
        padded = np.zeros(self.piece, np.int32)
        padded[: len(tokens)] = tokens
        last = np.array([len(tokens) - 1], np.int32)
        return self._run(self._prefill, {"tokens": padded, "start": start, "last": last})["logits"]

    def save(self, count: int) -> dict[str, Array]:
        """Return what the caches hold of the first tokens, by name."""
        found = self._run(self._state("save"), {})
        return {name: values[:, :count].copy() for name, values in found.items()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Let the caches hold this again, as `save` returned it.

        Raises: ValueError: it is of another model.
        """
        graph = self._state("restore")
        if state.keys() != graph.shapes.keys():
            raise ValueError("this state is of another model: its caches have other names")
        given = {}
        for name, values in state.items():
            (groups, count, head), own = values.shape, graph.shapes[name]
            if (groups, head) != (own[0], own[2]) or count > own[1]:
                raise ValueError(f"{name} is {values.shape}, and the cache is {own}")
            given[name] = np.zeros(own, np.float32)
            given[name][:, :count] = values
        self._run(graph, given)

    def close(self) -> None:
        """Give the device's memory back; later runs fail."""
        self._closing.close()

    def _graph(self, name: str) -> Graph:
        try:
            found = read_graph(self._path, name)
        except SignatureError as error:
            raise CommandError(f"{self._path} is no language model: {error}") from error
        wanted = {"decode": {"tokens", "start"}, "prefill": {"tokens", "start", "last"}}
        if name in wanted and (
            set(found.input_names) != wanted[name] or set(found.output_names) != {"logits"}
        ):
            raise CommandError(
                f"{self._path} is no language model that is known: {name} takes "
                f"{', '.join(found.input_names)} and gives {', '.join(found.output_names)}"
            )
        return found

    def _places(self, decode: Graph) -> int:
        shapes = [n.outputs[0].shape for n in decode.nodes if n.op == "READ_VARIABLE"]
        if not shapes or any(len(shape) != 3 for shape in shapes):
            raise CommandError(f"{self._path} has no caches that are known")
        return shapes[0][1]

    def _state(self, name: str) -> _Graph:
        with failures(self._path, self._delegate):
            return _Graph(self._made, self._graph(name))

    def _run(self, graph: _Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
        with failures(self._path, self._delegate):
            found = graph.run(inputs)
        interrupts.check()
        return found


class _Graph:
    """One graph of the interpreter, run by the names of its signature."""

    def __init__(self, made: Any, graph: Graph) -> None:
        self._own = OfSignature(made, graph)
        self._inputs, self._outputs = graph.input_names, graph.output_names
        self.shapes = {name: graph.tensors[at].shape for name, at in self._inputs.items()}
        self._own.allocate_tensors()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        for name, values in inputs.items():
            self._own.set_tensor(self._inputs[name], values)
        self._own.invoke()
        return {name: self._own.get_tensor(at) for name, at in self._outputs.items()}
