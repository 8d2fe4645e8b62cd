# SPDX-License-Identifier: Apache-2.0
"""Simpler candidates of a failing model: shorter axes, and more values at their zero points."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, combinations

import numpy as np

from delegate.inspect import Graph, Tensor, with_tensors, write_model
from tflite_opencl.interpreters.interpreter import allocated
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.models.build import Array
from tflite_opencl.oracle.values import Arrays


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model and an input."""

    graph: Graph
    inputs: Arrays

    @property
    def size(self) -> int:
        """Total tensor elements: fewer is simpler."""
        return sum(int(np.prod(tensor.shape)) for tensor in self.graph.tensors)


def smaller(found: Candidate, runtime: Runtime) -> Iterator[Candidate]:
    """Yield the model with one axis shorter, together with axes that must have the same length."""
    for group in _groups(found.graph):
        tensor, axis = next(iter(group.items()))
        size = tensor.shape[axis]
        for wanted in sorted({1, size // 4, size // 2, 3 * size // 4, size - 1} - {0, size}):
            candidate = _cut(found, group, wanted, runtime)
            if candidate is not None:
                yield candidate


def _groups(whole: Graph) -> Iterator[dict[Tensor, int]]:
    """Yield axes of equal length, as tensor -> axis: each alone, and all together.

    For a single node also each pair. TFLite rejects invalid ones, such as weights without the bias.
    """
    is_node = len(whole.nodes) == 1
    constants = filter(_has_values, whole.tensors) if is_node else ()
    by_size: dict[int, list[tuple[Tensor, int]]] = {}
    for tensor in (*whole.inputs, *constants):
        if tensor.data is not None and tensor.data.shape != tensor.shape:
            continue  # packed values have other axes
        for axis, size in enumerate(tensor.shape):
            by_size.setdefault(size, []).append((tensor, axis))
    for size, axes in by_size.items():
        for count in {1, 2, len(axes)} if is_node else {1, len(axes)}:
            if size > 1:
                yield from map(dict, combinations(axes, count))


def _cut(
    found: Candidate, group: dict[Tensor, int], size: int, runtime: Runtime
) -> Candidate | None:
    """Return the candidate with these axes shorter, or None if TFLite rejects it."""

    def short(values: Array, axis: int) -> Array:
        index = [slice(None)] * values.ndim
        index[axis] = slice(size)
        return np.ascontiguousarray(values[tuple(index)])

    def cut(tensor: Tensor, axis: int) -> Tensor:
        shape = tuple(size if i == axis else n for i, n in enumerate(tensor.shape))
        numbers = tensor.quantization
        if numbers is not None and len(numbers.scale) > 1 and numbers.axis == axis:
            scale, zero_point = numbers.scale[:size], numbers.zero_point[:size]
            numbers = replace(numbers, scale=scale, zero_point=zero_point)
        data = None if tensor.data is None else short(tensor.data, axis)
        return replace(tensor, shape=shape, data=data, quantization=numbers)

    rough = with_tensors(found.graph, {t: cut(t, axis) for t, axis in group.items()})
    try:
        made = allocated(runtime, write_model(rough), "builtin")
    except (RuntimeError, ValueError):
        return None
    # Computed tensors get the shapes that TFLite infers.
    shapes = {each["index"]: tuple(map(int, each["shape"])) for each in made.get_tensor_details()}
    computed = {t for node in rough.nodes for t in node.outputs}
    changed = {t: replace(t, shape=shapes.get(t.index, t.shape)) for t in computed}
    made_graph = with_tensors(rough, changed)
    if any(0 in t.shape for t in made_graph.tensors):
        return None
    inputs = [
        short(values, group[tensor]) if tensor in group else values
        for tensor, values in zip(found.graph.inputs, found.inputs, strict=True)
    ]
    return Candidate(made_graph, inputs)


def simpler(found: Candidate, runtime: Runtime) -> Iterator[Candidate]:
    """Yield the model with more of its values at their zero points."""
    for position, (tensor, values) in enumerate(zip(found.graph.inputs, found.inputs, strict=True)):
        for simpler in _zeroed(values, _zero(tensor)):
            inputs = list(found.inputs)
            inputs[position] = simpler
            yield Candidate(found.graph, inputs)
    for tensor in found.graph.tensors:
        if tensor.data is not None and _has_values(tensor):
            for simpler in _zeroed(tensor.data, _zero(tensor)):
                changed = with_tensors(found.graph, {tensor: replace(tensor, data=simpler)})
                yield Candidate(changed, found.inputs)


def _has_values(tensor: Tensor) -> bool:
    """Whether a tensor is a constant of values, rather than of axes or sizes."""
    is_data = tensor.quantization is not None or tensor.dtype.startswith("float")
    return tensor.data is not None and is_data


def _zeroed(values: Array, zero: int) -> Iterator[Array]:
    flat = values.reshape(-1)
    used = np.flatnonzero(flat != np.asarray(zero).astype(flat.dtype))
    if not len(used):
        return
    fourths = np.array_split(used, 4) if len(used) > 3 else ()
    for part in (used, *np.array_split(used, 2), *fourths):
        simpler = flat.copy()
        simpler[part] = zero
        yield simpler.reshape(values.shape)


def _zero(tensor: Tensor) -> int:
    return tensor.quantization.zero_point[0] if tensor.quantization else 0


def cost(candidate: Candidate) -> tuple[int, int]:
    """Return the cost to minimise: elements, then values that differ from their zero points."""
    values = zip(candidate.graph.inputs, candidate.inputs, strict=True)
    constants = ((t, t.data) for t in candidate.graph.tensors if t.data is not None)
    pairs = chain(values, constants)
    return candidate.size, sum(int(np.count_nonzero(data != _zero(t))) for t, data in pairs)
