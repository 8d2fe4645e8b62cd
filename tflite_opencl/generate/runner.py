# SPDX-License-Identifier: Apache-2.0
"""Runs a language model's graphs in TFLite's interpreter, on a device or on the CPU."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping

from delegate import OpenCLDelegate, Options, SignatureError
from delegate.inspect import Graph, Subgraphs, read_signatures
from tflite_opencl.console import bars, interrupts
from tflite_opencl.console.errors import CommandError, cannot_read
from tflite_opencl.generate.forms import Array, form_of
from tflite_opencl.interpreters.interpreter import delegates_for, failures
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.interpreters.signature import OfSignature

_RUNTIME = "ai-edge-litert"


class LlmExecutor:
    """An interpreter of a file with the signature decode, and one or more prefills.

    Attributes:
        form: what runs tokens.
        device: name of the device that runs it.
        nodes: how many nodes of decode the delegate runs, "1907 of 1908"; "" on the CPU.
        load_s: start-up time in seconds.
    """

    def __init__(
        self, path: str, options: Options | None, cpu_kernels: str, threads: int | None
    ) -> None:
        """Open it. `options`: of the delegate; None: TFLite runs everything, on these kernels.

        Raises: CommandError: not a language model, or it does not run. DelegateError: no device.
        RuntimeMissing: there is no TFLite.
        """
        self._path = path
        self._closing = contextlib.ExitStack()
        self._ready: dict[str, OfSignature] = {}  # allocated ones
        runtime, begun = find_runtime(), time.perf_counter()
        if runtime.name != _RUNTIME:  # for matrices with per-row scales it returns only the bias
            raise CommandError(
                f"{runtime.name} multiplies a language model's matrices wrongly: "
                f"pip install {_RUNTIME}"
            )
        subgraphs, self._graphs = self._read()
        decode = self._graphs["decode"]
        self._delegate: OpenCLDelegate | None = None
        with self._closing, bars.start(os.path.basename(path)):
            delegates = self._closing.enter_context(delegates_for(subgraphs, runtime, options))
            self._delegate = delegates[0] if delegates else None
            with failures(path, self._delegate):
                self._made = runtime.interpreter(path, threads, cpu_kernels, delegates)
            self.form = form_of(path, self._graphs, self._run)
            with failures(path, self._delegate):
                for name in self._graphs:
                    if name.startswith(("decode", "prefill")):
                        self._ready_graph(name)
            self._closing = self._closing.pop_all()
        self.load_s = time.perf_counter() - begun
        self.device, self.nodes = runtime.kernels(cpu_kernels), ""
        if self._delegate is not None:
            verdicts = self._delegate.subgraph_verdicts[decode.subgraph]
            taken = sum(verdict.is_taken for verdict in verdicts)
            self.device, self.nodes = self._delegate.device_name, f"{taken} of {len(decode.nodes)}"

    def close(self) -> None:
        """Release the device's memory; later runs fail."""
        self._closing.close()

    def _read(self) -> tuple[Subgraphs, dict[str, Graph]]:
        try:
            subgraphs, graphs = read_signatures(self._path)
            graphs["decode"] = subgraphs.of_signature("decode")
        except OSError as error:
            raise cannot_read(self._path, error) from error
        except SignatureError as error:
            raise CommandError(f"{self._path} is no language model: {error}") from error
        return subgraphs, graphs

    def _ready_graph(self, name: str) -> OfSignature:
        if name not in self._ready:
            made = OfSignature(self._made, self._graphs[name])
            made.allocate_tensors()
            self._ready[name] = made
        return self._ready[name]

    def _run(self, name: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run a graph; inputs and outputs are keyed by its signature's names."""
        graph = self._graphs[name]
        with failures(self._path, self._delegate):
            made = self._ready_graph(name)
            for own, values in inputs.items():
                made.set_tensor(graph.input_names[own], values)
            made.invoke()
            found = {own: made.get_tensor(at) for own, at in graph.output_names.items()}
        interrupts.check()
        return found
