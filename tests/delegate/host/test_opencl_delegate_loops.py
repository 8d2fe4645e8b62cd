# SPDX-License-Identifier: Apache-2.0
"""Inlined WHILE and IF, and nodes around those that are not inlined."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from delegate import DeviceInfo, Model, OpenCLDelegate
from delegate.errors import NotRestarted
from delegate.inspect import Graph, Node, Tensor, read_model, write_model
from delegate.isa import ORDERS
from delegate.run.executor import Executor
from tests.support.compare import inputs_for, interpreter, invoke, refusals
from tests.support.model import graph_of, op, t
from tests.support.nets import POOL, assert_equal_outputs, delegate_for, image
from tests.support.shared import model_path
from tests.support.subgraphs import two_signatures
from tests.support.tiers import slow
from tflite_opencl.command import main
from tflite_opencl.conformance.cases.loops import branches, choice, loop, recurrent
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.models.build import numbers
from tflite_opencl.oracle.bounds import float_bounds
from tflite_opencl.oracle.oracle import run_graph

RNNS = ("rnn_lstm_f32", "rnn_gru_f32")


def pooled(_: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
    """Return a loop body that computes the maximum of two pictures."""
    larger = image(*own[0].shape)
    return [op("MAXIMUM", own, [larger])], [own[1], larger]


def between(rounds: int | Tensor, *shape: int) -> Graph:
    """Return a loop between two nodes, over pictures of variable height."""
    x, before, after = image(*shape), image(*shape), image(*shape)
    first = op("AVERAGE_POOL_2D", [x], [before], POOL)
    looped = loop(rounds, [before, x], pooled)
    last = op("RELU6", [looped.outputs[-1]], [after])
    inputs = [x, rounds] if isinstance(rounds, Tensor) else [x]
    return graph_of([first, looped, last], inputs, [after])


def claimed_nodes(delegate: OpenCLDelegate) -> dict[int, list[int]]:
    return {
        number: [each.node for each in verdicts if each.is_taken]
        for number, verdicts in delegate.subgraph_verdicts.items()
    }


@slow
@pytest.mark.parametrize(
    ("rounds", "excluded", "expected", "groups"),
    [
        # The subgraphs of an unrolled loop run nowhere else, so they have no verdicts.
        (3, [], {0: [0, 1, 2]}, [[0, 1, 2]]),
        (3, ["WHILE"], {0: [0, 2], 1: [0], 2: [0, 1]}, [[0], [2]]),
        (3, ["MAXIMUM"], {0: [0, 2], 1: [0], 2: [1]}, [[0], [2]]),
        (0, [], {0: [0, 1, 2]}, [[0, 1, 2]]),
        (t((), "int32"), [], {0: [0, 2], 1: [0], 2: [0, 1]}, [[0], [2]]),
    ],
    ids=["unrolled", "excluded", "excluded-in-it", "no-round", "open"],
)
def test_loops_run_after_resizes(
    rounds: int | Tensor,
    excluded: list[str],
    expected: dict[int, list[int]],
    groups: list[list[int]],
    device: DeviceInfo,
) -> None:
    model = write_model(between(rounds))
    delegate = delegate_for(model, device, excluded)
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert claimed_nodes(delegate) == expected
    assert delegate.partitions == groups
    rng = np.random.default_rng(7)
    for height in (3, 5, 1, 3):
        for interp in (ours, reference):
            interp.resize_tensor_input(interp.get_input_details()[0]["index"], (1, height, 3, 2))
            interp.allocate_tensors()
        for count in (2, 0, 1):
            given = [rng.integers(0, 256, (1, height, 3, 2)).astype(np.uint8)]
            given += [np.array(count, np.int32)] if isinstance(rounds, Tensor) else []
            assert_equal_outputs(
                invoke(ours, given), invoke(reference, given), f"height {height}, {count}"
            )
    assert claimed_nodes(delegate) == expected


def of_sizes(rounds: int) -> Graph:
    """Return a sum of pictures, and a loop over their shape, which is folded."""
    x, shape, after = image(), t((4,), "int32"), image()

    def turned(_: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
        total = t((4,), "int32")
        return [op("ADD", own, [total])], [own[1], total]

    sizes = op("SHAPE", [x], [shape], {"out_type": "int32"})
    looped = loop(rounds, [shape, shape], turned)
    nodes = [sizes, looped, op("ADD", [x, x], [after])]
    return graph_of(nodes, [x], [*looped.outputs, after])


@pytest.mark.parametrize("rounds", [0, 3])
@pytest.mark.parametrize(
    ("excluded", "groups"),
    [([], [[0, 1, 2]]), (["SHAPE"], [[1, 2]]), (["SHAPE", "ADD"], [[1]])],
    ids=["whole", "beside", "alone"],
)
def test_folded_loop_runs_after_resizes(
    rounds: int, excluded: list[str], groups: list[list[int]], device: DeviceInfo
) -> None:
    model = write_model(of_sizes(rounds))
    delegate = delegate_for(model, device, excluded)
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert delegate.partitions == groups
    for batch in (1, 3, 1):
        given = [np.arange(18 * batch, dtype=np.uint8).reshape(batch, 3, 3, 2)]
        for interp in (ours, reference):
            interp.resize_tensor_input(0, given[0].shape)
            interp.allocate_tensors()
        assert_equal_outputs(invoke(ours, given), invoke(reference, given), f"batch {batch}")


@slow
def test_folded_loop_is_a_node_of_the_graph(device: DeviceInfo) -> None:
    delegate = delegate_for(write_model(of_sizes(3)), device, [], min_nodes_per_partition=0)
    interpreter(write_model(of_sizes(3)), delegate)
    assert delegate.partitions == [[0, 1, 2]]


def test_folded_loop_runs_on_tflites_kernels(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_model(of_sizes(3))
    delegate = delegate_for(model, device, [])
    ours = interpreter(model, delegate)

    def gone(*_: object) -> None:
        raise NotRestarted("it is gone")

    monkeypatch.setattr(Executor, "run", gone)
    given = inputs_for(of_sizes(3))[0]
    assert_equal_outputs(invoke(ours, given), invoke(interpreter(model), given))
    assert refusals(delegate) == dict.fromkeys(range(3), "on TFLite's kernel: it is gone")


@slow
def test_loop_refused_later_runs_by_its_subgraphs(device: DeviceInfo) -> None:
    """A delegate that unrolled one interpreter's loop has new verdicts for the next one."""
    models = [write_model(between(each)) for each in (3, t((), "int32"))]
    delegate = OpenCLDelegate(None, device.index, min_nodes_per_partition=1, tune="off")
    for model, expected in zip(
        models, ({0: [0, 1, 2]}, {0: [0, 2], 1: [0], 2: [0, 1]}), strict=True
    ):
        interp = interpreter(model, delegate)
        assert claimed_nodes(delegate) == expected
        del interp
    interp = interpreter(two_signatures(), delegate)
    assert claimed_nodes(delegate) == {0: [0], 1: [0, 1]}
    del interp


@pytest.mark.parametrize("branch", ["then", "else", "either"])
def test_branches_run_exactly(branch: str, device: DeviceInfo) -> None:
    graph = branches("int8", branch)
    model = write_model(graph)
    delegate = delegate_for(model, device)
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert claimed_nodes(delegate)[0] == ([0, 2] if branch == "either" else [0, 1, 2])
    for inputs in inputs_for(graph):
        assert_equal_outputs(invoke(ours, inputs), invoke(reference, inputs))


@pytest.mark.parametrize("excluded", [[], ["SHAPE", "GATHER", "LESS"]], ids=["whole", "alone"])
def test_branch_chosen_by_a_size_follows_resizes(excluded: list[str], device: DeviceInfo) -> None:
    """The partition's shapes do not change."""
    x, y, rows = image(), image(), t((2,), "int32")
    shape, count, is_short = t((1,), "int32"), t((), "int32"), t((), "bool")
    chosen = choice(is_short, [x, y], "uint8")
    nodes = [
        op("SHAPE", [rows], [shape], {"out_type": "int32"}),
        op("GATHER", [shape, numbers(0)], [count], {"axis": 0, "batch_dims": 0}),
        op("LESS", [count, numbers(3)], [is_short]),
        chosen,
    ]
    graph = graph_of(nodes, [x, y, rows], [is_short, *chosen.outputs])
    model = write_model(graph)
    ours, reference = interpreter(model, delegate_for(model, device, excluded)), interpreter(model)
    *pictures, _ = inputs_for(graph)[1]
    for size in (2, 5, 2, 3):
        for interp in (ours, reference):
            interp.resize_tensor_input(interp.get_input_details()[2]["index"], (size,))
            interp.allocate_tensors()
        given = [*pictures, np.zeros(size, np.int32)]
        assert_equal_outputs(invoke(ours, given), invoke(reference, given), f"{size} rows")


@slow
def test_small_loops_need_persistent_launch(device: DeviceInfo) -> None:
    model = write_model(recurrent("gru", 5, 8, 8))
    delegate = delegate_for(model, device, [], min_nodes_per_partition=0)
    interp = interpreter(model, delegate)
    (verdict,) = delegate.verdicts
    if delegate._engine.device.proven & ORDERS:
        assert verdict.is_taken
    else:
        assert verdict.reason == "once unrolled, its launches cost more than the loop on the CPU"
    del interp


@slow
@pytest.mark.parametrize("name", RNNS)
def test_keras_3_recurrent_layers_are_claimed_whole(name: str, device: DeviceInfo) -> None:
    path = model_path(f"converters/{name}")
    graph = read_model(path)
    delegate = delegate_for(path, device, [])
    ours, reference = interpreter(path, delegate), interpreter(path)
    assert delegate.partitions == [[0, 1, 2, 3]]
    run = partial(run_graph, find_runtime())
    with Model(path, device.index, tune="off") as model:
        for seed in range(3):
            shape = graph.inputs[0].shape
            inputs = [np.random.default_rng(seed).normal(size=shape).astype(np.float32)]
            (expected,) = invoke(reference, inputs)
            (bound,) = float_bounds(run, graph, inputs, [expected])
            assert bound is not None
            for got in (*invoke(ours, inputs), *model.run(inputs[0])):
                assert (abs(got - expected) <= np.minimum(bound, 1e-5)).all()


@slow
def test_launches_belong_to_the_loop(device: DeviceInfo) -> None:
    graph = between(3)
    model = write_model(graph)
    delegate = delegate_for(model, device, profiling=True)
    interp = interpreter(model, delegate)
    (run,) = delegate.timed_runs(lambda: invoke(interp, inputs_for(graph)[0]) and None)
    expected = [(0, "AVERAGE_POOL_2D"), *[(1, "WHILE")] * 3, (2, "RELU6")]
    assert [(each.node, each.op) for each in run.launches] == expected
    steps = delegate.step_through(lambda: invoke(interp, inputs_for(graph)[0]) and None)
    assert [(each.node, each.op, len(each.launches)) for each in steps] == [
        (0, "AVERAGE_POOL_2D", 1),
        (1, "WHILE", 3),
        (2, "RELU6", 1),
    ]
    assert {*steps[1].values} == {tensor.index for tensor in graph.nodes[1].outputs[1:]}


def test_verify_reports_a_loop_as_a_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], device: DeviceInfo
) -> None:
    path = tmp_path / "loop.tflite"
    path.write_bytes(write_model(between(3, 1, 64, 64, 64)))
    assert main(["verify", str(path), "--device", str(device.index), "--tune", "off"]) == 0
    message = capsys.readouterr().out
    assert "no node is wrong" in message
    assert "4 tensors compared" in message
