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

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from delegate.graph.def_use import DefUse
from delegate.inspect import Graph, Node, Tensor
from delegate.ops._numbers.fixed_point import clamped, quantize_multiplier
from tflite_opencl.rewrites.changes import (
    Change,
    Left,
    Notes,
    changed_one_by_one,
    is_op,
    quanta,
    same_quanta,
)
from tflite_opencl.rewrites.passes.convolutions import convolution_of, has_scales
from tflite_opencl.rewrites.passes.layers import never_clamped_between
from tflite_opencl.rewrites.passes.rounding import ROUNDINGS

_INTEGERS = ("uint8", "int8", "int16")
# Source: tflite/kernels/quantize.cc Prepare; others may exist in some versions.
_PAIRS = {
    *((source, result) for source in ("uint8", "int8") for result in ("uint8", "int8")),
    ("int16", "int8"),
    ("int16", "int16"),
}


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph without the QUANTIZEs that change no number; the same one if there are none.

    One at a time, as what follows one may have become exact by it.
    """
    return changed_one_by_one(graph, notes, _change)


def _change(graph: Graph, links: DefUse, node: Node) -> Change | None:
    """Return what becomes of the graph without a QUANTIZE from quantised numbers."""
    if not is_op(node, "QUANTIZE", 1):
        return None
    source, result = node.inputs[0], node.outputs[0]
    before = links.producer(source)
    if source is None or before is None or not (_is_quantised(source) and _is_quantised(result)):
        return None
    if same_quanta(source, result):
        return _without(graph, node, source)
    if before.op == "QUANTIZE" and not before.is_custom and len(before.inputs) == 1:
        return _from_further(links, before, node, source)
    conv = convolution_of(before)
    if conv is None:
        raise Left(f"{before.op} rounds to other quanta before it")
    if links.sole_consumer(source) is None:
        raise Left(f"the result of {before.op} is an output, or read by others, too")
    try:
        conv.require_treatable(graph)
    except Left as reason:
        raise Left(f"{before.op} before it: {reason}") from None
    if source.dtype != result.dtype or quanta(source)[0] != quanta(result)[0]:
        raise Left(f"{before.op} rounds to other quanta before it")
    if not never_clamped_between(graph, conv, result):
        raise Left(f"{before.op} clamps to another range before it")
    moved = replace(before, outputs=(result,))
    return Change(f"{before.op} has its zero point", {before: [moved], node: []})


def _is_quantised(tensor: Tensor) -> bool:
    return tensor.dtype in _INTEGERS and has_scales(tensor, 1)


def _without(graph: Graph, node: Node, source: Tensor) -> Change:
    """Leave out a QUANTIZE that changes nothing."""
    result = node.outputs[0]
    if result in graph.outputs and source in graph.outputs:
        raise Left("it changes nothing, but its input and its output are outputs of the graph")
    gone, stays = (source, result) if result in graph.outputs else (result, source)
    return Change("it changes nothing", {node: []}, {gone: stays})


def _from_further(links: DefUse, before: Node, node: Node, source: Tensor) -> Change:
    """Let a QUANTIZE read what the QUANTIZE before it reads."""
    first, result = before.inputs[0], node.outputs[0]
    if first is None or not _is_quantised(first):
        raise Left("QUANTIZE from floats before it: the greatest floats may differ")
    if (first.dtype, result.dtype) not in _PAIRS:
        raise Left(f"TFLite has no QUANTIZE from {first.dtype} to {result.dtype}")
    limits = np.iinfo(first.dtype)
    codes = np.arange(int(limits.min), int(limits.max) + 1, dtype=np.int64)
    for multiply in ROUNDINGS:
        middle = _requantized(codes, first, source, multiply)
        twice = _requantized(middle, source, result, multiply)
        directly = _requantized(codes, first, result, multiply)
        if (different := int((twice != directly).sum())) > 0:
            share = f"{different} of {len(codes)} codes"
            raise Left(f"QUANTIZE rounds before it, and {share} would differ")
    gone = {before: ()} if links.sole_consumer(source) is node else {}
    reading = replace(node, version=max(before.version, node.version), inputs=(first,))
    return Change("from the input of the QUANTIZE before it", {**gone, node: (reading,)})


def _requantized(
    codes: NDArray[np.int64],
    source: Tensor,
    result: Tensor,
    multiply: Callable[[NDArray[np.int64], int, int], NDArray[np.int64]],
) -> NDArray[np.int64]:
    """Return the codes of `result`; raise Left where 32 bits do not hold what is computed."""
    (in_scale, in_zero), (out_scale, out_zero) = quanta(source), quanta(result)
    multiplier, shift = quantize_multiplier(in_scale / out_scale)
    if abs(shift) > 14:
        raise Left("QUANTIZE before it: a scale beyond what is known here")
    return clamped(multiply(codes - in_zero, multiplier, shift) + out_zero, result.dtype)
