# SPDX-License-Identifier: Apache-2.0
"""SPACE_TO_BATCH_ND, a convolution and BATCH_TO_SPACE_ND become one dilated convolution.

    x -SPACE_TO_BATCH_ND, d-> (d * d * n, h', w', c) -CONV_2D-> u -BATCH_TO_SPACE_ND, d-> y
    becomes
    x -CONV_2D, dilation d-> y

TensorFlow wrote dilated convolutions so (python/ops/nn_ops.py, `with_space_to_batch`). Each of the
d * d pictures has the pixels d apart from each other, and their convolution reads neighbours. The
paddings before and the crops after move the window; where they move it to where SAME or VALID has
it, the pass is exact, else the nodes stay. CONV_2D and DEPTHWISE_CONV_2D.

Targets save two copies of the tensor, and need no pictures in batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.rewrites.editing import only_reader, readers, rebuilt
from tflite_opencl.rewrites.notes import Notes
from tflite_opencl.rewrites.passes.convolutions import (
    axes,
    has_fixed_picture,
    is_convolution,
    reason_against_zeros,
    same_quanta,
    source_and_weights,
)

Readers = Mapping[Tensor, tuple[Node, ...]]


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph with dilated convolutions for those between the two moves of pixels.

    The same graph if there are none.
    """
    notes = Notes() if notes is None else notes
    read_by = readers(graph)
    new: dict[Node, Node | None] = {}
    for to_batch in graph.nodes:
        if not _is_move(to_batch, "SPACE_TO_BATCH_ND"):
            continue
        found = _convolution(graph, read_by, to_batch)
        if isinstance(found, str):
            notes.left(to_batch, found)
            continue
        node, to_space = found
        reason = _reason(graph, to_batch, node, to_space)
        dilated = _dilated(to_batch, node, to_space) if reason is None else None
        if reason is not None or isinstance(dilated, str) or dilated is None:
            notes.left(to_batch, reason or str(dilated))
            continue
        new.update({to_batch: None, node: None, to_space: dilated})
        notes.treated(node, f"dilation {_values(to_batch.inputs[1])}")
    steps = (new.get(node, node) for node in graph.nodes)
    return rebuilt(graph, [node for node in steps if node is not None])


def _is_move(node: Node, op: str) -> bool:
    """Whether a node is such a move of pixels with the tensors that TFLite wants."""
    arity = len(node.inputs), len(node.outputs)
    return node.op == op and not node.is_custom and arity == (3, 1)


def _convolution(graph: Graph, read_by: Readers, to_batch: Node) -> tuple[Node, Node] | str:
    """Return the convolution and the BATCH_TO_SPACE_ND after a SPACE_TO_BATCH_ND, or a reason."""
    node = only_reader(graph, read_by, to_batch.outputs[0])
    if node is None:
        return "its result is an output, or not read by one node alone"
    if not is_convolution(node) or node.inputs[0] is not to_batch.outputs[0]:
        return f"{node.op} reads it, and no convolution"
    to_space = only_reader(graph, read_by, node.outputs[0])
    if to_space is None:
        return "the convolution's result is an output, or not read by one node alone"
    if not _is_move(to_space, "BATCH_TO_SPACE_ND"):
        return f"{to_space.op} reads the convolution, and no BATCH_TO_SPACE_ND"
    return node, to_space


def _reason(graph: Graph, to_batch: Node, node: Node, to_space: Node) -> str | None:
    """Return why the three nodes have to stay whatever their numbers are."""
    if (reason := reason_against_zeros(node)) is not None:
        return reason
    for move in (to_batch, to_space):
        numbers = move.inputs[1:]
        if any(each is None or each.data is None or each in graph.changeable for each in numbers):
            return f"{move.op} has sizes that are computed or that a caller may set"
        source, result = move.inputs[0], move.outputs[0]
        if source is None or len(source.shape) != 4 or min(source.shape) < 1:
            return f"{move.op} has no picture of a known size"
        if len(result.shape) != 4 or min(result.shape) < 1:
            return f"{move.op} has no picture of a known size"
        if not (has_fixed_picture(graph, source) and has_fixed_picture(graph, result)):
            return f"{move.op} has a height, a width or channels that may change"
        if not same_quanta(source, result):
            return f"{move.op} changes the type or the scale"
    sizes = (*to_batch.inputs[1:], *to_space.inputs[1:])
    known = [(each.dtype, each.shape) for each in sizes if each is not None]
    if known != [("int32", (2,)), ("int32", (2, 2))] * 2:
        return "sizes that are not of a height and a width, or not int32"
    if _values(to_batch.inputs[1]) != _values(to_space.inputs[1]):
        return "the two moves of pixels have other block sizes"
    try:
        if any(axis.stride != 1 for axis in axes(node)):
            return "the convolution has strides"
    except ValueError as error:
        return str(error)
    return None


def _values(tensor: Tensor | None) -> list[list[int]]:
    assert tensor is not None
    values: list[list[int]] = np.asarray(tensor.data).tolist()
    return values


def _dilated(to_batch: Node, node: Node, to_space: Node) -> Node | str:
    """Return the dilated convolution, or why neither SAME nor VALID is what the nodes do."""
    blocks = np.ravel(np.asarray(source_and_weights(to_batch)[1].data)).tolist()
    paddings, crops = _values(to_batch.inputs[2]), _values(to_space.inputs[2])
    inner = axes(node)
    # How far above and left of the picture the first window begins.
    begins = [
        padding[0] - crop[0] + axis.before * block
        for padding, crop, axis, block in zip(paddings, crops, inner, blocks, strict=True)
    ]
    rates = {
        f"dilation_{letter}_factor": axis.dilation * block
        for letter, axis, block in zip("hw", inner, blocks, strict=True)
    }
    for padding in ("VALID", "SAME"):
        dilated = replace(
            node,
            version=max(node.version, 2 if node.op == "DEPTHWISE_CONV_2D" else 1),
            inputs=(to_batch.inputs[0], *node.inputs[1:]),
            outputs=to_space.outputs,
            options={**node.options, **rates, "padding": padding},
        )
        try:
            if [axis.before for axis in axes(dilated)] == begins:
                return dilated
        except ValueError:
            continue
    return f"paddings {paddings} and crops {crops} are neither SAME's nor VALID's"
