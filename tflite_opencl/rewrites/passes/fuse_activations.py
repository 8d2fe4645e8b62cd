# SPDX-License-Identifier: Apache-2.0
"""A clamp joins the node before it, and a clamp that changes nothing goes (exact).

    x -CONV_2D-> y -RELU6-> z              becomes        x -CONV_2D, RELU6-> z
    x -CONV_2D, RELU6-> y of 0 .. 5.9      becomes        x -CONV_2D-> y

A quantised clamp joins only if y and z have the same scale and zero point: else RELU rounds a
second time. A fused clamp goes where the output's type cannot hold what it would clamp, by the
integers that TFLite itself computes for it (kernel_util.cc, CalculateActivationRangeQuantized).
A RELU of its own goes the same way, and so does one after the same clamp.

It is for targets that know no RELU. Mesa's Teflon takes a fused one only where the output's range
implies it (tfl_device.c, fused_activation_supported).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.rewrites.editing import makers, only_reader, readers, rebuilt
from tflite_opencl.rewrites.notes import Notes
from tflite_opencl.rewrites.passes.convolutions import has_one_scale

_CLAMPS = ("RELU", "RELU6", "RELU_N1_TO_1")
# Ops whose kernels clamp by CalculateActivationRangeQuantized or CalculateActivationRange.
_FUSING = frozenset(
    {"ADD", "AVERAGE_POOL_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MAX_POOL_2D"}
    | {"MUL", "SUB"}
)
_FIELD = "fused_activation_function"
_QUANTISED = ("int8", "uint8", "int16")


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph with its clamps in other nodes; the same one where none can be."""
    notes = Notes() if notes is None else notes
    before = None
    while before is not graph:  # a clamp that goes makes room for the one after it
        before = graph
        while (fused := _joined(graph, notes, final=False)) is not graph:
            graph = fused
        graph = _without_implied(graph, notes)
    _joined(graph, notes, final=True)
    return graph


def _without_implied(graph: Graph, notes: Notes) -> Graph:
    """Return the graph without the fused clamps that change nothing."""
    nodes = []
    for node in graph.nodes:
        clamp = node.options.get(_FIELD, "NONE")
        if node.op not in _FUSING or clamp not in _CLAMPS or len(node.outputs) != 1:
            nodes.append(node)
            continue
        if _changes_nothing(node.outputs[0], clamp):
            notes.treated(node, f"{clamp} goes: the output's range implies it")
            node = replace(node, options={**node.options, _FIELD: "NONE"})
        nodes.append(node)
    return rebuilt(graph, nodes)


def _joined(graph: Graph, notes: Notes, final: bool) -> Graph:
    """Return the graph with one clamp less, the same one where none joins; `final`: say why."""
    made, read_by = makers(graph), readers(graph)
    for node in graph.nodes:
        arity = len(node.inputs), len(node.outputs)
        if node.op not in _CLAMPS or node.is_custom or arity != (1, 1):
            continue
        source, result = node.inputs[0], node.outputs[0]
        if source is None:
            continue
        maker = made.get(source)
        is_same = (source.dtype, source.quantization) == (result.dtype, result.quantization)
        others = [each for each in graph.nodes if each is not node]
        reason = "it changes the scale or the zero point" if not is_same else None
        if is_same and _changes_nothing(result, node.op) and result not in graph.outputs:
            notes.treated(node, "goes: the range of its input implies it")
            return rebuilt(graph, others, {result: source})
        if reason is None and only_reader(graph, read_by, source) is not node:
            reason = "its input is read elsewhere, too"
        if reason is None:
            reason = "no node makes its input" if maker is None else _reason(maker, node)
        if reason is not None:
            if final:
                notes.left(node, reason)
            continue
        assert maker is not None
        notes.treated(node, f"joins {maker.op}")
        options = {**maker.options, _FIELD: _both(maker, node.op)}
        one = replace(maker, outputs=node.outputs, options=options)
        return rebuilt(graph, [one if each is maker else each for each in others])
    return graph


def _reason(maker: Node, clamp: Node) -> str | None:
    """Return why a clamp cannot join the node before it."""
    result = maker.outputs[0]
    if maker.op not in _FUSING or maker.is_custom:
        return f"{maker.op} has no clamp of its own"
    if result.dtype not in (*_QUANTISED, "float32"):
        return f"{maker.op} clamps no {result.dtype}"
    types = {tensor.dtype for tensor in maker.inputs[:2] if tensor is not None}
    if result.dtype == "float32" and types != {"float32"}:
        return "hybrid weights"
    if _both(maker, clamp.op) is None:
        return f"{maker.op} clamps by {maker.options[_FIELD]} already"
    return None


def _both(maker: Node, clamp: str) -> str | None:
    """Return the one clamp that does what a node's own and a second one do; None: none does."""
    own = maker.options.get(_FIELD, "NONE")
    if own in ("NONE", clamp):
        return clamp
    if {own, clamp} == {"RELU", "RELU6"}:
        return "RELU6"
    return None


def _changes_nothing(result: Tensor, clamp: str) -> bool:
    """Whether a clamp is as wide as what the tensor's type can hold."""
    if result.dtype not in _QUANTISED or not has_one_scale(result):
        return False
    assert result.quantization is not None
    scale, zero_point = np.float32(result.quantization.scale[0]), result.quantization.zero_point[0]
    limits = np.iinfo(result.dtype)

    def quantum(real: float) -> float:
        # TfLiteRound of a float32 quotient: halves go away from zero. It may be infinite.
        with np.errstate(over="ignore"):
            exact = float(np.float32(real) / scale)
        return zero_point + float(np.copysign(np.floor(abs(exact) + 0.5), exact))

    least, greatest = {"RELU": (0.0, None), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0)}[clamp]
    return quantum(least) <= limits.min and (greatest is None or quantum(greatest) >= limits.max)
