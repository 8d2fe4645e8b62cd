# SPDX-License-Identifier: Apache-2.0
"""A model launch by launch: time, work, and the share of what the device was seen to do at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from math import prod
from pathlib import Path

import numpy as np

from benchmarks.network import Network
from benchmarks.results import Layer, Layers
from benchmarks.setup import Setup, named
from delegate import DeviceInfo
from delegate.inspect import Graph, LaunchTime, Node, Tensor, write_model
from tflite_opencl.common.launch_times import run_times

_RUNS = 50
# Layers that are easy for any kernel: (side, channels) of a 1x1 convolution whose data stays in a
# cache, and of a FULLY_CONNECTED one whose weights are read once each, as many bytes as V1 has.
_COMPUTE = ((14, 512), (28, 256), (28, 512))
_MEMORY = ((1024, 1024), (1024, 4096))


def layers_of(model: str, info: DeviceInfo, setup: Setup) -> Layers:
    """Return every launch of a model with its work, each one's least time of many runs."""
    layers = _profile(model, info, setup)
    made = [layer for easy in _easy(setup) for layer in _profile(easy, info, setup)]

    def rate(name: str, layer: Layer) -> float:
        return float(getattr(layer, name)) / layer.microseconds

    work, moved = (
        max((*layers, *made), key=lambda layer, name=name: rate(name, layer))
        for name in ("multiply_adds", "bytes_moved")
    )
    return Layers(
        model=Path(model).stem,
        device=named(info),
        peak_multiply_adds=rate("multiply_adds", work) * 1e6,
        peak_bytes=rate("bytes_moved", moved) * 1e6,
        peak_source=(
            f"the best this delegate did on that device: multiply-adds in {work.op} {work.shape}, "
            f"bytes in {moved.op} {moved.shape}; tried were the model's own layers and "
            f"{len(made)} made to be easy"
        ),
        layers=layers,
    )


def _profile(model: str, info: DeviceInfo, setup: Setup) -> list[Layer]:
    workload, delegate = setup.workload(model), setup.delegate(model, info, profiling=True)
    invoke = workload.interpreter("auto", [delegate])
    least = run_times(delegate, invoke, min(setup.runs, _RUNS)).launches
    launches = Counter(time.node for time in least)
    work = work_of(workload.graph, launches)
    return [_layer(time, workload.graph, launches[time.node], work) for time in least]


def work_of(graph: Graph, launches: Collection[int]) -> Mapping[int, int]:
    """Return the multiply-adds of each launched node, with those of nodes fused into it."""
    work: dict[int, int] = {}
    waiting = 0
    for node in graph.nodes:
        waiting += multiply_adds(node)
        if node.index in launches:  # what has no launch of its own runs in the next one
            work[node.index], waiting = waiting, 0
    return work


def _layer(time: LaunchTime, graph: Graph, launches: int, work: Mapping[int, int]) -> Layer:
    # Where a node takes several launches, its work is shared out equally.
    node = graph.nodes[time.node]
    tensors = [*node.inputs, *node.outputs]
    return Layer(
        node=time.node,
        op=time.op,
        shape="x".join(map(str, node.outputs[0].shape)),
        alternative=time.alternative,
        microseconds=time.microseconds,
        multiply_adds=work[time.node] // launches,
        bytes_moved=sum(_size_bytes(tensor) for tensor in tensors) // launches,
    )


def multiply_adds(node: Node) -> int:
    """Return the products a node sums up; ops without weights have none."""
    if node.op not in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
        return 0
    weights = node.inputs[1]
    assert weights is not None
    outputs = prod(node.outputs[0].shape)
    if node.op == "DEPTHWISE_CONV_2D":
        return outputs * prod(weights.shape[1:3])
    return outputs * prod(weights.shape[1:])


def _size_bytes(tensor: Tensor | None) -> int:
    return 0 if tensor is None else prod(tensor.shape) * np.dtype(tensor.dtype).itemsize


def _easy(setup: Setup) -> Iterator[str]:
    """Yield the files of models of one layer each."""
    for side, channels in _COMPUTE:
        network = Network()
        network.convolution(network.tensor((1, side, side, channels)), channels)
        yield setup.written(f"compute_{side}_{channels}", write_model(network.graph("1x1")))
    for inputs, outputs in _MEMORY:
        network = Network()
        network.fully_connected(network.tensor((1, inputs)), outputs)
        yield setup.written(f"memory_{inputs}_{outputs}", write_model(network.graph("dense")))
