# SPDX-License-Identifier: Apache-2.0
"""Fusion of a channel shuffle, and graphs that stay unchanged."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from delegate.plan.passes import run_passes
from tests.delegate.ops.test_layers_channel_shuffle import shuffle
from tests.support.fused import every, partition
from tests.support.model import op, t
from tests.support.moves import like, numbers

rewrite = partial(run_passes, names=["fuse_shuffle"])

NODES = shuffle((1, 5, 7, 58))


def test_rewrite() -> None:
    before = partition(NODES)
    (node,) = rewrite(before, every).nodes
    assert (node.op, node.index) == ("channel_shuffle", 4)
    assert node.inputs == before.nodes[0].inputs
    assert node.outputs == before.nodes[4].outputs


def test_shuffle_with_two_readers() -> None:
    *shuffled, split = NODES
    other = op("RELU", [split.inputs[1]], [like((1, 5, 7, 116))])
    before = partition([*shuffled, split, other], split.outputs)
    first, *others = rewrite(before, every).nodes
    assert first.outputs == before.nodes[3].outputs
    assert others == [*before.nodes[4:]]


def test_split_of_another_tensor() -> None:
    *shuffled, split = NODES
    rows = [like((1, 5, 7, 116 // 4)) for _ in range(4)]
    four = op("SPLIT", [numbers(3), split.inputs[1]], rows, {"num_splits": 4})
    before = partition([*shuffled, four])
    first, last = rewrite(before, every).nodes
    assert (first.op, last) == ("channel_shuffle", before.nodes[4])


def test_unchanged() -> None:
    join, pairs, turn, flat = NODES[:4]
    left, _ = join.inputs
    other_scale = t(join.outputs[0].shape, "uint8", 0.3, 3)
    three, turned = like((1, 5, 7, 4, 29)), like((1, 5, 7, 29, 4))
    others = {
        "refused": NODES,
        "another_order": [
            join, pairs, replace(turn, inputs=(turn.inputs[0], numbers([0, 2, 1, 4, 3]))), flat,
        ],
        "computed": [
            join, pairs, replace(turn, inputs=(turn.inputs[0], like((5,), "int32"))), flat,
        ],
        "four": [
            join,
            replace(pairs, outputs=(three,)),
            replace(turn, inputs=(three, turn.inputs[1]), outputs=(turned,)),
            replace(flat, inputs=(turned, flat.inputs[1])),
        ],
        "axis": [replace(join, options={"axis": 1}), pairs, turn, flat],
        "one_input": [replace(join, inputs=(left,)), pairs, turn, flat],
        "read_twice": [
            join, pairs, turn, flat, op("RELU", [join.outputs[0]], [like((1, 5, 7, 116))]),
        ],
        "no_join": [replace(pairs, inputs=(like((1, 5, 7, 116)), pairs.inputs[1])), turn, flat],
        "no_end": [join, pairs, turn],
        # The concatenation requantises its inputs, and nothing reverts it.
        "rescaled": [
            replace(join, outputs=(other_scale,)),
            replace(pairs, inputs=(other_scale, pairs.inputs[1])),
            turn,
            flat,
        ],
    }  # fmt: skip
    for name, nodes in others.items():
        before = partition(nodes)
        accepts = (lambda node: False) if name == "refused" else every
        assert rewrite(before, accepts) is before, name
    seen = partition([join, pairs, turn, flat], (turn.outputs[0],))
    assert rewrite(seen, every) is seen
