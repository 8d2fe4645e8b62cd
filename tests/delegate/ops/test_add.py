# SPDX-License-Identifier: Apache-2.0
"""ADD: its launches, what it refuses, and its numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from delegate.launch import Launch
from tests.support.cases import (
    LANES_2,
    LANES_4,
    LANES_8,
    LANES_16,
    SIMT,
    STRATEGIES,
    Strategy,
    changed,
    only_launch,
    quantization,
    retyped,
)
from tests.support.factories import drawn, refused
from tests.support.model import graph_of
from tests.support.pairs import assert_pair_or_refused, every_pair, pairs
from tests.support.refusals import activated, sparse, unquantised
from tests.support.suite_cases import assert_graph, from_suite
from tflite_opencl.conformance.cases.binary import pair
from tflite_opencl.oracle.values import input_sets

test_add = from_suite("ADD", strategies=(SIMT, LANES_16))


def node(
    shape: tuple[int, ...] = (1, 7, 5, 3),
    dtype: str = "uint8",
    scales: tuple[float, float, float] = (0.1, 0.07, 0.13),
    zeros: tuple[int, int, int] | None = None,
) -> Node:
    return pair("ADD", dtype, (shape, shape), scales=scales, zeros=zeros).nodes[0]


def launches(node: Node, strategy: Strategy) -> dict[str, Launch]:
    """Return the launch of each alternative, by name, in order."""
    found = ops.lower(node, strategy.target)
    return {alternative.name: only_launch(alternative) for alternative in found}


@pytest.mark.parametrize(
    ("strategy", "elements", "names"),
    [
        (SIMT, 3, ["plain"]),
        (SIMT, 4, ["float 4", "vector 4", "plain"]),
        (LANES_2, 99, ["plain"]),
        (LANES_8, 7, ["float 4", "vector 4", "plain"]),
        (LANES_16, 16, ["float 16", "vector 16", "plain"]),
    ],
    ids=str,
)
def test_floats_then_vectors_then_plain(
    strategy: Strategy, elements: int, names: list[str]
) -> None:
    assert list(launches(node((elements,)), strategy)) == names


def test_no_floats_where_none_are_exact() -> None:
    # Half of the sum of two integers is a tie for every odd one, away from 0 in TFLite.
    halved = node((16,), "int8", (0.5, 0.5, 1.0), (0, 0, 0))
    assert list(launches(halved, SIMT)) == ["vector 4", "plain"]


@pytest.mark.parametrize(
    ("strategy", "tiles", "group_items"), [(SIMT, 33, 64), (LANES_8, 3, 1)], ids=str
)
def test_plain_launch(strategy: Strategy, tiles: int, group_items: int) -> None:
    launch = launches(node((3, 683), "int8"), strategy)["plain"]
    assert (launch.file, launch.kernel) == ("add", "add_quant8")
    assert (launch.tiles, launch.group_items) == (tiles, group_items)  # of 2049 elements


def test_vector_launches() -> None:
    floats, vectors = list(launches(node((3, 683)), SIMT).values())[:2]
    assert floats.kernel == vectors.kernel == "add_vector_quant8"
    assert (floats.tiles, floats.group_items) == (vectors.tiles, vectors.group_items) == (9, 64)
    assert floats.defines == {"ELEM": "uchar", "LANES": 4, "IS_FLOAT": 1}
    assert vectors.defines == {"ELEM": "uchar", "LANES": 4, "IS_FLOAT": 0}
    one_item = launches(node((3, 683)), LANES_16)["float 16"]
    # 129 vectors, in tiles that are worth claiming
    assert (one_item.tiles, one_item.params["tile_items"]) == (1, 129)
    large = launches(node((1 << 20,)), LANES_16)["float 16"]
    assert (large.tiles, large.params["tile_items"]) == (16, 4096)


NODE = node()
REFUSALS: dict[str, tuple[Node, str]] = {
    "output_shape": (
        changed(NODE, -1, shape=()),
        "1x7x5x3 and 1x7x5x3 -> scalar: not the broadcast shape",
    ),
    "types_differ": (changed(NODE, 1, dtype="int8"), "uint8 and int8 -> uint8: they must be equal"),
    "int16_zero_point": (
        retyped(NODE, "int16", (0, 1, -1)),
        "int16 with zero point 125: it must be 0",
    ),
    "float64": (
        retyped(NODE, "float64", (0, 1, -1)),
        "float64: only uint8, int8, int16, int32, float32, int64 are implemented",
    ),
    "without_quantisation": unquantised(NODE, 1),
    "output_scale": (
        changed(NODE, -1, quantization=quantization(2.0**-23)),
        f"output scale {2.0**-23}: too small beside 0.10000000149011612",
    ),
    "empty": (
        changed(changed(changed(NODE, 0, shape=(0,)), 1, shape=(0,)), -1, shape=(0,)),
        "shape 0: it is empty",
    ),
    "fused_tanh": activated(NODE, "TANH"),
    "sparse_constant": sparse(NODE, 1),
    "one_input": (replace(NODE, inputs=NODE.inputs[:1]), "1 inputs: 2 expected"),
    "left_out_input": (replace(NODE, inputs=(NODE.inputs[0], None)), "2 inputs: 2 expected"),
    "no_output": (replace(NODE, outputs=()), "0 outputs: 1 is expected"),
}

test_refusal = refused(REFUSALS)


def test_a_tensor_and_itself(device: DeviceInfo) -> None:
    twice = replace(NODE, inputs=NODE.inputs[:1] * 2)
    graph = graph_of([twice])
    for strategy in STRATEGIES:
        assert_graph(graph, device, strategy, input_sets(graph))


EVERY = {
    "defaults": pair("ADD", "uint8", ((256, 256),) * 2),
    "relu": pair("ADD", "int8", ((256, 256),) * 2, fused="RELU"),
    "of_v2": pair(
        "ADD", "uint8", ((256, 256),) * 2, scales=(0.4015, 0.2758, 0.4322), zeros=(136, 119, 133)
    ),
    "saturating": pair("ADD", "int8", ((256, 256),) * 2, scales=(0.19, 0.17, 0.05)),
}


@pytest.mark.parametrize("alternative", ["float", "vector", "plain"])
@pytest.mark.parametrize("strategy", [SIMT, LANES_4, LANES_8, LANES_16], ids=str)
@pytest.mark.parametrize("name", EVERY)
def test_every_pair_of_inputs(
    name: str, strategy: Strategy, alternative: str, device: DeviceInfo
) -> None:
    graph = EVERY[name]
    forced_strategy = replace(strategy, alternative=alternative)
    assert_graph(graph, device, forced_strategy, [every_pair(graph.inputs[0].dtype)])


test_drawn = drawn(
    pairs(("ADD",), ("uint8", "int8", "int16", "int32", "float32")),
    STRATEGIES,
    assert_pair_or_refused,
)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's nodes of a size and an 8-bit type, for the tests of all ops."""
    return [node((1, size, size, channels), dtype, (0.5, 0.5, 0.5), (3, 3, 3))]
