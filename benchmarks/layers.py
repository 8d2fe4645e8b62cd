# SPDX-License-Identifier: Apache-2.0
"""A model node by node: time, work, and the fraction of the measured peak."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from benchmarks.network import Network
from benchmarks.results import LayerProfile, Layers
from benchmarks.setup import Setup, named
from delegate import DeviceInfo
from delegate.inspect import write_model
from tflite_opencl.timing.profile import Profile, profile_of

# Layers that reach a device's peak: (side, channels) of a 1x1 convolution whose data stays in a
# cache, and of a FULLY_CONNECTED one whose weights are read once each, as many bytes as V1 has.
_COMPUTE = ((14, 512), (28, 256), (28, 512))
_MEMORY = ((1024, 1024), (1024, 4096))


def layers_of(model: str, info: DeviceInfo, setup: Setup) -> Layers:
    """Return every node of a model with its work, from the shortest of some runs on a device."""
    return beside_peaks(model, _profile(model, info, setup), info, setup)


def beside_peaks(model: str, found: Profile, info: DeviceInfo, setup: Setup) -> Layers:
    """Return the nodes of a profile with the device's peak for their type."""
    layers = _layers(found)
    dtype = setup.workload(model).graph.inputs[0].dtype
    result = _easiest(info, setup, "float32" if dtype == "float32" else "uint8")
    work = max((*layers, *result), key=lambda layer: layer.multiply_adds / layer.microseconds)
    moved = max((*layers, *result), key=lambda layer: layer.bytes_moved / layer.microseconds)
    return Layers(
        model=Path(model).stem,
        device=named(info),
        peak_multiply_adds=work.multiply_adds / work.microseconds * 1e6,
        peak_bytes=moved.bytes_moved / moved.microseconds * 1e6,
        peak_source=(
            f"the best this delegate did on that device: multiply-adds in {work.op} {work.shape}, "
            f"bytes in {moved.op} {moved.shape}; tried were the model's own layers and "
            f"{len(result)} made to be easy"
        ),
        layers=layers,
    )


def _profile(model: str, info: DeviceInfo, setup: Setup) -> Profile:
    workload, delegate = setup.workload(model), setup.delegate(model, info, profiling=True)
    return profile_of(delegate, workload.graph, workload.interpreter("auto", [delegate]).invoke)


def _layers(found: Profile) -> list[LayerProfile]:
    return [
        LayerProfile(
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


@cache
def _easiest(info: DeviceInfo, setup: Setup, dtype: str) -> list[LayerProfile]:
    """Return the peak layers of a type, measured once in a run of the benchmark."""
    return [
        each for result in _easy(setup, dtype) for each in _layers(_profile(result, info, setup))
    ]


def _easy(setup: Setup, dtype: str) -> Iterator[str]:
    """Yield the files of models of one layer each."""
    for side, channels in _COMPUTE:
        network = Network(dtype)
        network.convolution(network.tensor((1, side, side, channels)), channels)
        name = f"compute_{dtype}_{side}_{channels}"
        yield setup.written(name, write_model(network.graph("1x1")))
    for inputs, outputs in _MEMORY:
        network = Network(dtype)
        network.fully_connected(network.tensor((1, inputs)), outputs)
        name = f"memory_{dtype}_{inputs}_{outputs}"
        yield setup.written(name, write_model(network.graph("dense")))
