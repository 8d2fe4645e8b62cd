# SPDX-License-Identifier: Apache-2.0
"""Ops with state. Float ones only alone, because other graphs' bounds ignore earlier runs."""

from __future__ import annotations

from tests.attacks.fuzz.drawing import Pen, Skip
from tflite_opencl.conformance.cases.recurrent import basic_lstm, both_lstm, lstm, svdf
from tflite_opencl.conformance.cases.rnns import rnn


def _kind(pen: Pen, kinds: tuple[str, ...]) -> str:
    kind = pen.one_of(("int8", *kinds))
    if kind != "int8" and pen.length > 1:
        raise Skip
    return kind


def filters(pen: Pen) -> None:
    """SVDF."""
    kind = _kind(pen, ("hybrid", "float32"))
    sizes = pen.one_of((1, 1, 2, 3)), *(pen.one_of((1, 3, 8, 17, 33, 64)) for _ in range(2))
    shape = (*sizes, pen.one_of((1, 2, 4, 9)), pen.one_of((1, 2, 5, 9, 37)))
    result = svdf(kind, shape, pen.may(0.8), kind == "hybrid" and pen.may(0.5))
    pen.join(result.nodes[0])


def _shape(pen: Pen) -> tuple[int, int, int, int]:
    """Draw rows, steps, depth and cells."""
    depth, cells = (pen.one_of((1, 3, 8, 17, 33)) for _ in range(2))
    return pen.one_of((1, 1, 2, 3)), pen.one_of((1, 2, 5)), depth, cells


def _form(pen: Pen, kind: str, forms: tuple[str, ...]) -> str:
    return pen.one_of(forms) + ("-asymmetric" if kind == "hybrid" and pen.may(0.5) else "")


def cells(pen: Pen) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM and LSTM."""
    kind, shape = _kind(pen, ("hybrid", "float32")), _shape(pen)
    forms = (*_FORMS, "norm", "norm-peephole", "cifg-norm-projection")
    if kind == "float32" and pen.may(0.2):
        pen.join(basic_lstm((shape[0], *shape[2:])).nodes[0])
        return
    op = pen.one_of(("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"))
    pen.join(lstm(kind, shape, _form(pen, kind, forms), pen.may(0.5), op).nodes[0])


def cells_in_both_directions(pen: Pen) -> None:
    """BIDIRECTIONAL_SEQUENCE_LSTM."""
    if pen.length > 1:
        raise Skip
    kind, shape = pen.one_of(("hybrid", "float32")), _shape(pen)
    is_time_major = pen.may(0.5)
    # TFLite merges outputs of several rows wrongly unless time_major.
    is_merged = pen.may(0.5) and (is_time_major or shape[0] == 1)
    form = _form(pen, kind, _FORMS) + pen.one_of(("", "", "-auxiliary", "-linked"))
    pen.join(both_lstm(kind, shape, form, is_merged, is_time_major).nodes[0])


def units(pen: Pen) -> None:
    """RNN and its sequence ops."""
    if pen.length > 1:
        raise Skip
    kind = pen.one_of(("hybrid", "float32"))
    op = pen.one_of(("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN"))
    is_both = op.startswith("BI")
    forms = ("", "-merged", "-auxiliary") if is_both else ("",)
    form = _form(pen, kind, forms)
    # TFLite is wrong for hybrid bidirectional ones that are time_major.
    if op != "RNN" and not (is_both and kind == "hybrid") and pen.may(0.5):
        form += "-time_major"
    function = pen.one_of(("NONE", "RELU", "RELU6", "RELU_N1_TO_1", "TANH"))
    pen.join(rnn(kind, _shape(pen), function, op, form).nodes[0])


_FORMS = ("plain", "cifg", "peephole", "projection", "cifg-peephole-projection")
OFTEN = ((2, filters), (2, cells), (1, cells_in_both_directions), (1, units))
