# SPDX-License-Identifier: Apache-2.0
"""What `tflite-opencl verify` finds of a graph: each node alone, and after the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegate import DeviceInfo, Options
from delegate.inspect import Graph, read_model, write_model
from tests.support.compare import RUNTIME, Arrays
from tflite_opencl.verify.runs import InputSets, Verification, verified

where_all_is_kept = pytest.mark.skipif(
    RUNTIME.name == "tflite-runtime",
    reason="tflite-runtime writes sums over what they read, also where it keeps all tensors",
)


def checked(graph: Graph, inputs: Arrays, device: DeviceInfo, folder: Path) -> Verification:
    """Return what was found of a graph, whose nodes must be exact, or floats in bound."""
    path = folder / "model.tflite"
    path.write_bytes(write_model(graph))
    options = Options(device.index, tune="off", profiling=True, min_nodes_per_partition=1)
    sets = InputSets(1, lambda _: inputs)
    found = verified(str(path), read_model(path), options, RUNTIME, sets, 0)
    assert found.fault is None
    return found
