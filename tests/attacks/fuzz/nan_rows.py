# SPDX-License-Identifier: Apache-2.0
"""Which outputs follow from a row with NaN that a hybrid node makes int8: nobody promises them.

TFLite finds the range of a row by comparisons that forget what came before a NaN, or stay at it, as
the processor's vectors have it. So other numbers come out, which are finite mostly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delegate.inspect import BITS, WRITES, Graph, Node, Tensor
from tflite_opencl.oracle.absolute import inlined
from tflite_opencl.oracle.bounds import Run, Values, known_values
from tflite_opencl.oracle.values import Arrays

_FLOATS = {"float16", "float32"}


def outputs_of_nan_rows(run: Run, whole: Graph, sets: Sequence[Arrays]) -> list[list[bool]]:
    """Return for each set of inputs which outputs follow from such a row.

    In a graph with state also those of a row of an earlier set.
    """
    made = inlined(whole)
    keeps = any(tensor.is_variable for tensor in made.tensors)
    rows = [each for node in made.nodes if _quantises(node) for each in _rows(node)]
    found: set[Tensor] = set()
    places: list[list[bool]] = []
    for inputs in sets:
        known = known_values(run, made, inputs, rows) if rows else {}
        found = found if keeps else set()
        for node in made.nodes:
            if not found.isdisjoint(node.inputs) or (_quantises(node) and _has_nan(node, known)):
                found.update(node.outputs)
        places.append([each in found for each in made.outputs])
    return places


def _quantises(node: Node) -> bool:
    """Whether a node makes int8 of the floats that it reads."""
    kinds = {each.dtype for each in node.inputs if each is not None}
    is_float = any(each.dtype in _FLOATS for each in node.outputs)
    return is_float and bool(kinds & _FLOATS) and bool(kinds & {"int8", *BITS})


def _rows(node: Node) -> list[Tensor]:
    """Return the floats that a node makes int8: an op with state also what it gave before."""
    given = [*node.inputs, *(node.outputs if node.op in WRITES else ())]
    return [
        each
        for each in given
        if each is not None and each.dtype in _FLOATS and each.data is None and not each.is_variable
    ]


def _has_nan(node: Node, known: Values) -> bool:
    return any(each in known and bool(np.isnan(known[each]).any()) for each in _rows(node))
