# SPDX-License-Identifier: Apache-2.0
"""STABLEHLO_COMPOSITE: its decomposition's launches, what stays on the CPU and why, and results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo, ops
from delegate.graph.infer import infer
from delegate.inspect import Graph, Node, Tensor, read_model, write_model
from tests.support.cases import GROUPS, LANES_8, SIMT, Strategy, assert_exact_strategy, changed
from tests.support.compare import interpreter, invoke, refusals
from tests.support.factories import refused
from tests.support.model import chain_model, const, graph_of, graph_values, op, t
from tests.support.nets import assert_equal_outputs, delegate_for
from tests.support.subgraphs import write_subgraphs

SHAPE = (2, 3, 8)


def composite(body: Graph, inputs: list[Tensor] | None = None) -> Node:
    """Return a node that has this decomposition, on new tensors."""
    given = inputs or [replace(tensor) for tensor in body.inputs]
    results = [replace(tensor) for tensor in body.outputs]
    options = {"name": "odml.test", "composite_attributes": b"\0\0\1"}
    return replace(op("STABLEHLO_COMPOSITE", given, results, options), body=body)


def scaled(dtype: str = "int8") -> Graph:
    """Return a + b, turned: a view in the middle, and one behind."""
    numbers = (0.5, 3) if dtype == "int8" else ()
    a, b, total = (t(SHAPE, dtype, *numbers) for _ in range(3))
    flat, turned, result = (
        t((6, 8), dtype, *numbers),
        t((8, 6), dtype, *numbers),
        t((48,), dtype, *numbers),
    )
    nodes = [
        op("ADD", [a, b], [total], version=2),
        op("RESHAPE", [total, const(np.array([6, 8], np.int32))], [flat], {"new_shape": [6, 8]}),
        op("TRANSPOSE", [flat, const(np.array([1, 0], np.int32))], [turned], version=2),
        op("RESHAPE", [turned, const(np.array([48], np.int32))], [result], {"new_shape": [48]}),
    ]
    return graph_of(nodes, [a, b])


def test_launches() -> None:
    first, plain = ops.lower(composite(scaled()), LANES_8.target)
    assert [launch.file for launch in first.launches] == ["add", "copy", "copy"]
    assert [launch.kernel for launch in plain.launches] == ["add_quant8", "copy", "copy"]


def test_a_file_has_the_decomposition_as_a_subgraph_of_its_own() -> None:
    body = scaled()
    inner = composite(body)
    outer = composite(graph_of([inner], inner.inputs))
    model = chain_model([outer])
    read = read_model(model)
    (node,) = read.nodes
    assert read.subgraphs == 3
    assert node.body is not None
    assert node.body.nodes[0].body is not None
    found = replace(node.body.nodes[0].body, subgraph=0, subgraphs=1)
    assert graph_values(found) == graph_values(read_model(write_model(body)))
    assert write_model(read) == model


def test_a_decomposition_that_calls_itself_is_none() -> None:
    node = composite(scaled())
    again = composite(graph_of([node], node.inputs))
    read = read_model(chain_model([again]))
    body = read.nodes[0].body
    assert body is not None
    options = {**body.nodes[0].options, "decomposition_subgraph_index": 1}
    looped = replace(body, nodes=(replace(body.nodes[0], options=options, body=None),))
    model = write_subgraphs(replace(read, nodes=(replace(read.nodes[0], body=None),)), looped)
    body = read_model(model).nodes[0].body
    assert body is not None
    assert body.nodes[0].body is None


def test_values_of_the_outside_are_known_inside() -> None:
    source, sizes, result = t((2, 6)), t((2,), "int32"), t((3, 4))
    body = graph_of([op("RESHAPE", [source, sizes], [result])], [source, sizes])
    given = [t((2, 6)), const(np.array([3, 4], np.int32))]
    (node,) = infer(graph_of([composite(body, given)])).nodes
    (plain,) = ops.lower(node, SIMT.target)
    assert [launch.kernel for launch in plain.launches] == ["copy"]


def twice() -> Graph:
    a, made = t(SHAPE, "int32"), t(SHAPE, "int32")
    graph = graph_of([op("NEG", [a], [made])], [a], [made])
    return replace(graph, outputs=(*graph.outputs, *graph.outputs))


NODE = composite(scaled())
UNKNOWN = t((3,))
test_refusal = refused(
    {
        "none": (
            replace(NODE, body=None),
            "no decomposition: its subgraph is missing, calls itself or is too large",
        ),
        "inputs": (
            replace(NODE, inputs=NODE.inputs[:1]),
            "another number of inputs or outputs than its decomposition has",
        ),
        "types": (
            changed(NODE, 0, dtype="uint8"),
            "uint8, int8 in its decomposition: they must be equal",
        ),
        "shapes": (
            changed(NODE, -1, shape=(6, 8)),
            "6x8, 48 in its decomposition: they must be equal",
        ),
        "twice": (
            composite(twice()),
            "an output of its decomposition is an input, a constant or repeated",
        ),
        "inside": (
            composite(graph_of([op("HASHTABLE", [UNKNOWN], [t((3,))])], [UNKNOWN])),
            "HASHTABLE in its decomposition: op HASHTABLE is not implemented",
        ),
    }
)


def _of_shapes() -> Graph:
    """Return a decomposition that computes the shape of its input."""
    a, sizes, rows, joined, result = (
        t(SHAPE),
        t((3,), "int32"),
        t((1,), "int32"),
        t((2,), "int32"),
        t((2, 24)),
    )
    one, end = const(np.array([1], np.int32)), const(np.array([0], np.int32))
    slicing = dict.fromkeys(
        ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0
    )
    nodes = [
        op("SHAPE", [a], [sizes], {"out_type": "int32"}),
        op("STRIDED_SLICE", [sizes, end, one, one], [rows], slicing),
        op("CONCATENATION", [rows, const(np.array([-1], np.int32))], [joined], {"axis": 0}),
        op("RESHAPE", [a, joined], [result]),
    ]
    return graph_of(nodes, [a])


BODIES: dict[str, Any] = {
    "int8": scaled,
    "int32": lambda: scaled("int32"),
    "shapes": _of_shapes,
}


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_exact(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    node = composite(BODIES[name]())
    assert_exact_strategy(chain_model([node], outputs=node.outputs), device, strategy)


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
def test_between_others_and_in_one_another(strategy: Strategy, device: DeviceInfo) -> None:
    inner = composite(scaled())
    outer = composite(graph_of([inner], inner.inputs))
    source = t(SHAPE, "int8", 0.5, 3)
    before = op("ABS", [source], [outer.inputs[0]])
    after = op("ABS", [outer.outputs[0]], [t((48,), "int8", 0.5, 3)])
    assert_exact_strategy(chain_model([before, outer, after]), device, strategy)


NODES = {"STABLEHLO_COMPOSITE": NODE}


def test_a_resized_input_reaches_the_decomposition(device: DeviceInfo) -> None:
    a, b, first, last = (t((1, 3, 8), "int8", 0.5, 3) for _ in range(4))
    absolute = graph_of([op("ABS", [a], [b])])
    node = composite(absolute)
    (given,), (result,) = node.inputs, node.outputs
    assert given is not None
    sums = op("ADD", [first, first], [given]), op("ADD", [result, result], [last])
    model = write_model(graph_of([sums[0], node, sums[1]]))
    delegate = delegate_for(model, device)
    ours, reference = interpreter(model, delegate), interpreter(model, cpu_kernels="builtin")
    for batch in (1, 3, 0, 2):
        values = np.random.default_rng(batch).integers(-128, 128, (batch, 3, 8)).astype(np.int8)
        for made in (ours, reference):
            made.resize_tensor_input(0, values.shape)
            made.allocate_tensors()
        assert_equal_outputs(invoke(ours, [values]), invoke(reference, [values]), f"batch {batch}")
        assert refusals(delegate) == {}
