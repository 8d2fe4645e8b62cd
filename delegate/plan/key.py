# SPDX-License-Identifier: Apache-2.0
"""Cache keys of plans: a digest of everything a plan depends on, constants included."""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Graph, Node, Quantization, Tensor
from delegate.graph.partition import Partition
from delegate.plan.contents import digest_of
from delegate.target import Target

_SMALL_BYTES = 256  # arrays up to this size are compared by value
# Digests of live arrays, by address: a graph at other shapes has the same arrays.
_digests: dict[int, tuple[weakref.ref[NDArray[Any]], str]] = {}


def key_of(*facts: Hashable) -> str:
    """Return the key of an answer that depends on these facts."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:40]


def target_facts(target: Target) -> Hashable:
    """Return everything in a target, in an order that is the same in each process."""
    return sorted(target.isa), replace(target, isa=frozenset())


def graph_facts(graph: Graph) -> Hashable:
    """Return everything in a graph that verdicts and lowering may read."""
    places: dict[Tensor | None, int] = {None: -1}
    nodes = [_node_facts(node, places) for node in graph.nodes]
    ends = (
        _at(graph.inputs, places),
        _at(graph.outputs, places),
        graph.resources.why_not,
        graph.is_called,
    )
    initial = [(name, values_key(values)) for name, values in graph.resources.initial.items()]
    return nodes, ends, initial, [_tensor_facts(tensor) for tensor in places if tensor is not None]


def partition_facts(partition: Partition) -> Hashable:
    """Return everything in a partition that its plan may depend on."""
    graph = Graph((), partition.nodes, partition.inputs, partition.outputs)
    return graph_facts(graph), sorted(partition.inlined.items())


def share_plan(one: Partition, other: Partition) -> bool:
    """Whether the plans of two partitions are interchangeable."""
    own, others = ((each.nodes, each.inputs, each.outputs) for each in (one, other))
    # Identical objects, where nothing was inferred anew: a cheap test.
    return own == others or partition_facts(one) == partition_facts(other)


def origin_of(partition: Partition) -> str:
    """Return a key of a part of a graph that is unique, and the same at other shapes."""
    places: dict[Tensor | None, int] = {None: -1}
    nodes = []
    for node in partition.nodes:
        tensors = [_at(each, places) for each in (node.inputs, node.outputs, node.inner)]
        nodes.append((node.index, node.op, node.version, tensors))
    every = [t for t in places if t is not None]
    facts = [(t.name, t.dtype, _quantized(t.quantization), *_constant_key(t)) for t in every]
    return key_of(repr((nodes, facts)))


def _constant_key(tensor: Tensor) -> Iterator[bytes | str]:
    """Yield a key of a constant, unless it follows from shapes."""
    if tensor.data is not None and not tensor.is_folded:
        yield values_key(tensor.data)


def values_key(array: NDArray[Any]) -> bytes | str:
    """Return a key of an array's values; cached for large live arrays."""
    if array.nbytes <= _SMALL_BYTES:
        return array.tobytes()
    known = _digests.get(id(array))
    if known is not None and known[0]() is array:
        return known[1]
    found, place = digest_of(array), id(array)
    _digests[place] = weakref.ref(array, lambda _: _digests.pop(place, None)), found
    return found


@cache
def installation_key() -> str:
    """Return a key of this installation of the package, sensitive to edits."""
    found = hashlib.sha256()
    for path in _files():
        status = os.stat(path)
        found.update(repr((path, status.st_size, status.st_mtime_ns)).encode())
    return found.hexdigest()


@cache
def code_digest() -> str:
    """Return a digest of all code and kernels, the same for equal packages on any machine."""
    found = hashlib.sha256()
    for path in _files():
        with open(path, "rb") as file:
            content = file.read()
        found.update(f"{os.path.basename(path)} {len(content)}\0".encode() + content)
    return found.hexdigest()


def _files() -> Iterator[str]:
    """Yield the paths of all code and kernel files, in an order that is the same on any machine."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    inside = os.path.join(package, "kernels")  # if installed; a checkout has it beside it
    beside = os.path.join(os.path.dirname(package), "kernels")
    for top in (package, *([] if os.path.isdir(inside) else [beside])):
        for path, folders, files in os.walk(top):
            folders[:] = sorted({*folders} - {"__pycache__"})
            yield from (os.path.join(path, name) for name in sorted(files))


def _at(tensors: Sequence[Tensor | None], places: dict[Tensor | None, int]) -> list[int]:
    return [places.setdefault(tensor, len(places)) for tensor in tensors]


def _node_facts(node: Node, places: dict[Tensor | None, int]) -> Hashable:
    calls = node.calls and (node.calls.obstacle, node.calls.is_sized)
    return (
        (node.index, node.op, node.version, node.is_custom, repr(node.options), calls),
        [_at(each, places) for each in (node.inputs, node.outputs, node.intermediates, node.inner)],
        node.body and graph_facts(node.body),
    )


def _tensor_facts(tensor: Tensor) -> Hashable:
    arrays = [t for t in (tensor.data, *(tensor.ranges or ())) if t is not None]
    blocks = tensor.blocks and (values_key(tensor.blocks.scales), tensor.blocks.size)
    return (
        (tensor.index, tensor.name, tensor.shape, tensor.dtype, tensor.state_name, tensor.origin),
        (tensor.is_variable, tensor.is_sparse, tensor.is_folded, _quantized(tensor.quantization)),
        [(each.dtype.str, each.shape, values_key(each)) for each in arrays],
        (blocks, tensor.data is None),
    )


def _quantized(quantization: Quantization | None) -> Hashable:
    if quantization is None:
        return None
    if len(quantization.scale) == 1:
        return quantization.scale, quantization.zero_point, quantization.axis
    numbers = np.array(quantization.scale).tobytes() + np.array(quantization.zero_point).tobytes()
    return hashlib.blake2b(numbers, digest_size=20).digest(), quantization.axis
