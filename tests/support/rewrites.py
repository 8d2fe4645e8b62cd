# SPDX-License-Identifier: Apache-2.0
"""Assertions on passes of tflite_opencl.rewrites, and strategies of convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from hypothesis import strategies as st

from delegate.inspect import Graph, Node, Tensor, read_model, write_model
from tests.support.cases import DTYPES, FUSED, multipliers, zero_points
from tests.support.compare import inputs_for, interpreter, invoke
from tests.support.convolution import Convolution
from tests.support.model import graph_of
from tests.support.nets import assert_equal_outputs
from tflite_opencl.rewrites.changes import Notes


class Rewrite(Protocol):
    """A pass on graphs."""

    def __call__(self, graph: Graph, notes: Notes | None = None) -> Graph: ...


def assert_exact_rewrite(
    graph: Graph, rewrite: Rewrite, seed: int = 0, is_slow: bool = False
) -> tuple[Graph, Notes]:
    """Assert that a pass changes no output, and is idempotent.

    Return the new graph, written and read back, and the notes. `is_slow`: use one input set.

    Raises:
        AssertionError: an output, or the name of an input or output differs, or a second
            application changes something.
    """
    notes = Notes()
    after = rewrite(graph, notes)
    assert rewrite(after) is after
    assert [(t.name, t.shape, t.dtype) for t in (*after.inputs, *after.outputs)] == [
        (t.name, t.shape, t.dtype) for t in (*graph.inputs, *graph.outputs)
    ]
    model = write_model(after)
    old, new = interpreter(write_model(graph)), interpreter(model)
    for number, given in enumerate(inputs_for(graph, seed)[: 1 if is_slow else None]):
        expected = invoke(old, given)
        assert_equal_outputs(invoke(new, given), expected, f"input set {number}")
    return read_model(model), notes


def reasons(notes: Notes) -> list[str]:
    """Return the reasons of nodes that the pass left."""
    return [record.text for record in notes if not record.treated]


def left_by(rewrite: Rewrite, graph: Graph) -> list[str]:
    """Assert that a pass leaves a graph unchanged; return the reasons."""
    notes = Notes()
    assert rewrite(graph, notes) is graph
    assert not any(record.treated for record in notes)
    return reasons(notes)


def whole(graph: Graph) -> Graph:
    """Return the graph written and read back, so with all options."""
    return read_model(write_model(graph))


def chain(cases: Sequence[Convolution], seed: int = 0) -> Graph:
    """Return a chain of convolutions."""
    nodes: list[Node] = []
    for number, case in enumerate(cases):
        if nodes:
            case = replace(case, size=nodes[-1].outputs[0].shape[1:], batch=cases[0].batch)
            if min(case.out_size()) < 1:
                break
        node = case.node(seed + number)
        nodes.append(_connected(node, nodes[-1].outputs[0]) if nodes else node)
    return whole(graph_of(nodes))


def _connected(node: Node, source: Tensor) -> Node:
    """Return a convolution that reads `source`, with the bias scale adapted."""
    _, weights, *biases = node.inputs
    assert weights is not None
    assert weights.quantization is not None
    assert source.quantization is not None
    scales = tuple(source.quantization.scale[0] * scale for scale in weights.quantization.scale)
    new = [
        replace(bias, quantization=replace(bias.quantization, scale=scales))
        for bias in biases
        if bias is not None and bias.quantization is not None
    ]
    return replace(node, inputs=(source, weights, *new))


@st.composite
def drawn_convolutions(draw: st.DrawFn, dtype: str = "") -> Convolution:
    """Draw a convolution of kernels up to 7x7, with strides and dilations, and some output.

    Strides of both axes are mostly equal.
    """
    dtype = dtype or draw(DTYPES)
    small = st.integers(1, 3)
    stride = draw(small)
    dilation = draw(st.sampled_from([1, 1, 2, 3]))
    channels = draw(st.integers(1, 5))
    depth = draw(st.integers(0, 2))
    case = Convolution(
        size=(draw(st.integers(1, 16)), draw(st.integers(1, 16)), channels),
        kernel=(draw(st.integers(1, 7)), draw(st.integers(1, 7))),
        out_c=draw(st.integers(1, 6)),
        depth_multiplier=depth,
        batch=draw(st.integers(1, 2)),
        stride=(stride, draw(st.sampled_from([stride, stride, stride, 2]))),
        dilation=(dilation, draw(st.sampled_from([dilation, 1]))),
        padding=draw(st.sampled_from(["SAME", "VALID"])),
        fused=draw(st.sampled_from(FUSED)),
        dtype=dtype,
        per_channel=dtype == "int8" and draw(st.booleans()),
        has_bias=not depth or draw(st.booleans()),  # CONV_2D needs one
        zeros=(
            draw(zero_points(dtype)),
            draw(zero_points("uint8")) if dtype == "uint8" else 0,
            draw(zero_points(dtype)),
        ),
        multiplier=draw(multipliers(-12, -4)),
    )
    return case if min(case.out_size()) > 0 else replace(case, padding="SAME")


CHAINS = DTYPES.flatmap(lambda dtype: st.lists(drawn_convolutions(dtype), min_size=3, max_size=3))
