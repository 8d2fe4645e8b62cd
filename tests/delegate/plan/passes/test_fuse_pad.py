# SPDX-License-Identifier: Apache-2.0
"""Fusion of PAD into the following convolution, and graphs that stay unchanged."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from delegate.inspect import Node
from delegate.plan.passes import run_passes
from tests.support.convolution import Convolution
from tests.support.fused import every, partition
from tests.support.model import const, op, t

rewrite = partial(run_passes, names=["fuse_pad"])

AMOUNTS = ((0, 0), (1, 2), (0, 3), (0, 0))


def padded(
    amounts: tuple[tuple[int, int], ...] = AMOUNTS,
    padding: str = "VALID",
    depth: int = 0,
    dtype: str = "uint8",
) -> list[Node]:
    """A PAD of a 6 x 5 image, and a 3 x 3 convolution of stride 2."""
    before = (1, 6, 5, 4)
    after = tuple(n + sum(pair) for n, pair in zip(before, amounts, strict=True))
    conv = Convolution(
        size=(after[1], after[2], after[3]),
        batch=after[0],
        stride=(2, 2),
        padding=padding,
        depth_multiplier=depth,
        dtype=dtype,
        out_c=16,
    ).node()
    middle = conv.inputs[0]
    assert middle is not None
    source = replace(middle, shape=before)
    return [op("PAD", [source, const(np.array(amounts, np.int32))], [middle]), conv]


@pytest.mark.parametrize("depth", [0, 1], ids=["conv_2d", "depthwise"])
def test_rewrite(depth: int) -> None:
    before = partition(padded(depth=depth))
    after = rewrite(before, every)
    (node,) = after.nodes
    assert (node.op, node.index) == (before.nodes[1].op, 1)
    assert node.inputs == (before.nodes[0].inputs[0], *before.nodes[1].inputs[1:])
    assert node.outputs == before.nodes[1].outputs
    explicit = {"pad_top": 1, "pad_bottom": 2, "pad_left": 0, "pad_right": 3}
    assert dict(node.options) == {**before.nodes[1].options, "padding": "EXPLICIT", **explicit}
    assert (after.inputs, after.outputs) == (before.inputs, before.outputs)


def test_unchanged() -> None:
    pad, conv = padded()
    others = {
        "channels": padded(((0, 0), (1, 1), (1, 1), (0, 4))),
        "pictures": padded(((1, 0), (1, 1), (1, 1), (0, 0))),
        "same": padded(padding="SAME"),
        "computed": [replace(pad, inputs=(pad.inputs[0], t((4, 2), "int32"))), conv],
        "read_twice": [pad, conv, op("ADD", [pad.outputs[0]] * 2, [t((1, 9, 8, 4), "uint8")])],
    }
    for name, nodes in others.items():
        before = partition(nodes)
        assert rewrite(before, every) is before, name
    seen = partition([pad, conv], pad.outputs)
    assert rewrite(seen, every) is seen
