# SPDX-License-Identifier: Apache-2.0
"""A model node by node: time, work, and the share of what the device was seen to do at most."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.network import Network
from benchmarks.results import Layer, Layers
from benchmarks.setup import Setup, named
from delegate import DeviceInfo
from delegate.inspect import write_model
from tflite_opencl.common.profile import profile_of

# Layers that are easy for any kernel: (side, channels) of a 1x1 convolution whose data stays in a
# cache, and of a FULLY_CONNECTED one whose weights are read once each, as many bytes as V1 has.
_COMPUTE = ((14, 512), (28, 256), (28, 512))
_MEMORY = ((1024, 1024), (1024, 4096))


def layers_of(model: str, info: DeviceInfo, setup: Setup) -> Layers:
    """Return every node of a model on a device with its work, of the shortest of some runs."""
    layers = _profile(model, info, setup)
    made = [layer for easy in _easy(setup) for layer in _profile(easy, info, setup)]
    work = max((*layers, *made), key=lambda layer: layer.multiply_adds / layer.microseconds)
    moved = max((*layers, *made), key=lambda layer: layer.bytes_moved / layer.microseconds)
    return Layers(
        model=Path(model).stem,
        device=named(info),
        peak_multiply_adds=work.multiply_adds / work.microseconds * 1e6,
        peak_bytes=moved.bytes_moved / moved.microseconds * 1e6,
        peak_source=(
            f"the best this delegate did on that device: multiply-adds in {work.op} {work.shape}, "
            f"bytes in {moved.op} {moved.shape}; tried were the model's own layers and "
            f"{len(made)} made to be easy"
        ),
        layers=layers,
    )


def _profile(model: str, info: DeviceInfo, setup: Setup) -> list[Layer]:
    workload, delegate = setup.workload(model), setup.delegate(model, info, profiling=True)
    found = profile_of(delegate, workload.graph, workload.interpreter("auto", [delegate]).invoke)
    return [
        Layer(
            node=row.node,
            op=row.op,
            shape=row.shape.rpartition(" ")[2],
            alternative=row.alternative,
            microseconds=row.microseconds,
            multiply_adds=row.multiply_adds or 0,
            bytes_moved=row.bytes,
        )
        for row in found.rows
    ]


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
