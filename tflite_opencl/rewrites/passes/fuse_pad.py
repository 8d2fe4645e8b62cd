# SPDX-License-Identifier: Apache-2.0
"""PAD and a VALID convolution become one SAME convolution, where SAME pads as the PAD does.

    x -PAD-> y -CONV_2D or DEPTHWISE_CONV_2D, VALID-> z        becomes        x -..., SAME-> z

A PAD adds the zero point (0.0 in float), which is what a SAME window finds outside its picture, so
the pass is exact. TFLite knows no other padding than SAME and VALID; SAME must put as many pixels
above and on the left as the PAD does, and give as many outputs. So the (1, 1) of PyTorch's strided
convolutions stays on even sizes, where SAME's is (0, 1).

Inside the delegate, fuse_pad.py takes any amounts: kernels pad as they are told, and
no file has to say so. This pass is for files. It saves targets a copy of the tensor, and lets
unstride_convolutions do without PAD. The arithmetic of SAME: tflite/kernels/padding.h.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from delegate.inspect import Graph, Node
from tflite_opencl.rewrites.editing import readers, rebuilt
from tflite_opencl.rewrites.notes import Notes
from tflite_opencl.rewrites.passes.convolutions import (
    axes,
    has_fixed_picture,
    is_convolution,
    reason_against_zeros,
    same_quanta,
)

_ARITY = {"PAD": (2, 1), "PADV2": (3, 1)}  # inputs and outputs


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph without the PADs that SAME can do; the same one if there are none."""
    notes = Notes() if notes is None else notes
    read_by = readers(graph)
    new: dict[Node, Node | None] = {}
    for pad in graph.nodes:
        if _ARITY.get(pad.op) != (len(pad.inputs), len(pad.outputs)) or pad.is_custom:
            continue
        reading = read_by[pad.outputs[0]]
        if not any(_is_valid_convolution(node, pad) for node in reading):
            continue
        reason = _reason(graph, pad, reading)
        fused = [] if reason else [_fused(node, pad) for node in reading]
        reason = reason or next((each for each in fused if isinstance(each, str)), None)
        if reason is not None:
            notes.left(pad, reason)
            continue
        new[pad] = None
        new.update(
            (node, to) for node, to in zip(reading, fused, strict=True) if not isinstance(to, str)
        )
        notes.treated(pad, f"SAME padding of {len(reading)} convolutions")
    kept = ((node, new.get(node, node)) for node in graph.nodes)
    return rebuilt(graph, [to for _, to in kept if to is not None])


def _is_valid_convolution(node: Node, pad: Node) -> bool:
    return (
        is_convolution(node)
        and node.options.get("padding") == "VALID"
        and node.inputs[0] is pad.outputs[0]
    )


def _reason(graph: Graph, pad: Node, reading: tuple[Node, ...]) -> str | None:
    """Return why a PAD has to stay whatever its amounts are, None where it may go."""
    source, amounts, result = pad.inputs[0], pad.inputs[1], pad.outputs[0]
    others = [node for node in reading if not _is_valid_convolution(node, pad)]
    if result in graph.outputs:
        return "the padded tensor is an output of the graph"
    if others:
        return f"{len(others)} other nodes read the padded tensor, such as {others[0].op}"
    if source is None or amounts is None or amounts.data is None or amounts in graph.changeable:
        return "amounts that are computed or that a caller may set"
    if not same_quanta(source, result):
        return "the PAD changes the type or the scale"
    for tensor in (source, result):
        if len(tensor.shape) != 4 or min(tensor.shape) < 1:
            return f"{tensor.name!r} has the shape {list(tensor.shape)}, which is no known picture"
        if not has_fixed_picture(graph, tensor):
            return f"{tensor.name!r} has a height, a width or channels that may change"
    if amounts.shape != (4, 2) or amounts.dtype not in ("int32", "int64"):
        return f"amounts of {amounts.dtype} and of the shape {list(amounts.shape)}"
    rows = np.asarray(amounts.data).tolist()
    if rows[0] != [0, 0] or rows[3] != [0, 0]:
        return f"it adds pictures or channels: {rows}"
    if pad.op == "PADV2" and not _adds_zeros(pad):
        return "it adds another value than 0"
    return None


def _adds_zeros(pad: Node) -> bool:
    source = pad.inputs[0]
    value = pad.inputs[2]
    if source is None or value is None or value.data is None or value.dtype != source.dtype:
        return False
    zero = source.quantization.zero_point[0] if source.quantization else 0
    return bool((np.asarray(value.data) == zero).all())


def _fused(node: Node, pad: Node) -> Node | str:
    """Return the convolution that pads by itself, or the reason why SAME would pad otherwise."""
    source, amounts = pad.inputs[:2]
    assert source is not None
    assert amounts is not None
    if (reason := reason_against_zeros(node)) is not None:
        return reason
    fused = replace(
        node, inputs=(source, *node.inputs[1:]), options={**node.options, "padding": "SAME"}
    )
    rows = np.asarray(amounts.data).tolist()[1:3]
    try:
        height, width = axes(fused)
    except ValueError:
        return f"SAME gives another size than the amounts {rows} do"
    if [height.before, width.before] != [rows[0][0], rows[1][0]]:
        return (
            f"SAME adds {height.before} pixels above and {width.before} on the left, "
            f"the PAD {rows[0][0]} and {rows[1][0]}"
        )
    return fused
