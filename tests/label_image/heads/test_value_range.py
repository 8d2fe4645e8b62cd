# SPDX-License-Identifier: Apache-2.0
"""What a model's last ops and its quantisation say of its outputs, before any run."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from delegate.inspect import Graph, Node, Tensor, infer, read_model
from label_image.decode_outputs import Meaning
from label_image.heads.value_range import value_range_of
from label_image.heads.view import Ambiguity, View
from tests.support.model import const, graph_of, op, t
from tests.support.views import view_of
from tests.support.yolo import yolo
from tflite_opencl.conformance.cases import all_cases

CONVERTED = Path(__file__).resolve().parents[3] / "../shared/models/converters/yolov8n_s8.tflite"
PICTURE = t((1, 64, 64, 3))


def after(*ops: tuple[str, Sequence[float]], shape: tuple[int, ...] = (1, 8, 8, 3)) -> Graph:
    """Return a graph of a convolution and these ops after it, with their constants."""
    made = t(shape)
    weights = const(np.ones((3, 1, 1, 3), np.float32))
    nodes: list[Node] = [op("CONV_2D", [PICTURE, weights], [made])]
    for name, numbers in ops:
        result = t(shape)
        fixed = [const(np.array(number, np.float32)) for number in numbers]
        nodes.append(op(name, [made, *fixed], [result]))
        made = result
    return graph_of(nodes, [PICTURE], [made])


CASES: list[tuple[Sequence[tuple[str, Sequence[float]]], tuple[float, float], bool]] = [
    ([], (-math.inf, math.inf), True),
    ([("ADD", [0.5])], (-math.inf, math.inf), True),
    ([("LOGISTIC", [])], (0, 1), False),
    ([("SOFTMAX", []), ("MUL", [3])], (0, 3), False),
    ([("LOGISTIC", []), ("MUL", [2]), ("SUB", [0.5]), ("MUL", [16])], (-8, 24), False),
    ([("LOGISTIC", []), ("DIV", [4])], (0, 0.25), False),
    ([("TANH", []), ("EXP", [])], (math.exp(-1), math.e), False),
    ([("RELU6", [])], (0, 6), False),
    ([("RELU", []), ("MINIMUM", [1])], (0, 1), False),
    ([("FLOOR", [])], (-math.inf, math.inf), False),
]


@pytest.mark.parametrize(("ops", "limits", "is_linear"), CASES)
def test_what_follows_a_convolution_bounds_it(
    ops: Sequence[tuple[str, Sequence[float]]], limits: tuple[float, float], is_linear: bool
) -> None:
    found = value_range_of(after(*ops), 0)
    assert (found.low, found.high) == pytest.approx(limits)
    assert found.is_linear == is_linear


def test_a_fused_activation_and_a_type_bound_it_too() -> None:
    weights = const(np.ones((3, 1, 1, 3), np.float32))
    made = t((1, 8, 8, 3))
    options = {"fused_activation_function": "RELU6"}
    graph = graph_of([op("CONV_2D", [PICTURE, weights], [made], options)], [PICTURE], [made])
    assert value_range_of(graph, 0).high == 6
    stored = t((1, 8, 8, 3), "int8", 0.5, -128)
    graph = graph_of([op("CONV_2D", [PICTURE, weights], [stored])], [PICTURE], [stored])
    found = value_range_of(graph, 0)
    assert (found.low, found.high, found.step) == (0, 127.5, 0.5)


def test_no_case_of_the_suite_is_too_odd() -> None:
    for case in [*all_cases()][::97]:
        graph = case.make()
        for number, output in enumerate(graph.outputs):
            for axis in (None, *range(len(output.shape))):
                found = value_range_of(graph, number, axis)
                assert found.low <= found.high


@pytest.mark.parametrize("version", [8, 11])
def test_an_exporter_s_yolo_has_scores_and_parts_of_the_picture(version: int) -> None:
    graph = infer(yolo(version, 320))
    view = View(graph, graph.outputs, graph.inputs[0])
    assert view.resolve(Ambiguity(0, 1, 4)) is False
    assert view.resolve(Ambiguity(0, 1, 0, "places")) is False
    assert value_range_of(graph, 0, 1, 4).high <= 1 < value_range_of(graph, 0, 1, 0).high


def test_a_converter_s_yolo_too() -> None:
    if not CONVERTED.exists():
        pytest.skip("there are no models of converters")
    graph = infer(read_model(str(CONVERTED)))
    view = View(graph, graph.outputs, graph.inputs[0])
    assert (view.resolve(Ambiguity(0, 1, 4)), view.resolve(Ambiguity(0, 1, 0, "places"))) == (
        False,
        False,
    )


def yolo_of(scale: float, zero_point: int = -128) -> Tensor:
    return t((1, 84, 7), "int8", scale, zero_point)


def test_the_range_of_int8_tells_pixels_from_parts() -> None:
    boxes = Ambiguity(0, 2, 0, "places")
    assert view_of([yolo_of(0.25)]).resolve(boxes) is True
    assert view_of([yolo_of(1.5 / 255)]).resolve(boxes) is False
    assert view_of([t((1, 84, 7))]).resolve(boxes) is None
    assert view_of([t((1, 84, 7))], factor=8.0).resolve(boxes) is True
    assert view_of([t((1, 84, 7))], factor=1 / 64).resolve(boxes) is False


@pytest.mark.parametrize(
    ("output", "last", "wanted"),
    [
        (t((1, 84, 7)), "CUSTOM_OP", ["whether output 0 has scores or logits", "for scores",
                                      "parts of the picture or pixels", "for parts"]),
        (t((1, 84, 7)), "CONV_2D", ["parts of the picture or pixels"]),
        (yolo_of(1 / 255), "LOGISTIC", []),
        (yolo_of(0.28), "LOGISTIC", ["steps of 0.28: the model cannot tell them apart"]),
        (yolo_of(0.28, -20), "CONV_2D", []),  # logits: a step of theirs is a small one of scores
        (t((1, 5), "uint8", 0.25, 0), "SOFTMAX", ["steps of 0.25"]),
        (t((1, 5), "uint8", 1 / 256, 0), "SOFTMAX", []),
    ],
)  # fmt: skip
def test_what_a_model_leaves_open_is_said(
    output: Tensor, last: str, wanted: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "label_image"):
        Meaning(view_of([output], last=last, labels=["a"] * 3)).check("labels")
    text = caplog.text
    assert all(each in text for each in wanted)
    open_ones = [each for each in wanted if " or " in each]
    assert text.count("nothing in the model tells") == len(open_ones)
    assert ("steps" in text) == any("steps" in each for each in wanted)
