# SPDX-License-Identifier: Apache-2.0
"""TRANSPOSEs are pushed together and cancelled.

    x -TRANSPOSE-> t -RELU-> u -TRANSPOSE back-> y        becomes        x -RELU-> y

Converters from PyTorch and ONNX, whose pictures are NCHW, put a TRANSPOSE before and behind each
convolution, which TFLite has for NHWC alone. What lies between them are often functions of single
elements, sums, CONCATENATION and PAD (orders.py), which compute the same in any order of
dimensions. Such nodes that are joined make a region. A region changes its order where that needs
fewer TRANSPOSEs than there are: those at its borders go, and new ones come where another order is
needed. Two TRANSPOSEs in a row become one or none. No number is computed otherwise: exact.

Targets save copies of whole tensors, and see convolutions next to their activations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.rewrites.editing import makers, only_reader, readers, rebuilt
from tflite_opencl.rewrites.notes import Notes
from tflite_opencl.rewrites.passes.orders import (
    Order,
    before_order,
    computed_inputs,
    inverse_of,
    order_of,
    reordered,
    takes_any_order,
    transpose,
)


@dataclass(frozen=True, slots=True, eq=False)
class _Links:
    """Who makes and who reads each tensor of a graph."""

    graph: Graph
    made_by: Mapping[Tensor, Node]
    read_by: Mapping[Tensor, tuple[Node, ...]]

    def is_transpose(self, node: Node | None, order: Order) -> bool:
        """Whether a node is a TRANSPOSE of this order."""
        return node is not None and order_of(self.graph, node) == order


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph with fewer TRANSPOSEs; the same one if none can go."""
    notes = Notes() if notes is None else notes
    given = [node for node in graph.nodes if node.op == "TRANSPOSE" and node.outputs]
    before = graph
    while (fewer := _with_fewer(graph)) is not graph:
        graph = fewer
    stayed = {n.outputs[0].name for n in graph.nodes if n.op == "TRANSPOSE" and n.outputs}
    for node in given:
        if node.outputs[0].name not in stayed:
            notes.treated(node, "cancelled")
        elif order_of(before, node) is None:
            notes.left(node, "its order is not known before a run")
        else:
            notes.left(node, "there would be as many elsewhere")
    return graph


def _with_fewer(graph: Graph) -> Graph:
    """Return the graph with at least one TRANSPOSE less, or the same one."""
    links = _Links(graph, makers(graph), readers(graph))
    for node in graph.nodes:
        order = order_of(graph, node)
        if order is None:
            continue
        joined = _joined(links, node, order)
        if joined is not graph:
            return joined
        region = _region(links, node, len(order))
        if region:
            moved = _moved(links, region, order)
            if moved is not graph:
                return moved
    return graph


def _joined(links: _Links, node: Node, order: Order) -> Graph:
    """Return the graph without a TRANSPOSE that keeps the order or follows on another one."""
    graph = links.graph
    source, result = node.inputs[0], node.outputs[0]
    assert source is not None
    first = links.made_by.get(source)
    before = None if first is None else order_of(graph, first)
    whole = order if before is None else tuple(before[i] for i in order)
    origin = source if first is None or before is None else first.inputs[0]
    assert origin is not None
    is_alone = before is not None and only_reader(graph, links.read_by, source) is not None
    gone = {first} if is_alone else set()
    steps = [step for step in graph.nodes if step not in gone]
    if whole == tuple(range(len(whole))):
        steps.remove(node)
        if result not in graph.outputs:
            return rebuilt(graph, steps, {result: origin})
        if origin in links.made_by and origin not in graph.outputs:
            return rebuilt(graph, steps, {origin: result})
        return graph
    if not is_alone:
        return graph
    merged = transpose(origin, result, whole)
    return rebuilt(graph, [merged if step is node else step for step in steps])


def _region(links: _Links, node: Node, rank: int) -> set[Node]:
    """Return the joined nodes behind a TRANSPOSE that take any order."""
    region: set[Node] = set()
    waiting = list(links.read_by[node.outputs[0]])
    while waiting:
        each = waiting.pop()
        if each in region or not takes_any_order(links.graph, each, rank):
            continue
        region.add(each)
        makes = (links.made_by.get(tensor) for tensor in computed_inputs(each))
        waiting += [before for before in makes if before is not None]
        waiting += links.read_by[each.outputs[0]]
    return region


def _moved(links: _Links, region: set[Node], order: Order) -> Graph:
    """Return the graph with a region in the order before `order`, the same one if that costs."""
    graph, back = links.graph, inverse_of(order)
    inside = {node.outputs[0] for node in region}
    entries = dict.fromkeys(
        tensor for node in region for tensor in computed_inputs(node) if tensor not in inside
    )
    new: dict[Tensor, Tensor] = {}
    gone: set[Node] = set()
    coming: dict[Tensor, Node] = {}  # a tensor that needs a new TRANSPOSE -> that
    for tensor in entries:
        maker = links.made_by.get(tensor)
        if maker is not None and links.is_transpose(maker, order):
            source = maker.inputs[0]
            if source is None or source in inside:
                return graph
            new[tensor] = source
            if tensor not in graph.outputs and set(links.read_by[tensor]) <= region:
                gone.add(maker)
        else:
            new[tensor] = before_order(tensor, order)
            coming[tensor] = transpose(tensor, new[tensor], back)
    put: dict[Tensor, Tensor] = {}
    for tensor in inside:
        outside = [node for node in links.read_by[tensor] if node not in region]
        undone = [node for node in outside if links.is_transpose(node, back)]
        shown = [node for node in undone if node.outputs[0] in graph.outputs]
        undone = [node for node in undone if node not in shown[1:]]
        new[tensor] = shown[0].outputs[0] if shown else before_order(tensor, order)
        put.update({n.outputs[0]: new[tensor] for n in undone if n.outputs[0] is not new[tensor]})
        gone.update(undone)
        if tensor in graph.outputs or len(undone) < len(outside):
            coming[tensor] = transpose(new[tensor], tensor, order)
    if len(gone) <= len(coming):
        return graph
    return rebuilt(graph, _steps(graph, region, gone, coming, order, new), put)


def _steps(
    graph: Graph,
    region: set[Node],
    gone: set[Node],
    coming: Mapping[Tensor, Node],
    order: Order,
    new: Mapping[Tensor, Tensor],
) -> list[Node]:
    """Return all nodes of the new graph in execution order."""
    steps: list[Node] = []
    begun: set[Tensor] = set()
    for node in graph.nodes:
        if node in gone:
            continue
        if node not in region:
            steps.append(node)
            continue
        for tensor in computed_inputs(node):
            # One made in the region has its TRANSPOSE behind its node already.
            if tensor in coming and coming[tensor].inputs[0] is tensor and tensor not in begun:
                begun.add(tensor)
                steps.append(coming[tensor])
        steps.append(reordered(node, order, new))
        if node.outputs[0] in coming:
            steps.append(coming[node.outputs[0]])
    return steps
