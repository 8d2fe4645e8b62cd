# SPDX-License-Identifier: Apache-2.0
"""Nodes that differ only in their tensors are lowered once, and get their own tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegate import ops
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, is_temporary
from delegate.plan.lowering.lowering_cache import LoweringCache
from delegate.target import Target
from tests.support.fused import fused
from tests.support.model import const, op, t

SIZE = (2, 3, 16)
NONE = {"fused_activation_function": "NONE"}
TARGETS = [Target(), Target("cpu", 16, 2)]


@pytest.fixture(autouse=True)
def lowered_nodes(monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    """Collect the nodes passed to `ops.lower`."""
    nodes: list[Node] = []

    def lower(node: Node, target: Target) -> tuple[Alternative, ...]:
        nodes.append(node)
        return real(node, target)

    real = ops.lower
    monkeypatch.setattr(ops, "lower", lower)
    return nodes


def words(alternatives: tuple[Alternative, ...], node: Node) -> list[Any]:
    """Return all contents of alternatives; tensors as positions in the node, or in order of use.

    Constants as bytes.
    """
    places: dict[Tensor, object] = {}
    for place, tensor in enumerate((*node.inputs, *node.outputs)):
        if tensor is not None:
            places.setdefault(tensor, place)

    def word(value: object) -> object:
        if isinstance(value, Constant):
            return value.pack().tobytes()
        if not isinstance(value, Tensor):
            return value
        if value not in places:
            assert is_temporary(value)
        return places.setdefault(value, f"temporary {len(places)} {value.shape} {value.dtype}")

    def launches(alternative: Alternative) -> Iterator[object]:
        for each in alternative.launches:
            params = [(name, word(value)) for name, value in each.params.items()]
            yield each.file, each.kernel, each.tiles, each.group_items, params, each.is_specialised
            yield [*map(word, each.reads)], [*map(word, each.writes)], dict(each.defines)

    return [
        (
            each.name,
            [*launches(each)],
            [*map(word, each.view or ())],
            [*map(word, each.copied or ())],
        )
        for each in alternatives
    ]


def add(x: Tensor, y: Tensor, **options: Any) -> Node:
    return op("ADD", [x, y], [t(SIZE)], NONE | options)


def number(value: float) -> Tensor:
    return const(np.array([value], np.float32))


def softmax(beta: float = 1.0) -> Node:
    return op("SOFTMAX", [t(SIZE)], [t(SIZE)], {"beta": beta})


def moved(axes: tuple[int, ...]) -> Node:
    shape = tuple(SIZE[axis] for axis in axes)
    return op("TRANSPOSE", [t(SIZE), const(np.array(axes, np.int32))], [t(shape)])


def batches() -> Node:
    return op(
        "BATCH_MATMUL",
        [t((2, 3, 16)), const(np.ones((2, 16, 5), np.int8), 0.1, 0)],
        [t((2, 3, 5))],
        {"adj_x": False, "adj_y": False, "asymmetric_quantize_inputs": True},
    )


def same_twice() -> Node:
    x = t(SIZE)
    return add(x, x)


@pytest.mark.parametrize("target", TARGETS, ids=["gpu", "cpu"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (add(t(SIZE), t(SIZE)), add(t(SIZE), t(SIZE))),
        (add(t(SIZE), number(0.5)), add(t(SIZE), number(0.5))),
        (same_twice(), same_twice()),
        (softmax(), softmax()),
        (moved((0, 2, 1)), moved((0, 2, 1))),
        (batches(), batches()),
    ],
    ids=["add", "a number", "one tensor twice", "softmax", "transpose", "rows"],
)
def test_similar_nodes_are_lowered_once(
    one: Node, other: Node, target: Target, lowered_nodes: list[Node]
) -> None:
    other = replace(other, index=7)
    lowered = LoweringCache()
    first, second = (lowered.lower(node, target) for node in (one, other))
    assert lowered_nodes == [one]
    assert words(first, one) == words(second, other) == words(ops.lower(other, target), other)
    temporaries = [
        {t for each in result for launch in each.launches for t in launch.writes if is_temporary(t)}
        for result in (first, second)
    ]
    assert temporaries[0].isdisjoint(temporaries[1])
    assert lowered.fingerprint(one, lambda: "of the first") == "of the first"
    assert lowered.fingerprint(other, lambda: "of another") == "of the first"


def long(values: float) -> Node:
    return op("MUL", [t((3, 512)), const(np.full(512, values, np.float32))], [t((3, 512))], NONE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (add(t(SIZE), t(SIZE)), same_twice()),
        (add(t(SIZE), t(SIZE)), add(t(SIZE), t((1, 1, 16)))),
        (add(t(SIZE), t(SIZE)), add(t(SIZE), t(SIZE), fused_activation_function="RELU")),
        (add(t(SIZE), number(0.0)), add(t(SIZE), number(-0.0))),
        (softmax(0.0), softmax(-0.0)),
        (moved((0, 2, 1)), moved((1, 0, 2))),
        (long(1.0), long(2.0)),
        (long(1.0), long(1.0)),  # not compared
    ],
    ids=["one twice", "shape", "option", "constant", "zeros", "axes", "weights", "equal weights"],
)
def test_different_nodes_are_lowered_separately(
    one: Node, other: Node, lowered_nodes: list[Node]
) -> None:
    lowered = LoweringCache()
    for node in (one, other):
        result = lowered.lower(node, Target())
        assert words(result, node) == words(ops.lower(node, Target()), node)
    assert lowered_nodes[::2] == [one, other]


def test_cache_belongs_to_target(lowered_nodes: list[Node]) -> None:
    one, other = add(t(SIZE), t(SIZE)), add(t(SIZE), t(SIZE))
    first = LoweringCache()
    first.lower(one, Target())
    LoweringCache(first).lower(other, Target())
    assert lowered_nodes == [one]
    LoweringCache().lower(other, Target())
    assert lowered_nodes == [one, other]


def test_a_fused_node_is_compared_by_the_nodes_it_stands_for(lowered_nodes: list[Node]) -> None:
    def chain(factor: int, activation: str = "RELU") -> Node:
        x, y, z = (t((4, 8, 16), "int8", 0.1) for _ in range(3))
        factors = const(np.full(16, factor, np.int8), 0.02)
        nodes = [op("MUL", [x, factors], [y], NONE), op(activation, [y], [z])]
        return fused(nodes, ["fuse_pointwise"])

    nodes = [chain(7), chain(7), chain(8), chain(7, "RELU6")]
    for target in TARGETS:
        lowered_nodes.clear()
        cache = LoweringCache()
        found = [cache.lower(node, target) for node in nodes]
        assert [node for node in lowered_nodes if node in nodes] == [nodes[0], *nodes[2:]]
        for node, alternatives in zip(nodes, found, strict=True):
            assert words(alternatives, node) == words(ops.lower(node, target), node)
