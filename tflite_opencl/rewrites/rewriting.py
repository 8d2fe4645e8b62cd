# SPDX-License-Identifier: Apache-2.0
"""Applies passes to a .tflite file, preserving everything but the rewritten graphs.

Data outside of graphs is copied: metadata and its packed files, signatures, other
subgraphs, tensor ranges, intermediate tensors, and the bytes of every buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from delegate.format.reader import Subgraphs
from delegate.format.schema import enum_values
from delegate.format.source import Source, named, open_model
from delegate.format.tree import Tree
from delegate.format.writer import model_tree
from delegate.graph.edit import with_tensors
from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.rewrites.registry import PassStep, rewrite_steps
from tflite_opencl.rewrites.tree import OUTSIDE, read_tree, write_tree

# Fields of a table that are copied when one of them has changed.
_TOGETHER = (
    ("shape", "has_rank", "variant_tensors"),
    (
        *(f"builtin_options{two}{kind}" for two in ("", "2") for kind in ("", "_type")),
        *("custom_options", "large_custom_options_offset", "large_custom_options_size", OUTSIDE),
    ),
)
_IN_BLOCKS = enum_values("QuantizationDetails")["BlockwiseQuantization"]


@dataclass(frozen=True, slots=True, eq=False)
class RewrittenModel:
    """A model file after passes."""

    content: bytes
    steps: tuple[tuple[PassStep, ...], ...]  # one tuple per subgraph, with one step per pass


def rewrite_model(
    source: Source, passes: Sequence[str], watch: Callable[[], None] | None = None
) -> RewrittenModel:
    """Return a .tflite file after applying these passes, in this order, to each subgraph.

    `watch` is called after each pass on each subgraph.

    Raises:
        ModelError: the file is damaged or not a model, or the result exceeds the format's size.
        ValueError: unknown pass. OSError: the path cannot be read.
    """
    with named(source):
        graphs = [*Subgraphs(open_model(source))]
    steps: list[tuple[PassStep, ...]] = []
    changed: dict[int, Graph] = {}
    for number, graph in enumerate(graphs):
        own = []
        for step in rewrite_steps(graph, passes):
            own.append(step)
            if watch is not None:
                watch()
        steps.append(tuple(own))
        if own and own[-1].graph is not graph:
            changed[number] = own[-1].graph
    return RewrittenModel(rewritten(source, changed), tuple(steps))


def rewritten(source: Source, graphs: Mapping[int, Graph]) -> bytes:
    """Return a .tflite file with some of its subgraphs replaced by these graphs.

    `graphs`: index of the subgraph -> its graph, rewritten from the one that the reader
    returns. Without any, the file is read and rewritten. The output is deterministic.

    Tensors, buffers and operators left by the passes keep all fields. Operator codes and
    buffers used by rewritten operators only are dropped; a buffer's index stays, without data.

    Raises:
        ModelError: the file is damaged or not a model, has a field that the installed schema
            lacks, or would exceed the format's size.
        ValueError: a graph does not derive from the file's, or does not fit the schema.
        OSError: the path cannot be read.
    """
    with named(source):
        content = open_model(source)
        tree, tail = read_tree(content)
        old = [*Subgraphs(content)]  # all: the reader validates the indices in the tables
        buffers, codes = _used_buffers(tree), _used_codes(tree)
        for number, graph in graphs.items():
            _Subgraph(tree, number, old[number], graph).rewrite()
        for number in buffers - _used_buffers(tree):
            tree["buffers"][number] = {}
        _drop_codes(tree, codes - _used_codes(tree))
        return write_tree(tree, tail)


def _used_buffers(tree: Tree) -> set[int]:
    tensors = (t for subgraph in tree["subgraphs"] for t in subgraph.get("tensors", ()))
    used = {table.get("buffer", 0) for table in (*tensors, *tree.get("metadata", ()))}
    return used.union(np.asarray(tree.get("metadata_buffer", ()), int).tolist()) - {0}


def _used_codes(tree: Tree) -> set[int]:
    return {operator.get("opcode_index", 0) for operator in _operators(tree)}


def _operators(tree: Tree) -> Iterator[Tree]:
    for subgraph in tree["subgraphs"]:
        yield from subgraph.get("operators", ())


def _drop_codes(tree: Tree, gone: set[int]) -> None:
    """Drop the codes used by rewritten operators only: a runtime may not support their ops."""
    if not gone:
        return
    kept = [number for number in range(len(tree["operator_codes"])) if number not in gone]
    tree["operator_codes"] = [tree["operator_codes"][number] for number in kept]
    for operator in _operators(tree):
        operator["opcode_index"] = kept.index(operator.get("opcode_index", 0))


def _origin(tensor: Tensor) -> int:
    return tensor.index if tensor.origin is None else tensor.origin


def _same_values(one: Tensor, other: Tensor) -> bool:
    if one.is_sparse != other.is_sparse or (one.data is None) != (other.data is None):
        return False
    if one.data is None or other.data is None or one.data is other.data:
        return True
    a, b = (np.ascontiguousarray(each.data) for each in (one, other))
    # As bytes, because NaN differs from itself.
    is_alike = a.dtype == b.dtype and a.shape == b.shape
    return is_alike and bool((a.reshape(-1).view(np.uint8) == b.reshape(-1).view(np.uint8)).all())


def _without_values(graph: Graph, tensors: Iterable[Tensor]) -> Tree:
    """Return a graph's tables as if these tensors were computed."""
    bare = {tensor: replace(tensor, data=None, is_sparse=False, blocks=None) for tensor in tensors}
    return model_tree(with_tensors(graph, bare))


def _with_scales(table: Tree, places: Mapping[int, int]) -> Tree:
    """Return a tensor's table with updated indices of block scales.

    `places`: an index of the old file -> the new one.
    """
    quantization = table.get("quantization", {})
    if quantization.get("details_type") != _IN_BLOCKS:
        return table
    details = quantization["details"]
    scales = details.get("scales", 0)
    if scales not in places:
        raise ValueError(f"a graph without tensor {scales}, which has the scales of blocks")
    moved = {**details, "scales": places[scales]}
    return {**table, "quantization": {**quantization, "details": moved}}


def _place(node: Node) -> tuple[Any, ...]:
    """Return a key that identifies an operator of the file, even after passes."""
    # An op without outputs modifies its inputs (ASSIGN_VARIABLE).
    ends = node.outputs[:1] or node.inputs
    return (node.op, node.is_custom, *(None if t is None else _origin(t) for t in ends))


class _Subgraph:
    """One subgraph's tables during the rewrite."""

    def __init__(self, model: Tree, number: int, old: Graph, new: Graph) -> None:
        if (len(old.inputs), len(old.outputs)) != (len(new.inputs), len(new.outputs)):
            raise ValueError("a graph with other inputs and outputs than the file's")
        if max(map(_origin, new.tensors), default=-1) >= len(old.tensors):
            raise ValueError("a graph with tensors that the file does not have")
        self._model, self._number = model, number
        self._tables: Tree = model["subgraphs"][number]
        model.setdefault("buffers", [{}])  # the first one is empty
        # A node's output is no constant of the file, even if its value is known.
        known = {t: replace(t, data=None, is_folded=False) for t in new.tensors if t.is_folded}
        self._new = with_tensors(new, known)
        self._kept = {  # tensors with data in the file
            tensor
            for tensor in self._new.tensors
            if _origin(tensor) >= 0 and _same_values(old.tensors[_origin(tensor)], tensor)
        }
        self._before = _without_values(old, old.tensors)
        self._after = _without_values(self._new, self._kept)
        self._old = {_place(node): node for node in reversed(old.nodes)}

    def rewrite(self) -> None:
        """Merge the new graph into the file's tables."""
        made = self._after["subgraphs"][0]
        places = {_origin(t): t.index for t in reversed(self._new.tensors) if _origin(t) >= 0}
        tables = [*map(self._tensor, self._new.tensors, made["tensors"])]
        self._tables.update(
            tensors=[_with_scales(table, places) for table in tables],
            operators=[
                self._operator(node, table)
                for node, table in zip(self._new.nodes, made["operators"], strict=True)
            ],
            inputs=made["inputs"],
            outputs=made["outputs"],
        )
        for signature in self._model.get("signature_defs", ()):
            if signature.get("subgraph_index", 0) == self._number:
                for each in (*signature.get("inputs", ()), *signature.get("outputs", ())):
                    index = each.get("tensor_index", 0)
                    if index not in places:
                        raise ValueError(f"a graph without tensor {index}, which a signature names")
                    if places[index] != index:
                        each["tensor_index"] = places[index]

    def _tensor(self, tensor: Tensor, made: Tree) -> Tree:
        origin, buffer = _origin(tensor), made.pop("buffer", 0)
        table = made
        if origin >= 0:
            table = self._merged("tensors", origin, made)
        if tensor not in self._kept:
            _take(table, made, ("sparsity",))
            table["buffer"] = len(self._model["buffers"]) if buffer else 0
            self._model["buffers"] += [self._after["buffers"][buffer]] if buffer else []
        return table

    def _operator(self, node: Node, made: Tree) -> Tree:
        code = self._after["operator_codes"][made.pop("opcode_index", 0)]
        old = self._old.get(_place(node))
        if old is None:
            return {**made, "opcode_index": self._code(code)}
        table = self._merged("operators", old.index, made)
        if len(node.inputs) != len(old.inputs):
            table.pop("mutating_variable_inputs", None)
        if node.version != old.version:
            table["opcode_index"] = self._code(code)
        return table

    def _merged(self, kind: str, number: int, made: Tree) -> Tree:
        """Return a table of the file with the fields that passes changed."""
        before, table = self._before["subgraphs"][0][kind][number], {**self._tables[kind][number]}
        for name in {**before, **made}:
            if name not in ("buffer", "opcode_index") and before.get(name) != made.get(name):
                _take(table, made, next((each for each in _TOGETHER if name in each), (name,)))
        return table

    def _code(self, wanted: Tree) -> int:
        """Return the index of an operator code, appending it if missing."""

        def values(code: Tree) -> tuple[Any, ...]:
            number = max(code.get("deprecated_builtin_code", 0), code.get("builtin_code", 0))
            return number, code.get("custom_code", b""), code.get("version", 1)

        codes = self._model.setdefault("operator_codes", [])
        for number, code in enumerate(codes):
            if values(code) == values(wanted):
                return number
        codes.append(wanted)
        return len(codes) - 1


def _take(table: Tree, made: Tree, names: Sequence[str]) -> None:
    """Copy these fields from another table, and delete those that it lacks."""
    for name in names:
        table.pop(name, None)
        if name in made:
            table[name] = made[name]
