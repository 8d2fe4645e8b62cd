# SPDX-License-Identifier: Apache-2.0
"""The pieces of random graphs: one node each, or a few that a pass may fuse.

Each op has a function here. The conformance suite's cases add others.
"""

from __future__ import annotations

import dataclasses
import math
from functools import cache

from delegate.inspect import Graph, Tensor
from tests.attacks.fuzz.drawing import Pen, Skip
from tests.attacks.fuzz.pieces import (
    functions,
    loops,
    moves,
    recurrent,
    required,
    sizes,
    sums,
    transformers,
)
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.models.build import Case

_MOST_ELEMENTS = 100_000  # of a case's tensors


@cache
def _cases() -> dict[str, list[Case]]:
    """Return the conformance suite's cases by op."""
    results: dict[str, list[Case]] = {}
    for case in all_cases():
        if case.check == "values" and not case.is_heavy:
            results.setdefault(case.op, []).append(case)
    return results


def of_the_suite(pen: Pen, op: str | None = None) -> None:
    """A node of a case of the conformance suite, which may read earlier tensors.

    `op`: the row of the suite's matrix, by default any.
    """
    cases = _cases()
    whole: Graph = pen.one_of(cases[op or pen.one_of(list(cases))]).make()
    if sum(math.prod(each.shape) for each in whole.tensors) > _MOST_ELEMENTS:
        raise Skip
    if pen.length > 1 and _remembers_floats(whole):
        raise Skip
    changed: dict[Tensor, Tensor] = {}
    for each in whole.inputs:
        like = (each.shape, each.dtype, each.quantization)
        results = [t for t in pen.pool if (t.shape, t.dtype, t.quantization) == like]
        if results and each.ranges is None:
            changed[each] = pen.one_of(results)
    for result in whole.nodes:
        inputs = tuple(None if t is None else changed.get(t, t) for t in result.inputs)
        pen.join(dataclasses.replace(result, inputs=inputs))


def _remembers_floats(whole: Graph) -> bool:
    return any(t.is_variable and t.dtype == "float32" for t in whole.tensors)


_OFTEN = (
    *functions.OFTEN, *moves.OFTEN, *recurrent.OFTEN, *required.OFTEN, *sizes.OFTEN,
    *sums.OFTEN, *transformers.OFTEN, *loops.OFTEN, (3, of_the_suite),
)  # fmt: skip
PIECES = tuple(function for count, function in _OFTEN for _ in range(count))
