# SPDX-License-Identifier: Apache-2.0
"""The delegate in TFLite's hands: what it takes, that results stay exact, that nothing is left."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DelegateError, DeviceInfo, ModelError, OpenCLDelegate
from delegate.graph.partition import partitions
from delegate.inspect import Graph, read_model, write_model
from delegate.runtime import sources
from delegate.runtime.executor import Executor
from tests.support.compare import RUNTIME, inputs_for, interpreter, invoke, refusals
from tests.support.deal import any_driver, slow
from tests.support.model import chain_model, const, graph_of, op, t
from tests.support.nets import (
    LEFT,
    POOL,
    TAKEN,
    assert_equal_outputs,
    assert_runs_exactly,
    conv_pool,
    delegate_for,
    image,
    net,
)
from tests.support.opencl import opencl_error
from tests.support.process import run_python
from tests.support.shared import model_path
from tests.support.subgraphs import write_subgraphs

CONV = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
CHAIN = net([("AVERAGE_POOL_2D", [0], 1), ("MAX_POOL_2D", [1], 2), ("ADD", [1, 2], 3)])


# What is taken


def test_the_attributes_tell_what_became_of_each_node(device: DeviceInfo) -> None:
    model = write_model(CHAIN)
    delegate = delegate_for(model, device)
    assert (delegate.verdicts, delegate.partitions, delegate.failure) == ([], [], None)
    ours = interpreter(model, delegate)
    assert delegate.verdicts == [
        (0, "AVERAGE_POOL_2D", None),
        (1, "MAX_POOL_2D", "excluded by exclude_ops"),
        (2, "ADD", None),
    ]
    assert delegate.partitions == [[0], [2]]
    assert delegate.device_name == device.name
    assert delegate.device == device
    assert delegate.failure is None
    inputs = inputs_for(CHAIN)[0]
    assert_equal_outputs(invoke(ours, inputs), invoke(interpreter(model), inputs))


def test_without_a_device_named_the_first_that_works_is_taken(device: DeviceInfo) -> None:
    chosen = OpenCLDelegate(write_model(CHAIN)).device
    assert chosen.index <= device.index


def test_one_string_is_no_list_of_ops(device: DeviceInfo) -> None:
    with pytest.raises(TypeError, match=r"exclude_ops is a list of op names: \['ADD'\]"):
        OpenCLDelegate(write_model(CHAIN), device.index, exclude_ops="ADD")


def test_a_damaged_or_missing_model_is_refused_at_once(device: DeviceInfo) -> None:
    with pytest.raises(ModelError):
        OpenCLDelegate(write_model(CHAIN)[:100], device.index)
    with pytest.raises(FileNotFoundError):
        OpenCLDelegate("no/such/model.tflite", device.index)


def test_a_model_of_which_nothing_runs_here_runs_on_the_cpu(device: DeviceInfo) -> None:
    model = write_model(CHAIN)
    delegate = delegate_for(model, device, exclude_ops=[*LEFT, *TAKEN])
    assert_runs_exactly(model, CHAIN, delegate)
    assert delegate.partitions == []
    assert set(refusals(delegate).values()) == {"excluded by exclude_ops"}


# 0 - 1 - 2 are one partition of 3 nodes; 4 is one of 1; 6 - 7 are one of 2.
THREE_PARTITIONS = net(
    [
        ("AVERAGE_POOL_2D", [0], 1),
        ("ADD", [0, 1], 2),
        ("ADD", [1, 2], 3),
        ("MAX_POOL_2D", [3], 4),
        ("AVERAGE_POOL_2D", [4], 5),
        ("MUL", [4, 5], 6),
        ("AVERAGE_POOL_2D", [6], 7),
        ("ADD", [7, 1], 8),
    ]
)


@pytest.mark.parametrize(
    ("options", "expected", "reason"),
    [
        (
            {"min_nodes_per_partition": 0},
            [],
            "a partition of 1 that costs a CPU less than the detour",
        ),
        ({"min_nodes_per_partition": 1}, [[0, 1, 2], [4], [6, 7]], None),
        (
            {"min_nodes_per_partition": 2},
            [[0, 1, 2], [6, 7]],
            "a partition of 1: min_nodes_per_partition is 2",
        ),
        (
            {"min_nodes_per_partition": 3},
            [[0, 1, 2]],
            "a partition of 1: min_nodes_per_partition is 3",
        ),
        ({"min_nodes_per_partition": 9}, [], "a partition of 1: min_nodes_per_partition is 9"),
        ({"max_delegated_partitions": 3}, [[0, 1, 2], [4], [6, 7]], None),
        (
            {"max_delegated_partitions": 2},
            [[0, 1, 2], [6, 7]],
            "3 partitions: max_delegated_partitions is 2",
        ),
        (
            {"max_delegated_partitions": 1},
            [[0, 1, 2]],
            "3 partitions: max_delegated_partitions is 1",
        ),
    ],
    ids=lambda value: (
        "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else ""
    ),
)
def test_small_and_surplus_partitions_go_to_the_cpu(
    device: DeviceInfo, options: dict[str, int], expected: list[list[int]], reason: str | None
) -> None:
    model = write_model(THREE_PARTITIONS)
    delegate = delegate_for(model, device, LEFT, **options)
    assert_runs_exactly(model, THREE_PARTITIONS, delegate)
    assert [sorted(group) for group in delegate.partitions] == expected
    assert refusals(delegate).get(4) == reason


@pytest.mark.parametrize(
    ("nodes", "outputs", "expected"),
    [
        ([("AVERAGE_POOL_2D", [0], 1), ("ADD", [1, 1], 2)], [], [[0, 1]]),
        ([("AVERAGE_POOL_2D", [0], 1), ("ADD", [0, 1], 2)], [1], [[0, 1]]),
        (
            [("AVERAGE_POOL_2D", [0], 1), ("MAX_POOL_2D", [1], 2), ("ADD", [1, 2], 3)],
            [],
            [[0], [2]],
        ),
        (
            [("AVERAGE_POOL_2D", [0], 1), ("MAX_POOL_2D", [0], 2), ("ADD", [1, 2], 3)],
            [],
            [[0], [2]],
        ),
        (
            [("MAX_POOL_2D", [0], 1), ("AVERAGE_POOL_2D", [0], 2), ("ADD", [1, 2], 3)],
            [2],
            [[1, 2]],
        ),
        (
            [
                ("AVERAGE_POOL_2D", [0], 1),
                ("AVERAGE_POOL_2D", [1], 2),
                ("MAX_POOL_2D", [1], 3),
                ("ADD", [2, 3], 4),
            ],
            [],
            [[0, 1], [3]],
        ),
        ([("AVERAGE_POOL_2D", [0], 1), ("AVERAGE_POOL_2D", [0], 2)], [], [[0, 1]]),
        ([("MUL", [0, 0], 1), ("ADD", [1, 0], 2), ("MUL", [2, 1], 3)], [2], [[1]]),
    ],
    ids=[
        "chain",
        "output-read-inside-too",
        "left-op-in-the-middle",
        "diamond-with-a-left-branch",
        "diamond-left-branch-first",
        "branch-inside-and-outside",
        "two-branches",
        "between-two-left-ops",
    ],
)
def test_partitions_are_those_tflite_forms(
    device: DeviceInfo,
    nodes: Sequence[tuple[str, Sequence[int], int]],
    outputs: Sequence[int],
    expected: list[list[int]],
) -> None:
    graph = net(nodes, outputs)
    model = write_model(graph)
    delegate = delegate_for(model, device)
    assert_runs_exactly(model, graph, delegate)
    assert [sorted(group) for group in delegate.partitions] == expected


@st.composite
def nets(draw: st.DrawFn) -> Graph:
    nodes: list[tuple[str, list[int], int]] = []
    for result in range(1, draw(st.integers(2, 13)) + 1):
        name = draw(st.sampled_from([*TAKEN, *LEFT]))
        # Mostly recent tensors, else nearly all graphs are shallow.
        recent = st.integers(max(0, result - 4), result - 1)
        count = 1 if "POOL" in name else 2
        nodes.append((name, [draw(recent) for _ in range(count)], result))
    return net(nodes, draw(st.lists(st.integers(1, len(nodes)), max_size=2)))


@any_driver
@settings(max_examples=60)
@given(nets())
def test_the_prediction_is_tflite_s_grouping_and_results_are_exact(
    device: DeviceInfo, graph: Graph
) -> None:
    model = write_model(graph)
    delegate = delegate_for(model, device)
    ours, inputs = interpreter(model, delegate), inputs_for(graph)[0]
    claimed = {node.index for node in graph.nodes if node.op in TAKEN}
    assert set(range(len(graph.nodes))) - set(refusals(delegate)) == claimed
    predicted = partitions(graph, claimed)
    assert [sorted(group) for group in delegate.partitions] == [
        [node.index for node in partition.nodes] for partition in predicted
    ]
    assert_equal_outputs(invoke(ours, inputs), invoke(interpreter(model), inputs))


def test_the_predicted_executors_are_the_ones_that_run(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Executor] = []

    def counted(*arguments: Any) -> Executor:
        made.append(Executor(*arguments))
        return made[-1]

    monkeypatch.setattr("delegate.start.engine.Executor", counted)
    model = write_model(THREE_PARTITIONS)
    delegate = delegate_for(model, device)
    interpreter(model, delegate)
    assert len(made) == len(delegate.partitions) == 3


# Several at once, again and again


def run_with(delegate: OpenCLDelegate, model: bytes, graph: Graph, seed: int) -> bool:
    inputs = inputs_for(graph, seed)[0]
    assert_equal_outputs(
        invoke(interpreter(model, delegate), inputs), invoke(interpreter(model), inputs)
    )
    return True


@any_driver
def test_interpreters_of_several_delegates_run_interleaved(device: DeviceInfo) -> None:
    graphs = [CHAIN, THREE_PARTITIONS, conv_pool()]
    models = [write_model(graph) for graph in graphs]
    # Tuned, so that some run as one persistent launch.
    ours = [interpreter(model, delegate_for(model, device, tune="quick")) for model in models]
    for _ in range(3):
        for graph, model, made in zip(graphs, models, ours, strict=True):
            inputs = inputs_for(graph)[0]
            assert_equal_outputs(invoke(made, inputs), invoke(interpreter(model), inputs))


def test_one_delegate_serves_two_interpreters(device: DeviceInfo) -> None:
    model = write_model(THREE_PARTITIONS)
    delegate = delegate_for(model, device)
    first, second = interpreter(model, delegate), interpreter(model, delegate)
    one, two = inputs_for(THREE_PARTITIONS)[:2]
    reference = interpreter(model)
    for inputs in (one, two):
        assert_equal_outputs(invoke(first, inputs), invoke(reference, inputs))
        assert_equal_outputs(invoke(second, two), invoke(reference, two))
    del first
    assert_equal_outputs(invoke(second, one), invoke(reference, one))


@any_driver
@pytest.mark.parametrize("is_shared", [False, True], ids=["own-delegates", "one-delegate"])
def test_interpreters_run_in_threads(device: DeviceInfo, is_shared: bool) -> None:
    model = write_model(THREE_PARTITIONS)
    shared = delegate_for(model, device, tune="quick")
    results: list[bool] = []

    def work(seed: int) -> None:
        for number in range(4):
            delegate = shared if is_shared else delegate_for(model, device)
            results.append(run_with(delegate, model, THREE_PARTITIONS, 10 * seed + number))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 16


def test_tensors_may_be_allocated_again(device: DeviceInfo) -> None:
    model = write_model(THREE_PARTITIONS)
    delegate = delegate_for(model, device)
    ours, reference = interpreter(model, delegate), interpreter(model)
    for inputs in inputs_for(THREE_PARTITIONS):
        ours.allocate_tensors()
        assert_equal_outputs(invoke(ours, inputs), invoke(reference, inputs))
    assert len(delegate.partitions) == 3


@pytest.mark.parametrize("has_open_batch", [False, True], ids=["fixed-batch", "open-batch"])
def test_inputs_may_be_resized(device: DeviceInfo, has_open_batch: bool) -> None:
    graph = conv_pool(has_open_batch)
    model = write_model(graph)
    delegate = delegate_for(model, device)
    ours, reference = interpreter(model, delegate), interpreter(model)
    rng = np.random.default_rng(3)
    for batch in (1, 3, 1, 2, 2):
        picture = rng.integers(0, 256, (batch, 7, 6, 2)).astype(np.uint8)
        for made in (ours, reference):
            made.resize_tensor_input(0, picture.shape)
            made.allocate_tensors()
        assert_equal_outputs(invoke(ours, [picture]), invoke(reference, [picture]), f"{batch}")
    assert refusals(delegate) == {}


def test_inputs_may_be_resized_before_they_are_allocated(device: DeviceInfo) -> None:
    graph = conv_pool()
    model = write_model(graph)
    picture = np.random.default_rng(3).integers(0, 256, (4, 9, 5, 2)).astype(np.uint8)
    results = []
    for delegates in ([delegate_for(model, device)], []):
        made = RUNTIME.interpreter(model, None, "reference", delegates)
        made.resize_tensor_input(0, picture.shape)
        made.allocate_tensors()
        results.append(invoke(made, [picture]))
    assert results[0][0].shape == (4, 9, 5, 5)
    assert_equal_outputs(results[0], results[1])


def test_a_size_that_does_not_fit_is_an_error_each_time_and_no_other_size_suffers(
    device: DeviceInfo,
) -> None:
    graph = conv_pool()
    model = write_model(graph)
    delegate = delegate_for(model, device)
    delegate._engine.device.max_alloc_bytes = 10_000
    ours, inputs = interpreter(model, delegate), inputs_for(graph)[0]
    expected = invoke(interpreter(model), inputs)
    assert refusals(delegate) == {}
    assert_equal_outputs(invoke(ours, inputs), expected)
    ours.resize_tensor_input(0, (50, 7, 6, 2))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="arena of 21184 bytes: one buffer of this device"):
            ours.allocate_tensors()
    ours.resize_tensor_input(0, (1, 7, 6, 2))
    ours.allocate_tensors()
    assert_equal_outputs(invoke(ours, inputs), expected)


# Closing


def last_words(made: Any, inputs: Sequence[NDArray[Any]]) -> str:
    with pytest.raises(RuntimeError) as raised:
        invoke(made, inputs)
    return str(raised.value).splitlines()[0]


def test_after_close_a_run_is_an_error_and_the_delegate_can_serve_again(device: DeviceInfo) -> None:
    model, inputs = write_model(CHAIN), inputs_for(CHAIN)[0]
    delegate = delegate_for(model, device)
    ours = interpreter(model, delegate)
    delegate.close()
    delegate.close()
    assert last_words(ours, inputs) == "OpenCL delegate: the delegate was closed"
    assert delegate.failure == "the delegate was closed"
    ours.resize_tensor_input(0, (2, 3, 3, 2))
    with pytest.raises(RuntimeError, match="the delegate was closed"):
        ours.allocate_tensors()
    assert run_with(delegate, model, CHAIN, 0)


@pytest.mark.parametrize(
    "order",
    [
        ("drop interpreter", "drop delegate"),
        ("drop delegate", "drop interpreter"),
        ("close", "drop interpreter", "drop delegate"),
        ("close", "drop delegate", "drop interpreter"),
        ("drop interpreter", "close", "drop delegate"),
    ],
    ids=", ".join,
)
def test_nothing_is_left_whatever_goes_first(device: DeviceInfo, order: Sequence[str]) -> None:
    model = write_model(THREE_PARTITIONS)
    delegate = delegate_for(model, device)
    alive: dict[str, Any] = {
        "drop interpreter": interpreter(model, delegate),
        "drop delegate": delegate,
    }
    invoke(alive["drop interpreter"], inputs_for(THREE_PARTITIONS)[0])
    executors = [weakref.ref(kernel._executor) for kernel in delegate._last_run]
    references: list[Any] = [weakref.ref(delegate), weakref.ref(delegate._engine.device)]
    del delegate
    gc.disable()  # reference counts alone must do it
    try:
        for step in order:
            if step == "close":
                alive["drop delegate"].close()
            else:
                del alive[step]
        assert [reference() for reference in (*references, *executors)] == [None] * 5
    finally:
        gc.enable()


@slow
@any_driver
@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
def test_a_cycle_of_interpreter_and_delegate_is_collected(
    device: DeviceInfo, is_closed: bool
) -> None:
    code = """
import gc, sys, weakref
from delegate import OpenCLDelegate
from delegate.inspect import write_model
from tests.support.compare import interpreter, invoke, inputs_for
from tests.support.nets import conv_pool
graph = conv_pool()
model = write_model(graph)
for turn in range(5):
    delegate = OpenCLDelegate(model, int(sys.argv[1]))
    made = interpreter(model, delegate)
    invoke(made, inputs_for(graph)[0])
    delegate.mine, made.its = made, delegate
    references = weakref.ref(made), weakref.ref(delegate), weakref.ref(delegate._engine.device)
    if sys.argv[2] == "True":
        delegate.close()
    del delegate, made
    gc.collect()
    print([reference() for reference in references])
"""
    assert run_python(code, device.index, is_closed) == "[None, None, None]\n" * 5


@slow
@any_driver
@pytest.mark.parametrize(
    "keep",
    [
        "pass",
        "import builtins; builtins.kept = made",
        "import builtins; builtins.kept = [made, delegate]; made.it = builtins.kept",
        "import atexit; atexit.register(lambda: invoke(made, inputs))",
    ],
    ids=["module", "builtins", "cycle-in-builtins", "atexit"],
)
def test_a_process_ends_well_with_an_interpreter_alive(device: DeviceInfo, keep: str) -> None:
    code = f"""
import sys
from delegate import OpenCLDelegate
from delegate.inspect import write_model
from tests.support.compare import interpreter, invoke, inputs_for
from tests.support.nets import conv_pool
graph = conv_pool()
model = write_model(graph)
inputs = inputs_for(graph)[0]
delegate = OpenCLDelegate(model, int(sys.argv[1]))
made = interpreter(model, delegate)
invoke(made, inputs)
{keep}
print("end")
"""
    assert run_python(code, device.index) == "end\n"


@slow
@any_driver
@pytest.mark.parametrize("delegates", ["one-each", "one-for-all"])
def test_a_hundred_interpreters_leave_nothing_behind(device: DeviceInfo, delegates: str) -> None:
    code = """
import gc, os, sys
from collections import Counter
from delegate import OpenCLDelegate
from delegate.inspect import write_model
from tests.support.compare import interpreter, invoke, inputs_for
from tests.support.model import graph_of, op
from tests.support.nets import POOL, image
shape = (1, 96, 192, 8)  # 144 KiB a tensor, 288 KiB an arena
middle = image(*shape)
graph = graph_of([op("AVERAGE_POOL_2D", [image(*shape)], [middle], POOL),
                  op("AVERAGE_POOL_2D", [middle], [image(*shape)], POOL)])
model, inputs = write_model(graph), inputs_for(graph)[0]
shared = OpenCLDelegate(model, int(sys.argv[1])) if sys.argv[2] == "one-for-all" else None
def resident_kib():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
for number in range(1, 111):
    delegate = shared or OpenCLDelegate(model, int(sys.argv[1]))
    made = interpreter(model, delegate)
    invoke(made, inputs)
    del made, delegate
    if number in (30, 110):
        print(resident_kib(), len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")))
kinds = Counter(type(thing).__name__ for thing in gc.get_objects())
print(*(kinds[name] for name in ("Executor", "Claim", "PartitionKernel", "Graph", "Buffer")))
"""
    early, late, objects = (
        tuple(map(int, line.split()))
        for line in run_python(code, device.index, delegates).splitlines()
    )
    # 80 leaked arenas would be 22 MiB.
    assert late[0] - early[0] < 6 * 1024, f"{early[0]} KiB after 30, {late[0]} KiB after 110"
    assert late[1] <= early[1], f"open files: {early[1]} after 30, {late[1]} after 110"
    # rusticl ends a queue's thread a little after the queue.
    assert late[2] <= early[2] + 3, f"threads: {early[2]} after 30, {late[2]} after 110"
    # A shared delegate remembers its last interpreter's kernel; executors were freed.
    assert max(objects) <= 2


# What is elsewhere in the model


def small_pool(source: Any) -> Any:
    """Return (node, result) of a pool that the device takes."""
    result = image(*source.shape)
    return op("AVERAGE_POOL_2D", [source], [result], POOL), result


def sizes(*values: Any) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def int8(*shape: int) -> Any:
    return t(shape, "int8", 0.5, 3)


def picture_of(shape: Sequence[int], dtype: str = "int8") -> NDArray[Any]:
    return np.random.default_rng(2).integers(0, 100, shape).astype(dtype)


def pair(last: Any, *nodes: Any) -> list[Any]:
    result = int8(*last.shape)
    return [*nodes, op("AVERAGE_POOL_2D", [last], [result], POOL)]


def dynamic_case(name: str) -> tuple[list[Any], list[NDArray[Any]]]:
    """Return the nodes of a model whose op makes a dynamic tensor for a pool, and its inputs."""
    x, y, whole = int8(1, 4, 4, 2), int8(1, 4, 4, 2), sizes(1, 4, 4, 2)
    computed = t((4,), "int32")
    if name == "RESHAPE":
        return pair(y, op(name, [x, computed], [y])), [picture_of(x.shape), whole]
    if name == "TILE":
        return pair(y, op(name, [x, computed], [y])), [picture_of(x.shape), sizes(1, 1, 1, 1)]
    if name == "TRANSPOSE":
        return pair(y, op(name, [x, computed], [y])), [picture_of(x.shape), sizes(0, 2, 1, 3)]
    if name == "SLICE":
        begin = t((4,), "int32")
        node = op(name, [x, begin, computed], [y])
        return pair(y, node), [picture_of(x.shape), sizes(0, 0, 0, 0), whole]
    if name == "PAD":
        padded, pairs = int8(1, 6, 6, 2), t((4, 2), "int32")
        return (
            pair(padded, op(name, [x, pairs], [padded])),
            [picture_of(x.shape), sizes([0, 0], [1, 1], [2, 0], [0, 0])],
        )
    if name == "EXPAND_DIMS":
        flat, axis = int8(4, 4, 2), t((), "int32")
        return pair(y, op(name, [flat, axis], [y])), [picture_of(flat.shape), sizes(0).reshape(())]
    if name == "FILL":
        value = int8()
        return pair(y, op(name, [computed, value], [y])), [whole, picture_of(())]
    if name == "BATCH_TO_SPACE_ND":
        crops, four = t((2, 2), "int32"), int8(4, 2, 2, 2)
        node = op(name, [four, const(sizes(2, 2)), crops], [y])
        return pair(y, node), [picture_of(four.shape), sizes([0, 0], [0, 0])]
    assert name == "SPLIT"
    axis, tall, other = t((), "int32"), int8(1, 8, 4, 2), int8(1, 4, 4, 2)
    node = op(name, [axis, tall], [y, other], {"num_splits": 2})
    return pair(y, node), [sizes(1).reshape(()), picture_of(tall.shape)]


@pytest.mark.parametrize(
    "name",
    [
        "RESHAPE",
        "TILE",
        "TRANSPOSE",
        "SLICE",
        "PAD",
        "EXPAND_DIMS",
        "FILL",
        "BATCH_TO_SPACE_ND",
        "SPLIT",
    ],
)
def test_nodes_that_touch_dynamic_tensors_stay_on_the_cpu(device: DeviceInfo, name: str) -> None:
    nodes, inputs = dynamic_case(name)
    # Beside it, something of fixed sizes that is taken.
    source = int8(1, 4, 4, 2)
    graph = graph_of([*nodes, op("AVERAGE_POOL_2D", [source], [int8(1, 4, 4, 2)], POOL)])
    model = write_model(graph)
    delegate = delegate_for(model, device, exclude_ops=["TILE", "TRANSPOSE", "PAD", "FILL"])
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate)[1] == "a tensor's shape is known only at run time"
    assert delegate.partitions == [[2]]
    given = [*inputs, picture_of(source.shape)]
    for _ in range(2):
        assert_equal_outputs(invoke(ours, given), invoke(reference, given))


@any_driver
@pytest.mark.model
@pytest.mark.parametrize("excluded", [[], ["RESHAPE"]], ids=["folded", "dynamic"])
def test_a_real_model_that_computes_a_shape_is_exact(
    device: DeviceInfo, excluded: list[str]
) -> None:
    path = model_path("mbnet128_0.25_q")
    graph = read_model(path)
    delegate = OpenCLDelegate(path, device.index, exclude_ops=excluded, tune="off")
    ours, reference = interpreter(path, delegate), interpreter(path)
    inputs = inputs_for(graph)[0]
    assert_equal_outputs(invoke(ours, inputs), invoke(reference, inputs))
    # Without the RESHAPE what follows it is of a shape that only a run tells.
    assert sorted(refusals(delegate)) == ([36, 37] if excluded else [])
    for batch in (3, 1):
        several = [np.repeat(inputs[0], batch, axis=0)]
        for made in (ours, reference):
            made.resize_tensor_input(made.get_input_details()[0]["index"], several[0].shape)
            made.allocate_tensors()
        assert_equal_outputs(invoke(ours, several), invoke(reference, several), f"batch {batch}")
        assert sorted(refusals(delegate)) == ([36, 37] if excluded else [])


def test_strings_elsewhere_do_not_matter(device: DeviceInfo) -> None:
    left, right, same = t((2,), "string"), t((2,), "string"), t((2,), "bool")
    pool, _ = small_pool(image())
    model = chain_model([op("EQUAL", [left, right], [same]), pool])
    delegate = delegate_for(model, device)
    picture = picture_of((1, 3, 3, 2), "uint8")
    given = [np.array([b"a", b"bc"]), np.array([b"a", b"bd"]), picture]
    got = invoke(interpreter(model, delegate), given)
    expected = invoke(interpreter(model), given)
    assert got[0].tolist() == expected[0].tolist() == [True, False]
    assert_equal_outputs(got[1:], expected[1:])
    assert delegate.partitions == [[1]]


def loop() -> bytes:
    """A WHILE that pools its picture 3 times; its body's one node is like the main graph's first,
    but of another window."""
    x, pooled, looped, result = image(), image(), image(), image()
    start, count = t((1,), "int32"), t((1,), "int32")
    calls = {"cond_subgraph_index": 1, "body_subgraph_index": 2}
    main = graph_of(
        [
            op("AVERAGE_POOL_2D", [x], [pooled], POOL),
            op("WHILE", [start, pooled], [count, looped], calls),
            op("AVERAGE_POOL_2D", [pooled], [result], POOL),
        ],
        [x, start],
        [looped, result],
    )
    number, carried, is_less = t((1,), "int32"), image(), t((1,), "bool")
    condition = graph_of(
        [op("LESS", [number, const(sizes(3))], [is_less])], [number, carried], [is_less]
    )
    number, carried, next_number, next_carried = (
        t((1,), "int32"),
        image(),
        t((1,), "int32"),
        image(),
    )
    body = graph_of(
        [
            op("AVERAGE_POOL_2D", [carried], [next_carried], POOL | {"filter_width": 3}),
            op("ADD", [number, const(sizes(1))], [next_number]),
        ],
        [number, carried],
        [next_number, next_carried],
    )
    return write_subgraphs(main, condition, body)


def test_only_the_main_subgraph_is_delegated_for_every_interpreter(device: DeviceInfo) -> None:
    model = loop()
    given = [picture_of((1, 3, 3, 2), "uint8"), sizes(0)]
    expected = invoke(interpreter(model), given)
    delegate = delegate_for(model, device)
    alive = []  # a context's address must not be used again
    for _ in range(2):
        delegate.partitions = []
        alive.append(interpreter(model, delegate))
        assert delegate.partitions == [[0, 2]]
        got = invoke(alive[-1], given)
        assert_equal_outputs(got, expected)


def test_a_custom_op_s_error_is_tflite_s_own(device: DeviceInfo) -> None:
    pool, result = small_pool(image())
    model = chain_model([pool, op("my op", [result], [image()], is_custom=True)])
    delegate = delegate_for(model, device)
    with pytest.raises(RuntimeError, match="unresolved custom op: my op"):
        interpreter(model, delegate)
    assert refusals(delegate) == {1: "custom op my op is not implemented"}
    assert delegate.failure is None


@pytest.mark.model
def test_a_real_model_s_custom_op_error_is_tflite_s_own(device: DeviceInfo) -> None:
    path = model_path("model_invoking_error")
    with pytest.raises(RuntimeError, match="unresolved custom op: fake-op-double"):
        interpreter(path, OpenCLDelegate(path, device.index))


@pytest.mark.parametrize(
    ("first", "second", "taken"),
    [
        (["ADD", *LEFT], ["MUL"], [[[0]], [[1, 2]]]),
        ([*LEFT], ["MUL"], [[[0], [2]], [[1]]]),
        ([], [], [[[0, 1, 2]], []]),
    ],
    ids=["second-takes-the-rest", "second-between", "nothing-left"],
)
def test_another_delegate_may_come_before(
    device: DeviceInfo, first: list[str], second: list[str], taken: list[list[list[int]]]
) -> None:
    model = write_model(CHAIN)
    delegates = [delegate_for(model, device, exclude) for exclude in (first, second)]
    ours = RUNTIME.interpreter(model, None, "reference", delegates)
    ours.allocate_tensors()
    assert [[sorted(group) for group in d.partitions] for d in delegates] == taken
    for index in (n for group in taken[0] for n in group):
        assert refusals(delegates[1])[index] == "another delegate took it"
    inputs = inputs_for(CHAIN)[0]
    assert_equal_outputs(invoke(ours, inputs), invoke(interpreter(model), inputs))


# Failures


OTHER_MODELS = {
    "another-op": (
        write_model(net([("MAX_POOL_2D", [0], 1), ("MAX_POOL_2D", [1], 2), ("ADD", [1, 2], 3)])),
        "node 0 is MAX_POOL_2D (0,) -> (1,) in the interpreter, "
        "AVERAGE_POOL_2D (0,) -> (1,) in the delegate's file: give both the same model",
    ),
    "fewer-nodes": (
        write_model(net([("AVERAGE_POOL_2D", [0], 1), ("MAX_POOL_2D", [1], 2)])),
        "the model is 2 nodes in the interpreter, 3 nodes in the delegate's file: "
        "give both the same model",
    ),
    "more-nodes": (
        write_model(
            net(
                [
                    ("AVERAGE_POOL_2D", [0], 1),
                    ("MAX_POOL_2D", [1], 2),
                    ("ADD", [1, 2], 3),
                    ("MUL", [3, 3], 4),
                ]
            )
        ),
        "node 3 is MUL (3, 3) -> (4,) in the interpreter, nothing in the delegate's file: "
        "give both the same model",
    ),
}


@pytest.mark.parametrize("name", OTHER_MODELS)
def test_an_interpreter_of_another_model_is_refused(device: DeviceInfo, name: str) -> None:
    model, message = OTHER_MODELS[name]
    delegate = delegate_for(write_model(CHAIN), device)
    with pytest.raises(RuntimeError) as raised:
        interpreter(model, delegate)
    assert str(raised.value).splitlines()[0] == f"OpenCL delegate: {message}"
    assert delegate.failure == message
    assert run_with(delegate, write_model(CHAIN), CHAIN, 0)


def test_constants_of_another_shape_are_refused(device: DeviceInfo) -> None:
    graph = conv_pool()
    weights = const(np.zeros((4, 3, 3, 2), np.uint8), 0.02, 120)
    middle, bias = image(1, 7, 6, 4), const(np.zeros(4, np.int32), 0.01)
    pool, _ = small_pool(middle)
    conv = op("CONV_2D", [image(1, 7, 6, 2), weights, bias], [middle], CONV)
    with pytest.raises(
        RuntimeError,
        match=r"constant 1 is \(4, 3, 3, 2\) in the interpreter, \(5, 3, 3, 2\) in the delegate's",
    ):
        interpreter(chain_model([conv, pool]), delegate_for(write_model(graph), device))


def test_constants_of_other_values_are_refused(device: DeviceInfo) -> None:
    model = bytearray(write_model(conv_pool()))
    weights = read_model(bytes(model)).nodes[0].inputs[1]
    assert weights is not None
    assert weights.data is not None
    model[bytes(model).index(weights.data.tobytes()) + 7] ^= 1
    with pytest.raises(
        RuntimeError, match=r"constant 1 is of other values in the interpreter, another in the"
    ):
        interpreter(bytes(model), delegate_for(write_model(conv_pool()), device))


def test_a_run_that_fails_on_the_device_says_why(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = write_model(CHAIN), inputs_for(CHAIN)[0]
    delegate = delegate_for(model, device)
    ours = interpreter(model, delegate)

    def broken(*_: object) -> None:
        raise DelegateError("running: CL_OUT_OF_RESOURCES")

    with monkeypatch.context() as patch:
        patch.setattr(Executor, "run", broken)
        assert last_words(ours, inputs) == "OpenCL delegate: running: CL_OUT_OF_RESOURCES"
    assert delegate.failure == "running: CL_OUT_OF_RESOURCES"
    assert_equal_outputs(invoke(ours, inputs), invoke(interpreter(model), inputs))


def test_a_partition_that_does_not_fit_goes_to_the_cpu(
    device: DeviceInfo, caplog: pytest.LogCaptureFixture
) -> None:
    # A node left to the CPU lies between, so that they are two partitions.
    small_in, small_mid, small_out = image(), image(), image()
    large_in, large_out = image(1, 40, 40, 2), image(1, 40, 40, 2)
    big = graph_of(
        [
            op("AVERAGE_POOL_2D", [large_in], [large_out], POOL),
            op("MAX_POOL_2D", [small_in], [small_mid], POOL),
            op("AVERAGE_POOL_2D", [small_mid], [small_out], POOL),
        ]
    )
    model = write_model(big)
    delegate = delegate_for(model, device)
    delegate._engine.device.max_alloc_bytes = 4096
    with caplog.at_level(logging.WARNING, "delegate"):
        assert_runs_exactly(model, big, delegate)
    why = "arena of 6464 bytes: one buffer of this device holds at most 4096"
    assert refusals(delegate) == {0: why, 1: "excluded by exclude_ops"}
    assert delegate.partitions == [[2]]
    assert f"1 nodes go to the CPU: {why}" in caplog.messages


def test_memory_the_driver_refuses_goes_to_the_cpu(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> cl.Buffer:
        code = cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE
        raise opencl_error(cl.MemoryError, "clCreateBuffer", code)

    model = write_model(CHAIN)
    delegate = delegate_for(model, device)
    with monkeypatch.context() as patch:
        patch.setattr(cl, "Buffer", refuses)
        ours = interpreter(model, delegate)
    why = "allocating 0 KiB: CL_MEM_OBJECT_ALLOCATION_FAILURE"
    assert refusals(delegate) == {0: why, 1: "excluded by exclude_ops", 2: why}
    inputs = inputs_for(CHAIN)[0]
    assert_equal_outputs(invoke(ours, inputs), invoke(interpreter(model), inputs))
    assert run_with(delegate, model, CHAIN, 0)
    assert delegate.partitions == [[0], [2]]


def test_a_device_that_is_lost_while_it_prepares_is_an_error(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object, **__: object) -> cl.Event:
        code = cl.status_code.OUT_OF_RESOURCES
        raise opencl_error(cl.RuntimeError, "enqueue_write_buffer", code)

    delegate = delegate_for(write_model(CHAIN), device)
    monkeypatch.setattr(cl, "enqueue_copy", lost)
    with pytest.raises(RuntimeError, match="allocating 0 KiB: CL_OUT_OF_RESOURCES"):
        interpreter(write_model(CHAIN), delegate)
    assert delegate.failure == "allocating 0 KiB: CL_OUT_OF_RESOURCES"


def test_a_device_with_little_memory_leaves_the_large_to_the_cpu(device: DeviceInfo) -> None:
    if "PoCL" not in device.platform_version:
        pytest.skip("only PoCL's memory can be limited from outside")
    code = """
import sys
from delegate import OpenCLDelegate
from delegate.inspect import write_model
from tests.support.compare import interpreter
from tests.support.model import graph_of, op
from tests.support.nets import POOL, image
shape = (1, 4200, 4200, 8)
graph = graph_of([op("AVERAGE_POOL_2D", [image(*shape)], [image(*shape)], POOL),
                  op("AVERAGE_POOL_2D", [image()], [image()], POOL)])
model = write_model(graph)
small = OpenCLDelegate(model, int(sys.argv[1]))
made = interpreter(model, small)
print(small.verdicts[0][2], small.partitions)
"""
    # Both nodes are one partition, which goes as a whole.
    assert run_python(code, device.index, POCL_MEMORY_LIMIT="1") == (
        "arena of 282240128 bytes: one buffer of this device holds at most 268435456 []\n"
    )


def test_a_kernel_that_does_not_build_goes_to_the_cpu(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    text = sources.text_of

    def with_a_slip(file: str) -> str:
        return text(file) + ("\nthis is a slip;\n" if file == "add.cl" else "")

    monkeypatch.setattr(sources, "text_of", with_a_slip)
    model = write_model(THREE_PARTITIONS)
    delegate = delegate_for(model, device)
    with caplog.at_level(logging.WARNING, "delegate"):
        assert_runs_exactly(model, THREE_PARTITIONS, delegate)
    found = refusals(delegate)
    assert set(found) == {1, 2, 3, 5, 7}
    assert "kernel add.cl does not build (USES_ADD_QUANT8=1 ELEM=uchar)" in found[1]
    assert "error" in found[1]
    warnings = [message for message in caplog.messages if "does not build" in message]
    assert warnings
    assert len(set(warnings)) == len(warnings)  # each build once
    for warning in warnings:
        assert "the driver's log:" in warning
        assert "unknown type name 'this'" in warning
    assert delegate.partitions == [[0], [4, 6]] or delegate.partitions == [[0], [4], [6]]


# Times


def test_a_profile_has_a_row_for_each_launch(device: DeviceInfo) -> None:
    graph = conv_pool()
    model = write_model(graph)
    delegate = delegate_for(model, device, profiling=True)
    assert delegate.profile() == []
    ours = interpreter(model, delegate)
    assert delegate.profile() == []
    for _ in range(2):
        invoke(ours, inputs_for(graph)[0])
    rows = delegate.profile()
    assert [(row.node, row.op) for row in rows][-1] == (1, "AVERAGE_POOL_2D")
    assert {row.node for row in rows} == {0, 1}
    assert rows[-1].kernel in ("pool_2d_quant8", "pool_2d_vector_quant8")
    for row in rows:
        assert row.kernel.startswith(("conv_2d", "pool_2d"))
        assert row.alternative
        assert row.global_size > 0
        assert 0 < row.microseconds < 10e6


def test_a_profile_covers_every_partition(device: DeviceInfo) -> None:
    model = write_model(THREE_PARTITIONS)
    delegate = delegate_for(model, device, profiling=True)
    invoke(interpreter(model, delegate), inputs_for(THREE_PARTITIONS)[0])
    assert delegate.profile() == []  # the interpreter is gone, and its launches with it
    ours = interpreter(model, delegate)
    invoke(ours, inputs_for(THREE_PARTITIONS)[0])
    assert [row.node for row in delegate.profile()] == [0, 1, 2, 4, 6, 7]


def test_a_profile_needs_profiling(device: DeviceInfo) -> None:
    with pytest.raises(DelegateError, match="make the delegate with profiling=True"):
        delegate_for(write_model(CHAIN), device).profile()
