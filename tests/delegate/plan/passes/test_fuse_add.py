# SPDX-License-Identifier: Apache-2.0
"""Fusion of ADD into the preceding convolution, and graphs that stay unchanged."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from delegate.inspect import Node, Tensor
from delegate.plan.passes import run_passes
from tests.support.convolution import Convolution
from tests.support.fused import every, partition
from tests.support.model import op, t

rewrite = partial(run_passes, names=["fuse_add"])


def added(first: Tensor, second: Tensor) -> Node:
    result = t(first.shape, "uint8", 0.1, 7)
    return op("ADD", [first, second], [result], {"fused_activation_function": "RELU"})


CONV = Convolution(fused="RELU6").node()
BETWEEN = CONV.outputs[0]
OTHER = t(BETWEEN.shape, "uint8", 0.2, 3)


def test_rewrite() -> None:
    for operands in ((BETWEEN, OTHER), (OTHER, BETWEEN)):
        before = partition([CONV, added(*operands)])
        conv, add = before.nodes
        (node,) = rewrite(before, every).nodes
        assert (node.op, node.index, node.outputs) == ("conv_2d_add", 1, add.outputs)
        (other,) = (tensor for tensor in add.inputs if tensor is not conv.outputs[0])
        assert node.inputs == (*conv.inputs, other)
        assert node.inner == conv.outputs
        assert node.options == {**conv.options, "sum_activation_function": "RELU"}


def test_without_a_bias() -> None:
    conv = Convolution(has_bias=False).node()
    (node,) = rewrite(partition([conv, added(conv.outputs[0], OTHER)]), every).nodes
    assert len(node.inputs) == 4
    assert node.inputs[2] is None


def test_later_of_two_convolutions_absorbs_add() -> None:
    second = Convolution(kernel=(1, 1)).node()
    before = partition([CONV, second, added(BETWEEN, second.outputs[0])])
    first, fused = rewrite(before, every).nodes
    assert (first, fused.op) == (before.nodes[0], "conv_2d_add")
    assert fused.inputs == (*before.nodes[1].inputs, first.outputs[0])


def test_unchanged() -> None:
    add = added(BETWEEN, OTHER)
    depthwise = Convolution(depth_multiplier=1).node()
    again = op("ADD", [BETWEEN, add.outputs[0]], [t(BETWEEN.shape, "uint8", 0.3, 1)])
    for name, nodes in {
        "depthwise": [depthwise, added(depthwise.outputs[0], t((1, 7, 5, 3), "uint8", 0.2, 3))],
        "to_itself": [CONV, added(BETWEEN, BETWEEN)],
        "read_later": [CONV, add, again],
        "no_convolution": [added(OTHER, t(OTHER.shape, "uint8", 0.3, 1))],
        "sub": [CONV, replace(add, op="SUB")],
    }.items():
        before = partition(nodes)
        assert rewrite(before, every) is before, name
    seen = partition([CONV, add], (BETWEEN,))
    assert rewrite(seen, every) is seen
    refused = partition([CONV, add])
    assert rewrite(refused, lambda node: False) is refused
