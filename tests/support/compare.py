# SPDX-License-Identifier: Apache-2.0
"""Reference CPU kernels against the delegate: 8-bit outputs are equal, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import DeviceInfo, Graph, OpenCLDelegate, read_model
from label_image.runtime import find_runtime

RUNTIME = find_runtime()
Arrays = list[NDArray[Any]]


def interpreter(model: bytes | str, delegate: OpenCLDelegate | None = None) -> Any:
    """Return an allocated interpreter on the reference kernels, with the delegate if given."""
    made = RUNTIME.interpreter(
        model,
        threads=None,
        cpu_kernels="reference",
        delegates=[] if delegate is None else [delegate],
    )
    made.allocate_tensors()
    return made


def invoke(made: Any, inputs: Sequence[NDArray[Any]]) -> Arrays:
    """Return all outputs for these inputs."""
    for detail, values in zip(made.get_input_details(), inputs, strict=True):
        made.set_tensor(detail["index"], values)
    made.invoke()
    return [made.get_tensor(detail["index"]) for detail in made.get_output_details()]


def inputs_for(graph: Graph, seed: int = 0) -> list[Arrays]:
    """Return input sets: random ones, the ends of the range, and the zero points."""
    rng = np.random.default_rng(seed)

    def of(kind: str) -> Arrays:
        arrays = []
        for tensor in graph.inputs:
            limits = np.iinfo(tensor.dtype)
            if kind == "random":
                values = rng.integers(limits.min, limits.max, tensor.shape, endpoint=True)
            elif kind == "ends":
                values = rng.choice([limits.min, limits.max], tensor.shape)
            else:
                zero = tensor.quantization.zero_point[0] if tensor.quantization else 0
                values = np.full(tensor.shape, zero)
            arrays.append(np.asarray(values, tensor.dtype))
        return arrays

    return [of("random"), of("random"), of("ends"), of("zero points")]


def refusals(delegate: OpenCLDelegate) -> Mapping[int, str]:
    """Return why each node left to the CPU stays there, by node index."""
    return {index: reason for index, _, reason in delegate.verdicts if reason is not None}


def assert_exact(model: bytes | str, device: DeviceInfo, seed: int = 0, **options: Any) -> None:
    """Assert that every node is delegated and every output equals the reference kernels'.

    Raises:
        AssertionError: a node stayed on the CPU (a silent fallback would compare the CPU with
            itself), or an element differs; says which and by how much.
    """
    delegate = OpenCLDelegate(model, device=device.index, **options)
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    assert delegate.device == device
    for number, inputs in enumerate(inputs_for(read_model(model), seed)):
        pairs = zip(invoke(ours, inputs), invoke(reference, inputs), strict=True)
        for output, (got, expected) in enumerate(pairs):
            assert_same(got, expected, f"input set {number}, output {output}")


def assert_same(got: NDArray[Any], expected: NDArray[Any], where: str) -> None:
    """Assert equality; the message has the first difference, the greatest and how many."""
    assert got.dtype == expected.dtype, where
    assert got.shape == expected.shape, where
    difference = np.abs(got.astype(np.int64) - expected.astype(np.int64))
    wrong = np.argwhere(difference)
    if len(wrong):
        first = tuple(int(i) for i in wrong[0])
        raise AssertionError(
            f"{where}: {len(wrong)} of {difference.size} differ, by up to {difference.max()}; "
            f"first at {first}: {got[first]} instead of {expected[first]}"
        )
