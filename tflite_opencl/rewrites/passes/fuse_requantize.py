# SPDX-License-Identifier: Apache-2.0
"""A QUANTIZE from quantised numbers to others goes into what is before it, where that is exact.

    x -OP-> t -QUANTIZE-> y        becomes        x -OP-> y

OP rounds to the quanta of t and clamps, QUANTIZE rounds again to those of y. One rounding gives
other numbers than two, so a QUANTIZE stays unless one of these holds:

- t and y have the same quanta: QUANTIZE changes nothing, whatever is before it.
- OP is a convolution, and t and y differ in the zero point alone: QUANTIZE does not round. It is
  exact if t clamps nothing that y would hold: its activation function clamps it as well, or the
  weights prove that it is never reached.
- OP is a QUANTIZE from integers: all codes of x are tried, at most 65,536 of them.

Source of the arithmetic: tflite/kernels/internal/reference/requantize.h, by both ways to round that
TFLite can be built with. Targets save a copy of the tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Node, Tensor
from delegate.ops._numbers.fixed_point import (
    multiply_by_quantized_multiplier,
    multiply_by_quantized_multiplier_once,
    quantize_multiplier,
)
from tflite_opencl.rewrites.editing import makers, only_reader, readers, rebuilt
from tflite_opencl.rewrites.notes import Notes
from tflite_opencl.rewrites.passes.convolutions import (
    has_one_scale,
    is_convolution,
    reason_to_leave,
    same_quanta,
)
from tflite_opencl.rewrites.passes.layers import never_clamped_between

_INTEGERS = ("uint8", "int8", "int16")
# Source: tflite/kernels/quantize.cc Prepare; others may exist in some versions.
_PAIRS = {
    *((source, result) for source in ("uint8", "int8") for result in ("uint8", "int8")),
    ("int16", "int8"),
    ("int16", "int16"),
}


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """What becomes of a graph for one QUANTIZE."""

    text: str
    nodes: dict[Node, Node | None]  # a node -> what is in its place
    tensors: dict[Tensor, Tensor] = field(default_factory=dict)  # as in `rebuilt`


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph without the QUANTIZEs that change no number; the same one if there are none.

    One at a time, as what follows one may have become exact by it.
    """
    notes = Notes() if notes is None else notes
    given = graph.nodes  # at each position the node that the pass was given
    while True:
        change = None
        left = []
        for node in _candidates(graph):
            change = _change(graph, node)
            if isinstance(change, _Change):
                break
            left.append((node, change))
        if not isinstance(change, _Change):
            for each, reason in left:
                notes.left(given[each.index], reason)
            return graph
        notes.treated(given[node.index], change.text)
        steps = [(old, change.nodes.get(old, old)) for old in graph.nodes]
        given = tuple(given[old.index] for old, step in steps if step is not None)
        nodes = [step for _, step in steps if step is not None]
        graph = rebuilt(graph, nodes, change.tensors)


def _candidates(graph: Graph) -> Iterator[Node]:
    """Yield the QUANTIZEs from quantised numbers that something makes."""
    made = makers(graph)
    for node in graph.nodes:
        if (
            node.op != "QUANTIZE"
            or node.is_custom
            or (len(node.inputs), len(node.outputs)) != (1, 1)
        ):
            continue
        source, result = node.inputs[0], node.outputs[0]
        if source is None or source not in made or not _is_quantised(source):
            continue
        if _is_quantised(result):
            yield node


def _is_quantised(tensor: Tensor) -> bool:
    return tensor.dtype in _INTEGERS and has_one_scale(tensor)


def _change(graph: Graph, node: Node) -> _Change | str:
    """Return what becomes of the graph without this QUANTIZE, or why it stays."""
    source, result = node.inputs[0], node.outputs[0]
    assert source is not None
    before = makers(graph)[source]
    if same_quanta(source, result):
        return _without(graph, node)
    if before.op == "QUANTIZE" and not before.is_custom and len(before.inputs) == 1:
        return _from_further(graph, before, node)
    if not is_convolution(before):
        return f"{before.op} rounds to other quanta before it"
    if only_reader(graph, readers(graph), source) is None:
        return f"the result of {before.op} is an output, or read by others, too"
    if (reason := reason_to_leave(graph, before)) is not None:
        return f"{before.op} before it: {reason}"
    assert source.quantization is not None
    assert result.quantization is not None
    if source.dtype != result.dtype or source.quantization.scale != result.quantization.scale:
        return f"{before.op} rounds to other quanta before it"
    if not never_clamped_between(graph, before, result):
        return f"{before.op} clamps to another range before it"
    moved = replace(before, outputs=(result,))
    return _Change(f"{before.op} has its zero point", {before: moved, node: None})


def _without(graph: Graph, node: Node) -> _Change | str:
    """Return the graph where a QUANTIZE that changes nothing is left out."""
    source, result = node.inputs[0], node.outputs[0]
    assert source is not None
    text = "it changes nothing"
    if result not in graph.outputs:
        return _Change(text, {node: None}, {result: source})
    if source in graph.outputs:
        return "it changes nothing, but its input and its output are outputs of the graph"
    return _Change(text, {node: None}, {source: result})


def _from_further(graph: Graph, before: Node, node: Node) -> _Change | str:
    """Return the graph where a QUANTIZE reads what the QUANTIZE before it reads."""
    first, source, result = before.inputs[0], node.inputs[0], node.outputs[0]
    if first is None or source is None or not _is_quantised(first):
        return "QUANTIZE from floats before it: the greatest floats may differ"
    if (first.dtype, result.dtype) not in _PAIRS:
        return f"TFLite has no QUANTIZE from {first.dtype} to {result.dtype}"
    limits = np.iinfo(first.dtype)
    codes = np.arange(int(limits.min), int(limits.max) + 1, dtype=np.int64)
    for is_once in (False, True):
        middle = _requantized(codes, first, source, is_once)
        twice = None if middle is None else _requantized(middle, source, result, is_once)
        directly = _requantized(codes, first, result, is_once)
        if twice is None or directly is None:
            return "QUANTIZE before it: a scale beyond what is known here"
        if (different := int((twice != directly).sum())) > 0:
            return f"QUANTIZE rounds before it, and {different} of {len(codes)} codes would differ"
    alone = only_reader(graph, readers(graph), source) is node
    gone: dict[Node, Node | None] = {before: None} if alone else {}
    reading = replace(node, version=max(before.version, node.version), inputs=(first,))
    return _Change("from the input of the QUANTIZE before it", {**gone, node: reading})


def _requantized(
    codes: NDArray[np.int64], source: Tensor, result: Tensor, is_once: bool
) -> NDArray[np.int64] | None:
    """Return the codes of `result`; None where 32 bits do not hold what is computed."""
    assert source.quantization is not None
    assert result.quantization is not None
    real = source.quantization.scale[0] / result.quantization.scale[0]
    multiplier, shift = quantize_multiplier(real)
    if abs(shift) > 14:
        return None
    multiply = (
        multiply_by_quantized_multiplier_once if is_once else multiply_by_quantized_multiplier
    )
    values = multiply(codes - source.quantization.zero_point[0], multiplier, shift)
    limits = np.iinfo(result.dtype)
    moved = values + result.quantization.zero_point[0]
    return np.asarray(np.clip(moved, int(limits.min), int(limits.max)))
