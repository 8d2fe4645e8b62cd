# SPDX-License-Identifier: Apache-2.0
"""Other runtimes with the model or the same network: a callable each, or why it is missing.

Only requested packages are imported; nothing is timed here.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import ncnn
from benchmarks.measure import Contender, Skipped, imported
from benchmarks.onnx_model import onnx_model
from delegate.inspect import Graph, read_model
from tflite_opencl.interpreters.interpreter import allocated, outputs_of
from tflite_opencl.interpreters.interpreter import run as run_once
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.oracle.values import input_sets

ONNX_RUNTIME = "ONNX Runtime"
OPENVINO = "OpenVINO"
TINYGRAD = "tinygrad"
# Slow paths are not judged, and run only in every n-th round.
_SLOW = 4


class Workload:
    """One model in the formats of all peers."""

    def __init__(self, model: str, runtime: Runtime, threads: int) -> None:
        self.model, self.runtime, self.threads = model, runtime, threads
        self.graph: Graph = read_model(model)
        self.inputs: list[NDArray[Any]] = input_sets(self.graph)[0]

    def interpreter(
        self, kernels: str, delegates: Sequence[object] = (), threads: int | None = None
    ) -> Any:
        """Return TFLite's interpreter of the model, after its first run."""
        result = allocated(self.runtime, self.model, kernels, delegates, threads or self.threads)
        run_once(result, self.inputs)
        return result

    def reference(self) -> list[NDArray[Any]]:
        """Return the outputs of TFLite's reference kernels."""
        return outputs_of(self.interpreter("reference", threads=1))

    @cached_property
    def picture(self) -> NDArray[Any]:
        """The first input in ONNX's layout: (1, c, h, w), uint8."""
        if len(self.inputs) != 1 or self.inputs[0].ndim != 4:
            raise Skipped("the model's input is not one picture")
        planes = self.inputs[0].transpose(0, 3, 1, 2)
        if planes.dtype == np.float32:
            planes = np.clip(np.rint((planes + 1) * 127.5), 0, 255)
        return np.ascontiguousarray(planes.astype(np.uint8))

    @cached_property
    def onnx(self) -> bytes:
        """The same network as int8 ONNX with random weights."""
        return onnx_model(self.graph)


@dataclass(frozen=True, slots=True)
class Peers:
    """The available peers, and the reasons of missing ones."""

    contenders: list[Contender] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, make: Callable[[], Callable[[], object]], every: int = 1) -> None:
        """Create a contender and run it once; record it, or the reason why it is missing."""
        try:
            run = make()
            run()
        except Skipped as reason:
            self.missing[name] = str(reason)
        else:
            self.contenders.append(Contender(name, run, every))


def peers(workload: Workload, with_tinygrad: bool = False) -> Peers:
    """Return all other runtimes on this machine's CPU."""
    available = Peers()
    runtime = workload.runtime
    available.add(runtime.kernels("auto"), lambda: workload.interpreter("auto").invoke)
    builtin = runtime.kernels("builtin")
    available.add(builtin, lambda: workload.interpreter("builtin").invoke, _SLOW)
    available.add(
        ONNX_RUNTIME, lambda: onnx_runtime(workload.onnx, workload.picture, workload.threads)
    )
    available.add(OPENVINO, lambda: openvino(workload.onnx, [workload.picture], workload.threads))
    available.add(
        f"{OPENVINO} on the .tflite",
        lambda: openvino(workload.model, workload.inputs, workload.threads),
        _SLOW,
    )
    if runtime.name != "tflite-runtime":
        available.add("tflite-runtime", lambda: _tflite_runtime(workload), _SLOW)
    if with_tinygrad:
        available.add(TINYGRAD, lambda: _tinygrad(workload), _SLOW)
    _add_ncnn(available, workload)
    return available


def _add_ncnn(found: Peers, workload: Workload) -> None:
    """Add ncnn on the CPU and through Vulkan, and note the difference of their results."""
    scores = {}
    for name, is_vulkan in ((ncnn.NAME, False), (ncnn.ON_VULKAN, True)):

        def made(name: str = name, is_vulkan: bool = is_vulkan) -> Callable[[], object]:
            model = onnx_model(workload.graph, is_quantized=False)
            picture = workload.picture.astype(np.float32) / np.float32(255)
            run = ncnn.ncnn(model, picture, workload.threads, is_vulkan)
            scores[name] = run()
            return run

        found.add(name, made, _SLOW)
    if len(scores) == 2:
        one, other = scores.values()
        found.notes.append(
            f"{(one != other).mean():.0%} of ncnn's scores are others through Vulkan than on the "
            f"CPU, by up to {abs(one - other).max() / abs(one).max():.1g} of the largest"
        )


def onnx_runtime(model: bytes, picture: NDArray[Any], threads: int) -> Callable[[], object]:
    """Return a run of an ONNX model."""
    module = imported("onnxruntime")
    options = module.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    try:
        session = module.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own have no base but this
        raise Skipped(f"refuses the model: {_last_line(error)}") from error
    return lambda: session.run(None, {"input": picture})


def openvino(
    model: bytes | str, inputs: Sequence[NDArray[Any]], threads: int
) -> Callable[[], object]:
    """Return a run of a model in any format OpenVINO reads."""
    module = imported("openvino")
    core = module.Core()
    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    try:
        compiled = core.compile_model(core.read_model(model), "CPU", options)
        request = compiled.create_infer_request()
        for index, values in enumerate(inputs):
            request.set_input_tensor(index, module.Tensor(values, shared_memory=True))
        request.infer()
    except RuntimeError as error:
        raise Skipped(f"refuses the model: {_last_line(error)}") from error
    run: Callable[[], object] = request.infer
    return run


def _tflite_runtime(workload: Workload) -> Callable[[], object]:
    module = imported("tflite_runtime.interpreter", "tflite-runtime")
    try:
        interp = module.Interpreter(workload.model, num_threads=workload.threads)
        interp.allocate_tensors()
        run_once(interp, workload.inputs)
    except (AttributeError, ImportError, RuntimeError, SystemError, ValueError) as error:
        raise Skipped(f"does not run: {_last_line(error)}") from error
    run: Callable[[], object] = interp.invoke
    return run


def _tinygrad(workload: Workload) -> Callable[[], object]:
    """Return the network in float32 on tinygrad's OpenCL: it has no fast 8-bit form."""
    tinygrad, onnx = imported("tinygrad"), imported("tinygrad.nn.onnx", "tinygrad")
    model = onnx_model(workload.graph, is_quantized=False)
    picture = workload.picture.astype(np.float32) / 255
    with tempfile.TemporaryDirectory() as folder, tinygrad.Context(DEV="CL"):
        path = Path(folder, "network.onnx")
        path.write_bytes(model)
        try:
            runner = onnx.OnnxRunner(str(path))

            @tinygrad.TinyJit  # type: ignore[untyped-decorator]
            def step(values: Any) -> Any:
                return runner({"input": values})["output"].realize()

            def run() -> object:
                with tinygrad.Context(DEV="CL"):
                    return step(tinygrad.Tensor(picture)).numpy()

            for _ in range(3):  # it captures in the second run, and replays from the third on
                run()
        except (AttributeError, OSError, RuntimeError) as error:
            raise Skipped(f"does not run: {_last_line(error)}") from error
    return run


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def versions(runtime: Runtime) -> Mapping[str, str]:
    """Return the version of each peer's package that is installed."""
    results = {runtime.name: runtime.version}
    for package in ("ncnn", "onnxruntime", "openvino", "tinygrad", "torch"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            results[package] = importlib.metadata.version(package)
    return results
