# SPDX-License-Identifier: Apache-2.0
"""What --verbose and --profiling show."""

from __future__ import annotations

from delegate.inspect import LaunchTime
from label_image.verbose import interpreter_state, model_lines, profile_lines
from tests.support.model import const, graph_of, op, t

WEIGHTS = const([[1, 2], [3, 4]], (0.5, 0.25), name="weights")


def launch(node: int, name: str, microseconds: float) -> LaunchTime:
    return LaunchTime(
        node=node,
        op=name,
        kernel="k",
        alternative="plain",
        global_size=1,
        microseconds=microseconds,
    )


def test_a_tensor_with_a_scale_for_each_channel_shows_none() -> None:
    pixels, output = t((1, 2), "int8", 0.1, -3, name="in"), t((1, 2), "string", name="out")
    lines = model_lines(graph_of([op("FULLY_CONNECTED", [pixels, WEIGHTS, None], [output])]))
    assert lines == [
        "tensors size: 3",
        "nodes size: 1",
        "inputs: 1",
        "input(0) name: in",
        "0: in, 2, 9, 0.1, -3",
        f"1: weights, {WEIGHTS.data.nbytes if WEIGHTS.data is not None else 0}, 4, 0, 0",
        "2: out, 0, 5, 0, 0",
    ]


def test_the_state_says_of_each_node_who_runs_it() -> None:
    pixels, added, output = (t((1, 2), "uint8", 0.5) for _ in range(3))
    nodes = [
        op("ADD", [pixels, pixels], [added]),
        op("my-op", [added, None], [output], is_custom=True),
    ]
    text = interpreter_state(graph_of(nodes), {0: None, 1: "op my-op is not implemented"})
    assert "Node   0 Operator Builtin Code   0 ADD (delegated by OpenCL)\n" in text
    assert (
        "Node   1 Operator Custom Name my-op (not delegated: op my-op is not implemented)\n"
        "  2 Input Tensors: [1,-1]\n"
        "  1 Output Tensors: [2]"
    ) in text


def test_without_a_delegate_the_state_says_nothing_of_it() -> None:
    pixels, output = t((1, 2), "uint8", 0.5), t((1, 2), "uint8", 0.5)
    text = interpreter_state(graph_of([op("ADD", [pixels, pixels], [output])]))
    assert "Interpreter has 1 subgraphs." in text
    assert "delegated" not in text


def test_profiling_rows_are_label_images() -> None:
    rows = profile_lines(
        [launch(5, "DEPTHWISE_CONV_2D", 5352.0), launch(123, "my-op", 1234567.0)], 9
    )
    assert rows == [
        "     5.352, Subgraph   0, Node   5, OpCode   4, DEPTHWISE_CONV_2D",
        "  1234.567, Subgraph   0, Node 123, OpCode  32, my-op",
    ]


def test_profiling_keeps_the_last_rows() -> None:
    rows = profile_lines([launch(index, "ADD", 1.0) for index in range(5)], 2)
    assert [row.split()[4] for row in rows] == ["3,", "4,"]
