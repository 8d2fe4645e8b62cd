# SPDX-License-Identifier: Apache-2.0
"""Outputs that depend on a row with NaN that a hybrid node quantises: they are unspecified.

TFLite finds a row's range with comparisons that ignore the values before a NaN or keep it,
depending on the processor's vectors. The results are arbitrary and mostly finite.
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
    """Return for each input set the outputs that depend on such a row.

    With state, rows of earlier sets count, too.
    """
    result = inlined(whole)
    keeps = any(tensor.is_variable for tensor in result.tensors)
    rows = [each for node in result.nodes if _quantises(node) for each in _rows(node)]
    results: set[Tensor] = set()
    places: list[list[bool]] = []
    for inputs in sets:
        known = known_values(run, result, inputs, rows) if rows else {}
        results = results if keeps else set()
        for node in result.nodes:
            if not results.isdisjoint(node.inputs) or (_quantises(node) and _has_nan(node, known)):
                results.update(node.outputs)
        places.append([each in results for each in result.outputs])
    return places


def _quantises(node: Node) -> bool:
    """Whether a node quantises its float input to int8."""
    kinds = {each.dtype for each in node.inputs if each is not None}
    is_float = any(each.dtype in _FLOATS for each in node.outputs)
    return is_float and bool(kinds & _FLOATS) and bool(kinds & {"int8", *BITS})


def _rows(node: Node) -> list[Tensor]:
    """Return the floats that a node quantises; with state also its earlier outputs."""
    given = [*node.inputs, *(node.outputs if node.op in WRITES else ())]
    return [
        each
        for each in given
        if each is not None and each.dtype in _FLOATS and each.data is None and not each.is_variable
    ]


def _has_nan(node: Node, known: Values) -> bool:
    return any(each in known and bool(np.isnan(known[each]).any()) for each in _rows(node))
