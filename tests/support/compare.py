# SPDX-License-Identifier: Apache-2.0
"""Comparison of the delegate with TFLite's CPU kernels.

Integer outputs must be equal bit for bit, floats within a bound that the test computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import Graph, read_model
from tests.support.guards import guarded
from tests.support.opencl import PROFILE
from tflite_opencl.interpreters.runtime import runtime_if_any

RUNTIME = runtime_if_any()
_OPTIONS = {"tune": "off", "device_profile": PROFILE}
Arrays = list[NDArray[Any]]
Bounds = list[NDArray[np.float64]]


def interpreter(
    model: bytes | str, delegate: OpenCLDelegate | None = None, cpu_kernels: str = "reference"
) -> Any:
    """Return an allocated interpreter on these CPU kernels, with the delegate if given."""
    interp = RUNTIME.interpreter(
        model,
        threads=None,
        cpu_kernels=cpu_kernels,
        delegates=[] if delegate is None else [delegate],
    )
    interp.allocate_tensors()
    return interp


def oracle(model: bytes | str) -> str:
    """Return the CPU kernels to compare with: the reference ones, or "builtin" where those fail.

    Raises:
        RuntimeError, ValueError: both refuse the model.
    """
    return _oracle(model)[1]


def _oracle(model: bytes | str) -> tuple[Any, str]:
    if any(tensor.blocks is not None for tensor in read_model(model).tensors):
        return interpreter(model, cpu_kernels="builtin"), "builtin"  # the reference ignores blocks
    try:
        return interpreter(model), "reference"
    except (RuntimeError, ValueError):
        return interpreter(model, cpu_kernels="builtin"), "builtin"


def invoke(made: Any, inputs: Sequence[NDArray[Any]]) -> Arrays:
    """Return all outputs for these inputs."""
    for detail, values in zip(made.get_input_details(), inputs, strict=True):
        made.set_tensor(detail["index"], values)
    made.invoke()
    return [made.get_tensor(detail["index"]) for detail in made.get_output_details()]


def inputs_for(graph: Graph, seed: int = 0) -> list[Arrays]:
    """Return four input sets: two random, one with the ends of the range, one of zero points.

    Floats: two normal, one with all magnitudes, one of zeros.
    """
    rng = np.random.default_rng(seed)

    def of(kind: str) -> Arrays:
        arrays = []
        for tensor in graph.inputs:
            if tensor.dtype == "bool":
                arrays.append(rng.integers(0, 2, tensor.shape).astype(bool))
                continue
            if tensor.dtype in ("float32", "float16", "complex64"):
                values = rng.standard_normal(tensor.shape)
                if tensor.dtype == "complex64":
                    values = values + 1j * rng.standard_normal(tensor.shape)
                if kind == "ends":
                    widest = 3 if tensor.dtype == "float16" else 6
                    values = values * 10 ** rng.uniform(-widest, widest, tensor.shape)
                elif kind == "zero points":
                    values = np.zeros_like(values)
                arrays.append(np.asarray(values, tensor.dtype))
                continue
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
    """Return the reason of each node that stays on the CPU, by node index."""
    return {index: reason for index, _, reason in delegate.verdicts if reason is not None}


def assert_exact(
    model: bytes | str,
    device: DeviceInfo,
    seed: int = 0,
    inputs: Sequence[Arrays] | None = None,
    cpu_kernels: str | None = None,
    **options: Any,
) -> Graph:
    """Assert that every node is delegated and every output equals the reference kernels'.

    `inputs`: the input sets; by default those of `inputs_for`. `cpu_kernels`: the kernels to
    compare with; by default those of `oracle`. Return the model's graph.

    Raises:
        AssertionError: a node stayed on the CPU (the comparison would be of the CPU with itself),
            an element differs, or a kernel wrote past the end of a tensor.
    """

    def compare(given: Arrays, got: Arrays, expected: Arrays, where: str) -> None:
        for output, pair in enumerate(zip(got, expected, strict=True)):
            assert_same(*pair, f"{where}, output {output}")

    return _assert_runs(model, device, compare, seed, inputs, cpu_kernels, options)


def _assert_runs(
    model: bytes | str,
    device: DeviceInfo,
    compare: Callable[[Arrays, Arrays, Arrays, str], None],
    seed: int,
    inputs: Sequence[Arrays] | None,
    cpu_kernels: str | None,
    options: Mapping[str, Any],
) -> Graph:
    """Compare the outputs for each input set: `compare(inputs, ours, the reference's, where)`."""
    # Options turn tuning off, so that runs are deterministic.
    graph = read_model(model)
    if cpu_kernels is None:
        reference, cpu_kernels = _oracle(model)
    else:
        reference = interpreter(model, cpu_kernels=cpu_kernels)
    with guarded() as written:
        delegate = OpenCLDelegate(model, device=device.index, **{**_OPTIONS, **options})
        ours = interpreter(model, delegate, cpu_kernels)
        assert refusals(delegate) == {}
        assert delegate.device == device
        for number, given in enumerate(inputs or inputs_for(graph, seed)):
            compare(given, invoke(ours, given), invoke(reference, given), f"input set {number}")
    assert written == []
    return graph


def assert_same(got: NDArray[Any], expected: NDArray[Any], where: str) -> None:
    """Assert equality; the message has the first and the largest difference, and their number.

    Floats are compared by their bits, so 0.0 differs from -0.0; all NaNs are equal.
    """
    assert got.dtype == expected.dtype, where
    assert got.shape == expected.shape, where
    if got.dtype == np.complex64:
        got, expected = (each[..., None].view(np.float32) for each in (got, expected))
    if got.dtype == np.float32:
        both = np.isnan(got) & np.isnan(expected)
        bits = (
            np.where(both, np.float32(0), each).view(np.int32).astype(np.int64)
            for each in (got, expected)
        )
        difference = np.abs(np.subtract(*bits))
    elif got.dtype in (np.float16, np.int64):
        # As bits: the difference of two int64 may overflow.
        bits_type = f"uint{8 * got.itemsize}"
        difference = (got.view(bits_type) != expected.view(bits_type)).astype(np.int64)
    else:
        difference = np.abs(got.astype(np.int64) - expected.astype(np.int64))
    wrong = np.argwhere(difference)
    if len(wrong):
        first = tuple(int(i) for i in wrong[0])
        raise AssertionError(
            f"{where}: {len(wrong)} of {difference.size} differ, by up to {difference.max()}; "
            f"first at {first}: {got[first]} instead of {expected[first]}"
        )


def assert_within(
    model: bytes | str,
    device: DeviceInfo,
    bounds: Callable[[Arrays], Bounds],
    seed: int = 0,
    inputs: Sequence[Arrays] | None = None,
    cpu_kernels: str | None = None,
    **options: Any,
) -> None:
    """Assert as `assert_exact` does, but outputs may differ by up to `bounds`.

    `bounds`: from a set of inputs, the bound of each element of each output.
    """

    def compare(given: Arrays, got: Arrays, expected: Arrays, where: str) -> None:
        for output, row in enumerate(zip(got, expected, bounds(given), strict=True)):
            assert_close(*row, f"{where}, output {output}")

    _assert_runs(model, device, compare, seed, inputs, cpu_kernels, options)


def assert_close(
    got: NDArray[Any], expected: NDArray[Any], bound: NDArray[np.float64] | float, where: str
) -> None:
    """Assert that floats differ by no more than `bound`; NaN equals NaN, infinity itself."""
    assert got.dtype in (np.float32, np.complex64), where
    assert got.shape == expected.shape, where
    allowed = np.broadcast_to(bound, got.shape)
    if got.dtype == np.complex64:  # each part by itself
        got, expected = (each[..., None].view(np.float32) for each in (got, expected))
        allowed = np.broadcast_to(allowed[..., None], got.shape)
    with np.errstate(invalid="ignore"):
        difference = np.abs(got.astype(np.float64) - expected.astype(np.float64))
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        wrong = np.argwhere(~same & ~(difference <= allowed))
    if len(wrong):
        first = tuple(int(i) for i in wrong[0])
        raise AssertionError(
            f"{where}: {len(wrong)} of {got.size} differ too much; first at {first}: {got[first]} "
            f"instead of {expected[first]}, {allowed[first]} allowed"
        )
