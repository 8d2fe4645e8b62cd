# SPDX-License-Identifier: Apache-2.0
"""Fuses clamps into the node before, and removes clamps without effect (exact).

    x -CONV_2D-> y -RELU6-> z              becomes        x -CONV_2D, RELU6-> z
    x -CONV_2D, RELU6-> y of 0 .. 5.9      becomes        x -CONV_2D-> y

A quantised clamp is fused only if y and z have the same scale and zero point: otherwise RELU
rounds again. A fused clamp is removed if the output's type cannot exceed it, by the
integers that TFLite itself computes for it (kernel_util.cc, CalculateActivationRangeQuantized).
A RELU node is removed likewise, and so is one after the same clamp.

For targets without RELU. Mesa's Teflon accepts a fused one only if the output's range
implies it (tfl_device.c, fused_activation_supported).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from delegate.graph.def_use import DefUse
from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.rewrites.changes import Change, NoMatch, Notes, changed_one_by_one, is_op
from tflite_opencl.rewrites.passes.convolutions import has_scales
from tflite_opencl.rewrites.passes.layers import CLAMPS, clamp_codes

# Ops whose kernels clamp by CalculateActivationRangeQuantized or CalculateActivationRange.
_FUSING = frozenset(
    {"ADD", "AVERAGE_POOL_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MAX_POOL_2D"}
    | {"MUL", "SUB"}
)
_FIELD = "fused_activation_function"
_QUANTISED = ("int8", "uint8", "int16")


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph with its clamps fused; the same object if none can be."""
    return changed_one_by_one(graph, notes, _joined, _without_implied)


def _without_implied(graph: Graph, links: DefUse, node: Node) -> Change | None:
    """Remove a fused clamp without effect, to make room for the one after it."""
    clamp = node.options.get(_FIELD, "NONE")
    if node.op not in _FUSING or clamp not in CLAMPS or len(node.outputs) != 1:
        return None
    if not _changes_nothing(node.outputs[0], clamp):
        return None
    plain = replace(node, options={**node.options, _FIELD: "NONE"})
    return Change(f"{clamp} goes: the output's range implies it", {node: [plain]})


def _joined(graph: Graph, links: DefUse, node: Node) -> Change | None:
    """Fuse a clamp into the node before it, or remove it."""
    source, *_ = node.inputs or (None,)
    if node.op not in CLAMPS or not is_op(node, node.op, 1) or source is None:
        return None
    result = node.outputs[0]
    if (source.dtype, source.quantization) != (result.dtype, result.quantization):
        raise NoMatch("it changes the scale or the zero point")
    if _changes_nothing(result, node.op) and result not in graph.outputs:
        return Change("goes: the range of its input implies it", {node: []}, {result: source})
    if links.sole_consumer(source) is not node:
        raise NoMatch("its input is read elsewhere, too")
    maker = links.producer(source)
    if maker is None:
        raise NoMatch("no node makes its input")
    options = {**maker.options, _FIELD: _clamp_with(maker, node.op)}
    one = replace(maker, outputs=node.outputs, options=options)
    return Change(f"joins {maker.op}", {maker: [one], node: []})


def _clamp_with(maker: Node, clamp: str) -> str:
    """Return the fused clamp of a node and the clamp after it."""
    result = maker.outputs[0]
    if maker.op not in _FUSING or maker.is_custom:
        raise NoMatch(f"{maker.op} has no clamp of its own")
    if result.dtype not in (*_QUANTISED, "float32"):
        raise NoMatch(f"{maker.op} clamps no {result.dtype}")
    types = {tensor.dtype for tensor in maker.inputs[:2] if tensor is not None}
    if result.dtype == "float32" and types != {"float32"}:
        raise NoMatch("hybrid weights")
    own = maker.options.get(_FIELD, "NONE")
    if own in ("NONE", clamp):
        return clamp
    if {own, clamp} == {"RELU", "RELU6"}:
        return "RELU6"
    raise NoMatch(f"{maker.op} clamps by {own} already")


def _changes_nothing(result: Tensor, clamp: str) -> bool:
    """Whether a clamp is at least as wide as the tensor's type."""
    if result.dtype not in _QUANTISED or not has_scales(result, 1):
        return False
    limits, (low, high) = np.iinfo(result.dtype), clamp_codes(result, clamp)
    return low <= limits.min and high >= limits.max
