# SPDX-License-Identifier: Apache-2.0
"""Fusion of nodes of one 8-bit tensor into tables, and graphs that stay unchanged."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from delegate.inspect import Node, Tensor
from delegate.plan.passes import run_passes
from tests.delegate.ops.test_pointwise import Chain, floats, norm, silu
from tests.support.fused import every, partition
from tests.support.model import const, op, t

rewrite = partial(run_passes, names=["fuse_pointwise"])


def ops(nodes: list[Node], *outputs: Tensor) -> list[str]:
    """Return the ops after the pass."""
    return [node.op for node in rewrite(partition(nodes, outputs), every).nodes]


def test_rewrite() -> None:
    logistic, product = silu("int8")
    for inputs in (product.inputs, product.inputs[::-1]):
        before = partition([logistic, replace(product, inputs=inputs)])
        (node,) = rewrite(before, every).nodes
        assert (node.op, node.index, node.options) == ("pointwise", 1, {"tables": 1})
        assert node.inputs == before.nodes[0].inputs
        assert node.inner == before.nodes[0].outputs
        assert node.outputs == before.nodes[1].outputs
        assert node.body is not None
        assert node.body.nodes == before.nodes


def test_a_table_for_each_channel() -> None:
    def tables(nodes: list[Node]) -> list[object]:
        return [each.options.get("tables") for each in rewrite(partition(nodes), every).nodes]

    assert tables(norm("int8", 5)) == [5]
    assert tables(norm("int8", 1)) == [1]
    first, second = norm("int8", 16)
    one = replace(second, inputs=(second.inputs[0], const(np.int8([3]), 0.1)))
    assert tables([first, one]) == [16]
    # Sixteen elements pay for a table; else each node stays.
    few = [small(node, (3, 5, 64)) for node in norm("int8", 64)]
    assert tables(few) == [None, None]
    assert tables([small(few[0], (4, 4, 64))]) == [64]


def small(node: Node, shape: tuple[int, ...]) -> Node:
    """Return a node on tensors of this shape; its constants stay."""
    inputs = [
        x if x is None or x.data is not None else replace(x, shape=shape) for x in node.inputs
    ]
    outputs = [replace(x, shape=shape) for x in node.outputs]
    return replace(node, inputs=tuple(inputs), outputs=tuple(outputs))


def test_the_longest_chain() -> None:
    chain = Chain("int8").add("RELU").add("LOGISTIC", by=(1 / 256, -128)).add("RELU6").nodes
    assert ops(chain) == ["pointwise"]
    # A reader outside, or an output, ends it; and so does an op that computes no element alone.
    middle, result = chain[1].outputs[0], t((2, 128, 1), "int8", 0.1)
    assert ops(chain, middle) == ["pointwise", "RELU6"]
    softmax = op("SOFTMAX", [middle], [t((2, 128, 1), "int8", 1 / 256, -128)], {"beta": 1.0})
    assert ops([*chain[:2], softmax, chain[2]], softmax.outputs[0]) == [
        "pointwise",
        "SOFTMAX",
        "RELU6",
    ]
    after = [op("SOFTMAX", [chain[0].inputs[0]], list(chain[0].outputs), {"beta": 1.0}), *chain[1:]]
    assert ops(after) == ["SOFTMAX", "pointwise"]
    root = op("RSQRT", list(chain[1].inputs), [middle])  # fails at run time on some values
    assert ops([chain[0], root, chain[2]]) == ["RELU", "RSQRT", "RELU6"]
    both = op("ADD", [chain[2].outputs[0], chain[0].inputs[0]], [result])
    assert ops([*chain, both]) == ["pointwise"]
    other = op("ADD", [chain[2].outputs[0], t((2, 128, 1), "int8", 0.2)], [result])
    assert ops([*chain, other]) == ["pointwise", "ADD"]


def test_overlapping_chains() -> None:
    """Constants along two dimensions have no tables in common: the last chain has them."""
    chain = Chain("int8", 8)
    rows = replace(chain.constant(128), shape=(128, 1))
    rows = replace(rows, data=None if rows.data is None else rows.data.reshape(128, 1))
    chain.fused("MUL", rows).add("RELU").fused("MUL", chain.constant(8))
    assert ops(chain.nodes) == ["MUL", "pointwise"]


def test_floats_between_bytes() -> None:
    nodes = floats("int8", ("TANH", {}), ("SQUARE", {}), ("SQRT", {}))
    assert ops(nodes) == ["pointwise"]
    assert ops(nodes[1:]) == [node.op for node in nodes[1:]]  # floats come in
    assert ops(nodes[:-1]) == [node.op for node in nodes[:-1]]  # floats come out
    assert ops(nodes, nodes[1].outputs[0]) == [node.op for node in nodes]


def test_unchanged() -> None:
    logistic, product = silu("int8")
    (x,), (share,) = logistic.inputs, logistic.outputs
    assert x is not None
    other = replace(x)
    others = {
        "refused": [logistic, product],
        "another_factor": [logistic, replace(product, inputs=(other, share))],
        "alone": [logistic],
        "itself": [op("ADD", [x, x], [share]), op("MUL", [share, x], list(product.outputs))],
        "int16": Chain("int16").add("RELU", by=(0.1, -128)).add("RELU6", by=(0.1, -128)).nodes,
        "broadcast": [
            op("MUL", [t((2, 1, 4), "int8", 0.1), const(np.ones((1, 3, 1), np.int8), 0.1)],
               [t((2, 3, 4), "int8", 0.1)])
        ],
        "floats": [op("LOGISTIC", [t((2, 3))], [t((2, 3))]), op("RELU", [t((2, 3))], [t((2, 3))])],
    }  # fmt: skip
    for name, nodes in others.items():
        before = partition(nodes)
        accepts = name != "refused"
        assert rewrite(before, lambda _, found=accepts: found) is before, name
    seen = partition([logistic, product], (share,))
    assert [node.op for node in rewrite(seen, every).nodes] == ["LOGISTIC", "MUL"]
