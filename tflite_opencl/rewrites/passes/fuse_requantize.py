# SPDX-License-Identifier: Apache-2.0
"""Fuses a requantising QUANTIZE into the node before, if that is exact.

    x -OP-> t -QUANTIZE-> y        becomes        x -OP-> y

OP rounds to the quanta of t and clamps, QUANTIZE rounds again to those of y. Rounding once gives
different results, so a QUANTIZE is left unless one of these holds:

- t and y have the same quanta: QUANTIZE has no effect, whatever precedes it.
- OP is a convolution, and t and y differ only in the zero point: QUANTIZE does not round. It is
  exact if t does not clamp values that y can represent: its activation clamps them as well, or
  the weights prove that they are never reached.
- OP is a QUANTIZE from integers: all values of x are tested, at most 65,536 of them.

Source of the arithmetic: tflite/kernels/internal/reference/requantize.h, in both rounding modes
that TFLite can be built with. Targets save a copy of the tensor.
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
    NoMatch,
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
# Source: tflite/kernels/quantize.cc Prepare; some versions may support others.
_PAIRS = {
    *((source, result) for source in ("uint8", "int8") for result in ("uint8", "int8")),
    ("int16", "int8"),
    ("int16", "int16"),
}


def rewrite(graph: Graph, notes: Notes | None = None) -> Graph:
    """Return the graph without QUANTIZEs that change no value; the same object if there are none.

    One at a time, since each may make the next one exact.
    """
    return changed_one_by_one(graph, notes, _change)


def _change(graph: Graph, links: DefUse, node: Node) -> Change | None:
    """Return the change that removes a requantising QUANTIZE."""
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
        raise NoMatch(f"{before.op} rounds to other quanta before it")
    if links.sole_consumer(source) is None:
        raise NoMatch(f"the result of {before.op} is an output, or read by others, too")
    try:
        conv.require_treatable(graph)
    except NoMatch as reason:
        raise NoMatch(f"{before.op} before it: {reason}") from None
    if source.dtype != result.dtype or quanta(source)[0] != quanta(result)[0]:
        raise NoMatch(f"{before.op} rounds to other quanta before it")
    if not never_clamped_between(graph, conv, result):
        raise NoMatch(f"{before.op} clamps to another range before it")
    moved = replace(before, outputs=(result,))
    return Change(f"{before.op} has its zero point", {before: [moved], node: []})


def _is_quantised(tensor: Tensor) -> bool:
    return tensor.dtype in _INTEGERS and has_scales(tensor, 1)


def _without(graph: Graph, node: Node, source: Tensor) -> Change:
    """Remove a QUANTIZE without effect."""
    result = node.outputs[0]
    if result in graph.outputs and source in graph.outputs:
        raise NoMatch("it changes nothing, but its input and its output are outputs of the graph")
    gone, stays = (source, result) if result in graph.outputs else (result, source)
    return Change("it changes nothing", {node: []}, {gone: stays})


def _from_further(links: DefUse, before: Node, node: Node, source: Tensor) -> Change:
    """Make a QUANTIZE read the input of the QUANTIZE before."""
    first, result = before.inputs[0], node.outputs[0]
    if first is None or not _is_quantised(first):
        raise NoMatch("QUANTIZE from floats before it: the greatest floats may differ")
    if (first.dtype, result.dtype) not in _PAIRS:
        raise NoMatch(f"TFLite has no QUANTIZE from {first.dtype} to {result.dtype}")
    limits = np.iinfo(first.dtype)
    codes = np.arange(int(limits.min), int(limits.max) + 1, dtype=np.int64)
    for multiply in ROUNDINGS:
        middle = _requantized(codes, first, source, multiply)
        twice = _requantized(middle, source, result, multiply)
        directly = _requantized(codes, first, result, multiply)
        if (different := int((twice != directly).sum())) > 0:
            share = f"{different} of {len(codes)} codes"
            raise NoMatch(f"QUANTIZE rounds before it, and {share} would differ")
    gone = {before: ()} if links.sole_consumer(source) is node else {}
    reading = replace(node, version=max(before.version, node.version), inputs=(first,))
    return Change("from the input of the QUANTIZE before it", {**gone, node: (reading,)})


def _requantized(
    codes: NDArray[np.int64],
    source: Tensor,
    result: Tensor,
    multiply: Callable[[NDArray[np.int64], int, int], NDArray[np.int64]],
) -> NDArray[np.int64]:
    """Return the values of `result`; raise Left if the computation overflows 32 bits."""
    (in_scale, in_zero), (out_scale, out_zero) = quanta(source), quanta(result)
    multiplier, shift = quantize_multiplier(in_scale / out_scale)
    if abs(shift) > 14:
        raise NoMatch("QUANTIZE before it: a scale beyond what is known here")
    return clamped(multiply(codes - in_zero, multiplier, shift) + out_zero, result.dtype)
