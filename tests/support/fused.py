# SPDX-License-Identifier: Apache-2.0
"""Subgraphs of transformers as converters write them, which passes fuse into one node."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from delegate import DeviceInfo, OpenCLDelegate
from delegate.graph.partition import Partition, partition_of
from delegate.inspect import Node, Tensor, read_model
from delegate.plan.passes import PASSES, run_passes
from tests.support.cases import RUN, Strategy, forced, require_isa
from tests.support.compare import assert_close, interpreter, invoke
from tests.support.model import chain_model, const, graph_of, op, t
from tests.support.moves import numbers
from tflite_opencl.models.build import as_int4, in_blocks

PLAIN = {"fused_activation_function": "NONE"}
HIDDEN = -1e30


def norm(shape: tuple[int, ...], epsilon: float = 1e-5, is_swapped: bool = False) -> list[Node]:
    """Return the nodes of RMS norm over rows; `is_swapped`: inputs of commutative ops."""
    source, square, by_root, result = (t(shape) for _ in range(4))
    mean, sum_, root = (t((*shape[:-1], 1)) for _ in range(3))
    scale = const(np.random.default_rng(7).normal(1, 0.3, shape[-1]).astype(np.float32))
    order = -1 if is_swapped else 1
    return [
        op("MUL", [source, source], [square], PLAIN),
        op("MEAN", [square, numbers([-1 if is_swapped else len(shape) - 1])], [mean],
           {"keep_dims": True}),
        op("ADD", [mean, const(np.float32(epsilon))][::order], [sum_], PLAIN),
        op("RSQRT", [sum_], [root]),
        op("MUL", [source, root][::order], [by_root], PLAIN),
        op("MUL", [by_root, scale][::order], [result], PLAIN),
    ]  # fmt: skip


def layer_norm(
    shape: tuple[int, ...], epsilon: float = 1e-12, is_swapped: bool = False
) -> list[Node]:
    """Return the nodes of layer norm over rows; `is_swapped`: inputs of commutative ops."""
    x, square, by_scale, result = (t(shape) for _ in range(4))
    mean, variance, raised, root = (t((*shape[:-1], 1)) for _ in range(4))
    rng, order = np.random.default_rng(8), -1 if is_swapped else 1
    gain, bias = (const(rng.normal(k, 0.3, shape[-1]).astype(np.float32)) for k in (1, 0))
    scale, by_mean, moved = (t(shape) for _ in range(3))
    axis, keeps = numbers([-1 if is_swapped else len(shape) - 1]), {"keep_dims": True}
    return [
        op("MEAN", [x, axis], [mean], keeps),
        op("SQUARED_DIFFERENCE", [x, mean][::order], [square]),
        op("MEAN", [square, axis], [variance], keeps),
        op("ADD", [variance, const(np.float32(epsilon))][::order], [raised], PLAIN),
        op("RSQRT", [raised], [root]),
        op("MUL", [root, gain][::order], [scale], PLAIN),
        op("MUL", [mean, scale][::order], [by_mean], PLAIN),
        op("SUB", [bias, by_mean], [moved], PLAIN),
        op("MUL", [x, scale][::order], [by_scale], PLAIN),
        op("ADD", [by_scale, moved][::order], [result], PLAIN),
    ]


def layer_norm_of_vectors(
    shape: tuple[int, ...], has_columns: bool = False, is_swapped: bool = False
) -> list[Node]:
    """Return layer norm whose MEANs drop all dimensions of one element, as litert-torch writes it.

    `has_columns`: with a scale and an offset; without, both are left out but for an offset of 0.
    """
    x, square, by_scale, result = (t(shape) for _ in range(4))
    column, vector = (*shape[:-1], 1), tuple(n for n in shape[:-1] if n > 1)
    axes = numbers([k for k, n in enumerate(shape[:-1]) if n == 1] + [len(shape) - 1])
    mean, variance, raised, root = (t(vector) for _ in range(4))
    mean_column, root_column = t(column), t(column)
    rng, order = np.random.default_rng(9), -1 if is_swapped else 1
    gain, bias = (const(rng.normal(k, 0.3, shape[-1]).astype(np.float32)) for k in (1, 0))
    nodes = [
        op("MEAN", [x, axes], [mean], {"keep_dims": False}),
        op("RESHAPE", [mean, numbers(column)], [mean_column]),
        op("SQUARED_DIFFERENCE", [x, mean_column][::order], [square]),
        op("MEAN", [square, axes], [variance], {"keep_dims": False}),
        op("ADD", [variance, const(np.float32(1e-5))][::order], [raised], PLAIN),
        op("RSQRT", [raised], [root]),
        op("RESHAPE", [root, numbers(column)], [root_column]),
    ]
    moved = t(shape if has_columns else column)
    ends = [
        op("MUL", [x, root_column][::order], [by_scale], PLAIN),
        op("ADD", [by_scale, moved][::order], [result], PLAIN),
    ]
    if has_columns:
        scale, by_mean = t(shape), t(shape)
        ends[0] = op("MUL", [x, scale][::order], [by_scale], PLAIN)
        return [
            *nodes,
            op("MUL", [root_column, gain][::order], [scale], PLAIN),
            op("MUL", [mean_column, scale][::order], [by_mean], PLAIN),
            op("SUB", [bias, by_mean], [moved], PLAIN),
            *ends,
        ]
    by_mean, less = t(vector), t(vector)
    return [
        *nodes,
        op("MUL", [root, mean][::order], [by_mean], PLAIN),
        op("SUB", [const(np.float32(0)), by_mean], [less], PLAIN),
        op("RESHAPE", [less, numbers(column)], [moved]),
        *ends,
    ]


def share(shape: tuple[int, ...], is_own: bool = True, is_swapped: bool = False) -> list[Node]:
    """Return LOGISTIC and MUL; `is_own`: the gate multiplies itself, which is SiLU."""
    gate, logistic = t(shape), t(shape)
    pair = [gate if is_own else t(shape), logistic][:: -1 if is_swapped else 1]
    return [op("LOGISTIC", [gate], [logistic]), op("MUL", pair, [t(shape)], PLAIN)]


def scaled(
    shape: tuple[int, ...], has_residual: bool = False, is_swapped: bool = False
) -> list[Node]:
    """Return a MUL and an ADD with a constant row each; `is_swapped`: inputs of both."""
    rng, order = np.random.default_rng(shape[-1]), -1 if is_swapped else 1
    rows = [const(rng.normal(0, 1, shape[-1]).astype(np.float32)) for _ in range(2)]
    first, added, grown = t(shape), t(shape), t(shape)
    nodes = [op("ADD", [first, t(shape)], [added], PLAIN)] if has_residual else []
    source = added if has_residual else first
    return [
        *nodes,
        op("MUL", [source, rows[0]][::order], [grown], PLAIN),
        op("ADD", [grown, rows[1]][::order], [t(shape)], PLAIN),
    ]


def rope(shape: tuple[int, ...], angles: tuple[int, ...] | None = None) -> list[Node]:
    """Return the nodes of a rotary embedding over halves of rows; `angles`: shape of the angles."""
    half = (*shape[:-1], shape[-1] // 2)
    source, cos, sin = t(shape), t(angles or half[1:]), t(angles or half[1:])
    one, two, *products, less, more = (t(half) for _ in range(8))
    size = numbers(half)
    begin = [0] * (len(shape) - 1)
    pairs = [(one, cos), (two, sin), (two, cos), (one, sin)]
    return [
        op("SLICE", [source, numbers([*begin, 0]), size], [one]),
        op("SLICE", [source, numbers([*begin, half[-1]]), size], [two]),
        *(op("MUL", pair, [result], PLAIN) for pair, result in zip(pairs, products, strict=True)),
        op("SUB", products[:2], [less], PLAIN),
        op("ADD", products[2:], [more], PLAIN),
        op("CONCATENATION", [less, more], [t(shape)], {"axis": len(shape) - 1, **PLAIN}),
    ]


def gate(shape: tuple[int, ...], is_swapped: bool = False) -> list[Node]:
    """Return the nodes of SwiGLU's gate: SiLU times another tensor; `is_swapped`: MUL's inputs."""
    source, other, share, silu = (t(shape) for _ in range(4))
    order = -1 if is_swapped else 1
    return [
        op("LOGISTIC", [source], [share]),
        op("MUL", [source, share][::order], [silu], PLAIN),
        op("MUL", [silu, other][::order], [t(shape)], PLAIN),
    ]


def attention(
    shape: tuple[int, ...],
    places: int,
    mask: Tensor | None = None,
    scale: float | None = 0.125,
    is_swapped: bool = False,
    is_scaled_last: bool = False,
) -> list[Node]:
    """Return the nodes of attention for queries of this shape.

    `mask`, `scale`: None leaves out the ADD or MUL. `is_scaled_last`: the MUL follows the ADD, as
    with relative positions.
    """
    *outer, rows, head = shape
    queries, keys, values = t(shape), t((*outer, places, head)), t((*outer, places, head))
    scores = t((*outer, rows, places))
    order = -1 if is_swapped else 1
    nodes = [op("BATCH_MATMUL", [queries, keys], [scores], {"adj_x": False, "adj_y": True})]
    if scale is not None:
        scaled = t(scores.shape)
        nodes.append(op("MUL", [scores, const(np.float32(scale))][::order], [scaled], PLAIN))
        scores = scaled
    if mask is not None:
        masked = t(scores.shape)
        nodes.append(op("ADD", [scores, mask][::order], [masked], PLAIN))
        scores = masked
    if is_scaled_last:
        (product, scaling, adding), scaled = nodes, t(scores.shape)
        adding = replace(adding, inputs=(product.outputs[0], mask)[::order])
        factors = (adding.outputs[0] if x is product.outputs[0] else x for x in scaling.inputs)
        scaling = replace(scaling, inputs=tuple(factors), outputs=(scaled,))
        nodes, scores = [product, adding, scaling], scaled
    shares = t(scores.shape)
    nodes.append(op("SOFTMAX", [scores], [shares], {"beta": 1.0}))
    options = {"adj_x": False, "adj_y": False}
    return [*nodes, op("BATCH_MATMUL", [shares, values], [t(shape)], options)]


def shifted(
    rows: int,
    out_c: int,
    blocks: int,
    size: int = 32,
    is_swapped: bool = False,
    are_halves: bool = False,
) -> list[Node]:
    """Return a FULLY_CONNECTED of blockwise int4 weights, and one that adds a shift for each block.

    `is_swapped`: inputs of the ADD. `are_halves`: float16 can represent each shift.
    """
    rng = np.random.default_rng(out_c)
    depth = blocks * size
    values = as_int4(const(rng.integers(-128, 128, (out_c, depth)).astype(np.int8)))
    weights = in_blocks(values, rng.normal(0, 0.1, (out_c, blocks)))
    shift = np.float16 if are_halves else np.float32
    shifts = const(rng.normal(0, 0.1, (out_c, blocks)).astype(shift).astype(np.float32))
    source, sums, product, more = (
        t((rows, depth)),
        t((rows, blocks)),
        t((rows, out_c)),
        t((rows, out_c)),
    )
    options = {**PLAIN, "keep_num_dims": True}
    hybrid = {**options, "asymmetric_quantize_inputs": True}
    pair = [product, more][:: -1 if is_swapped else 1]
    return [
        op("FULLY_CONNECTED", [source, weights, None], [product], hybrid, version=12),
        op("FULLY_CONNECTED", [sums, shifts, None], [more], options),
        op("ADD", pair, [t((rows, out_c))], PLAIN),
    ]


def seen(places: int, *counts: int, hidden: float = HIDDEN) -> Tensor:
    """Return an additive mask whose row i shows the first counts[i] places."""
    rows = np.full((len(counts), places), hidden, np.float32)
    for row, count in zip(rows, counts, strict=True):
        row[:count] = 0
    return const(rows)


# One row sees no place of the first half, and another none of the last.
HIDDEN_FIRST = np.zeros((3, 96), np.float32)
HIDDEN_FIRST[0, :60] = HIDDEN_FIRST[1, 30:] = -np.inf
NORMS = {
    "row": norm((1, 576)),
    "rows": norm((3, 5, 37)),
    "swapped": norm((2, 64), 1e-6, is_swapped=True),
    "narrow": norm((7, 3)),
    "one": norm((4, 1)),
}
LAYER_NORMS = {
    "row": layer_norm((1, 144)),
    "rows": layer_norm((3, 5, 37)),
    "swapped": layer_norm((2, 64), 1e-3, is_swapped=True),
    "narrow": layer_norm((7, 3), 1e-2),
    "one": layer_norm((4, 1), 1.0),
    "vectors": layer_norm_of_vectors((1, 24, 192)),
    "vectors_square": layer_norm_of_vectors((1, 19, 19), is_swapped=True),
    "vectors_columns": layer_norm_of_vectors((2, 1, 5, 37), has_columns=True),
    "vectors_columns_swapped": layer_norm_of_vectors((1, 7, 64), True, is_swapped=True),
}
SCALED = {
    "row": scaled((1, 128)),
    "rows": scaled((3, 5, 37), has_residual=True),
    "swapped": scaled((9, 64), has_residual=True, is_swapped=True),
    "narrow": scaled((7, 3)),
    "many": scaled((70, 512), has_residual=True),
}
SHARES = {
    "row": share((1, 576)),
    "swapped": share((3, 5, 7), is_swapped=True),
    "other": share((64, 200), is_own=False),
    "other_swapped": share((9,), is_own=False, is_swapped=True),
}
ROPES = {
    "heads": rope((9, 1, 64)),
    "rows": rope((3, 5, 64)),
    "odd": rope((3, 5, 14)),
    "pair": rope((1, 2)),
    "four": rope((2, 3, 4, 32)),
    "one_before": rope((2, 3, 4, 32), (1, 4, 16)),
    "every": rope((2, 3, 8), (2, 3, 4)),
}
GATES = {
    "row": gate((1, 1536)),
    "swapped": gate((3, 5, 7), is_swapped=True),
    "one": gate((1,)),
    "many": gate((64, 200)),
}
ATTENTIONS = {
    "cache": attention((3, 3, 64), 512, seen(512, 35)),
    "full": attention((3, 3, 64), 96, seen(96, 96)),
    "first": attention((2, 1, 32), 128, seen(128, 1)),
    "prefill": attention((2, 12, 16), 40, seen(40, *range(1, 13))),
    "each_row": attention((1, 9, 16), 200, seen(200, 150, 3, 70, 0, 96, 97, 1, 64, 65)),
    "swapped": attention((1, 2, 5, 32), 36, seen(36, 3, 9, 36, 1, 20), is_swapped=True),
    "no_mask": attention((2, 7, 24), 19),
    "no_scale": attention((1, 4, 64), 33, seen(33, 9), None),
    "alone": attention((1, 4, 8), 6, None, None),
    "bert": attention((1, 2, 6, 32), 6, seen(6, 4, hidden=-10000.0)),
    "whole": attention((1, 3, 16), 64, seen(64, 0), 0.25),
    "infinite": attention((1, 3, 16), 64, seen(64, 9, hidden=-np.inf), 0.25),
    "odd": attention((2, 3, 7), 10, seen(10, 4)),
    "hidden_first": attention((3, 3, 16), 96, const(HIDDEN_FIRST)),
    "computed": attention((2, 3, 16), 12, t((3, 12)), 0.25),
    "of_each": attention((2, 3, 16), 12, t((2, 3, 12)), 0.25),
    "tiles": attention((2, 13, 36), 45, t((2, 13, 45)), 0.25),
    "many": attention((3, 9, 20), 70, seen(70, 31)),
    "distances": attention((2, 9, 20), 9, t((2, 9, 9)), is_scaled_last=True),
    "late": attention((2, 3, 16), 12, seen(12, 7), is_swapped=True, is_scaled_last=True),
}
SHIFTED = {
    "row": shifted(1, 40, 3),
    "rows": shifted(5, 70, 2),
    "many": shifted(9, 33, 4, 64),
    "registers": shifted(40, 70, 3),
    "long": shifted(2, 17, 520),  # rows of more are quantised in parts
    "swapped": shifted(2, 19, 4, 10, is_swapped=True),
    "halves_row": shifted(1, 40, 3, are_halves=True),
    "halves_rows": shifted(5, 70, 2, are_halves=True),
}
EVERY = {
    f"{kind}_{name}": nodes
    for kind, table in (
        ("norm", NORMS),
        ("layer_norm", LAYER_NORMS),
        ("scaled", SCALED),
        ("share", SHARES),
        ("rope", ROPES),
        ("gate", GATES),
        ("attention", ATTENTIONS),
    )
    for name, nodes in table.items()
}


def partition(nodes: list[Node], outputs: tuple[Tensor, ...] = ()) -> Partition:
    """Return the partition of all nodes; its outputs are the last node's, and `outputs`."""
    graph = graph_of(nodes, outputs=[*nodes[-1].outputs, *outputs])
    return partition_of(graph, range(len(nodes)))


def every(node: Node) -> bool:
    """Accept every fused node."""
    return True


def fused(nodes: list[Node], passes: Collection[str] = tuple(PASSES)) -> Node:
    """Return the one node into which passes fuse these."""
    graph = graph_of(nodes)
    whole = partition_of(graph, range(len(nodes)))
    (node,) = run_passes(whole, every, passes).nodes
    return node


def given(node: Node, position: int, shape: tuple[int, ...], dtype: str = "float32") -> Node:
    """Return a node with another tensor as its input `position`."""
    inputs = [*node.inputs]
    inputs[position] = t(shape, dtype)
    return replace(node, inputs=tuple(inputs))


def assert_near_nodes(
    nodes: list[Node], device: DeviceInfo, strategy: Strategy, cpu_kernels: str = "reference"
) -> None:
    """Assert that one fused node runs instead of these, and is near TFLite's float results."""
    require_isa(strategy, device)
    model = chain_model(nodes)
    with forced(strategy):
        delegate = OpenCLDelegate(model, device.index, tune="off", profiling=True)
        interp = interpreter(model, delegate)
    reference = interpreter(model, cpu_kernels=cpu_kernels)
    graph = read_model(model)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        values = [rng.normal(0, 1.5, x.shape).astype(np.float32) for x in graph.inputs]
        for ours, theirs in zip(invoke(interp, values), invoke(reference, values), strict=True):
            bound = 3e-6 * (1 + np.abs(theirs.astype(np.float64)).max())
            assert_close(ours, theirs, bound, f"seed {seed}")
    (op,) = {row.op for row in delegate.profile()}
    assert op == fused(nodes).op
    RUN[op] += 1
