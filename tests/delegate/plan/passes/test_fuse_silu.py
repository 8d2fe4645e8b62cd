# SPDX-License-Identifier: Apache-2.0
"""Fusion of SiLU, and graphs that stay unchanged."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from delegate.plan.passes import run_passes
from tests.delegate.ops.test_silu import silu
from tests.support.fused import every, partition
from tests.support.model import op, t

rewrite = partial(run_passes, names=["fuse_silu"])


def test_rewrite() -> None:
    logistic, product = silu("int8")
    for inputs in (product.inputs, product.inputs[::-1]):
        before = partition([logistic, replace(product, inputs=inputs)])
        (node,) = rewrite(before, every).nodes
        assert (node.op, node.index) == ("silu", 1)
        assert node.inputs == before.nodes[0].inputs
        assert node.intermediates == before.nodes[0].outputs
        assert node.outputs == before.nodes[1].outputs


def test_unchanged() -> None:
    logistic, product = silu("int8")
    (x,), (share,) = logistic.inputs, logistic.outputs
    other = t((2, 128), "int8", 0.05, 3)
    others = {
        "refused": [logistic, product],
        "another_factor": [logistic, replace(product, inputs=(other, share))],
        "a_square": [logistic, replace(product, inputs=(share, share))],
        "a_sum": [logistic, replace(product, op="ADD")],
        "read_twice": [logistic, product, op("RELU", [share], [t((2, 128), "int8", 0.1, 0)])],
        "floats": [op("LOGISTIC", [t((2, 3))], [t((2, 3))]), op("RELU", [t((2, 3))], [t((2, 3))])],
    }
    for name, nodes in others.items():
        before = partition(nodes)
        accepts = name != "refused"
        assert rewrite(before, lambda _, found=accepts: found) is before, name
    seen = partition([logistic, product], (share,))
    assert rewrite(seen, every) is seen
    assert x is not None
