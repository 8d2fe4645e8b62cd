# SPDX-License-Identifier: Apache-2.0
"""PAD as SAME padding: equal outputs, and amounts that SAME cannot express."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate.inspect import Graph, Node, read_model
from tests.support.cases import output_size
from tests.support.convolution import Convolution
from tests.support.model import const, graph_of, op, t
from tests.support.rewrites import assert_exact_rewrite, drawn_convolutions, left_by, reasons, whole
from tests.support.shared import model_path
from tflite_opencl.rewrites.passes.fuse_pad import rewrite

Amounts = tuple[tuple[int, int], tuple[int, int]]


def same_amounts(case: Convolution) -> Amounts:
    """Return SAME's padding: top, bottom, left and right."""
    pairs = []
    for i in (0, 1):
        out = output_size(case.size[i], case.kernel[i], case.stride[i], case.dilation[i], "SAME")
        extent = (case.kernel[i] - 1) * case.dilation[i] + 1
        total = max(0, (out - 1) * case.stride[i] + extent - case.size[i])
        pairs.append((total // 2, total - total // 2))
    return pairs[0], pairs[1]


def padded(case: Convolution, amounts: Amounts | None = None, dtype: str = "") -> list[Node]:
    """Return a PAD before a VALID convolution; `dtype`: of both."""
    rows, columns = same_amounts(case) if amounts is None else amounts
    wide = (case.size[0] + sum(rows), case.size[1] + sum(columns), case.size[2])
    node = replace(case, size=wide, padding="VALID").node()
    if dtype == "float32":
        node = floats(node)
    middle = node.inputs[0]
    assert middle is not None
    source = replace(middle, shape=(case.batch, *case.size))
    pairs = const(np.array([(0, 0), rows, columns, (0, 0)], np.int32))
    return [op("PAD", [source, pairs], [middle], version=2), node]


def floats(node: Node) -> Node:
    source, weights, bias = node.inputs
    assert source is not None
    assert weights is not None
    assert bias is not None
    values = [const(np.asarray(each.data, np.float32) / 64) for each in (weights, bias)]
    real = [t(each.shape, "float32") for each in (source, node.outputs[0])]
    return replace(node, version=1, inputs=(real[0], *values), outputs=(real[1],))


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


@given(drawn_convolutions())
@settings(max_examples=40)
def test_amounts_of_same_are_fused(case: Convolution) -> None:
    after, _ = assert_exact_rewrite(whole(graph_of(padded(case))), rewrite)
    assert len(after.nodes) == 1
    assert after.nodes[0].options["padding"] == "SAME"


@given(drawn_convolutions(), st.lists(st.integers(0, 4), min_size=4, max_size=4))
@settings(max_examples=40)
def test_random_amounts_are_exact(case: Convolution, amounts: list[int]) -> None:
    pairs = (amounts[0], amounts[1]), (amounts[2], amounts[3])
    wide = replace(
        case, size=(case.size[0] + sum(pairs[0]), case.size[1] + sum(pairs[1]), 1), padding="VALID"
    )
    if min(wide.out_size()) > 0:
        after, notes = assert_exact_rewrite(whole(graph_of(padded(case, pairs))), rewrite)
        assert len(after.nodes) - 1 == len(reasons(notes))


@pytest.mark.parametrize("depth", [0, 1])
def test_floats_are_exact(depth: int) -> None:
    case = Convolution(stride=(2, 2), depth_multiplier=depth)
    after, _ = assert_exact_rewrite(whole(graph_of(padded(case, dtype="float32"))), rewrite)
    assert len(after.nodes) == 1


def test_all_readers_of_a_pad_are_fused() -> None:
    pad, node = padded(Convolution())
    other = replace(node, outputs=(replace(node.outputs[0]),))
    after, _ = assert_exact_rewrite(whole(graph_of([pad, node, other])), rewrite)
    assert ops(after) == ["CONV_2D", "CONV_2D"]


def test_padv2_with_the_zero_point_is_fused() -> None:
    pad, node = padded(Convolution(dtype="uint8", zeros=(9, 3, 5)))
    source, pairs = pad.inputs
    for value, expected in ((9, ["CONV_2D"]), (8, ["PADV2", "CONV_2D"])):
        scalar = const(np.array([value], np.uint8), 0.0625, 9)
        by_value = op("PADV2", [source, pairs, scalar], pad.outputs)
        after, _ = assert_exact_rewrite(whole(graph_of([by_value, node])), rewrite)
        assert ops(after) == expected


def test_reasons_of_unchanged_nodes() -> None:
    pad, node = padded(Convolution(dtype="int8"))
    result = pad.outputs[0]
    sum_of = op("ADD", [result, result], [t(result.shape, "int8", 0.1)])
    even = Convolution(size=(8, 8, 3), stride=(2, 2))
    infinite = padded(Convolution(), dtype="float32")
    weights = infinite[1].inputs[1]
    assert weights is not None
    values = np.array(weights.data)
    values[0] = np.inf
    cases: dict[str, tuple[list[Node], dict[str, Any]]] = {
        "the padded tensor is an output of the graph": (
            [pad, node],
            {"outputs": [result, *node.outputs]},
        ),
        "2 other nodes read the padded tensor, such as ADD": ([pad, node, sum_of], {}),
        "amounts that are computed or that a caller may set": (
            [replace(pad, inputs=(pad.inputs[0], t((4, 2), "int32"))), node],
            {},
        ),
        "SAME adds 0 pixels above and 0 on the left, the PAD 1 and 1": (
            padded(even, ((1, 1), (1, 1))),
            {},
        ),
        "SAME gives another size than the amounts [[2, 2], [1, 1]] do": (
            padded(Convolution(), ((2, 2), (1, 1))),
            {},
        ),
        "float32 weights that are not known to be finite": (
            [
                infinite[0],
                replace(
                    infinite[1],
                    inputs=(infinite[1].inputs[0], const(values), infinite[1].inputs[2]),
                ),
            ],
            {},
        ),
    }
    for reason, (nodes, ends) in cases.items():
        assert left_by(rewrite, graph_of(nodes, **ends)) == [reason]


@pytest.mark.model
def test_model_is_exact() -> None:
    after, _ = assert_exact_rewrite(
        read_model(model_path("mbnet128_0.25_q")), rewrite, is_slow=True
    )
    assert "PAD" not in ops(after)
