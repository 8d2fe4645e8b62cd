# SPDX-License-Identifier: Apache-2.0
"""A model launch by launch: time, work, and the share of what the device was seen to do at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path

import numpy as np

from benchmarks.family import Network
from benchmarks.peers import Workload
from benchmarks.results import Layer, Layers
from benchmarks.setup import Setup
from benchmarks.versus import named, new_delegate
from delegate import DeviceInfo
from delegate.inspect import Graph, LaunchTime, Node, Quantization, Tensor, write_model

_RUNS = 50
# Layers that are easy for any kernel: (side, channels) of a 1x1 convolution whose data stays in a
# cache, and of a FULLY_CONNECTED one whose weights are read once each, as many bytes as V1 has.
_COMPUTE = ((14, 512), (28, 256), (28, 512))
_MEMORY = ((1024, 1024), (1024, 4096))
_QUANTIZATION = Quantization((float(np.float32(6 / 255)),), (0,))


def layers_of(model: str, info: DeviceInfo, setup: Setup) -> Layers:
    """Return every launch of a model with its work, each one's least time of many runs."""
    layers = _profile(model, info, setup)
    made = list(_made_layers(info, setup))
    by_multiply_adds = max(
        (*layers, *made), key=lambda layer: layer.multiply_adds / layer.microseconds
    )
    by_bytes = max((*layers, *made), key=lambda layer: layer.bytes_moved / layer.microseconds)
    return Layers(
        model=Path(model).stem,
        device=named(info),
        peak_multiply_adds=by_multiply_adds.multiply_adds / by_multiply_adds.microseconds * 1e6,
        peak_bytes=by_bytes.bytes_moved / by_bytes.microseconds * 1e6,
        peak_source=(
            "the best this delegate did on that device: multiply-adds in "
            f"{by_multiply_adds.op} {by_multiply_adds.shape}, bytes in "
            f"{by_bytes.op} {by_bytes.shape}; tried were the model's own layers and "
            f"{len(made)} made to be easy"
        ),
        layers=layers,
    )


def _profile(model: str, info: DeviceInfo, setup: Setup) -> list[Layer]:
    workload = Workload(model, setup.runtime, setup.threads)
    delegate = new_delegate(model, info, setup, profiling=True)
    invoke = workload.interpreter("auto", [delegate])
    least: list[LaunchTime] = []
    for _ in range(min(setup.runs, _RUNS)):
        invoke()
        times = delegate.profile()
        least = (
            [min(pair, key=lambda t: t.microseconds) for pair in zip(least, times, strict=True)]
            if least
            else times
        )
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


def _made_layers(info: DeviceInfo, setup: Setup) -> Iterator[Layer]:
    for name, network in _networks().items():
        path = setup.folder / f"{name}.tflite"
        path.write_bytes(network)
        yield from _profile(str(path), info, setup)


def _networks() -> Mapping[str, bytes]:
    networks: dict[str, bytes] = {}
    for side, channels in _COMPUTE:
        network = Network(f"1x1 convolution {side}x{side}x{channels}")
        source = network.tensor((1, side, side, channels), _QUANTIZATION)
        result = network.convolution(source, channels)
        networks[f"compute_{side}_{channels}"] = write_model(network.graph(source, result))
    for inputs, outputs in _MEMORY:
        network = Network(f"fully connected {inputs} to {outputs}")
        source = network.tensor((1, inputs), _QUANTIZATION)
        result = network.fully_connected(source, outputs)
        networks[f"memory_{inputs}_{outputs}"] = write_model(network.graph(source, result))
    return networks


def summary(layers: Layers) -> Sequence[tuple[str, float, int, int]]:
    """Return microseconds, multiply-adds and bytes of each op, the longest first."""
    ops: dict[str, tuple[float, int, int]] = {}
    for layer in layers.layers:
        time, work, moved = ops.get(layer.op, (0.0, 0, 0))
        ops[layer.op] = (
            time + layer.microseconds, work + layer.multiply_adds, moved + layer.bytes_moved
        )  # fmt: skip
    return sorted(((op, *entry) for op, entry in ops.items()), key=lambda entry: -entry[1])
