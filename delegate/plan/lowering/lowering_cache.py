# SPDX-License-Identifier: Apache-2.0
"""Cache of lowered nodes: those that differ only in their tensors are lowered once.

A network repeats the same layers. `lower` reads only `_facts` of a tensor, neither its index nor
its name, so the alternatives of one node serve for another with the tensors replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from delegate import ops
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Launch, is_temporary, temporary
from delegate.plan.fp16 import fp16
from delegate.target import Target

Alternatives = tuple[Alternative, ...]
_MOST_BYTES = 1024  # of a constant compared by value; weights differ in every layer
_MOST_SCALES = 8


class LoweringCache(dict[Node, Alternatives]):
    """The alternatives of nodes, lowered for one target."""

    def __init__(self, known: LoweringCache | None = None) -> None:
        """`known`: for the same target, with nodes that others may equal."""
        super().__init__()
        self._first: dict[Hashable, tuple[Node, Alternatives]] = {}
        self._facts: dict[Tensor, Hashable] = {}
        self._fingerprints: dict[Node, str] = {}
        self._like: dict[Node, Node] = {}  # the first equal node of each
        if known is not None:
            self._first, self._facts = known._first, known._facts
            self._fingerprints, self._like = known._fingerprints, known._like

    def lower(self, node: Node, target: Target) -> Alternatives:
        """Return the alternatives of a node, like `ops.lower`; raises as that."""
        if isinstance(node, fp16.Fp16Node):
            return fp16.alternatives(node, target, ops.lower)
        try:
            key = self._key(node)
        except _UnlikeError:
            return ops.lower(node, target)
        if key in self._first:
            first, alternatives = self._first[key]
            try:
                found = _with_tensors(_tensors(node), _tensors(first), alternatives)
            except _UnlikeError:
                return ops.lower(node, target)
            self._like[node] = first
            return found
        found = ops.lower(node, target)
        self._first[key] = node, found
        self._like[node] = node
        return found

    def fingerprint(self, node: Node, make: Callable[[], str]) -> str:
        """Return the result of `make` for a node, computed once for all equal nodes."""
        first = self._like.get(node)
        if first is None:
            return make()
        if first not in self._fingerprints:
            self._fingerprints[first] = make()
        return self._fingerprints[first]

    def _key(self, node: Node) -> Hashable:
        """Return everything `lower` reads of a node, and which of its tensors are identical."""
        if node.body is not None and not node.op.islower():
            raise _UnlikeError
        # A fused node may have those that it stands for.
        nodes = (node, *(() if node.body is None else node.body.nodes))
        tensors = [tensor for each in nodes for tensor in _tensors(each)]
        places = {tensor: place for place, tensor in enumerate(dict.fromkeys(tensors))}
        facts = tuple(None if t is None else self._facts_of(t) for t in places)
        # repr, as 0.0 == -0.0.
        of_nodes = tuple(
            (each.op, each.version, each.is_custom, repr(each.options), *_lengths(each))
            for each in nodes
        )
        return of_nodes, tuple(places[tensor] for tensor in tensors), facts

    def _facts_of(self, tensor: Tensor) -> Hashable:
        if tensor not in self._facts:
            self._facts[tensor] = _facts(tensor)
        return self._facts[tensor]


class _UnlikeError(Exception):
    """The node cannot be compared with others."""


def _tensors(node: Node) -> tuple[Tensor | None, ...]:
    return (*node.inputs, *node.outputs, *node.inner, *node.intermediates)


def _lengths(node: Node) -> tuple[int, ...]:
    return len(node.inputs), len(node.outputs), len(node.inner)


def _facts(tensor: Tensor) -> Hashable:
    """Return everything `lower` reads of a tensor."""
    data, quantization, ranges = tensor.data, tensor.quantization, tensor.ranges
    arrays = [each for each in (data, *(ranges or ())) if each is not None]
    is_long = quantization is not None and len(quantization.scale) > _MOST_SCALES
    if tensor.blocks is not None or is_long or any(each.nbytes > _MOST_BYTES for each in arrays):
        raise _UnlikeError
    return (
        (tensor.shape, tensor.dtype, repr(quantization), bool(tensor.state_name)),
        (tensor.is_variable, tensor.is_sparse, tensor.is_folded, data is None, ranges is None),
        tuple((each.dtype.str, each.shape, each.tobytes()) for each in arrays),
    )


def _with_tensors(
    own: Sequence[Tensor | None], others: Sequence[Tensor | None], alternatives: Alternatives
) -> Alternatives:
    """Return a node's alternatives with these tensors replaced by those."""
    known = {t: now for t, now in zip(others, own, strict=True) if t is not None}
    launches: dict[Launch, Launch] = {}  # several alternatives may share launches

    def tensor(each: Tensor | None) -> Tensor:
        assert each is not None
        found = known.get(each)
        if found is None:
            if is_temporary(each):
                found = temporary(each.name, each.shape, each.dtype)
            elif each.data is not None:
                found = each
            else:
                raise _UnlikeError
            known[each] = found
        return found

    def launch(each: Launch) -> Launch:
        if each not in launches:
            params = {
                name: tensor(value) if isinstance(value, Tensor) else value
                for name, value in each.params.items()
            }
            reads, writes = (tuple(map(tensor, some)) for some in (each.reads, each.writes))
            sizes = each.tiles, each.group_items
            launches[each] = Launch(
                each.file,
                each.kernel,
                *sizes,
                params,
                reads,
                writes,
                each.defines,
                each.is_specialised,
            )
        return launches[each]

    return tuple(
        replace(
            each,
            launches=tuple(map(launch, each.launches)),
            view=each.view and (tensor(each.view[0]), tensor(each.view[1])),
            copied=each.copied and (tensor(each.copied[0]), tensor(each.copied[1])),
            requirements=tuple(replace(r, tensor=tensor(r.tensor)) for r in each.requirements),
        )
        for each in alternatives
    )
