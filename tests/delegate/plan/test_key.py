# SPDX-License-Identifier: Apache-2.0
"""Keys of plans: equal in each process for equal facts, and different for all that matters."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from delegate.graph.ir import Blocks, Calls, Graph, Node, Quantization, Resources, Tensor
from delegate.graph.partition import Partition, partition_of
from delegate.plan import key as module
from delegate.plan.key import (
    code_digest,
    graph_facts,
    installation_key,
    key_of,
    origin_of,
    partition_facts,
    share_plan,
    target_facts,
    values_key,
)
from delegate.target import Rules, Target
from tests.support.model import const, graph_of, op, t
from tests.support.process import ROOT
from tests.support.tiers import slow
from tflite_opencl.conformance.cases import all_cases


def small() -> Graph:
    """Return a matrix product and a sum, as new objects."""
    x, middle, result = (t((2, 8), "int8", 0.5, 3, name=name) for name in ("x", "middle", "y"))
    values = np.arange(64, dtype=np.int8).reshape(8, 8)
    many = tuple(float(np.float32(0.25) + i) for i in range(8))
    weights = replace(const(values), quantization=Quantization(many, (0,) * 8))
    bias = const(np.arange(8, dtype=np.int32), 0.125)
    options = {"fused_activation_function": "NONE", "keep_num_dims": False}
    nodes = [
        op("FULLY_CONNECTED", [x, weights, bias], [middle], options, 4),
        op("ADD", [middle, x], [result], {"fused_activation_function": "NONE"}, 2),
    ]
    return graph_of(nodes, [x], [result])


def key(graph: Graph) -> str:
    return key_of(graph_facts(graph))


def with_tensor(graph: Graph, old: Tensor, **changes: Any) -> Graph:
    """Return the graph with a tensor replaced everywhere."""
    new = replace(old, **changes)

    def of(tensors: Any) -> tuple[Any, ...]:
        return tuple(new if each is old else each for each in tensors)

    nodes = tuple(replace(n, inputs=of(n.inputs), outputs=of(n.outputs)) for n in graph.nodes)
    ends = {"inputs": of(graph.inputs), "outputs": of(graph.outputs)}
    return replace(graph, nodes=nodes, tensors=of(graph.tensors), **ends)


def with_node(graph: Graph, place: int, **changes: Any) -> Graph:
    nodes = [*graph.nodes]
    nodes[place] = replace(nodes[place], **changes)
    return replace(graph, nodes=tuple(nodes))


def flipped(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    other = array.copy()
    other.reshape(-1)[-1] ^= 1
    return other


def of_weights(**changes: Callable[[Tensor], Any]) -> Callable[[Graph], Graph]:
    def changed(graph: Graph) -> Graph:
        weights = graph.nodes[0].inputs[1]
        assert weights is not None
        return with_tensor(graph, weights, **{n: change(weights) for n, change in changes.items()})

    return changed


def rescaled(weights: Tensor) -> Quantization:
    assert weights.quantization is not None
    scale = weights.quantization.scale
    return replace(weights.quantization, scale=(*scale[:-1], float(np.nextafter(scale[-1], 99))))


def _data(weights: Tensor) -> np.ndarray[Any, Any]:
    assert weights.data is not None
    return weights.data


# Field of a tensor -> another value.
OF_TENSORS: Mapping[str, Callable[[Graph], Graph]] = {
    "index": of_weights(index=lambda _: 77),
    "name": of_weights(name=lambda _: "other"),
    "shape": lambda graph: with_tensor(graph, graph.inputs[0], shape=(1, 16)),
    "dtype": lambda graph: with_tensor(graph, graph.inputs[0], dtype="uint8"),
    "quantization": of_weights(quantization=rescaled),
    "data": of_weights(data=lambda weights: flipped(_data(weights))),
    "is_variable": of_weights(is_variable=lambda _: True),
    "is_sparse": of_weights(is_sparse=lambda _: True),
    "is_folded": of_weights(is_folded=lambda _: True),
    "ranges": of_weights(ranges=lambda _: (np.zeros(3, np.int64), np.ones(3, np.int64))),
    "origin": of_weights(origin=lambda _: 5),
    "blocks": of_weights(blocks=lambda _: Blocks(np.ones((8, 2), np.float16), 4)),
    "state_name": of_weights(state_name=lambda _: "cache"),
}
MORE: Mapping[str, Callable[[Graph], Graph]] = {
    "zero point": lambda graph: with_tensor(
        graph, graph.inputs[0], quantization=Quantization((0.5,), (4,))
    ),
    "axis": of_weights(
        quantization=lambda w: replace(w.quantization or Quantization((), ()), axis=1)
    ),
    "no constant": of_weights(data=lambda _: None),
    "type of data": of_weights(data=lambda weights: _data(weights).view(np.uint8)),
    "shape of data": of_weights(data=lambda weights: _data(weights).reshape(4, 16)),
    "block size": of_weights(blocks=lambda _: Blocks(np.ones((8, 2), np.float16), 8)),
    "block scales": of_weights(blocks=lambda _: Blocks(np.zeros((8, 2), np.float16), 4)),
    "other ranges": of_weights(ranges=lambda _: (np.zeros(3, np.int64), np.zeros(3, np.int64))),
    "the same tensor twice": lambda graph: with_node(
        graph, 1, inputs=graph.nodes[1].inputs[:1] * 2
    ),
}
OF_NODES: Mapping[str, Any] = {
    "index": 9,
    "op": "SUB",
    "version": 3,
    "inputs": (None,),
    "outputs": (),
    "options": {"fused_activation_function": "RELU"},
    "is_custom": True,
    "inner": (t((1,)),),
    "body": graph_of([], [], []),
    "calls": Calls(()),
    "intermediates": (None,),
}
OF_GRAPHS: Mapping[str, Any] = {
    "nodes": (),
    "inputs": (),
    "outputs": (),
    "is_called": True,
    "resources": Resources({"cache": np.ones(3, np.float32)}),
}
# Fields that do not affect plans: names, and what is only read before planning.
_OF_FILES = {
    "tensors", "description", "subgraph", "subgraphs", "input_names", "output_names",
}  # fmt: skip


def test_fields_are_in_key_or_left_out_on_purpose() -> None:
    assert {each.name for each in fields(Tensor)} - {*OF_TENSORS} == {"shape_signature"}
    assert {each.name for each in fields(Node)} - {*OF_NODES} == set()
    assert {each.name for each in fields(Graph)} - {*OF_GRAPHS} == _OF_FILES


def test_equal_graphs_have_one_key() -> None:
    assert key(small()) == key(small())
    partitions = [partition_of(small(), range(2)) for _ in range(2)]
    assert len({key_of(partition_facts(each)) for each in partitions}) == 1


def test_partitions_of_equal_facts_share_a_plan() -> None:
    one, equal = (partition_of(small(), range(2)) for _ in range(2))
    assert share_plan(one, equal)
    assert not share_plan(one, partition_of(MORE["zero point"](small()), range(2)))
    known = replace(t((2,), "int32", data=np.array([1, 2], np.int32)), is_folded=True)
    other = replace(known, data=np.array([1, 3], np.int32))
    empty = [Partition((), (), (each,)) for each in (known, other)]
    assert not share_plan(*empty)


@pytest.mark.parametrize("change", [*OF_TENSORS.items(), *MORE.items()], ids=lambda each: each[0])
def test_key_depends_on_tensors(change: tuple[str, Callable[[Graph], Graph]]) -> None:
    graph = small()
    other = change[1](graph)
    assert key(other) != key(graph)
    keys = [
        key_of(partition_facts(Partition(each.nodes, each.inputs, each.outputs)))
        for each in (graph, other)
    ]
    assert keys[0] != keys[1]


def test_key_depends_on_blocks_and_ranges() -> None:
    names = ("blocks", "block size", "block scales", "ranges", "other ranges", "is_variable")
    keys = {key(({**OF_TENSORS, **MORE})[name](small())) for name in names}
    assert len(keys) == len(names)


@pytest.mark.parametrize("field", OF_NODES)
def test_key_depends_on_nodes(field: str) -> None:
    graph = small()
    other = with_node(graph, 1, **{field: OF_NODES[field]})
    assert key(other) != key(graph)
    assert key(with_node(graph, 1, calls=Calls(()))) != key(
        with_node(graph, 1, calls=Calls((), obstacle="it calls itself"))
    )


@pytest.mark.parametrize("field", OF_GRAPHS)
def test_key_depends_on_graph(field: str) -> None:
    graph = small()
    assert key(replace(graph, **{field: OF_GRAPHS[field]})) != key(graph)


def test_key_depends_on_why_variables_stay_on_cpu() -> None:
    assert key(replace(small(), resources=Resources(why_not="two of them"))) != key(small())


def test_key_depends_on_order_of_inputs_and_inlining() -> None:
    x, y, total = t((3,)), t((3,)), t((3,))
    nodes = [op("ADD", [x, y], [total])]
    one, other = (graph_of(nodes, ends, [total]) for ends in ([x, y], [y, x]))
    assert key(one) != key(other)
    partition = partition_of(one, [0])
    inlined = replace(partition, inlined={0: "IF"})
    assert key_of(partition_facts(partition)) != key_of(partition_facts(inlined))


CHANGES_OF_TARGETS: Mapping[str, Any] = {
    "device_type": "cpu",
    "vector_width": 5,
    "compute_units": 77,
    "registers": 3,
    "load_lanes": 77,
    "isa": frozenset({"avx2", "nearest"}),
    "rules": Rules(runtime="tflite-runtime", version="2.14.0"),
    "is_ieee": True,
}


def test_key_depends_on_target() -> None:
    assert {each.name for each in fields(Target)} == {*CHANGES_OF_TARGETS}
    keys = {key_of(target_facts(Target()))}
    for name, value in CHANGES_OF_TARGETS.items():
        keys.add(key_of(target_facts(replace(Target(), **{name: value}))))
    assert len(keys) == 1 + len(CHANGES_OF_TARGETS)


@slow
def test_keys_are_equal_in_each_process() -> None:
    code = (
        "from tests.delegate.plan.test_key import keys_of_suite; print(*keys_of_suite(), sep='\\n')"
    )
    outputs = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
        outputs.append(
            subprocess.run(
                [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=True
            ).stdout.splitlines()
        )
    assert outputs[0] == outputs[1]
    assert len({*outputs[0]}) == len(outputs[0]) > 100


def keys_of_suite() -> list[str]:
    """Return the keys of a target and of suite cases with different ops and types."""
    of_each = {(case.op, case.kind): case for case in all_cases()}
    isa = frozenset({"avx2", "nearest", "vnni", "order_x86"})
    keys = [key(case.make()) for case in of_each.values()]
    return [*dict.fromkeys(keys), key_of(target_facts(Target(isa=isa)))]


# Records whose repr has all fields in a fixed order.
_WHOLE = (str, int, float, bool, bytes, type(None), np.generic)


def test_repr_of_options_is_complete() -> None:
    def is_whole(value: Any) -> bool:
        if isinstance(value, Mapping):
            return all(is_whole(each) for pair in value.items() for each in pair)
        if isinstance(value, list | tuple):
            return all(map(is_whole, value))
        return isinstance(value, _WHOLE)

    of_each = {(case.op, case.kind): case for case in all_cases()}
    wrong = {
        node.op: dict(node.options)
        for case in of_each.values()
        for node in case.make().nodes
        if not is_whole(dict(node.options))
    }
    assert wrong == {}


def test_origin_identifies_graph_at_any_shape() -> None:
    def origin(graph: Graph) -> str:
        return origin_of(partition_of(graph, (0, 1)))

    graph = small()
    x, weights = graph.nodes[0].inputs[:2]
    (result,) = graph.nodes[1].outputs
    assert x is not None
    assert weights is not None
    assert weights.data is not None
    at_another = with_tensor(with_tensor(graph, x, shape=(5, 8)), result, shape=(5, 8))
    assert origin(graph) == origin(small()) == origin(at_another)
    others = [
        with_tensor(graph, weights, data=flipped(weights.data)),
        with_tensor(graph, x, name="another"),
        with_tensor(graph, x, quantization=Quantization((0.25,), (3,))),
        with_node(graph, 1, op="SUB"),
        with_node(graph, 1, inputs=(x, x)),
    ]
    assert len({origin(each) for each in [graph, *others]}) == 1 + len(others)
    folded = replace(weights, is_folded=True)
    of_shapes = [with_tensor(graph, weights, data=d, is_folded=True) for d in (folded.data, None)]
    assert origin(of_shapes[0]) == origin(of_shapes[1])


def test_digest_is_not_reused_for_new_array_at_same_address() -> None:
    def long(first: int) -> np.ndarray[Any, Any]:
        return np.arange(first, first + 4096, dtype=np.int32)

    expected = [values_key(long(first)) for first in range(50)]
    assert len({*expected}) == 50
    node = long(7)
    assert values_key(node) == values_key(node) == expected[7]
    for first in range(50):
        array = long(first)
        assert values_key(array) == expected[first]
        del array  # the next one may get the same address
    gc.collect()
    assert {*module._digests} == {id(node)} | {
        place for place, (array, _) in module._digests.items() if array() is not None
    }


def test_array_is_identified_by_values_not_layout() -> None:
    array = np.arange(4096, dtype=np.int32).reshape(64, 64)
    assert values_key(array.T) == values_key(np.ascontiguousarray(array.T)) != values_key(array)
    assert values_key(array[:2, :2]) == values_key(array[:2, :2].copy())


def test_files_of_package_are_known() -> None:
    names = [os.path.basename(path) for path in module._files()]
    assert {"key.py", "add.cl", "kernel.clh"} <= {*names}
    assert not [name for name in names if name.endswith(".pyc")]
    assert installation_key() != code_digest()


def test_key_depends_on_installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    path = tmp_path / "file.py"
    path.write_text("a = 1")
    monkeypatch.setattr(module, "_files", lambda: iter([str(path)]))
    results = []
    for text, moment in (("a = 1", 1), ("a = 1", 2), ("a = 2", 2), ("a = 10", 2)):
        path.write_text(text)
        os.utime(path, (moment, moment))
        results.append((installation_key.__wrapped__(), code_digest.__wrapped__()))
    by_times, by_contents = zip(*results, strict=True)
    assert [by_times.count(each) for each in by_times] == [1, 2, 2, 1]
    assert [by_contents.count(each) for each in by_contents] == [2, 2, 1, 1]
