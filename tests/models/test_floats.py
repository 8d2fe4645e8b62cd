# SPDX-License-Identifier: Apache-2.0
"""A real float classifier: every node on the device, every layer within its bound."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import read_model, write_model
from tests.support.cases import LANES_8, SIMT, Strategy, forced
from tests.support.compare import assert_close, interpreter, invoke, refusals
from tests.support.floats import exact_doubles
from tests.support.shared import model_path, picture_path, picture_paths
from tests.support.tiers import slow
from tflite_opencl.pictures.image import load_picture, to_input

pytestmark = pytest.mark.model

MODEL = "mobilenet_v1_0.25_128"


@cache
def pictures() -> dict[str, NDArray[Any]]:
    """Return the model's inputs by their content."""
    (tensor,) = read_model(model_path(MODEL)).inputs
    hoppers = [picture_path(f"grace_hopper_{size}.bmp") for size in ("517x606", "512x600")]
    return {
        path: to_input(load_picture(path), tensor.shape, tensor.dtype)
        for path in [*hoppers, *picture_paths(3)]
    }


def test_mobilenet_v1_0_25_128(device: DeviceInfo) -> None:
    path = model_path(MODEL)
    delegate = OpenCLDelegate(path, device.index, tune="off")
    ours, reference = interpreter(path, delegate), interpreter(path)
    assert refusals(delegate) == {}
    assert [sorted(group) for group in delegate.partitions] == [list(range(31))]
    seen = set()
    for what, values in pictures().items():
        (got,), (expected,) = invoke(ours, [values]), invoke(reference, [values])
        assert got.argmax() == expected.argmax(), what
        assert_close(got, expected, 1e-5, what)
        seen.add(int(got.argmax()))
    assert len(seen) > 1, "all pictures are alike: nothing was compared"


@slow
@pytest.mark.parametrize("strategy", [None, SIMT, LANES_8], ids=str)
def test_every_layer_is_within_bound(device: DeviceInfo, strategy: Strategy | None) -> None:
    graph = read_model(model_path(MODEL))
    computed = tuple(tensor for node in graph.nodes for tensor in node.outputs)
    model = write_model(dataclasses.replace(graph, outputs=computed))
    with forced(strategy or Strategy("its own")):
        delegate = OpenCLDelegate(model, device.index, tune="off")
        ours = interpreter(model, delegate)
    assert refusals(delegate) == {}
    values = next(iter(pictures().values()))
    results = invoke(ours, [values])
    assert len(results) == len(graph.nodes)
    # Each layer is computed again from the device's result of the previous one.
    sources = [values, *results]
    for node, source, result in zip(graph.nodes, sources, results, strict=False):
        what = f"node {node.index} ({node.op})"
        if node.op == "RESHAPE":
            assert_close(result, source.reshape(result.shape), 0.0, what)
        elif node.op == "SOFTMAX":
            shares = np.exp(source.astype(np.float64) - source.max())
            shares /= shares.sum()
            assert_close(result, shares, shares * 1100 * 2.0**-24, what)
        else:
            answer, bound = exact_doubles(node, source)
            assert_close(result, answer, bound, what)
