# SPDX-License-Identifier: Apache-2.0
"""Simpler candidates of a failing model: shorter axes, and more values at their zero points."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from delegate.inspect import Graph, Tensor, write_model
from tflite_opencl.common.build import Array
from tflite_opencl.common.interpreter import allocated
from tflite_opencl.common.runtime import Runtime
from tflite_opencl.common.values import Arrays


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model and an input."""

    graph: Graph
    inputs: Arrays

    @property
    def size(self) -> int:
        """Elements of all tensors: less is simpler."""
        return sum(int(np.prod(tensor.shape)) for tensor in self.graph.tensors)


# Axes that shrink together, by op: input number -> axis.
_CONVOLUTION = ({0: 0}, {0: 1}, {0: 2}, {0: 3, 1: 3}, {1: 0, 2: 0}, {1: 1}, {1: 2})
_TOGETHER: dict[str, tuple[dict[int, int], ...]] = {
    "CONV_2D": _CONVOLUTION,
    "DEPTHWISE_CONV_2D": ({0: 0}, {0: 1}, {0: 2}, {0: 3, 1: 3, 2: 0}, {1: 1}, {1: 2}),
    "FULLY_CONNECTED": ({0: 0}, {0: -1, 1: 1}, {1: 0, 2: 0}),
}


def smaller(found: Candidate, runtime: Runtime) -> Iterator[Candidate]:
    """Yield the same model with one axis shorter."""
    for group in _groups(found.graph):
        tensor, axis = next(iter(group.items()))
        size = tensor.shape[axis]
        for wanted in sorted({1, size // 4, size // 2, 3 * size // 4, size - 1} - {0, size}):
            candidate = _cut(found, group, wanted, runtime)
            if candidate is not None:
                yield candidate


def _groups(whole: Graph) -> Iterator[dict[Tensor, int]]:
    node = whole.nodes[0]
    if len(whole.nodes) == 1 and node.op in _TOGETHER:
        for axes in _TOGETHER[node.op]:
            inputs = {i: t for i, t in enumerate(node.inputs) if t is not None and i in axes}
            group = {t: axis % len(t.shape) for i, t in inputs.items() for axis in [axes[i]]}
            if len({t.shape[axis] for t, axis in group.items()}) == 1:
                yield group
        return
    # Elsewhere: the same place from the right of every tensor that is as long there.
    rank = max((len(t.shape) for t in whole.inputs), default=0)
    for place in range(1, rank + 1):
        group = {t: len(t.shape) - place for t in whole.inputs if len(t.shape) >= place}
        if len(whole.nodes) == 1:
            group |= {
                t: len(t.shape) - place
                for t in node.inputs
                if t is not None and t.data is not None and len(t.shape) == rank
            }
        longest = max((t.shape[axis] for t, axis in group.items()), default=1)
        group = {t: axis for t, axis in group.items() if t.shape[axis] == longest}
        if longest > 1 and (len(whole.nodes) == 1 or place > 1):
            yield group


def _cut(
    found: Candidate, group: dict[Tensor, int], size: int, runtime: Runtime
) -> Candidate | None:
    """Return the candidate with these axes shorter, None where TFLite does not take it."""

    def short(values: Array, axis: int) -> Array:
        index = [slice(None)] * values.ndim
        index[axis] = slice(size)
        return np.ascontiguousarray(values[tuple(index)])

    def cut(tensor: Tensor) -> Tensor:
        axis = group.get(tensor)
        if axis is None:
            return tensor
        shape = tuple(size if i == axis else n for i, n in enumerate(tensor.shape))
        numbers = tensor.quantization
        if numbers is not None and len(numbers.scale) > 1 and numbers.axis == axis:
            numbers = dataclasses.replace(
                numbers, scale=numbers.scale[:size], zero_point=numbers.zero_point[:size]
            )
        data = None if tensor.data is None else short(tensor.data, axis)
        return dataclasses.replace(tensor, shape=shape, data=data, quantization=numbers)

    rough = with_tensors(found.graph, {t: cut(t) for t in found.graph.tensors})
    try:
        made = allocated(runtime, write_model(rough), "builtin")
    except (RuntimeError, ValueError):
        return None
    # The computed tensors get the shapes that TFLite computes.
    shapes = {each["index"]: tuple(map(int, each["shape"])) for each in made.get_tensor_details()}
    computed = {t for node in rough.nodes for t in node.outputs}
    changed = {
        t: dataclasses.replace(t, shape=shapes.get(t.index, t.shape)) if t in computed else t
        for t in rough.tensors
    }
    if any(0 in t.shape for t in changed.values()):
        return None
    inputs = [
        short(values, group[tensor]) if tensor in group else values
        for tensor, values in zip(found.graph.inputs, found.inputs, strict=True)
    ]
    return Candidate(with_tensors(rough, changed), inputs)


def with_tensors(whole: Graph, tensors: dict[Tensor, Tensor]) -> Graph:
    """Return the same graph with other tensors in the place of its own."""

    def of(olds: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(tensors[t] for t in olds)

    nodes = tuple(
        dataclasses.replace(
            node,
            inputs=tuple(None if t is None else tensors[t] for t in node.inputs),
            outputs=of(node.outputs),
        )
        for node in whole.nodes
    )
    return dataclasses.replace(
        whole, tensors=of(whole.tensors), nodes=nodes, inputs=of(whole.inputs),
        outputs=of(whole.outputs),
    )  # fmt: skip


def simpler(found: Candidate, runtime: Runtime) -> Iterator[Candidate]:
    """Yield the same model with more of its values at their zero points."""
    for position, (tensor, values) in enumerate(zip(found.graph.inputs, found.inputs, strict=True)):
        for simpler in _zeroed(values, _zero(tensor)):
            inputs = list(found.inputs)
            inputs[position] = simpler
            yield Candidate(found.graph, inputs)
    for tensor in found.graph.tensors:
        # Axes and sizes are no values: their tensors have no quantisation and are integers.
        if tensor.data is None or (tensor.quantization is None and tensor.data.dtype.kind != "f"):
            continue
        for simpler in _zeroed(tensor.data, _zero(tensor)):
            changed = {t: t for t in found.graph.tensors}
            changed[tensor] = dataclasses.replace(tensor, data=simpler)
            yield Candidate(with_tensors(found.graph, changed), found.inputs)


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
    """Return what to make small: elements, then values that are not at their zero points."""
    values = zip(candidate.graph.inputs, candidate.inputs, strict=True)
    constants = ((t, t.data) for t in candidate.graph.tensors if t.data is not None)
    pairs = itertools.chain(values, constants)
    return candidate.size, sum(int(np.count_nonzero(data != _zero(t))) for t, data in pairs)
