# SPDX-License-Identifier: Apache-2.0
"""What outputs say of a picture, as lines, as a row and for JSON."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delegate.inspect import Graph
from label_image.compare import Distances
from label_image.meaning import Meaning
from label_image.result import Result
from tests.support.model import graph_of, op, t
from tflite_opencl.common.difference import Difference
from tflite_opencl.common.feeds import feeds_of

PICTURE = t((1, 4, 4, 3), "uint8", 0.5)


def classifier(extra: bool) -> Graph:
    outputs = [t((1, 2), "uint8", 1 / 255), *([t((2,))] if extra else [])]
    return graph_of([op("SPLIT", [PICTURE], outputs)], [PICTURE], outputs)


def result(extra: bool = False, labels: Sequence[str] = ("cat", "dog"), most: int = 2) -> Result:
    outputs = [np.array([[51, 102]], np.uint8), np.array([0.25, 0.5], np.float32)]
    graph = classifier(extra)
    meaning = Meaning(graph, feeds_of(graph, ()), labels)
    return Result(meaning, outputs[: 1 + extra], None, most)


def test_a_row_is_one_line_whatever_the_file_is_called() -> None:
    assert result().row("a\tb\nc\rd é.jpg") == "a\\tb\\nc\\rd é.jpg\t0.4: 1 dog\t0.2: 0 cat"
    assert result(most=1).lines == ["0.4: 1 dog"]


def test_other_outputs_stand_beside_what_was_found() -> None:
    made = result(extra=True, most=1)
    assert made.lines[0] == "0.4: 1 dog"
    assert made.lines[1].startswith("output(1)")
    assert "\t2 float32, 0.25 to 0.5" in made.row("a.jpg")
    alone = Difference(None, "", (0, 0.5))
    entry = made.entry(Distances(alone, alone, alone))
    assert [row["label"] for row in entry["results"]] == ["dog"]
    (output,) = entry["outputs"]
    assert output["shape"] == [2]
    assert (output["max_difference_reference"], output["max_difference_cpu"]) == (0.5, 0.5)


def test_after_ctrl_c_there_is_nothing() -> None:
    graph = classifier(extra=True)
    made = Result(Meaning(graph, feeds_of(graph, ()), ["cat"]), (), None, 5)
    assert (made.lines, made.entry(None), made.row("a")) == ([], {}, "a")
