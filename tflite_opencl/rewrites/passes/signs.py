# SPDX-License-Identifier: Apache-2.0
"""int8 -> uint8 and back: what signed_to_unsigned and unsigned_to_signed share.

A code and its zero point both move by 128, so that each stands for the number that it stood for.
Nodes are converted where the kernels of both types give the same then. A QUANTIZE that moves codes
alone stands where a converted node meets another one, or an input or output of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from delegate.inspect import Graph, Node, Quantization, Tensor
from tflite_opencl.rewrites.editing import new_tensor, rebuilt
from tflite_opencl.rewrites.notes import Notes
from tflite_opencl.rewrites.passes.convolutions import has_one_scale

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
BEYOND_32_BITS = "sums that leave 32 bits: kernels of both types treat them otherwise"
_MOVED_UNCHANGED = ("CONCATENATION",)  # its uint8 kernel scales inputs, its int8 kernel does not


@dataclass(frozen=True, slots=True)
class Signs:
    """One of the two directions."""

    source: str
    target: str
    # A layer -> its weights in the target type, or why there are none.
    weights_of: Callable[[Node], Tensor | str]

    @property
    def by(self) -> int:
        """What a code becomes more by."""
        return 128 if self.target == "uint8" else -128


def converted(graph: Graph, notes: Notes, signs: Signs) -> Graph:
    """Return the graph with the nodes of one type converted; the same one where none can be."""
    weights: dict[Node, Tensor] = {}
    able: set[Node] = set()
    for node in graph.nodes:
        if not _is_meant(node, signs):
            continue
        reason = _reason(graph, node, signs)
        if reason is None and node.op in LAYERS:
            made = signs.weights_of(node)
            if isinstance(made, str):
                reason = made
            else:
                weights[node] = made
        if reason is None:
            able.add(node)
        else:
            notes.left(node, reason)
    chosen = _with_an_anchor(graph, able, signs)
    for node in graph.nodes:
        if node in able and node not in chosen:
            notes.left(node, "no convolution, layer or sum of the type is beside it")
        elif node in chosen:
            notes.treated(node, signs.target)
    if not chosen:
        return graph
    return _Border(graph, chosen, weights, signs).rebuilt()


def _quantised(node: Node, dtype: str) -> list[Tensor]:
    tensors = (*node.inputs, *node.outputs)
    return [t for t in tensors if t is not None and t.dtype == dtype and t.quantization]


def _is_meant(node: Node, signs: Signs) -> bool:
    if node.op == "QUANTIZE" and _quantised(node, signs.target):
        return False  # a border
    return bool(_quantised(node, signs.source))


def _reason_of_layer(node: Node) -> str | None:
    """Return why a layer's weights and bias cannot be of another type; None where they can."""
    weights = node.inputs[1] if len(node.inputs) in (2, 3) else None
    if weights is None or not node.inputs[0] or len(node.outputs) != 1:
        return "weights are left out"
    if weights.quantization is None or not weights.shape:
        return "weights without a scale"
    out_c = weights.shape[-1 if node.op == "DEPTHWISE_CONV_2D" else 0]
    for bias in node.inputs[2:]:
        if bias is not None and bias.data is None:
            return "a bias that is computed"
        if bias is not None and (bias.dtype != "int32" or bias.shape != (out_c,)):
            return f"a bias of {bias.dtype} and of the shape {list(bias.shape)}"
    return None


def _reason(graph: Graph, node: Node, signs: Signs) -> str | None:
    """Return why a node cannot be of the other type; None where it can, but for its weights."""
    if node.is_custom or node.op not in VERSIONS:
        return f"{node.op} of {signs.target} is not known to compute the same"
    if not node.inputs or not node.outputs:
        return "its inputs or outputs are left out"
    if node.op in LAYERS and (reason := _reason_of_layer(node)) is not None:
        return reason
    numbers = [t for t in (*node.inputs, *node.outputs) if t is not None and t.dtype[-2:] != "32"]
    kinds = {t.dtype for t in (*node.inputs[:2], *node.outputs) if t is not None}
    if node.op in LAYERS and kinds != {signs.source}:
        return f"{' and '.join(sorted(kinds))}: hybrid or 16x8"
    if any(t.dtype not in (signs.source, "int64") for t in numbers):
        return f"tensors of {', '.join(sorted({t.dtype for t in numbers}))}"
    activations = _quantised(node, signs.source)
    if node.op in LAYERS:
        activations.remove(node.inputs[1])  # type: ignore[arg-type]
    for tensor in activations:
        if not has_one_scale(tensor):
            return f"{tensor.name!r} has not one scale and zero point of its type"
        if tensor.is_sparse or tensor.is_variable or tensor in graph.changeable:
            return f"{tensor.name!r} is sparse, variable or set by a caller"
    if len(activations) < sum(t.dtype == signs.source for t in numbers) - (node.op in LAYERS):
        return f"{signs.source} without a scale"
    if node.op in _MOVED_UNCHANGED and len({t.quantization for t in activations}) != 1:
        return f"the uint8 kernel of {node.op} scales inputs otherwise"
    if node.op == "AVERAGE_POOL_2D" and not _counts_are_odd(node):
        return "a window of an even number of pixels: means of both types round ties otherwise"
    return None


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


def _with_an_anchor(graph: Graph, able: set[Node], signs: Signs) -> set[Node]:
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


@dataclass(slots=True)
class _Border:
    """The nodes of a graph, those that are chosen converted, with a QUANTIZE at each border."""

    graph: Graph
    chosen: set[Node]
    weights: Mapping[Node, Tensor]
    signs: Signs
    new: dict[Tensor, Tensor] = field(default_factory=dict)  # of the target type
    nodes: list[Node] = field(default_factory=list)

    def rebuilt(self) -> Graph:
        """Return the new graph."""
        seen_outside = set(self.graph.outputs) | set(self.graph.inputs)
        for node in self.graph.nodes:
            if node not in self.chosen:
                seen_outside.update(t for t in (*node.inputs, *node.outputs) if t is not None)
        for node in self.graph.nodes:
            if node not in self.chosen:
                self.nodes.append(node)
                continue
            step = replace(
                node,
                inputs=tuple(self._read(node, place) for place in range(len(node.inputs))),
                outputs=tuple(self._made(t, t in seen_outside) for t in node.outputs),
            )
            if self.signs.target == "int8":
                step = replace(step, version=max(step.version, VERSIONS[step.op]))
            self.nodes.append(step)
            for old in node.outputs:
                if old in seen_outside and old in self.new:
                    self.nodes.append(_quantize(self.new[old], old))
        return rebuilt(self.graph, self.nodes)

    def _read(self, node: Node, place: int) -> Tensor | None:
        old = node.inputs[place]
        if old is None or old.dtype != self.signs.source:
            return old
        if place == 1 and node in self.weights:
            return self.weights[node]
        if old not in self.new:
            self.new[old] = self._moved(old, is_same=False)
            if old.data is None:
                self.nodes.append(_quantize(old, self.new[old]))
        return self.new[old]

    def _made(self, old: Tensor, is_seen: bool) -> Tensor:
        if old.dtype != self.signs.source:
            return old
        self.new[old] = self._moved(old, is_same=not is_seen)
        return self.new[old]

    def _moved(self, old: Tensor, is_same: bool) -> Tensor:
        assert old.quantization is not None
        by, dtype = self.signs.by, self.signs.target
        (zero_point,) = old.quantization.zero_point
        moved = replace(old.quantization, zero_point=(zero_point + by,))
        if is_same:
            return replace(old, dtype=dtype, quantization=moved)
        data = None if old.data is None else (old.data.astype(np.int16) + by).astype(dtype)
        made = new_tensor(f"{old.name}/{dtype}", old.shape, dtype, moved, data)
        return replace(made, shape_signature=old.shape_signature)


def _quantize(source: Tensor, result: Tensor) -> Node:
    return Node(-1, "QUANTIZE", 1, (source,), (result,))


def one_scale(weights: Tensor) -> float | None:
    """Return the scale of weights that have one, or the same for all channels."""
    scales = set(weights.quantization.scale) if weights.quantization else set()
    return scales.pop() if len(scales) == 1 else None


def with_values(weights: Tensor, dtype: str, scale: float, zero_point: int, by: int) -> Tensor:
    """Return weights with each code more by `by`, of another type and quantisation."""
    data = (np.asarray(weights.data).astype(np.int16) + by).astype(dtype)
    quantization = Quantization((scale,), (zero_point,))
    return new_tensor(f"{weights.name}/{dtype}", weights.shape, dtype, quantization, data)
