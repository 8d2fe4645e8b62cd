# SPDX-License-Identifier: Apache-2.0
"""Fusion of chains in transformers, and graphs that stay unchanged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate.inspect import Node, Tensor
from delegate.plan.passes import PASSES, run_passes
from tests.support.fused import (
    ATTENTIONS,
    GATES,
    LAYER_NORMS,
    NORMS,
    ROPES,
    SCALED,
    SHARES,
    attention,
    every,
    gate,
    layer_norm,
    layer_norm_of_vectors,
    norm,
    partition,
    rope,
    scaled,
    seen,
    share,
)
from tests.support.model import const, op, t
from tests.support.moves import numbers

RELU = {"fused_activation_function": "RELU"}
KINDS = {
    "fuse_attention": ("attention", ATTENTIONS),
    "fuse_rms_norm": ("rms_norm", NORMS),
    "fuse_layer_norm": ("layer_norm", LAYER_NORMS),
    "fuse_scale": ("scaled", SCALED),
    "fuse_logistic": ("logistic_mul", SHARES),
    "fuse_rope": ("rope", ROPES),
    "fuse_gate": ("silu_mul", GATES),
}


@pytest.mark.parametrize("name", KINDS)
def test_rewrite(name: str) -> None:
    kind, table = KINDS[name]
    for nodes in table.values():
        before = partition(nodes)
        (node,) = run_passes(before, every, [name]).nodes
        last = before.nodes[-1]
        assert (node.op, node.index, node.outputs) == (kind, last.index, last.outputs)
        between = {tensor for each in before.nodes[:-1] for tensor in each.outputs}
        assert set(node.inner) == between
        read = {x for each in before.nodes for x in each.inputs if x is not None}
        assert {x for x in node.inputs if x is not None} <= read - between
        assert run_passes(before, lambda node: False, [name]) is before


def test_numbers() -> None:
    def node(nodes: list[Node]) -> Node:
        return run_passes(partition(nodes), every).nodes[0]

    assert node(norm((2, 8), 0.5)).options == {"epsilon": 0.5}
    assert node(attention((1, 2, 8), 4, None, 0.25)).options == {"scale": 0.25, "masked_scale": 1}
    assert node(attention((1, 2, 8), 4, None, None)).options == {"scale": 1, "masked_scale": 1}
    distances = attention((1, 2, 8), 4, t((2, 4)), 0.25, is_scaled_last=True)
    assert node(distances).options == {"scale": 1, "masked_scale": 0.25}
    mask = t((2, 4))
    before = partition(attention((1, 2, 8), 4, mask, 0.25))
    (masked,) = run_passes(before, every).nodes
    assert masked.inputs[3] is before.nodes[2].inputs[1]


def with_options(nodes: list[Node], place: int, **options: object) -> list[Node]:
    changed = replace(nodes[place], options={**nodes[place].options, **options})
    return [*nodes[:place], changed, *nodes[place + 1 :]]


def with_inputs(nodes: list[Node], place: int, *inputs: Tensor | None) -> list[Node]:
    return [*nodes[:place], replace(nodes[place], inputs=inputs), *nodes[place + 1 :]]


def unchanged() -> dict[str, tuple[list[Node], tuple[Tensor, ...]]]:
    rows, turned, gated = norm((2, 8)), rope((2, 3, 8)), gate((2, 8))
    taken = attention((1, 2, 8), 4, seen(4, 1, 2))
    layer, vectors = layer_norm((2, 8)), layer_norm_of_vectors((1, 8, 8))
    shared = share((2, 8))
    grown = scaled((2, 8))
    plain = {
        **{f"scaled_relu_{k}": with_options(grown, k, **RELU) for k in (0, 1)},
        "scaled_computed": with_inputs(grown, 0, grown[0].inputs[0], t((8,))),
        "scaled_number": with_inputs(grown, 1, grown[1].inputs[0], const(np.float32(1))),
        "scaled_rows": with_inputs(
            grown, 1, grown[1].inputs[0], const(np.ones((2, 8), np.float32))
        ),
        **{f"layer_relu_{k}": with_options(layer, k, **RELU) for k in (3, 5, 6, 7, 8, 9)},
        "layer_axis": with_inputs(layer, 2, layer[2].inputs[0], numbers([0])),
        "layer_mean_axis": with_inputs(layer, 0, layer[0].inputs[0], numbers([0])),
        # One value a row, where its shape makes it one a column.
        **{
            f"layer_vector_{k}": with_inputs(
                vectors, k, *(vectors[place].outputs[0] if x is column else x for x in read)
            )
            for k, place, column, read in (
                (2, 0, vectors[1].outputs[0], vectors[2].inputs),
                (10, 5, vectors[6].outputs[0], vectors[10].inputs),
                (11, 8, vectors[9].outputs[0], vectors[11].inputs),
            )
        },
        "layer_vector_mean": with_inputs(vectors, 0, vectors[0].inputs[0], numbers([0, 1])),
        "layer_vector_offset": with_inputs(
            vectors, 8, const(np.ones(8, np.float32)), vectors[8].inputs[1]
        ),
        "layer_source": with_inputs(layer, 8, t((2, 8)), layer[8].inputs[1]),
        "layer_square": with_inputs(layer, 1, t((2, 8)), layer[1].inputs[1]),
        "layer_turned": with_inputs(layer, 7, *layer[7].inputs[::-1]),
        "layer_computed": with_inputs(layer, 3, layer[3].inputs[0], t(())),
        "layer_scale": with_inputs(layer, 6, layer[6].inputs[0], t((2, 8))),
        "share_relu": with_options(shared, 1, **RELU),
        "share_tanh": [replace(shared[0], op="TANH"), shared[1]],
        "norm_relu": with_options(rows, 4, **RELU),
        "norm_axis": with_inputs(rows, 1, rows[1].inputs[0], numbers([0])),
        "norm_sum": [rows[0], replace(rows[1], op="SUM"), *rows[2:]],
        "norm_other": with_inputs(rows, 0, rows[0].inputs[0], t((2, 8))),
        "norm_root": with_inputs(rows, 4, t((2, 8)), rows[4].inputs[1]),
        "norm_computed": with_inputs(rows, 2, rows[2].inputs[0], t(())),
        "norm_drops": with_options(rows, 1, keep_dims=False),
        "rope_relu": with_options(turned, 6, **RELU),
        "rope_axis": with_options(turned, 8, axis=1),
        "rope_begin": with_inputs(
            turned, 1, turned[1].inputs[0], numbers([0, 0, 3]), turned[1].inputs[2]
        ),
        "rope_source": with_inputs(turned, 1, t((2, 3, 8)), *turned[1].inputs[1:]),
        "rope_angle": with_inputs(turned, 5, turned[5].inputs[0], t((3, 4))),
        "rope_sub": [*turned[:7], replace(turned[7], op="SUB"), turned[8]],
        "rope_three": with_inputs(turned, 8, *turned[8].inputs, t((2, 3, 8))),
        "gate_relu": with_options(gated, 1, **RELU),
        "gate_other": with_inputs(gated, 1, t((2, 8)), gated[1].inputs[1]),
        "gate_tanh": [replace(gated[0], op="TANH"), *gated[1:]],
        "attention_beta": with_options(taken, 3, beta=2.0),
        "attention_adjoint": with_options(taken, 4, adj_y=True),
        "attention_straight": with_options(taken, 0, adj_y=False),
        "attention_relu": with_options(taken, 2, **RELU),
        "attention_negative": attention((1, 2, 8), 4, seen(4, 1), -1.0, is_scaled_last=True),
        "attention_scales": with_inputs(
            taken, 1, taken[1].inputs[0], const(np.ones((2, 4), np.float32))
        ),
    }  # fmt: skip
    seen_by_others = {
        "norm_seen": (rows, (rows[3].outputs[0],)),
        "layer_seen": (layer, (layer[0].outputs[0],)),
        "layer_scale_seen": (layer, (layer[5].outputs[0],)),
        "layer_column_seen": (vectors, (vectors[6].outputs[0],)),
        "scaled_seen": (grown, (grown[0].outputs[0],)),
        "share_seen": (shared, (shared[0].outputs[0],)),
        "rope_seen": (turned, (turned[0].outputs[0],)),
        "gate_seen": (gated, (gated[0].outputs[0],)),
        "attention_seen": (taken, (taken[3].outputs[0],)),
    }
    read_twice = {
        f"{name}_twice": (
            [*nodes, op("NEG", [nodes[place].outputs[0]], [t(nodes[place].outputs[0].shape)])], ()
        )
        for name, nodes, place in (
            ("norm", rows, 2), ("layer", layer, 0), ("layer_scale", layer, 5),
            ("layer_root", layer, 4), ("share", shared, 0), ("scaled", grown, 0),
            ("rope", turned, 3), ("gate", gated, 1), ("attention", taken, 1)
        )
    }  # fmt: skip
    return {**{name: (nodes, ()) for name, nodes in plain.items()}, **seen_by_others, **read_twice}


@pytest.mark.parametrize("name", unchanged())
def test_unchanged(name: str) -> None:
    nodes, outputs = unchanged()[name]
    before = partition(nodes, outputs)
    passes = {*KINDS} - {"fuse_logistic" if name.startswith("gate") else ""}  # it fuses only a part
    assert run_passes(before, every, [each for each in PASSES if each in passes]) is before
