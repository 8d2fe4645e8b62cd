# SPDX-License-Identifier: Apache-2.0
"""PAD and a VALID convolution become one SAME convolution, if SAME pads like the PAD.

    x -PAD-> y -CONV_2D or DEPTHWISE_CONV_2D, VALID-> z        becomes        x -..., SAME-> z

A PAD adds the zero point (0.0 in float), the value of a SAME window outside the picture, so
the pass is exact. TFLite has no padding other than SAME and VALID; SAME must pad as many pixels
above and on the left as the PAD does, and give as many outputs. So the (1, 1) of PyTorch's strided
convolutions is left on even sizes, where SAME's is (0, 1).

Inside the delegate, fuse_pad.py takes any amounts: its kernels support them, and
no file has to express them. This pass is for files. It saves targets a copy of the tensor, and
lets unstride_convolutions do without PAD. SAME's arithmetic: tflite/kernels/padding.h.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from delegate.graph.def_use import DefUse
from delegate.inspect import Graph, Node, Tensor
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


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph without PADs that SAME can replace; the same object if there are none."""
    links = DefUse(graph)

    def change(pad: Node) -> Change | None:
        if not is_op(pad, "PAD", 2) and not is_op(pad, "PADV2", 3):
            return None
        reading = {node: _padded_by(pad, node) for node in links.consumers(pad.outputs[0])}
        convs = [conv for conv in reading.values() if conv is not None]
        if not convs:
            return None
        others = [node for node in links.consumers(pad.outputs[0]) if reading[node] is None]
        if pad.outputs[0] in graph.outputs:
            raise NoMatch("the padded tensor is an output of the graph")
        if others:
            raise NoMatch(
                f"{len(others)} other nodes read the padded tensor, such as {others[0].op}"
            )
        source, before = _padding(graph, pad)
        steps = {conv.node: [_fused(conv, source, before)] for conv in convs}
        return Change(f"SAME padding of {len(convs)} convolutions", {pad: [], **steps})

    return changed(graph, notes, change)


def _padded_by(pad: Node, node: Node) -> Conv2D | None:
    """Return a VALID convolution of a PAD's output; None: the node is not one."""
    conv = convolution_of(node)
    if conv is None or conv.source is not pad.outputs[0] or node.options.get("padding") != "VALID":
        return None
    return conv


def _padding(graph: Graph, pad: Node) -> tuple[Tensor, list[list[int]]]:
    """Return a PAD's input, and its amounts: (before, after) of height and width."""
    source, amounts, result = pad.inputs[0], pad.inputs[1], pad.outputs[0]
    values = known_values(graph, amounts)
    if source is None or amounts is None or values is None:
        raise NoMatch("amounts that are computed or that a caller may set")
    if not same_quanta(source, result):
        raise NoMatch("the PAD changes the type or the scale")
    for tensor in (source, result):
        if not is_picture(tensor):
            shape = list(tensor.shape)
            raise NoMatch(f"{tensor.name!r} has the shape {shape}, which is no known picture")
        require_fixed_picture(graph, tensor, f"{tensor.name!r}")
    if amounts.shape != (4, 2) or amounts.dtype not in ("int32", "int64"):
        raise NoMatch(f"amounts of {amounts.dtype} and of the shape {list(amounts.shape)}")
    rows: list[list[int]] = values.tolist()
    if rows[0] != [0, 0] or rows[3] != [0, 0]:
        raise NoMatch(f"it adds pictures or channels: {rows}")
    if pad.op == "PADV2" and not _adds_zeros(source, pad.inputs[2]):
        raise NoMatch("it adds another value than 0")
    return source, rows[1:3]


def _adds_zeros(source: Tensor, value: Tensor | None) -> bool:
    if value is None or value.data is None or value.dtype != source.dtype:
        return False
    zero = source.quantization.zero_point[0] if source.quantization else 0
    return bool((np.asarray(value.data) == zero).all())


def _fused(conv: Conv2D, source: Tensor, rows: list[list[int]]) -> Node:
    """Return the convolution with padding; raise Left if SAME would pad differently."""
    conv.require_no_use_of_zeros()
    options = {**conv.node.options, "padding": "SAME"}
    fused = replace(conv.node, inputs=(source, *conv.node.inputs[1:]), options=options)
    try:
        height, width = replace(conv, node=fused, source=source).axes()
    except NoMatch:
        raise NoMatch(f"SAME gives another size than the amounts {rows} do") from None
    if [height.before, width.before] != [rows[0][0], rows[1][0]]:
        raise NoMatch(
            f"SAME adds {height.before} pixels above and {width.before} on the left, "
            f"the PAD {rows[0][0]} and {rows[1][0]}"
        )
    return fused
