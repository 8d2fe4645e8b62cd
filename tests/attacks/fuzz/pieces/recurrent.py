# SPDX-License-Identifier: Apache-2.0
"""Ops that remember. Of floats only alone: the bounds of other graphs know no runs before."""

from __future__ import annotations

from tests.attacks.fuzz.drawing import Pen, Skip
from tflite_opencl.conformance.cases.recurrent import lstm, svdf


def _kind(pen: Pen, kinds: tuple[str, ...]) -> str:
    kind = pen.one_of(("int8", *kinds))
    if kind != "int8" and pen.length > 1:
        raise Skip
    return kind


def filters(pen: Pen) -> None:
    """SVDF."""
    kind = _kind(pen, ("hybrid", "float32"))
    sizes = pen.one_of((1, 1, 2, 3)), *(pen.one_of((1, 3, 8, 17, 33, 64)) for _ in range(2))
    shape = (*sizes, pen.one_of((1, 2, 4)), pen.one_of((1, 2, 5, 9)))
    made = svdf(kind, shape, pen.may(0.8), kind == "hybrid" and pen.may(0.5))
    pen.join(made.nodes[0])


def cells(pen: Pen) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM and LSTM."""
    kind = _kind(pen, ("float32",))
    shape = pen.one_of((1, 1, 2, 3)), pen.one_of((1, 2, 5)), *(
        pen.one_of((1, 3, 8, 17, 33)) for _ in range(2)
    )  # fmt: skip
    forms = ("plain", "cifg", "peephole", "projection", "cifg-peephole-projection")
    op = pen.one_of(("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"))
    pen.join(lstm(kind, shape, pen.one_of(forms), pen.may(0.5), op).nodes[0])


OFTEN = ((2, filters), (2, cells))
