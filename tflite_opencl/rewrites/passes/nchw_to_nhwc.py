# SPDX-License-Identifier: Apache-2.0
"""Merges and cancels TRANSPOSEs.

    x -TRANSPOSE-> t -RELU-> u -TRANSPOSE back-> y        becomes        x -RELU-> y

Converters from PyTorch and ONNX, whose pictures are NCHW, put a TRANSPOSE before and after each
convolution, which TFLite supports for NHWC only. The nodes between them are often elementwise
functions, sums, CONCATENATION and PAD, which work in any order of
dimensions. Connected nodes of this kind form a region. A region changes its order if that needs
fewer TRANSPOSEs in total: those at its borders are removed, and new ones are inserted where another
order is required. Two successive TRANSPOSEs become one or none. No value changes: exact.

An order is a TRANSPOSE's permutation: dimension i of its output is dimension order[i] of its input.

Targets save copies of whole tensors, and see convolutions next to their activations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from delegate.graph.def_use import DefUse
from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.rewrites.changes import Notes, is_op, known_values, new_tensor, note, rebuilt

Order = tuple[int, ...]

# Elementwise functions of one or more operands.
_ELEMENT_WISE = (
    "ABS ADD CAST CEIL COS DEQUANTIZE DIV ELU EXP FLOOR HARD_SWISH LEAKY_RELU LOG LOGISTIC MAXIMUM"
    " MINIMUM MUL NEG POW QUANTIZE RELU RELU6 RELU_N1_TO_1 ROUND RSQRT SIN SQRT SQUARE"
    " SQUARED_DIFFERENCE SUB TANH"
)
# Op -> the index of the first input that is not data.
_SIZES = {"PAD": 1, "PADV2": 1}
_ARITY = {"PAD": 2, "PADV2": 3}
# The op versions that introduced types. Source: tflite/tools/versioning/op_version.cc
_TRANSPOSE_VERSIONS = {"int8": 2, "bool": 3, "int16": 4}


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph with fewer TRANSPOSEs; the same object if none can be removed."""
    given = [node for node in graph.nodes if node.op == "TRANSPOSE" and node.outputs]
    before = graph
    while (fewer := _with_fewer(graph)) is not graph:
        graph = fewer
    stayed = {n.outputs[0].name for n in graph.nodes if n.op == "TRANSPOSE" and n.outputs}
    for node in given:
        if node.outputs[0].name not in stayed:
            note(notes, node, True, "cancelled")
        elif _order_of(before, node) is None:
            note(notes, node, False, "its order is not known before a run")
        else:
            note(notes, node, False, "there would be as many elsewhere")
    return graph


def _with_fewer(graph: Graph) -> Graph:
    """Return the graph with at least one TRANSPOSE less, or the same object."""
    links = DefUse(graph)
    for node in graph.nodes:
        order = _order_of(graph, node)
        if order is not None:
            fewer = _joined(graph, links, node, order)
            fewer = _moved(graph, links, node, order) if fewer is graph else fewer
            if fewer is not graph:
                return fewer
    return graph


def _joined(graph: Graph, links: DefUse, node: Node, order: Order) -> Graph:
    """Return the graph without a TRANSPOSE that is an identity or follows another one."""
    source, result = node.inputs[0], node.outputs[0]
    first = links.producer(source)
    before = None if first is None else _order_of(graph, first)
    whole = order if before is None else tuple(before[i] for i in order)
    origin = source if first is None or before is None else first.inputs[0]
    assert origin is not None
    is_alone = before is not None and links.sole_consumer(source) is not None
    steps = [step for step in graph.nodes if not (is_alone and step is first)]
    if whole == tuple(range(len(whole))):
        steps.remove(node)
        if result not in graph.outputs:
            return rebuilt(graph, steps, {result: origin})
        if links.producer(origin) is not None and origin not in graph.outputs:
            return rebuilt(graph, steps, {origin: result})
        return graph
    if not is_alone:
        return graph
    merged = _transpose(origin, result, whole)
    return rebuilt(graph, [merged if step is node else step for step in steps])


def _region(graph: Graph, links: DefUse, node: Node, rank: int) -> set[Node]:
    """Return the connected nodes after a TRANSPOSE that work in any order."""
    region: set[Node] = set()
    waiting = [*links.consumers(node.outputs[0])]
    while waiting:
        each = waiting.pop()
        if each in region or not _takes_any_order(graph, each, rank):
            continue
        region.add(each)
        makes = (links.producer(tensor) for tensor in _computed_inputs(each))
        waiting += [before for before in makes if before is not None]
        waiting += links.consumers(each.outputs[0])
    return region


def _moved(graph: Graph, links: DefUse, node: Node, order: Order) -> Graph:
    """Return the graph with the region after a TRANSPOSE in the order before it.

    The same object if that needs as many TRANSPOSEs as it saves.
    """
    region, back = _region(graph, links, node, len(order)), inverse_of(order)
    inside = {node.outputs[0] for node in region}
    entries = dict.fromkeys(
        tensor for node in region for tensor in _computed_inputs(node) if tensor not in inside
    )
    new: dict[Tensor, Tensor] = {}
    gone: set[Node] = set()
    coming: dict[Tensor, Node] = {}  # a tensor that needs a new TRANSPOSE -> that node
    for tensor in entries:
        maker = links.producer(tensor)
        if maker is not None and _order_of(graph, maker) == order:
            source = maker.inputs[0]
            if source is None or source in inside:
                return graph
            new[tensor] = source
            if tensor not in graph.outputs and set(links.consumers(tensor)) <= region:
                gone.add(maker)
        else:
            new[tensor] = _before_order(tensor, order)
            coming[tensor] = _transpose(tensor, new[tensor], back)
    put: dict[Tensor, Tensor] = {}
    for tensor in inside:
        outside = [node for node in links.consumers(tensor) if node not in region]
        undone = [node for node in outside if _order_of(graph, node) == back]
        shown = [node for node in undone if node.outputs[0] in graph.outputs]
        undone = [node for node in undone if node not in shown[1:]]
        new[tensor] = shown[0].outputs[0] if shown else _before_order(tensor, order)
        put.update({n.outputs[0]: new[tensor] for n in undone if n.outputs[0] is not new[tensor]})
        gone.update(undone)
        if tensor in graph.outputs or len(undone) < len(outside):
            coming[tensor] = _transpose(new[tensor], tensor, order)
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
        if node in region:
            for tensor in _computed_inputs(node):
                # A tensor computed in the region already has its TRANSPOSE.
                if tensor in coming and coming[tensor].inputs[0] is tensor and tensor not in begun:
                    begun.add(tensor)
                    steps.append(coming[tensor])
            behind = coming.get(node.outputs[0])
            steps += [_reordered(node, order, new), *([behind] if behind else [])]
        elif node not in gone:
            steps.append(node)
    return steps


def _order_of(graph: Graph, node: Node) -> Order | None:
    """Return a TRANSPOSE's order; None: not a TRANSPOSE, or its order is unknown."""
    if not is_op(node, "TRANSPOSE", 2):
        return None
    (source, order), result = node.inputs, node.outputs[0]
    values = known_values(graph, order)
    if source is None or values is None or values.dtype not in ("int32", "int64"):
        return None
    numbers = values.ravel().tolist()
    # Negative indices count from the end.
    rank = len(source.shape)
    found = tuple(number + rank if number < 0 else number for number in numbers)
    if sorted(found) != list(range(rank)):
        return None
    return found if tuple(source.shape[i] for i in found) == result.shape else None


def inverse_of(order: Order) -> Order:
    """Return the inverse permutation."""
    return tuple(order.index(dimension) for dimension in range(len(order)))


def _transpose(source: Tensor, result: Tensor, order: Order) -> Node:
    """Return a TRANSPOSE."""
    name = f"{result.name}/order"
    numbers = new_tensor(name, (len(order),), "int32", data=np.array(order, np.int32))
    version = _TRANSPOSE_VERSIONS.get(source.dtype, 1)
    return Node(-1, "TRANSPOSE", version, (source, numbers), (result,))


def _before_order(tensor: Tensor, order: Order) -> Tensor:
    """Return a new computed tensor that a TRANSPOSE of this order turns into `tensor`."""
    name, back = f"{tensor.name}/before_transpose", inverse_of(order)
    shape = [tensor.shape[i] for i in back]
    signature = tuple(tensor.shape_signature[i] for i in back if tensor.shape_signature)
    return new_tensor(name, shape, tensor.dtype, tensor.quantization, None, signature)


def _computed_inputs(node: Node) -> list[Tensor]:
    """Return the data inputs that are not constants."""
    inputs = node.inputs[: _SIZES.get(node.op)]
    return [tensor for tensor in inputs if tensor is not None and tensor.data is None]


def _takes_any_order(graph: Graph, node: Node, rank: int) -> bool:
    """Whether `_reordered` supports the node in another order of this rank."""
    names = (*_ELEMENT_WISE.split(), "CONCATENATION", *_SIZES)
    if node.op not in names or not is_op(node, node.op, _ARITY.get(node.op, len(node.inputs))):
        return False
    if not -rank <= node.options.get("axis", 0) < rank:
        return False
    if any(tensor is None or tensor in graph.changeable for tensor in node.inputs):
        return False
    computed = [*_computed_inputs(node), node.outputs[0]]
    constants = [t for t in node.inputs if t is not None and t.data is not None]
    if any(len(tensor.shape) != rank or tensor.is_variable for tensor in computed):
        return False
    if any(len(tensor.shape) > rank or tensor.is_sparse for tensor in constants):
        return False
    if any(t.quantization and len(t.quantization.scale) > 1 for t in (*computed, *constants)):
        return False
    if any(tensor.data.shape != tensor.shape for tensor in constants if tensor.data is not None):
        return False  # a type that numpy lacks
    if node.op not in _SIZES:
        return True
    sizes = node.inputs[1]
    return (
        sizes is not None
        and sizes.data is not None
        and (sizes.dtype in ("int32", "int64") and sizes.shape == (rank, 2))
    )


def _reordered(node: Node, order: Order, tensors: Mapping[Tensor, Tensor]) -> Node:
    """Return the node whose output, transposed by `order`, is the old node's output.

    `tensors`: its computed inputs and its output -> the tensors before the TRANSPOSE.
    """
    numbers = node.inputs[: _SIZES.get(node.op)]
    inputs = [tensors[t] if t in tensors else _constant(t, order) for t in numbers if t is not None]
    options = dict(node.options)
    if node.op in _SIZES:
        amounts, *value = node.inputs[1:]
        assert amounts is not None
        rows = np.asarray(amounts.data)[list(inverse_of(order))]
        inputs.append(new_tensor(f"{amounts.name}/order", rows.shape, amounts.dtype, data=rows))
        inputs.extend(each for each in value if each is not None)
    elif node.op == "CONCATENATION":
        axis = options.get("axis", 0)
        options["axis"] = order[axis + len(order) if axis < 0 else axis]
    return replace(node, inputs=tuple(inputs), outputs=(tensors[node.outputs[0]],), options=options)


def _constant(tensor: Tensor, order: Order) -> Tensor:
    """Return a constant in the order before the TRANSPOSE; scalars are unchanged."""
    values = np.asarray(tensor.data)
    if values.size == 1:
        return tensor
    whole = values.reshape((1,) * (len(order) - values.ndim) + values.shape)
    moved = np.ascontiguousarray(whole.transpose(inverse_of(order)))
    name = f"{tensor.name}/order"
    return new_tensor(name, moved.shape, tensor.dtype, tensor.quantization, moved)
