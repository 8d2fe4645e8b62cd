# SPDX-License-Identifier: Apache-2.0
"""Static inference on a graph: shapes, then values, then ranges of indices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from delegate.graph.edit import with_shapes, with_tensors
from delegate.graph.fold import fold
from delegate.graph.inline import Visits, inlined
from delegate.graph.ir import Graph, Node, Tensor
from delegate.graph.ranges import with_ranges
from delegate.graph.reduced_windows import STABLEHLO


def infer(graph: Graph, shapes: Mapping[int, tuple[int, ...]] | None = None) -> Graph:
    """Return the graph with everything that follows from its constants and shapes.

    `shapes`: TFLite's current ones, by tensor index. None: there is no TFLite, and the file's
    are used.
    """
    return _known(graph if shapes is None else with_shapes(graph, shapes), Visits())


def _known(graph: Graph, visits: Visits) -> Graph:
    def inline(node: Node) -> Node:
        return inlined(node, lambda called: _known(visits.counted(called), visits))

    known = with_ranges(fold(graph, inline))
    if all(node.body is None for node in known.nodes):
        return known
    return replace(known, nodes=tuple(_with_body(node, visits) for node in known.nodes))


def _with_body(node: Node, visits: Visits) -> Node:
    """Return a node with its decomposition inferred on the shapes of its inputs.

    Known values of the inputs are used there, too.
    """
    body = node.body
    if body is None or len(body.inputs) != len(node.inputs) or node.op == STABLEHLO or node.calls:
        return node  # of STABLEHLO_REDUCE_WINDOW only its op matters, at any shape
    given = {
        own: replace(own, shape=outer.shape, data=outer.data, is_folded=False, ranges=outer.ranges)
        for own, outer in zip(body.inputs, node.inputs, strict=True)
        if outer is not None and own.data is None and own.dtype == outer.dtype
    }
    made = with_tensors(body, given)
    # Inputs with values are constants, which no caller changes.
    inputs = tuple(tensor for tensor in made.inputs if tensor.data is None)
    known = _known(replace(made, inputs=inputs), visits)
    return replace(node, body=replace(known, inputs=_in_order(made, known)))


def _in_order(made: Graph, known: Graph) -> tuple[Tensor, ...]:
    rest = iter(known.inputs)
    return tuple(next(rest) if tensor.data is None else tensor for tensor in made.inputs)


_LIKELY_SIZE = 224  # of an image side; any size that windows and strides do not reduce to nothing


def likely_shapes(
    graph: Graph, shapes: Mapping[int, tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    """Return the shapes with likely sizes in place of the file's dynamic sizes.

    TFLite sets a dynamic size to 1 until the caller resizes the input, which is after the nodes
    are judged: windows and work of 1x1 images are not representative. Sizes already set in the
    graph (`with_input_shapes`) are used. A batch of 1 is likely, and stays.
    """
    likely = {}
    for tensor in graph.inputs:
        own = tensor.shape
        now = shapes.get(tensor.index, own)
        signature = tensor.shape_signature or own
        if len(now) == len(own) == len(signature) and (now == own or not tensor.shape_signature):
            likely[tensor.index] = now[:1] + tuple(
                (_LIKELY_SIZE if is_open == -1 and known == 1 else known) if size == 1 else size
                for size, known, is_open in zip(now[1:], own[1:], signature[1:], strict=True)
            )
    return {**shapes, **likely}


class InferredGraph:
    """Inference results of a graph at TFLite's shapes, shared by its partitions.

    TFLite prepares one node after another, so from partition to partition more of its shapes
    match the inferred ones.

    Attributes:
        graph: with inference results.
    """

    def __init__(self, file: Graph, shapes: Mapping[int, tuple[int, ...]]) -> None:
        """`file`: the graph as read; `shapes`: TFLite's current ones, by tensor index."""
        self.graph = infer(file, shapes)
        self._shapes = shapes

    def holds_at(self, shapes: Mapping[int, tuple[int, ...]]) -> bool:
        """Whether TFLite's shapes are unchanged, or have become the inferred ones.

        A shape that was inferred is inferred again; any other must be the same.
        """
        return all(
            shapes.get(tensor.index) in (self._shapes.get(tensor.index), tensor.shape)
            for tensor in self.graph.tensors
        )
