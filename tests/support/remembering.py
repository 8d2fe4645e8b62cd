# SPDX-License-Identifier: Apache-2.0
"""Comparison of stateful graphs with the reference kernels, over several runs and resets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import Graph, Tensor, read_model, write_model
from tests.support.compare import Arrays, assert_close, assert_same, interpreter, invoke, refusals
from tests.support.guards import guarded
from tests.support.opencl import PROFILE
from tflite_opencl.oracle.remembered import remembered_bounds


def assert_runs(graph: Graph, device: DeviceInfo, counts: tuple[int, ...], seed: int = 0) -> None:
    """Assert that runs are exact, or floats within bounds; variables are reset after each count.

    Skips if this TFLite does not run the graph.
    """
    model = write_model(graph)
    graph = read_model(model)
    rng = np.random.default_rng(seed)

    def run(graph: Graph, sets: list[Arrays]) -> list[Arrays]:
        interp = interpreter(write_model(graph))
        return [invoke(interp, inputs) for inputs in sets]

    try:
        reference = interpreter(model)
    except (RuntimeError, ValueError) as error:
        pytest.skip(f"this TFLite does not run it: {error}")
    with guarded() as written:
        delegate = OpenCLDelegate(model, device=device.index, tune="off", device_profile=PROFILE)
        ours = interpreter(model, delegate)
        assert refusals(delegate) == {}
        for part, count in enumerate(counts):
            sets = [[_values(rng, each) for each in graph.inputs] for _ in range(count)]
            sets[count // 2] = [np.zeros_like(each) for each in sets[0]]
            expected = [invoke(reference, inputs) for inputs in sets]
            bounds = remembered_bounds(run, graph, sets, expected)
            for number, (inputs, wanted, allowed) in enumerate(
                zip(sets, expected, bounds, strict=True)
            ):
                got = invoke(ours, inputs)
                for output, (own, other, bound) in enumerate(
                    zip(got, wanted, allowed, strict=True)
                ):
                    where = f"part {part}, run {number}, output {output}"
                    if bound is None:
                        assert_same(own, other, where)
                    else:
                        assert_close(own, other, bound, where)
            for each in (reference, ours):
                each.reset_all_variables()
    assert written == []


def _values(rng: np.random.Generator, tensor: Tensor) -> NDArray[Any]:
    if tensor.dtype == "float32":
        return rng.uniform(-2, 2, tensor.shape).astype(np.float32)
    return rng.integers(-128, 128, tensor.shape).astype(tensor.dtype)


def drawn(seed: int, *most: int) -> tuple[int, ...]:
    """Return a size from 1 to each of these."""
    rng = np.random.default_rng(seed)
    return tuple(int(each) for each in rng.integers(1, np.array(most) + 1))
