# SPDX-License-Identifier: Apache-2.0
"""One model on every path, in turns -> times, and what the delegate took. Prints nothing."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from delegate import DeviceInfo, Graph, OpenCLDelegate, Tensor, read_model
from label_image.runtime import Runtime
from label_image.timing import Times, measure

BLOCK_RUNS = 10
OPENCL = "OpenCL"
_CPU_KERNELS = ("auto", "builtin")  # the first is the peer all others are compared with


@dataclass(frozen=True, slots=True)
class PathTimes:
    """What one path took."""

    min_ms: float
    median_ms: float  # of the blocks' medians
    ratio: float  # its minimum over the peer's
    ratio_quartiles: tuple[float, float]  # lower and upper, of each round's own ratio


@dataclass(frozen=True, slots=True)
class Result:
    """One model's times, and what the delegate took of it."""

    model: str
    device: DeviceInfo
    nodes: int
    delegated: int
    partitions: int
    launches: int  # a run
    up_bytes: int  # a run, to the device
    down_bytes: int
    peer: str  # the path all others are compared with: XNNPACK, where the runtime has it
    paths: Mapping[str, PathTimes]


def benchmark(
    model: str, runtime: Runtime, device: str | int | None, threads: int, runs: int
) -> Result:
    """Return the times of the delegate, of TFLite's default kernels and of its built-in ones.

    Raises:
        OSError, ModelError: the model cannot be read. NoDeviceError: no such device works.
        DelegateError, RuntimeError, ValueError: it cannot run.
    """
    graph = read_model(model)
    counter = OpenCLDelegate(model, device, profiling=True)
    counted = _ready(runtime, graph, model, threads, "auto", [counter])
    launches = len(counter.profile())
    del counted  # and its interpreter, which must outlive the profile

    delegate = OpenCLDelegate(model, device)
    contenders = {OPENCL: _ready(runtime, graph, model, threads, "auto", [delegate])}
    for kernels in _CPU_KERNELS:
        name = runtime.kernels(kernels)
        contenders[name] = _ready(runtime, graph, model, threads, kernels, [])
    peer = runtime.kernels(_CPU_KERNELS[0])
    up_bytes, down_bytes = _transfers(graph, delegate.partitions)
    return Result(
        model=model,
        device=delegate.device,
        nodes=len(delegate.verdicts),
        delegated=sum(reason is None for _, _, reason in delegate.verdicts),
        partitions=len(delegate.partitions),
        launches=launches,
        up_bytes=up_bytes,
        down_bytes=down_bytes,
        peer=peer,
        paths=_summary(in_turns(contenders, runs), peer),
    )


def in_turns(
    contenders: Mapping[str, Callable[[], object]], runs: int
) -> Mapping[str, Sequence[Times]]:
    """Return each contender's times, block by block, of at least `runs` runs in at least 2 blocks.

    Whatever slows the machine for a while then slows all of them. A block's first run is not timed:
    it finds the other contenders' data in the caches, and their threads still spinning.
    """
    blocks: dict[str, list[Times]] = {name: [] for name in contenders}
    for round_ in range(max(2, -(-runs // BLOCK_RUNS))):
        # Every other round backwards, so that nobody always follows the same one.
        for name in list(contenders)[:: -1 if round_ % 2 else 1]:
            blocks[name].append(measure(contenders[name], BLOCK_RUNS, warmup=1))
    return blocks


def _ready(
    runtime: Runtime,
    graph: Graph,
    model: str,
    threads: int,
    kernels: str,
    delegates: Sequence[OpenCLDelegate],
) -> Callable[[], None]:
    """Return the invoke of a new interpreter that has run once on random inputs."""
    interpreter: Any = runtime.interpreter(model, threads, kernels, delegates)
    interpreter.allocate_tensors()
    rng = np.random.default_rng(0)
    for tensor in graph.inputs:
        values = rng.integers(0, 256, tensor.shape, np.uint8)
        if tensor.dtype in ("uint8", "int8"):
            interpreter.set_tensor(tensor.index, values.view(tensor.dtype))
        elif tensor.dtype == "float32":
            interpreter.set_tensor(tensor.index, np.float32(values / 127.5 - 1))
        else:
            raise ValueError(f"{model}: an input of {tensor.dtype}, only 8-bit and float32 are run")

    def invoke() -> None:
        interpreter.invoke()

    invoke()
    return invoke


def _transfers(graph: Graph, partitions: Collection[Collection[int]]) -> tuple[int, int]:
    """Return the bytes of all tensors that cross into and out of these groups of nodes."""
    up_bytes = down_bytes = 0
    for members in partitions:
        inside = [node for node in graph.nodes if node.index in members]
        outside = [node for node in graph.nodes if node.index not in members]
        made = {tensor for node in inside for tensor in node.outputs}
        read = {tensor for node in inside for tensor in node.inputs}
        wanted = {tensor for node in outside for tensor in node.inputs} | set(graph.outputs)
        up_bytes += sum(map(_computed_bytes, read - made))
        down_bytes += sum(map(_computed_bytes, made & wanted))
    return up_bytes, down_bytes


def _computed_bytes(tensor: Tensor | None) -> int:
    if tensor is None or tensor.data is not None:
        return 0
    return prod(tensor.shape) * np.dtype(tensor.dtype).itemsize


def _summary(blocks: Mapping[str, Sequence[Times]], peer: str) -> Mapping[str, PathTimes]:
    def least(path: str) -> float:
        return min(block.min_ms for block in blocks[path])

    summary = {}
    for path, own in blocks.items():
        ratios = [
            ours.median_ms / theirs.median_ms
            for ours, theirs in zip(own, blocks[peer], strict=True)
        ]
        lower, _, upper = statistics.quantiles(ratios, n=4, method="inclusive")
        summary[path] = PathTimes(
            min_ms=least(path),
            median_ms=statistics.median(block.median_ms for block in own),
            ratio=least(path) / least(peer),
            ratio_quartiles=(lower, upper),
        )
    return summary
