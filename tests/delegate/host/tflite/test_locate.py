# SPDX-License-Identifier: Apache-2.0
"""A delegate without a model finds each interpreter's model in TFLite's memory."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegate import DeviceInfo, OpenCLDelegate
from delegate.graph.edit import with_tensors
from delegate.host.tflite import locate
from delegate.inspect import Graph, read_model, write_model
from tests.support.compare import RUNTIME, inputs_for, interpreter, invoke, refusals
from tests.support.model import const, graph_of, op, t
from tests.support.nets import (
    POOL,
    assert_equal_outputs,
    assert_runs_exactly,
    conv_pool,
    image,
    net,
)
from tests.support.shared import model_path
from tests.support.subgraphs import write_subgraphs
from tests.support.tiers import slow

# The device stays open between the delegates.
pytestmark = pytest.mark.usefixtures("one_device")

CHAIN = net([("AVERAGE_POOL_2D", [0], 1), ("ADD", [0, 1], 2)])
IDENTIFIER = "TFL3"


ModelFacts = Callable[[bytes], bytes | Graph | None]
# The facts about a model that a delegate sees.
FACTS: dict[str, ModelFacts] = {"found": lambda model: None, "given": bytes, "graph": read_model}


def delegate_on(device: DeviceInfo, model: bytes | Graph | None = None) -> OpenCLDelegate:
    return OpenCLDelegate(model, device.index, min_nodes_per_partition=1, tune="off")


def named(graph: Graph, name: Callable[[int], str]) -> Graph:
    """Return the graph with other tensor names, by index."""
    return with_tensors(graph, {x: replace(x, name=name(x.index)) for x in graph.tensors})


def assert_all_claimed(model: bytes | str, graph: Graph, delegate: OpenCLDelegate) -> None:
    assert_runs_exactly(model, graph, delegate)
    assert refusals(delegate) == {}
    assert [len(group) for group in delegate.partitions] == [len(graph.nodes)]


@slow
def test_delegate_serves_interpreters_of_different_models(device: DeviceInfo) -> None:
    delegate = delegate_on(device)
    graphs = [CHAIN, conv_pool(), net([("ADD", [0, 0], 1)])]
    models = [write_model(graph) for graph in graphs]
    ours = [interpreter(model, delegate) for model in models]
    assert delegate.verdicts == [(0, "ADD", None)]
    for _ in range(2):
        for graph, model, interp in zip(graphs, models, ours, strict=True):
            inputs = inputs_for(graph)[0]
            assert_equal_outputs(invoke(interp, inputs), invoke(interpreter(model), inputs))


def test_model_is_found_in_mapped_file(device: DeviceInfo, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(write_model(CHAIN))
    assert_all_claimed(str(path), CHAIN, delegate_on(device))


NAMES: dict[str, Callable[[int], str]] = {
    "names": lambda index: f"tensor {index}",
    "identifiers": lambda index: IDENTIFIER,
    "no-names": lambda index: "",
    "one-name": lambda index: "x" if index == 3 else "",
    "equal-names": lambda index: "x",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_model_with_constants_needs_no_names(
    device: DeviceInfo, name: Callable[[int], str]
) -> None:
    graph = named(conv_pool(), name)
    assert_all_claimed(write_model(graph), graph, delegate_on(device))


def test_model_without_constants_is_found_by_names(device: DeviceInfo) -> None:
    assert_all_claimed(write_model(CHAIN), CHAIN, delegate_on(device))


def decoyed() -> Graph:
    """Return a graph whose constants contain a model and prefixes of models."""
    other = write_model(net([("ADD", [0, 0], 1)]))
    content = b"".join([other, b"\x08\0\0\0TFL3" * 5, b"\xff\xff\xff\xffTFL3", b"\0" * 64])
    values = np.frombuffer(content, np.uint8)
    x = image(1, 1, 1, len(values))
    return graph_of(
        [op("ADD", [x, const(values.reshape(1, 1, 1, -1), 0.5, 128)], [image(*x.shape)])]
    )


@pytest.mark.parametrize("name", [NAMES["names"], NAMES["no-names"]], ids=["names", "no-names"])
def test_models_in_constants_are_not_confused(
    device: DeviceInfo, name: Callable[[int], str]
) -> None:
    graph = named(decoyed(), name)
    assert_all_claimed(write_model(graph), graph, delegate_on(device))


@slow
@settings(max_examples=12)  # each searches all memory of this process, which is large
@given(
    names=st.lists(
        st.sampled_from(["", "x", "TFL3", "\0\0TFL3", "a longer name", "ü"]), min_size=5
    ),
    before=st.integers(0, 40),
)
def test_any_names_at_any_address(device: DeviceInfo, names: list[str], before: int) -> None:
    graph = named(conv_pool(), lambda index: names[index % len(names)])
    # The bytes object has another address in each example.
    held = bytes(before)
    assert_all_claimed(write_model(graph), graph, delegate_on(device))
    assert len(held) == before


def nameless() -> bytes:
    return write_model(named(CHAIN, lambda index: ""))


def test_model_without_names_and_constants_must_be_given(device: DeviceInfo) -> None:
    model = nameless()
    delegate = delegate_on(device)
    output = "the model has no names and no constants by which it is found in memory: give"
    with pytest.raises(RuntimeError, match=output):
        interpreter(model, delegate)
    assert output in str(delegate.failure)
    for source in (model, read_model(model)):
        assert_all_claimed(model, CHAIN, delegate_on(device, source))


def test_unreadable_memory_is_an_error(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refused(path: Any, *arguments: Any, **keywords: Any) -> int:
        if path == "/proc/self/mem":
            raise PermissionError(13, "Permission denied", path)
        return real(path, *arguments, **keywords)

    monkeypatch.setattr(locate.os, "open", refused)
    with pytest.raises(RuntimeError, match=r"cannot be looked for in memory: .*Permission denied"):
        interpreter(write_model(CHAIN), delegate_on(device))


def test_missing_model_is_an_error(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locate, "_candidates", lambda start, anchor: iter(()))
    with pytest.raises(RuntimeError, match="the model is not found in memory"):
        interpreter(write_model(CHAIN), delegate_on(device))


def test_file_with_two_roots_must_be_given(device: DeviceInfo) -> None:
    """TFLite reads the first root; the second could have other operators on the same tensors."""
    model = write_model(conv_pool())
    (root,) = struct.unpack_from("<I", model)
    twice = struct.pack("<I4s8x", 16 + root, IDENTIFIER.encode()) + model
    with pytest.raises(RuntimeError, match=r"two roots, .*: give OpenCLDelegate its path"):
        interpreter(twice, delegate_on(device))
    assert_all_claimed(twice, conv_pool(), delegate_on(device, twice))


@slow
def test_inputs_can_be_resized(device: DeviceInfo) -> None:
    graph = conv_pool(has_open_batch=True)
    model = write_model(graph)
    delegate = delegate_on(device)
    ours, reference = interpreter(model, delegate), interpreter(model)
    for batch in (3, 1, 2):
        given = [np.resize(inputs_for(graph)[0][0], (batch, 7, 6, 2))]
        for interp in (ours, reference):
            interp.resize_tensor_input(interp.get_input_details()[0]["index"], (batch, 7, 6, 2))
            interp.allocate_tensors()
        assert_equal_outputs(invoke(ours, given), invoke(reference, given))
        assert refusals(delegate) == {}


# Several subgraphs


def run_signature(made: Any, number: int, inputs: Sequence[Any]) -> list[Any]:
    run = made.get_signature_runner(f"graph {number}")
    result = run(**{f"x{i}": values for i, values in enumerate(inputs)})
    return [result[name] for name in sorted(result)]


@slow
@pytest.mark.parametrize("told", FACTS.values(), ids=FACTS)
@pytest.mark.parametrize(
    "graphs",
    [
        (CHAIN, conv_pool()),
        (CHAIN, CHAIN),
        (conv_pool(), net([("ADD", [0, 0], 1)]), conv_pool(True)),
    ],
    ids=["two", "two-that-are-equal", "three"],
)
def test_each_signature_has_verdicts(
    device: DeviceInfo, graphs: Sequence[Graph], told: ModelFacts
) -> None:
    model = write_subgraphs(*graphs, signatures=range(len(graphs)))
    delegate = delegate_on(device, told(model))
    ours, reference = interpreter(model, delegate), interpreter(model)
    taken = {
        number: [(node.index, node.op, None) for node in graph.nodes]
        for number, graph in enumerate(graphs)
    }
    assert delegate.subgraph_verdicts == taken
    assert delegate.verdicts == taken[0]
    assert [sorted(group) for group in delegate.partitions] == [[n for n, _, _ in taken[0]]]
    for number, graph in enumerate(graphs):
        inputs = inputs_for(graph)[0]
        assert_equal_outputs(
            run_signature(ours, number, inputs), run_signature(reference, number, inputs)
        )


@slow
def test_control_flow_body_and_signature_have_verdicts(device: DeviceInfo) -> None:
    x, start, count, looped = image(), t((1,), "int32"), t((1,), "int32"), image()
    calls = {"cond_subgraph_index": 2, "body_subgraph_index": 3}
    main = graph_of([op("WHILE", [start, x], [count, looped], calls)], [x, start], [looped])
    number, carried, is_less = t((1,), "int32"), image(), t((1,), "bool")
    three = const(np.array([3], np.int32))
    condition = graph_of([op("LESS", [number, three], [is_less])], [number, carried], [is_less])
    number, carried, next_number, pooled = t((1,), "int32"), image(), t((1,), "int32"), image()
    one = const(np.array([1], np.int32))
    body = graph_of(
        [op("AVERAGE_POOL_2D", [carried], [pooled], POOL), op("ADD", [number, one], [next_number])],
        [number, carried],
        [next_number, pooled],
    )
    model = write_subgraphs(main, CHAIN, condition, body, signatures=[0, 1])
    delegate = delegate_on(device)
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert list(delegate.subgraph_verdicts) == [0, 1, 2, 3]
    assert [v.is_taken for v in delegate.subgraph_verdicts[1]] == [True, True]
    inputs = [inputs_for(CHAIN)[0][0], np.zeros(1, np.int32)]
    for number in (0, 1):
        given_inputs = inputs[: 2 - number]
        assert_equal_outputs(
            run_signature(ours, number, given_inputs),
            run_signature(reference, number, given_inputs),
        )


@slow
@pytest.mark.parametrize("told", FACTS.values(), ids=FACTS)
def test_damaged_second_graph_stays_on_cpu(
    device: DeviceInfo, told: ModelFacts, caplog: pytest.LogCaptureFixture
) -> None:
    x, y = image(), image()
    damaged = graph_of([op("ADD", [x, x], [y]), op("ADD", [x, x], [y])], [x], [y])
    model = write_subgraphs(CHAIN, damaged)
    delegate = delegate_on(device, told(model))
    assert_all_claimed(model, CHAIN, delegate)
    assert list(delegate.subgraph_verdicts) == [0]
    assert {each.message for each in caplog.records if each.levelname == "WARNING"} == {
        "subgraph 1 is left to the CPU: operator 1 (ADD): output 0 is tensor 1 't1', which "
        "operator 0 already produces"
    }


def test_several_graphs_without_names_are_ambiguous(device: DeviceInfo) -> None:
    graph = named(CHAIN, lambda index: "")
    model = write_subgraphs(graph, graph, signatures=[0, 1])
    with pytest.raises(RuntimeError, match="no names and no constants by which they are told"):
        interpreter(model, delegate_on(device, model))


@pytest.mark.model
@pytest.mark.parametrize("name", ["mobilenet_v1_1.0_224_quant", "mbnet128_0.25_q"])
def test_real_model_is_found(device: DeviceInfo, name: str) -> None:
    # The first contains the file identifier in its weights.
    path = model_path(name)
    delegate = delegate_on(device)
    interp = RUNTIME.interpreter(path, None, "reference", [delegate])
    interp.allocate_tensors()
    assert refusals(delegate) == {}
    assert len(delegate.partitions) == 1
