# SPDX-License-Identifier: Apache-2.0
"""Runs `tflite-opencl verify` on a graph, without its command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegate import DeviceInfo, Options
from delegate.inspect import Graph, read_model, write_model
from tests.support.compare import RUNTIME, Arrays
from tflite_opencl.verify.records import InputSets, Verification
from tflite_opencl.verify.runs import verified

where_all_is_kept = pytest.mark.skipif(
    RUNTIME.name == "tflite-runtime",
    reason="tflite-runtime overwrites inputs of ADD, even if it preserves all tensors",
)


def checked(graph: Graph, inputs: Arrays, device: DeviceInfo, folder: Path) -> Verification:
    """Return the verification of a graph; assert that no node is wrong."""
    path = folder / "model.tflite"
    path.write_bytes(write_model(graph))
    options = Options(device.index, tune="off", profiling=True, min_nodes_per_partition=1)
    sets = InputSets(1, lambda _: inputs)
    verification = verified(str(path), read_model(path), options, RUNTIME, sets, 0)
    assert verification.fault is None
    return verification
