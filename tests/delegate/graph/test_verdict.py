# SPDX-License-Identifier: Apache-2.0
"""The graph as a table of text."""

from __future__ import annotations

import numpy as np
import pytest

from delegate.format.reader import read_model
from delegate.graph.verdict import Verdict, graph_table, refusals
from delegate.plan.lowering import compiler
from delegate.target import Target
from tests.support.model import const, graph_of, op, t
from tests.support.shared import model_path


def test_a_row_a_node_then_the_refusals() -> None:
    weights = const(np.zeros((3, 2), np.int8), [0.5, 0.25, 0.125], axis=0)
    middle = t((1, 3), "int8", 0.5, 3)
    graph = graph_of(
        [
            op("FULLY_CONNECTED", [t((1, 2), "int8", 1 / 3), weights, None], [middle]),
            op("MY_OP", [middle], [t((), "float32")], is_custom=True),
            op("NOP", [], [], is_custom=True),
            op("MY_OP", [weights], [t((3, 2), "int8", [0.5, 0.25])], is_custom=True),
        ]
    )
    verdicts = [
        Verdict(0, "FULLY_CONNECTED", None),
        Verdict(1, "MY_OP", "not known"),
        Verdict(2, "NOP", "no output"),
        Verdict(3, "MY_OP", "not known"),
    ]
    assert graph_table(graph, verdicts).splitlines() == [
        "node  op               inputs  outputs  shape  dtype    scale     verdict",
        "0     FULLY_CONNECTED  0,1,-   2        1x3    int8     0.5       opencl",
        "1     MY_OP            2       3               float32            not known",
        "2     NOP                                                         no output",
        "3     MY_OP            1       4        3x2    int8     2 scales  not known",
        "2 x MY_OP: not known",
        "1 x NOP: no output",
    ]


def test_refusals_are_counted_by_op_and_reason() -> None:
    verdicts = [
        Verdict(0, "A", "x"),
        Verdict(1, "A", None),
        Verdict(2, "A", "y"),
        Verdict(3, "B", "y"),
        Verdict(4, "A", "y"),
    ]
    assert refusals(verdicts) == [(("A", "y"), 2), (("A", "x"), 1), (("B", "y"), 1)]


@pytest.mark.model
def test_the_table_of_mobilenet_v1() -> None:
    graph = read_model(model_path("mobilenet_v1_1.0_224_quant"))
    verdicts = compiler.verdicts(graph, Target(), lambda alternative: None, ["SOFTMAX"])
    lines = graph_table(graph, verdicts).splitlines()
    assert len(lines) == 1 + 31 + 1
    assert " ".join(lines[0].split()) == "node op inputs outputs shape dtype scale verdict"
    assert " ".join(lines[1].split()) == "0 CONV_2D 0,28,27 29 1x112x112x32 uint8 0.0235285 opencl"
    assert lines[2].split()[1:3] == ["DEPTHWISE_CONV_2D", "29,30,18"]
    assert lines[31].endswith("excluded by exclude_ops")
    assert lines[32] == "1 x SOFTMAX: excluded by exclude_ops"
    assert sum(line.endswith("opencl") for line in lines) == 30
