# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime or OpenVINO in the service's server: python -m benchmarks.service_peer.

The model is the same network with random weights (onnx_model.py), as in the other benchmarks.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.measure import Skipped, imported
from benchmarks.onnx_model import onnx_model
from delegate.inspect import Graph, read_model
from tflite_opencl.serve import life
from tflite_opencl.serve.metrics import Metrics
from tflite_opencl.serve.models import Served
from tflite_opencl.serve.runners import Batched, BatchRunner
from tflite_opencl.serve.server import Bounds, Server
from tflite_opencl.serve.tensors import Array, ModelSignature, Named
from tflite_opencl.serve.worker import BatchingOptions, BatchScheduler

_MOST, _BODY = 8, 16 << 20


class Session:
    """A model opened for a whole batch; partial batches are padded."""

    def __init__(self, run: Callable[[Array], Array], size: int) -> None:
        self._run, self._size = run, size

    def run(self, arrays: list[Array]) -> list[Array]:
        (pictures,) = arrays
        count = len(pictures)
        if count < self._size:
            pictures = np.concatenate([pictures, pictures[:1].repeat(self._size - count, 0)])
        return [self._run(pictures)[:count]]

    def close(self) -> None:
        """Python frees it."""


def onnxruntime(graph: Graph) -> Callable[[int], BatchRunner]:
    """Return a function that opens ONNX Runtime for a batch. Raises: Skipped: it is missing."""
    module = imported("onnxruntime")

    def open_batch(size: int) -> BatchRunner:
        content = onnx_model(graph, size)
        session = module.InferenceSession(content, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return Session(lambda pictures: session.run(None, {name: pictures})[0], size)

    return open_batch


def openvino(graph: Graph) -> Callable[[int], BatchRunner]:
    """Return what opens OpenVINO for a batch. Raises: Skipped: it is not here."""
    core = imported("openvino").Core()

    def open_batch(size: int) -> BatchRunner:
        hint = {"PERFORMANCE_HINT": "LATENCY"}  # one run at a time, on all cores
        compiled = core.compile_model(core.read_model(onnx_model(graph, size)), "CPU", hint)
        request: Any = compiled.create_infer_request()
        return Session(lambda pictures: request.infer([pictures])[0], size)

    return open_batch


PEERS = {"onnxruntime": onnxruntime, "openvino": openvino}


def signature(graph: Graph) -> ModelSignature:
    """Return the ONNX model's signature: (1, c, h, w) uint8 -> (1, classes) float32."""
    _, height, width, channels = graph.inputs[0].shape
    shape = (1, channels, height, width)
    classes = graph.outputs[0].shape[-1]
    return ModelSignature(
        (Named("picture", np.dtype("uint8"), shape),),
        (Named("classes", np.dtype("float32"), (1, classes)),),
    )


def main(arguments: Sequence[str]) -> None:
    """Serve the network of a .tflite file by a peer, until SIGTERM: PEER MODEL."""
    peer, model = arguments
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    graph = read_model(model)
    shown = signature(graph)

    def load() -> Sequence[Served]:
        runner = Batched(PEERS[peer](graph), shown, _MOST)
        runner.device = peer
        logging.getLogger("tflite_opencl").info("batches of %s", runner.sizes)
        worker = BatchScheduler(runner, BatchingOptions(256, _MOST, 0.0))
        return [Served(peer, shown, worker, None, _MOST)]

    async def serve() -> None:
        end = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
        server = Server(Bounds(_BODY, 16 * _BODY, 256, 30.0), Metrics())
        await life.serve(server, ("127.0.0.1", 0), load, end, 10.0)

    try:
        asyncio.run(serve())
    except Skipped as reason:
        logging.getLogger("tflite_opencl").error("%s", reason)


if __name__ == "__main__":
    main(sys.argv[1:])
