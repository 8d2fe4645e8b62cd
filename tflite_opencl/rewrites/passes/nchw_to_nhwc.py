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

from delegate.graph.links import Links
from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.rewrites.changes import Notes
from tflite_opencl.rewrites.editing import rebuilt
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
    links = Links(graph)
    for node in graph.nodes:
        order = order_of(graph, node)
        if order is not None:
            fewer = _joined(graph, links, node, order)
            fewer = _moved(graph, links, node, order) if fewer is graph else fewer
            if fewer is not graph:
                return fewer
    return graph


def _joined(graph: Graph, links: Links, node: Node, order: Order) -> Graph:
    """Return the graph without a TRANSPOSE that keeps the order or follows on another one."""
    source, result = node.inputs[0], node.outputs[0]
    first = links.maker(source)
    before = None if first is None else order_of(graph, first)
    whole = order if before is None else tuple(before[i] for i in order)
    origin = source if first is None or before is None else first.inputs[0]
    assert origin is not None
    is_alone = before is not None and links.only_reader(source) is not None
    steps = [step for step in graph.nodes if not (is_alone and step is first)]
    if whole == tuple(range(len(whole))):
        steps.remove(node)
        if result not in graph.outputs:
            return rebuilt(graph, steps, {result: origin})
        if links.maker(origin) is not None and origin not in graph.outputs:
            return rebuilt(graph, steps, {origin: result})
        return graph
    if not is_alone:
        return graph
    merged = transpose(origin, result, whole)
    return rebuilt(graph, [merged if step is node else step for step in steps])


def _region(graph: Graph, links: Links, node: Node, rank: int) -> set[Node]:
    """Return the joined nodes behind a TRANSPOSE that take any order."""
    region: set[Node] = set()
    waiting = [*links.readers(node.outputs[0])]
    while waiting:
        each = waiting.pop()
        if each in region or not takes_any_order(graph, each, rank):
            continue
        region.add(each)
        makes = (links.maker(tensor) for tensor in computed_inputs(each))
        waiting += [before for before in makes if before is not None]
        waiting += links.readers(each.outputs[0])
    return region


def _moved(graph: Graph, links: Links, node: Node, order: Order) -> Graph:
    """Return the graph with the region behind a TRANSPOSE in the order before it.

    The same graph if that costs as many TRANSPOSEs as it saves.
    """
    region, back = _region(graph, links, node, len(order)), inverse_of(order)
    inside = {node.outputs[0] for node in region}
    entries = dict.fromkeys(
        tensor for node in region for tensor in computed_inputs(node) if tensor not in inside
    )
    new: dict[Tensor, Tensor] = {}
    gone: set[Node] = set()
    coming: dict[Tensor, Node] = {}  # a tensor that needs a new TRANSPOSE -> that
    for tensor in entries:
        maker = links.maker(tensor)
        if maker is not None and order_of(graph, maker) == order:
            source = maker.inputs[0]
            if source is None or source in inside:
                return graph
            new[tensor] = source
            if tensor not in graph.outputs and set(links.readers(tensor)) <= region:
                gone.add(maker)
        else:
            new[tensor] = before_order(tensor, order)
            coming[tensor] = transpose(tensor, new[tensor], back)
    put: dict[Tensor, Tensor] = {}
    for tensor in inside:
        outside = [node for node in links.readers(tensor) if node not in region]
        undone = [node for node in outside if order_of(graph, node) == back]
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
