# SPDX-License-Identifier: Apache-2.0
"""Conversion between int8 and uint8, shared by signed_to_unsigned and unsigned_to_signed.

Values and zero points both shift by 128, so that they represent the same real numbers.
Nodes are converted if the kernels of both types then agree. A QUANTIZE that only shifts values
separates converted nodes from others, and from the graph's inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from delegate.graph.edit import node_with
from delegate.inspect import Graph, Node, Quantization, Tensor
from tflite_opencl.rewrites.changes import (
    NoMatch,
    Notes,
    found_at,
    new_tensor,
    note,
    quanta,
    rebuilt,
)
from tflite_opencl.rewrites.passes.convolutions import require_one_scale
from tflite_opencl.rewrites.passes.rounding import round_alike, stay_in_32_bits, sums_of

LAYERS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")  # weights are their second input
# Ops that justify a QUANTIZE; others are converted if connected to one of these.
_ANCHORS = (*LAYERS, "ADD", "MUL", "SUB")
# Op -> the version that introduced int8. Source: tflite/tools/versioning/op_version.cc
VERSIONS = {
    **{"CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4, "QUANTIZE": 1, "RESHAPE": 1},
    **dict.fromkeys(("ADD", "MUL", "SUB", "AVERAGE_POOL_2D", "MAX_POOL_2D", "SOFTMAX", "PAD"), 2),
    **dict.fromkeys(("CONCATENATION", "TRANSPOSE", "SPACE_TO_DEPTH"), 2),
    **dict.fromkeys(("DEQUANTIZE", "RELU", "RELU6", "RESIZE_NEAREST_NEIGHBOR", "STRIDED_SLICE"), 2),
    **dict.fromkeys(("DEPTH_TO_SPACE", "EXPAND_DIMS", "SQUEEZE"), 1),
}
_MOVED_UNCHANGED = ("CONCATENATION",)  # its uint8 kernel scales inputs, its int8 kernel does not


_OTHER = {"uint8": "int8", "int8": "uint8"}
_BY = {"uint8": 128, "int8": -128}  # target type -> the shift of values
_BESIDE = 8  # scales of uint8 weights to try in each direction, one ulp apart


def converted(graph: Graph, notes: Notes | None, target: str) -> Graph:
    """Return the graph with nodes converted to this type; the same object if none can be."""
    # Convertible nodes -> their weights in the target type, for layers.
    able = dict(found_at(graph.nodes, notes, lambda node: _weights(graph, node, target)))
    chosen = _with_an_anchor(set(able), _OTHER[target])
    for node in able:
        lonely = "no convolution, layer or sum of the type is beside it"
        note(notes, node, node in chosen, target if node in chosen else lonely)
    return _with_borders(graph, chosen, able, target) if chosen else graph


def _quantised(node: Node, dtype: str) -> list[Tensor]:
    tensors = (*node.inputs, *node.outputs)
    return [t for t in tensors if t is not None and t.dtype == dtype and t.quantization]


def _weights(graph: Graph, node: Node, target: str) -> tuple[Tensor, ...] | None:
    """Return a layer's weights in the target type, () for another convertible node.

    None: the node has no data of the source type, or converts between the types.
    """
    is_border = node.op == "QUANTIZE" and _quantised(node, target)
    if is_border or not _quantised(node, _OTHER[target]):
        return None
    if node.is_custom or node.op not in VERSIONS:
        raise NoMatch(f"{node.op} of {target} is not known to compute the same")
    if not node.inputs or not node.outputs:
        raise NoMatch("its inputs or outputs are left out")
    if node.op in LAYERS:
        _require_layer(node)
    _require_types(graph, node, _OTHER[target])
    return (_converted_weights(node, target),) if node.op in LAYERS else ()


def _require_layer(node: Node) -> None:
    """Require that a layer's weights and bias can be converted."""
    weights = node.inputs[1] if len(node.inputs) in (2, 3) else None
    if weights is None or not node.inputs[0] or len(node.outputs) != 1:
        raise NoMatch("weights are left out")
    if weights.quantization is None or not weights.shape:
        raise NoMatch("weights without a scale")
    out_c = weights.shape[-1 if node.op == "DEPTHWISE_CONV_2D" else 0]
    for bias in node.inputs[2:]:
        if bias is not None and bias.data is None:
            raise NoMatch("a bias that is computed")
        if bias is not None and (bias.dtype != "int32" or bias.shape != (out_c,)):
            raise NoMatch(f"a bias of {bias.dtype} and of the shape {list(bias.shape)}")


def _require_types(graph: Graph, node: Node, dtype: str) -> None:
    """Require that a node can be converted, apart from a layer's weights."""
    numbers = [t for t in (*node.inputs, *node.outputs) if t is not None and t.dtype[-2:] != "32"]
    kinds = {t.dtype for t in (*node.inputs[:2], *node.outputs) if t is not None}
    if node.op in LAYERS and kinds != {dtype}:
        raise NoMatch(f"{' and '.join(sorted(kinds))}: hybrid or 16x8")
    if any(t.dtype not in (dtype, "int64") for t in numbers):
        raise NoMatch(f"tensors of {', '.join(sorted({t.dtype for t in numbers}))}")
    activations = _quantised(node, dtype)
    if node.op in LAYERS:
        activations.remove(node.inputs[1])  # type: ignore[arg-type]
    for tensor in activations:
        require_one_scale(tensor)
        if tensor.is_sparse or tensor.is_variable or tensor in graph.changeable:
            raise NoMatch(f"{tensor.name!r} is sparse, variable or set by a caller")
    if len(activations) < sum(t.dtype == dtype for t in numbers) - (node.op in LAYERS):
        raise NoMatch(f"{dtype} without a scale")
    if node.op in _MOVED_UNCHANGED and len({t.quantization for t in activations}) != 1:
        raise NoMatch(f"the uint8 kernel of {node.op} scales inputs otherwise")
    if node.op == "AVERAGE_POOL_2D" and not _counts_are_odd(node):
        raise NoMatch(
            "a window of an even number of pixels: means of both types round ties otherwise"
        )


def _converted_weights(node: Node, target: str) -> Tensor:
    """Return a layer's weights in the target type: zero point 0 for int8, 128 for uint8."""
    source, weights, result = node.inputs[0], node.inputs[1], node.outputs[0]
    if weights is None or weights.data is None or weights.is_sparse:
        raise NoMatch("weights that are computed or sparse")
    if source is None or source.quantization is None or result.quantization is None:
        raise NoMatch("no scale")
    if weights.quantization is None or len(set(weights.quantization.scale)) != 1:
        if target == "uint8":
            raise NoMatch("weights with several scales: per_channel_to_per_tensor gives them one")
        raise NoMatch("uint8 weights with several scales")
    if target == "uint8" and any(weights.quantization.zero_point):
        raise NoMatch("int8 weights with a zero point other than 0")
    values = np.asarray(weights.data, np.int64) - quanta(weights)[1]
    if target == "int8" and np.abs(values).max(initial=0) > 127:
        raise NoMatch("weights farther than 127 from their zero point")
    scale = _scale(node, sums_of(node, values), target)
    moved = 128 if target == "uint8" else 0
    data = (values + moved).astype(target)
    quantization = Quantization((scale,), (moved,))
    return new_tensor(f"{weights.name}/{target}", weights.shape, target, quantization, data)


def _scale(node: Node, sums: tuple[int, int], target: str) -> float:
    """Return a weight scale with which kernels of both types round every sum alike.

    `sums`: minimum and maximum.
    Source: tflite/kernels/kernel_util.cc, PopulateConvolutionQuantizationParams for the int8
    kernels' multiplier, GetQuantizedConvolutionMultipler for the uint8 kernels'
    """
    tensors = (node.inputs[0], node.inputs[1], node.outputs[0])
    in_scale, scale, out_scale = (quanta(each)[0] for each in tensors if each is not None)
    of_int8 = in_scale * scale / out_scale
    if not stay_in_32_bits(of_int8, *sums):
        raise NoMatch("sums that leave 32 bits: kernels of both types treat them otherwise")
    if node.op == "FULLY_CONNECTED":  # its kernels share the multiplier
        return scale
    low = high = np.float32(scale)
    tried = [scale]  # and its neighbours, nearest first
    for _ in range(_BESIDE if target == "uint8" else 0):
        low, high = np.nextafter(low, np.float32(0)), np.nextafter(high, np.float32(np.inf))
        tried += [float(low), float(high)]
    for each in tried:
        with np.errstate(over="ignore"):
            of_uint8 = float(np.float32(in_scale) * np.float32(each)) / out_scale
        if round_alike(of_int8, of_uint8, *sums):
            return each
    kind = "float" if target == "uint8" else "double"
    raise NoMatch(f"the multiplier of {target} is a {kind}'s, and rounds some sums otherwise")


def _counts_are_odd(node: Node) -> bool:
    """Whether all windows have an odd number of pixels, so that no mean is a tie."""
    options, source, result = node.options, node.inputs[0], node.outputs[0]
    if source is None or len(source.shape) != 4 or len(result.shape) != 4:
        return False
    for axis, size, step in ((1, "filter_height", "stride_h"), (2, "filter_width", "stride_w")):
        reach = (result.shape[axis] - 1) * options[step] + options[size]
        if options[size] % 2 == 0 or reach > source.shape[axis]:  # some windows would be smaller
            return False
    return True


def _with_an_anchor(able: set[Node], dtype: str) -> set[Node]:
    """Return the nodes connected to an anchor by tensors of the type."""
    chosen: set[Node] = set()
    more = {node for node in able if node.op in _ANCHORS}
    while more:
        chosen |= more
        joined = {t for node in more for t in _quantised(node, dtype) if t.data is None}
        more = {each for each in able - chosen if joined.intersection(_quantised(each, dtype))}
    return chosen


def _with_borders(
    graph: Graph, chosen: set[Node], weights: Mapping[Node, tuple[Tensor, ...]], target: str
) -> Graph:
    """Return the graph with the selected nodes converted, and a QUANTIZE at each border.

    `weights`: of its layers, in the target type.
    """
    others = [node for node in graph.nodes if node not in chosen]
    ends = (t for node in others for t in (*node.inputs, *node.outputs) if t is not None)
    outside = {*graph.inputs, *graph.outputs, *ends}
    dtype = _OTHER[target]
    new: dict[Tensor, Tensor] = {}  # of the target type
    nodes: list[Node] = []
    for node in graph.nodes:
        if node not in chosen:
            nodes.append(node)
            continue
        for place, old in enumerate(node.inputs):
            if old is None or old.dtype != dtype or old in new:
                continue
            if place != 1 or not weights[node]:
                new[old] = _moved(old, target)
                nodes += [_quantize(old, new[old])] if old.data is None else []
        made = [old for old in node.outputs if old.dtype == dtype]
        new.update((old, _moved(old, target, is_same=old not in outside)) for old in made)
        step = node_with(node, new)
        if weights[node]:
            step = replace(step, inputs=(step.inputs[0], *weights[node], *step.inputs[2:]))
        if target == "int8":
            step = replace(step, version=max(step.version, VERSIONS[step.op]))
        nodes += [step, *(_quantize(new[old], old) for old in made if old in outside)]
    return rebuilt(graph, nodes)


def _moved(old: Tensor, target: str, is_same: bool = False) -> Tensor:
    """Return a tensor in the target type; `is_same`: it replaces the old one."""
    assert old.quantization is not None
    zero_points = tuple(zero + _BY[target] for zero in old.quantization.zero_point)
    quantization = replace(old.quantization, zero_point=zero_points)
    if is_same:
        return replace(old, dtype=target, quantization=quantization)
    data = None
    if old.data is not None:
        data = (old.data.astype(np.int16) + _BY[target]).astype(target)
    name, signature = f"{old.name}/{target}", old.shape_signature
    return new_tensor(name, old.shape, target, quantization, data, signature)


def _quantize(source: Tensor, result: Tensor) -> Node:
    return Node(-1, "QUANTIZE", 1, (source,), (result,))
