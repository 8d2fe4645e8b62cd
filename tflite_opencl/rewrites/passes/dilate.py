# SPDX-License-Identifier: Apache-2.0
"""SPACE_TO_BATCH_ND, a convolution and BATCH_TO_SPACE_ND become one dilated convolution.

    x -SPACE_TO_BATCH_ND, d-> (d * d * n, h', w', c) -CONV_2D-> u -BATCH_TO_SPACE_ND, d-> y
    becomes
    x -CONV_2D, dilation d-> y

TensorFlow emitted dilated convolutions so (python/ops/nn_ops.py, `with_space_to_batch`). Each
of the d * d pictures has every d-th pixel, and its convolution reads neighbours. Paddings and
crops move the window; if its position then matches SAME or VALID,
the pass is exact, otherwise the nodes are left. CONV_2D and DEPTHWISE_CONV_2D.

Targets save two copies of the tensor, and need no batches.
"""

from __future__ import annotations

from dataclasses import replace

from delegate.graph.def_use import DefUse
from delegate.inspect import Graph, Node
from tflite_opencl.rewrites.changes import (
    Change,
    NoMatch,
    Notes,
    changed,
    is_op,
    known_values,
    same_quanta,
)
from tflite_opencl.rewrites.passes.convolutions import (
    Conv2D,
    convolution_of,
    is_picture,
    require_fixed_picture,
)

Sizes = tuple[list[int], list[list[int]]]  # block sizes, and the paddings or crops


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph with convolutions between these two ops dilated.

    The same object if there are none.
    """
    links = DefUse(graph)

    def change(to_batch: Node) -> Change | None:
        if not is_op(to_batch, "SPACE_TO_BATCH_ND", 3):
            return None
        conv, to_space = _behind(links, to_batch)
        conv.require_no_use_of_zeros()
        blocks, paddings = _sizes(graph, to_batch)
        others, crops = _sizes(graph, to_space)
        if blocks != others:
            raise NoMatch("the two moves of pixels have other block sizes")
        dilated = _dilated(conv, to_batch, to_space, blocks, paddings, crops)
        steps = {to_batch: (), conv.node: (), to_space: (dilated,)}
        return Change(f"dilation {blocks}", steps, of=conv.node)

    return changed(graph, notes, change)


def _behind(links: DefUse, to_batch: Node) -> tuple[Conv2D, Node]:
    """Return the convolution and the BATCH_TO_SPACE_ND after a SPACE_TO_BATCH_ND."""
    node = links.sole_consumer(to_batch.outputs[0])
    if node is None:
        raise NoMatch("its result is an output, or not read by one node alone")
    conv = convolution_of(node)
    if conv is None or conv.source is not to_batch.outputs[0]:
        raise NoMatch(f"{node.op} reads it, and no convolution")
    to_space = links.sole_consumer(conv.result)
    if to_space is None:
        raise NoMatch("the convolution's result is an output, or not read by one node alone")
    if not is_op(to_space, "BATCH_TO_SPACE_ND", 3):
        raise NoMatch(f"{to_space.op} reads the convolution, and no BATCH_TO_SPACE_ND")
    return conv, to_space


def _sizes(graph: Graph, move: Node) -> Sizes:
    """Return the constants of an op that only moves pixels."""
    source, *given = move.inputs
    result = move.outputs[0]
    numbers = [known_values(graph, each) for each in given]
    known = [each for each in numbers if each is not None]
    if len(known) < len(given):
        raise NoMatch(f"{move.op} has sizes that are computed or that a caller may set")
    if source is None or not (is_picture(source) and is_picture(result)):
        raise NoMatch(f"{move.op} has no picture of a known size")
    for tensor in (source, result):
        require_fixed_picture(graph, tensor, move.op)
    if not same_quanta(source, result):
        raise NoMatch(f"{move.op} changes the type or the scale")
    kinds = [(each.dtype, each.shape) for each in given if each is not None]
    if kinds != [("int32", (2,)), ("int32", (2, 2))]:
        raise NoMatch("sizes that are not of a height and a width, or not int32")
    return known[0].tolist(), known[1].tolist()


def _dilated(
    conv: Conv2D,
    to_batch: Node,
    to_space: Node,
    blocks: list[int],
    paddings: list[list[int]],
    crops: list[list[int]],
) -> Node:
    """Return the dilated convolution; raise Left if neither SAME nor VALID matches its padding."""
    inner = conv.axes()
    if any(axis.stride != 1 for axis in inner):
        raise NoMatch("the convolution has strides")
    # The offset of the first window above and left of the picture.
    begins = [
        padding[0] - crop[0] + axis.before * block
        for padding, crop, axis, block in zip(paddings, crops, inner, blocks, strict=True)
    ]
    rates = {
        f"dilation_{letter}_factor": axis.dilation * block
        for letter, axis, block in zip("hw", inner, blocks, strict=True)
    }
    for padding in ("VALID", "SAME"):
        node = replace(
            conv.node,
            version=max(conv.node.version, 2 if conv.is_depthwise else 1),
            inputs=(to_batch.inputs[0], *conv.node.inputs[1:]),
            outputs=to_space.outputs,
            options={**conv.node.options, **rates, "padding": padding},
        )
        dilated = convolution_of(node)
        try:
            if dilated is not None and [axis.before for axis in dilated.axes()] == begins:
                return node
        except NoMatch:
            continue
    raise NoMatch(f"paddings {paddings} and crops {crops} are neither SAME's nor VALID's")
