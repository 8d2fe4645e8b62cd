# SPDX-License-Identifier: Apache-2.0
"""int8 -> uint8 and back: what signed_to_unsigned and unsigned_to_signed share.

A code and its zero point both move by 128, so that each stands for the number that it stood for.
Nodes are converted where the kernels of both types give the same then. A QUANTIZE that moves codes
alone stands where a converted node meets another one, or an input or output of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from delegate.graph.edit import node_with
from delegate.inspect import Graph, Node, Quantization, Tensor
from tflite_opencl.rewrites.changes import Left, Notes, found_at
from tflite_opencl.rewrites.editing import new_tensor, quanta, rebuilt
from tflite_opencl.rewrites.passes.convolutions import require_one_scale
from tflite_opencl.rewrites.passes.rounding import round_alike, stay_in_32_bits, sums_of

LAYERS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")  # weights are their second input
# Ops that make conversion worth a QUANTIZE; others follow where they are joined to one of these.
_ANCHORS = (*LAYERS, "ADD", "MUL", "SUB")
# Op -> the version that has int8. Source: tflite/tools/versioning/op_version.cc
VERSIONS = {
    **{"CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4, "QUANTIZE": 1, "RESHAPE": 1},
    **dict.fromkeys(("ADD", "MUL", "SUB", "AVERAGE_POOL_2D", "MAX_POOL_2D", "SOFTMAX", "PAD"), 2),
    **dict.fromkeys(("CONCATENATION", "TRANSPOSE", "SPACE_TO_DEPTH"), 2),
    **dict.fromkeys(("DEQUANTIZE", "RELU", "RELU6", "RESIZE_NEAREST_NEIGHBOR", "STRIDED_SLICE"), 2),
    **dict.fromkeys(("DEPTH_TO_SPACE", "EXPAND_DIMS", "SQUEEZE"), 1),
}
_MOVED_UNCHANGED = ("CONCATENATION",)  # its uint8 kernel scales inputs, its int8 kernel does not


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """What a node with constant weights of one scale multiplies its sums by."""

    in_scale: float
    scale: float  # of the weights
    out_scale: float
    least: int  # sum that the layer can have, for any input
    greatest: int

    @property
    def multiplier(self) -> float:
        """What the int8 kernels multiply by.

        Source: tflite/kernels/kernel_util.cc PopulateConvolutionQuantizationParams
        """
        return self.in_scale * self.scale / self.out_scale

    def float_multiplier(self, scale: float) -> float:
        """Return what the uint8 kernels multiply by at this scale of the weights.

        Source: tflite/kernels/kernel_util.cc GetQuantizedConvolutionMultipler
        """
        with np.errstate(over="ignore"):
            return float(np.float32(self.in_scale) * np.float32(scale)) / self.out_scale

    def rounds_alike(self, scale: float) -> bool:
        """Whether the uint8 kernels, at this scale, and the int8 kernels round every sum alike."""
        both = self.multiplier, self.float_multiplier(scale)
        return round_alike(*both, self.least, self.greatest)


@dataclass(frozen=True, slots=True)
class Signs:
    """One of the two directions."""

    source: str
    target: str
    # A layer -> its scale in the target type, where the kernels of both types round alike by it.
    scale_of: Callable[[Layer], float]
    several_scales: str  # what is said of weights that have them

    @property
    def by(self) -> int:
        """What a code becomes more by."""
        return 128 if self.target == "uint8" else -128


def converted(graph: Graph, notes: Notes | None, signs: Signs) -> Graph:
    """Return the graph with the nodes of one type converted; the same one where none can be."""
    notes = Notes() if notes is None else notes
    # Those that can be converted -> their weights in the target type, of layers.
    able = dict(found_at(graph.nodes, notes, lambda node: _weights(graph, node, signs)))
    chosen = _with_an_anchor(set(able), signs)
    for node in able:
        if node in chosen:
            notes.treated(node, signs.target)
        else:
            notes.left(node, "no convolution, layer or sum of the type is beside it")
    return _with_borders(graph, chosen, able, signs) if chosen else graph


def _quantised(node: Node, dtype: str) -> list[Tensor]:
    tensors = (*node.inputs, *node.outputs)
    return [t for t in tensors if t is not None and t.dtype == dtype and t.quantization]


def _weights(graph: Graph, node: Node, signs: Signs) -> tuple[Tensor, ...] | None:
    """Return a layer's weights in the target type, () for another node that can be of that type.

    None: the node has no number of the source type, or stands at a border of the types.
    """
    is_border = node.op == "QUANTIZE" and _quantised(node, signs.target)
    if is_border or not _quantised(node, signs.source):
        return None
    if node.is_custom or node.op not in VERSIONS:
        raise Left(f"{node.op} of {signs.target} is not known to compute the same")
    if not node.inputs or not node.outputs:
        raise Left("its inputs or outputs are left out")
    if node.op in LAYERS:
        _require_layer(node)
    _require_types(graph, node, signs)
    return (_converted_weights(node, signs),) if node.op in LAYERS else ()


def _require_layer(node: Node) -> None:
    """Require that a layer's weights and bias can be of another type."""
    weights = node.inputs[1] if len(node.inputs) in (2, 3) else None
    if weights is None or not node.inputs[0] or len(node.outputs) != 1:
        raise Left("weights are left out")
    if weights.quantization is None or not weights.shape:
        raise Left("weights without a scale")
    out_c = weights.shape[-1 if node.op == "DEPTHWISE_CONV_2D" else 0]
    for bias in node.inputs[2:]:
        if bias is not None and bias.data is None:
            raise Left("a bias that is computed")
        if bias is not None and (bias.dtype != "int32" or bias.shape != (out_c,)):
            raise Left(f"a bias of {bias.dtype} and of the shape {list(bias.shape)}")


def _require_types(graph: Graph, node: Node, signs: Signs) -> None:
    """Require that a node can be of the other type, but for a layer's weights."""
    numbers = [t for t in (*node.inputs, *node.outputs) if t is not None and t.dtype[-2:] != "32"]
    kinds = {t.dtype for t in (*node.inputs[:2], *node.outputs) if t is not None}
    if node.op in LAYERS and kinds != {signs.source}:
        raise Left(f"{' and '.join(sorted(kinds))}: hybrid or 16x8")
    if any(t.dtype not in (signs.source, "int64") for t in numbers):
        raise Left(f"tensors of {', '.join(sorted({t.dtype for t in numbers}))}")
    activations = _quantised(node, signs.source)
    if node.op in LAYERS:
        activations.remove(node.inputs[1])  # type: ignore[arg-type]
    for tensor in activations:
        require_one_scale(tensor)
        if tensor.is_sparse or tensor.is_variable or tensor in graph.changeable:
            raise Left(f"{tensor.name!r} is sparse, variable or set by a caller")
    if len(activations) < sum(t.dtype == signs.source for t in numbers) - (node.op in LAYERS):
        raise Left(f"{signs.source} without a scale")
    if node.op in _MOVED_UNCHANGED and len({t.quantization for t in activations}) != 1:
        raise Left(f"the uint8 kernel of {node.op} scales inputs otherwise")
    if node.op == "AVERAGE_POOL_2D" and not _counts_are_odd(node):
        raise Left("a window of an even number of pixels: means of both types round ties otherwise")


def _converted_weights(node: Node, signs: Signs) -> Tensor:
    """Return a layer's weights in the target type: of int8 the zero point is 0, of uint8 128."""
    source, weights, result = node.inputs[0], node.inputs[1], node.outputs[0]
    if weights is None or weights.data is None or weights.is_sparse:
        raise Left("weights that are computed or sparse")
    if source is None or source.quantization is None or result.quantization is None:
        raise Left("no scale")
    if weights.quantization is None or len(set(weights.quantization.scale)) != 1:
        raise Left(signs.several_scales)
    zero = quanta(weights)[1]
    if signs.source == "int8" and any(weights.quantization.zero_point):
        raise Left("int8 weights with a zero point other than 0")
    values = np.asarray(weights.data, np.int64) - zero
    if signs.target == "int8" and np.abs(values).max(initial=0) > 127:
        raise Left("weights farther than 127 from their zero point")
    in_scale, scale, out_scale = (quanta(each)[0] for each in (source, weights, result))
    layer = Layer(in_scale, scale, out_scale, *sums_of(node, values))
    if not stay_in_32_bits(layer.multiplier, layer.least, layer.greatest):
        raise Left("sums that leave 32 bits: kernels of both types treat them otherwise")
    # FULLY_CONNECTED's kernels of both types share the multiplier.
    if node.op != "FULLY_CONNECTED":
        scale = signs.scale_of(layer)
    moved = 128 if signs.target == "uint8" else 0
    quantization = Quantization((scale,), (moved,))
    data = (values + moved).astype(signs.target)
    name = f"{weights.name}/{signs.target}"
    return new_tensor(name, weights.shape, signs.target, quantization, data)


def _counts_are_odd(node: Node) -> bool:
    """Whether each window has an odd number of pixels, so that no mean is between two codes."""
    options, source, result = node.options, node.inputs[0], node.outputs[0]
    if source is None or len(source.shape) != 4 or len(result.shape) != 4:
        return False
    for axis, size, step in ((1, "filter_height", "stride_h"), (2, "filter_width", "stride_w")):
        reach = (result.shape[axis] - 1) * options[step] + options[size]
        if options[size] % 2 == 0 or reach > source.shape[axis]:  # some windows would be smaller
            return False
    return True


def _with_an_anchor(able: set[Node], signs: Signs) -> set[Node]:
    """Return the nodes that are joined to an anchor by tensors of the type."""
    of: dict[Tensor, list[Node]] = {}
    for node in able:
        for tensor in _quantised(node, signs.source):
            if tensor.data is None:
                of.setdefault(tensor, []).append(node)
    chosen = {node for node in able if node.op in _ANCHORS}
    waiting = list(chosen)
    while waiting:
        node = waiting.pop()
        for tensor in _quantised(node, signs.source):
            for other in of.get(tensor, ()):
                if other not in chosen:
                    chosen.add(other)
                    waiting.append(other)
    return chosen


def _with_borders(
    graph: Graph, chosen: set[Node], weights: Mapping[Node, tuple[Tensor, ...]], signs: Signs
) -> Graph:
    """Return the graph with the chosen nodes converted, and a QUANTIZE at each border.

    `weights`: of the layers among them, in the target type.
    """
    others = [node for node in graph.nodes if node not in chosen]
    ends = (t for node in others for t in (*node.inputs, *node.outputs) if t is not None)
    outside = {*graph.inputs, *graph.outputs, *ends}
    new: dict[Tensor, Tensor] = {}  # of the target type
    nodes: list[Node] = []
    for node in graph.nodes:
        if node not in chosen:
            nodes.append(node)
            continue
        for place, old in enumerate(node.inputs):
            if old is None or old.dtype != signs.source or old in new:
                continue
            if place != 1 or not weights[node]:
                new[old] = _moved(old, signs)
                nodes += [_quantize(old, new[old])] if old.data is None else []
        made = [old for old in node.outputs if old.dtype == signs.source]
        new.update((old, _moved(old, signs, is_same=old not in outside)) for old in made)
        step = node_with(node, new)
        if weights[node]:
            step = replace(step, inputs=(step.inputs[0], *weights[node], *step.inputs[2:]))
        if signs.target == "int8":
            step = replace(step, version=max(step.version, VERSIONS[step.op]))
        nodes += [step, *(_quantize(new[old], old) for old in made if old in outside)]
    return rebuilt(graph, nodes)


def _moved(old: Tensor, signs: Signs, is_same: bool = False) -> Tensor:
    """Return a tensor in the target type; `is_same`: it takes the place of the old one."""
    assert old.quantization is not None
    zero_points = tuple(zero + signs.by for zero in old.quantization.zero_point)
    quantization = replace(old.quantization, zero_point=zero_points)
    if is_same:
        return replace(old, dtype=signs.target, quantization=quantization)
    data = None
    if old.data is not None:
        data = (old.data.astype(np.int16) + signs.by).astype(signs.target)
    made = new_tensor(f"{old.name}/{signs.target}", old.shape, signs.target, quantization, data)
    return replace(made, shape_signature=old.shape_signature)


def _quantize(source: Tensor, result: Tensor) -> Node:
    return Node(-1, "QUANTIZE", 1, (source,), (result,))
