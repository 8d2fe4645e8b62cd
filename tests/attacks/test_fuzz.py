# SPDX-License-Identifier: Apache-2.0
"""Regression tests of the fuzzer's findings, and tests that it finds and shrinks faults."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo, Options, Unsupported, ops
from delegate.engine import Engine
from delegate.graph.ir import UNSIZED
from delegate.graph.mediapipe import LACKING
from delegate.graph.partition import partition_of
from delegate.host.partition_kernel import PartitionKernel
from delegate.host.tflite import graphs
from delegate.host.tflite.library import installed_rules
from delegate.host.tflite.reference import NodeOnTFLite
from delegate.inspect import (
    Graph,
    Node,
    Tensor,
    read_model,
    write_model,
)
from delegate.isa import FEATURES
from delegate.plan.passes import PASSES, run_passes
from delegate.plan.record import DISPATCH_MODES, FUSED, ONE_BY_ONE
from delegate.plan.tuning.dispatch import KERNEL_KINDS
from delegate.run.executor import Executor
from delegate.run.state_binding import StateBinding
from delegate.target import Target
from tests.attacks.fuzz import apart, called, failing, headers, stateful, targets, worker
from tests.attacks.fuzz.__main__ import CASES, attack_of
from tests.attacks.fuzz.attacks import OfFiles
from tests.attacks.fuzz.drawing import Pen, Skip, drawn
from tests.attacks.fuzz.graph_worker import of_number
from tests.attacks.fuzz.graphs import OfGraphs
from tests.attacks.fuzz.pieces import (
    PIECES,
    functions,
    moves,
    of_the_suite,
    required,
    sizes,
    sums,
    transformers,
)
from tests.attacks.fuzz.targets import KINDS, Kind
from tests.attacks.fuzz.ways import (
    START,
    measured_fastest,
    run_way,
    some_of,
    ways_of,
    with_wider_bounds,
)
from tests.support.compare import RUNTIME
from tests.support.nets import net
from tests.support.tiers import slow
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.conformance.cases.loops import choice, loop
from tflite_opencl.conformance.cases.recurrent import svdf
from tflite_opencl.conformance.checks.job import CaseJob
from tflite_opencl.conformance.results import CRASH, PASS, CaseResult
from tflite_opencl.conformance.runner import Item
from tflite_opencl.conformance.subject import Subject
from tflite_opencl.models.build import constant, dtype_of, graph, node, numbers, tensor
from tflite_opencl.oracle.oracle import oracle

FINDINGS = sorted(path for path in CASES.rglob("*") if path.is_file())
IN_ONE_CHILD = [path for path in FINDINGS if path.parent.name in KINDS]


def name(path: Path) -> str:
    return f"{path.parent.name}-{path.name}"


@pytest.mark.parametrize("path", IN_ONE_CHILD, ids=name)
def test_saved_file_is_accepted_or_refused(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "file"
    copy.write_bytes(path.read_bytes())
    assert worker.finding(path.parent.name, copy) is None


@slow
@pytest.mark.parametrize("path", [p for p in FINDINGS if p not in IN_ONE_CHILD], ids=name)
def test_saved_graph_runs_correctly(path: Path, device: DeviceInfo, tmp_path: Path) -> None:
    with closing(attack_of(path.parent.name, device.platform, tmp_path)) as attack:
        assert attack.verdicts([path.read_bytes()]) == [None]


@slow
@pytest.mark.parametrize("kind", KINDS)
def test_valid_files_are_accepted(kind: str, tmp_path: Path) -> None:
    seeds = list(KINDS[kind].seeds().values())
    assert seeds
    for seed in random.Random(0).sample(seeds, min(len(seeds), 20)):
        KINDS[kind].verdict(seed, tmp_path / "file")


class Planted(OfFiles):
    """Fails if the file contains a certain byte."""

    def verdicts(self, contents: Sequence[bytes]) -> list[str | None]:
        return ["the fault: it is there" if b"\x80" in text else None for text in contents]


def test_fault_is_found_once_and_shrunk_to_one_byte() -> None:
    sound = bytes(range(1, 100))
    with closing(Planted("planted", [sound])) as attack:
        (finding,) = attack.findings(random.Random(1), 0.5)
    assert attack.found["the fault"] > 1
    assert sum(map(int.__ne__, sound, finding.content)) == 1
    assert finding.text == "the fault: it is there"


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (lambda data, path: targets.read_model(data[0]), "in delegate/format/"),
        (lambda data, path: [None for _ in iter(int, 1)], "TimeoutError in a test"),
    ],
    ids=["error", "hang"],
)
def test_exception_of_verdict_is_reported(
    verdict: object, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "planted", Kind("planted", dict, verdict))  # type: ignore[arg-type]
    monkeypatch.setattr(worker, "SECONDS", 1)
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1))
    message = worker.finding("planted", path)
    assert message is not None
    assert words in message


# Graphs are run with nodes left to TFLite, too, which lacks some ops. TRANSPOSE_CONV draws the
# kernels of Convolution2DTransposeBias; the sizes of the others are in tests/delegate/ops.
OPS = [op for op in ops.ops() if not op.islower() and op not in LACKING]


@slow
def test_pieces_cover_every_op_and_type(monkeypatch: pytest.MonkeyPatch) -> None:
    results: set[str] = set()
    types: set[str] = set()
    monkeypatch.setattr(Pen, "_is_taken", lambda pen, made: True)
    for number in range(200):
        pen = Pen(number)
        types.add(pen.dtype)
        for piece in dict.fromkeys(PIECES):
            with suppress(Skip):
                if piece is not of_the_suite:
                    piece(pen)
        results |= {made.op for made in pen.nodes}
    assert set(OPS) <= results
    # Some graphs are converted to float16 after drawing.
    assert {dtype_of(case.kind) for case in all_cases()} - {"float16"} <= types


@pytest.mark.parametrize("op", OPS)
def test_drawing_covers_every_op(op: str) -> None:
    for number in range(200):
        pen = Pen(number)
        pen.length = 1
        with suppress(Skip):
            of_the_suite(pen, op)
            return
    raise AssertionError(f"no case of {op} is taken")


@pytest.mark.parametrize("name", PASSES)
def test_drawing_covers_every_pass(name: str) -> None:
    def accepts(node: Node) -> bool:
        try:
            return bool(ops.lower(node, Target(rules=installed_rules())))
        except Unsupported:
            return False

    chains = (function for _, function in transformers.OFTEN)
    pieces = (sums.padded, sums.residual, moves.shuffle, functions.pointwise, *chains)
    for number in range(200):
        graph = drawn(number, pieces)
        whole = partition_of(graph, range(len(graph.nodes)))
        if run_passes(whole, accepts, [name]) is not whole:
            return
    raise AssertionError(f"{name} changes none of the graphs")


def test_drawing_is_deterministic() -> None:
    first, again, other = (write_model(drawn(number, PIECES)) for number in (5, 5, 6))
    assert first == again != other


def test_selected_ways_have_different_kinds() -> None:
    ways = ways_of(drawn(5, PIECES), ["plain", "vector 4"])
    chosen = some_of(ways, 4, 1)
    assert len({way.split()[0] for way in chosen}) == 4
    assert {f"form {form}, {number}" for form in DISPATCH_MODES for number in KERNEL_KINDS} < set(
        ways
    )
    assert {f"passes {name}" for name in PASSES} < set(ways)
    assert {f"exclude_isa {feature.name}" for feature in FEATURES} < set(ways)


def test_bounds_are_widened_only_where_reference_is_sensitive() -> None:
    plain = {"fused_activation_function": "NONE"}
    x, tail, root, large, total = (tensor((1, 4)) for _ in range(5))
    # LOG of GELU's tail is -inf or NaN; sums of the largest floats are NaN in some orders.
    of_tail = [node("GELU", [x], [tail], {"approximate": True}), node("LOG", [tail], [root])]
    of_large = [
        node("MUL", [x, tensor((), data=np.float32(1e38))], [large], plain),
        node("SUB", [large, x], [total], plain),
    ]

    def is_open(nodes: Sequence[Node], values: Sequence[float]) -> list[bool]:
        whole = graph(nodes, [x], nodes[-1].outputs)
        model, given = write_model(whole), [[np.array([values], np.float32)]]
        job = CaseJob(Subject("opencl", {}, None, RUNTIME), whole, model, None, given, lambda: None)
        ((bound,),) = with_wider_bounds(job, oracle(RUNTIME, whole, model, given)).bounds
        assert bound is not None
        return [bool(each) for each in np.isinf(bound)[0]]

    assert is_open(of_tail, [-6.0, 1.5, -7.5, 2.5]) == [True, False, True, False]
    assert is_open(of_large, [1.5, 2.5, 0.25, 0.5]) == [True] * 4
    assert is_open(of_large, [1e-9, 2e-9, 3e-9, 0.0]) == [False] * 4


def test_values_that_depend_on_quantised_nan_rows_are_ignored() -> None:
    x, root, sums, result, other = (tensor((1, 9)) for _ in range(5))
    weights = tensor((9, 9), "int8", 1.0, data=np.eye(9, dtype=np.int8))
    plain = {"fused_activation_function": "NONE", "asymmetric_quantize_inputs": True}
    nodes = [
        node("RSQRT", [x], [root]),
        node("FULLY_CONNECTED", [root, weights, None], [sums], plain),
        node("ABS", [sums], [result]),
        node("ABS", [root], [other]),
    ]

    def open_at(made: Graph, sets: Sequence[Sequence[float]]) -> list[list[bool]]:
        model, given = write_model(made), [[np.array([row], np.float32)] for row in sets]
        job = CaseJob(Subject("opencl", {}, None, RUNTIME), made, model, None, given, lambda: None)
        known = with_wider_bounds(job, oracle(RUNTIME, made, model, given))
        return [
            [each is not None and bool(np.isinf(each).all()) for each in bounds]
            for bounds in known.bounds
        ]

    sound, odd, infinite = [1.5] * 9, [1.5] * 8 + [-1.0], [1.5] * 8 + [0.0]
    made = graph(nodes, [x], [result, other])
    assert open_at(made, [odd, sound, infinite]) == [[True, False], [False] * 2, [False] * 2]
    (keeps,) = svdf("hybrid", (1, 9, 5, 1, 3)).nodes
    made = graph([node("RSQRT", [x], [keeps.inputs[0]]), keeps], [x], keeps.outputs)
    assert open_at(made, [sound, odd, sound]) == [[False], [True], [True]]


@pytest.mark.parametrize("mode", [ONE_BY_ONE, FUSED])
@pytest.mark.parametrize("numbers", KERNEL_KINDS)
def test_forced_dispatch_mode_is_used(numbers: str, mode: str, device: DeviceInfo) -> None:
    graph = net([("ADD", [0, 0], 1), ("ADD", [1, 0], 2)])
    with measured_fastest(mode, numbers):
        engine = Engine(Options(device.index, tune="off"))
        result = engine.executor(partition_of(graph, range(2)), engine.target(installed_rules()))
    assert result.dispatch_mode == mode
    assert {e.is_specialised for step in result.plan.steps for e in step.launches} == {
        numbers == "specialised"
    }


def of_way(device: DeviceInfo, way: str, given: Graph | None = None) -> CaseResult:
    """Run a graph in one way; None: a graph of sums with state."""
    result = given or net([("ADD", [0, 0], 1), ("ADD", [1, 0], 2)], [1])
    model = write_model(result)
    options = {"tune": "off", "min_nodes_per_partition": 1}
    job = CaseJob(
        Subject("opencl", options, device.index, RUNTIME), result, model, 0, None, lambda: None
    )
    return run_way(way, job, oracle(RUNTIME, result, model, job.sets))


@pytest.mark.parametrize(
    ("way", "taken"), [("placement first", 1), ("placement last", 1), ("placement fastest", None)]
)
def test_placed_nodes_are_compared(
    way: str, taken: int | None, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = of_way(device, way)
    assert found.result == PASS
    assert taken in (None, found.taken)
    # A wrong value that crosses the border is found.
    run = Executor.run

    def wrong(self: Executor, inputs: Any, outputs: Any) -> None:
        run(self, inputs, outputs)
        for each in outputs:
            each += 1

    monkeypatch.setattr(Executor, "run", wrong)
    if taken:
        assert of_way(device, way).result != PASS


@slow
@pytest.mark.parametrize(
    "way",
    ["variables plain", "variables signatures", "variables model", "tensors model", "carry 1"],
)
def test_lost_state_is_found(way: str, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_way(device, way).result == PASS
    # Nodes of random graphs read variable tensors, but do not write them.
    monkeypatch.setattr(StateBinding, "restore" if "tensors" in way else "save", lambda *_: None)
    assert "other bytes than the reference's" in of_way(device, way).detail


@slow
@pytest.mark.parametrize(
    "way",
    ["variables plain", "variables threads", "variables model", stateful.SHARED, *called.ways()],
)
def test_composite_runs_with_state_and_in_called_graphs(way: str, device: DeviceInfo) -> None:
    pen = Pen(next(number for number in range(99) if Pen(number).dtype == "int32"))
    try:
        functions.composite(pen)
    except Skip:
        pytest.skip("this TFLite knows no STABLEHLO_COMPOSITE")
    result = of_way(device, way, read_model(write_model(pen.graph())))
    assert (result.result, result.detail) == (PASS, "")


@pytest.mark.parametrize("way", [stateful.SHARED, *called.ways()])
def test_loop_runs_in_files_with_several_graphs(way: str, device: DeviceInfo) -> None:
    x, y = (tensor((2, 3), "int32") for _ in range(2))

    def body(_: Tensor, own: Sequence[Tensor]) -> tuple[Sequence[Node], Sequence[Tensor]]:
        total = tensor((2, 3), "int32")
        return [node("MAXIMUM", own, [total])], [own[1], total]

    looping = loop(2, [x, y], body)
    whole = read_model(write_model(graph([looping], outputs=looping.outputs)))
    result = of_way(device, way, whole)
    assert (result.result, result.detail) == (PASS, "")


@pytest.mark.parametrize("way", called.ways())
def test_refused_or_wrong_called_graph_is_found(
    way: str, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert of_way(device, way).result == PASS
    invoke = PartitionKernel.invoke

    def wrong(self: PartitionKernel, inputs: Any, outputs: Any) -> None:
        invoke(self, inputs, outputs)
        outputs[0][...] ^= 1

    with monkeypatch.context() as lying:
        lying.setattr(PartitionKernel, "invoke", wrong)
        assert "other bytes than the reference's" in of_way(device, way).detail
    if way.split()[1] in ("branch", "unrolled"):
        monkeypatch.setattr("delegate.graph.infer.inlined", lambda node, _: node)
        detail = of_way(device, way).detail
        op = "IF" if way.endswith("branch") else "WHILE"
        assert detail == f"not all taken of graph 0: {[f'{op}: {UNSIZED}']}"
        return
    real = graphs._ModelFile.graph
    monkeypatch.setattr(graphs._ModelFile, "graph", lambda f, n: None if n == 1 else real(f, n))
    assert of_way(device, way).detail == "graph 1 was not judged"


@slow
def test_effects_of_cpu_nodes_on_others_are_found(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    pen = Pen(next(number for number in range(99) if Pen(number).dtype == "int8"))
    x = pen.input((1, 2, 3), "int8")
    sizes.back(pen)
    (flat,) = pen.nodes[-1].outputs
    pen.add("ADD", [flat, flat], {})
    pen.add("ADD", [pen.nodes[-1].outputs[0], x], {})
    whole = read_model(write_model(pen.graph()))
    left = frozenset(node.index for node in whole.nodes if node.op == "RESHAPE")
    monkeypatch.setattr(apart, "some_nodes", lambda graph, seed: left)
    assert of_way(device, "apart 0", whole).result == PASS
    monkeypatch.setattr(PartitionKernel, "_renew", lambda *_: None)  # of new shapes
    with pytest.raises(RuntimeError, match="bytes given, "):
        of_way(device, "apart 0", whole)


def test_only_float16_moves_are_left_to_cpu(device: DeviceInfo) -> None:
    x = tensor((2, 3), "float16")
    moved, summed, last = (tensor((2, 3), "float16") for _ in range(3))
    whole = graph(
        [
            node("REVERSE_V2", [x, numbers([1])], [moved]),
            node("EXP", [moved], [summed]),
            node("REVERSE_V2", [summed, numbers([0])], [last]),
        ]
    )
    left = {frozenset(apart.some_nodes(whole, seed)) for seed in range(20)}
    assert frozenset().union(*left) == {0, 2}
    way = next(w for w in apart.ways(whole) if apart.some_nodes(whole, int(w.split()[1])) == {0})
    result = of_way(device, way, read_model(write_model(whole)))
    assert (result.result, result.detail) == (PASS, "")


# Nodes whose output TFLite leaves unwritten if their operand of 1x4 becomes one of 0x4.
UNWRITTEN: dict[str, Callable[[Tensor, Tensor], Node]] = {
    "strided slice": lambda x, y: node(
        "STRIDED_SLICE",
        [x, numbers([0, 0]), numbers([1, 4]), numbers([1, 1])],
        [y],
        {"shrink_axis_mask": 1},
    ),
    "embedding": lambda x, y: node("EMBEDDING_LOOKUP", [numbers([0]), x], [y]),
    "gather": lambda x, y: node(
        "STABLEHLO_GATHER",
        [x, numbers([[0]])],
        [y],
        {
            "offset_dims": [1],
            "collapsed_slice_dims": [0],
            "start_index_map": [0],
            "index_vector_dim": 1,
            "slice_sizes": [1, 4],
        },
    ),
}


@pytest.mark.parametrize("is_left", [True, False])
@pytest.mark.parametrize("is_constant", [True, False])
def test_if_that_would_write_freed_memory_is_not_resized(
    device: DeviceInfo, is_left: bool, is_constant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, doubled = (tensor((1, 500), "int32") for _ in range(2))
    y = constant(np.zeros((1, 500), np.int32)) if is_constant else tensor((1, 500), "int32")
    chosen = choice(constant(np.array(True)), [doubled, y], "int32")
    nodes = [node("ADD", [x, x], [doubled], {"fused_activation_function": "NONE"}), chosen]
    inputs = [x] if is_constant else [x, y]
    whole = read_model(write_model(graph(nodes, inputs, chosen.outputs)))
    monkeypatch.setattr(apart, "some_nodes", lambda *_: frozenset({1} if is_left else ()))
    judged = [1] if is_left and is_constant else [3, 0, 2, 1]
    opened: list[Any] = []
    resized: list[int] = []
    open_job, resize_to = apart.open_job, apart.resize_to

    def open_(job: CaseJob, known: Any) -> Any:
        outcome = open_job(job, known)
        opened.append(outcome[0].interpreter)
        return outcome

    def resize(interpreter: Any, count: int) -> None:
        if interpreter in opened:
            resized.append(count)
            assert count in judged  # otherwise the next run may crash this process
        resize_to(interpreter, count)

    monkeypatch.setattr(apart, "open_job", open_)
    monkeypatch.setattr(apart, "resize_to", resize)
    result = of_way(device, "apart 0", whole)
    assert (result.result, result.detail) == (PASS, "")
    assert resized == judged


@pytest.mark.parametrize("name", UNWRITTEN)
def test_unwritten_outputs_of_tflite_are_not_compared(
    device: DeviceInfo, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, padded = tensor((1, 4)), tensor((2, 4))
    y = tensor((4,) if name == "strided slice" else (1, 4))
    place = tensor(y.shape[:-1], "int64")
    nodes = [
        UNWRITTEN[name](x, y),
        node("ARG_MAX", [y, numbers([-1])], [place], {"output_type": "int64"}),
        node("PAD", [x, numbers([[0, 1], [0, 0]])], [padded]),
    ]
    whole = read_model(write_model(graph(nodes, [x], [y, place, padded])))
    model = write_model(whole)
    job = CaseJob(Subject("opencl", {}, device.index, RUNTIME), whole, model, 0, None, lambda: None)
    known = oracle(RUNTIME, whole, model, job.sets)
    for count in (0, 1, 2):
        _, undefined = apart._on_tflite(job, known, [[np.ones((count, 4), np.float32)]], count)
        assert undefined == ({0, 1} if count == 0 else set())

    is_wrong, run = 0, NodeOnTFLite.run

    def changed(self: NodeOnTFLite, values: Any) -> None:
        run(self, values)
        for each in self._outputs:
            if each.index == whole.outputs[is_wrong].index:
                values[each] ^= 0x55

    monkeypatch.setattr(NodeOnTFLite, "run", changed)
    result = of_way(device, "resize", whole)
    assert (result.result, result.detail) == (PASS, "")
    is_wrong = 2
    assert "at batch 0: 4 of 4 elements differ" in of_way(device, "resize", whole).detail


def _failing_number() -> int:
    """Return the number of a graph whose clamp lets only some inputs fail in TFLite."""
    for number in range(99):
        pen = Pen(number)
        with suppress(Skip):
            required.required(pen)
            if required.may_fail(pen.graph()) and pen.nodes[-1].op == "GATHER_ND":
                return number
    raise AssertionError("no clamp is open")


def test_failing_inputs_fail_and_next_run_is_right(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    pen = Pen(_failing_number())
    required.required(pen)
    whole = read_model(write_model(pen.graph()))
    model, options = write_model(whole), {"tune": "off", "min_nodes_per_partition": 1}
    job = CaseJob(
        Subject("opencl", options, device.index, RUNTIME), whole, model, 0, None, lambda: None
    )
    runs, fails = failing.divided(job)
    assert fails
    assert runs.sets
    known = oracle(RUNTIME, whole, model, runs.sets)
    assert failing.run_failing(fails, failing.FAILING, runs, known).result == PASS
    with pytest.raises(RuntimeError, match="the delegate does not"):
        failing.run_failing(runs.sets, failing.FAILING, runs, known)
    monkeypatch.setattr("delegate.launch.Requirement.broken_by", lambda need, values: None)
    with pytest.raises(RuntimeError, match="the delegate does not"):
        failing.run_failing(fails, failing.FAILING, runs, known)


def test_failure_of_cpu_node_has_tflites_message(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A divisor computed from a size is 0, so the delegate does not claim its node."""
    x, size, divisor, y, z = tensor((3,)), *(tensor((1,), "int32") for _ in range(3)), tensor((3,))
    zero = tensor((1,), "int32", data=np.zeros(1, np.int32))
    nodes = [
        node("SHAPE", [x], [size], {"out_type": "int32"}),
        node("MINIMUM", [size, zero], [divisor]),
        node("FLOOR_DIV", [size, divisor], [y]),
        node("RELU", [x], [z]),
    ]
    whole = graph(nodes, [x], [y, z])
    model, options = write_model(whole), {"tune": "off", "min_nodes_per_partition": 1}
    job = CaseJob(
        Subject("opencl", options, device.index, RUNTIME), whole, model, 0, None, lambda: None
    )
    runs, fails = failing.divided(job)
    assert (len(runs.sets), len(fails)) == (0, 3)
    known = oracle(RUNTIME, whole, model, runs.sets)
    assert failing.run_failing(fails, failing.FAILING, runs, known).result == PASS

    def otherwise(opened: Any, inputs: Any) -> Any:
        raise RuntimeError("the run failed: Node number 2 (FLOOR_DIV) failed to invoke.")

    monkeypatch.setattr(failing, "invoke_of", otherwise)
    with pytest.raises(RuntimeError, match="Node number 2"):
        failing.run_failing(fails, failing.FAILING, runs, known)


@slow
def test_header_edits_cover_every_field() -> None:
    (header,) = KINDS["gguf"].seeds().values()
    fields, rng = headers.fields_of(header), random.Random(0)
    edits = [edit for _ in range(20_000) for edit in headers.drawn(rng, header)]
    places = {(edit.at, edit.removed) for edit in edits}
    often = [f for f in fields if f.kind not in ("text", "structure")]  # a vocabulary has 1,000
    assert {(each.at, each.size) for each in often if each.kind != "number"} <= places
    numbers = [each for each in often if each.kind == "number"]
    assert sum((each.at, each.size) in places for each in numbers) > 0.99 * len(numbers)
    assert {f.form for f in fields if f.kind == "structure"} == {"I", "Q"}
    assert headers.fields_of(header)[-1].at + fields[-1].size == len(header)


@pytest.mark.parametrize(("cost", "words"), [("time", "it takes more than 0 seconds"), ("", None)])
def test_file_that_costs_too_much_is_found(
    cost: str, words: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verdict(data: bytes, path: Path) -> None:
        begun = time.process_time()
        while cost and time.process_time() < begun + 0.1:
            pass

    planted = Kind("planted", dict, verdict, cpu_seconds=0 if cost else 1)
    monkeypatch.setitem(KINDS, "planted", planted)
    (tmp_path / "file").write_bytes(b"")
    message = worker.finding("planted", tmp_path / "file")
    assert message is None if words is None else message is not None and words in message


@slow
@pytest.mark.parametrize("liar", ["pass_through", "nothing"])
def test_wrong_graph_is_found_and_shrunk(liar: str) -> None:
    # A graph without multi-graph ways, which the liar does not implement.
    with closing(OfGraphs("", [9])) as attack:
        attack._workers = replace(attack._workers, delegate=f"python:tests.attacks.liars:{liar}")
        results = list(attack.findings(random.Random(0), 60, 1))
    assert attack.tried == 1
    if liar == "pass_through":
        assert (results, attack.ways["as it is"]) == ([], 1)
    else:
        (finding,) = results
        assert finding.text.startswith("graph 9, as it is: Fail ")
        assert len(read_model(finding.content).nodes) == 1


@dataclass(frozen=True)
class _Dying:
    """Workers that crash with every graph, but with a child only with graph 6."""

    options: dict[str, str]

    def run(self, items: Sequence[Item], jobs: int, tell: Callable[[CaseResult], None]) -> None:
        for item in items:
            is_survived = self.options == {"alternative": START} and item.name == "5"
            tell(CaseResult(PASS if is_survived else CRASH, name=item.name))


def test_crash_that_a_start_survives_is_no_finding() -> None:
    with closing(OfGraphs("", [])) as attack:
        attack._workers = _Dying({})  # type: ignore[assignment]
        survived, killed = attack.verdicts([b"5", b"6"])
        assert (survived, attack.survived) == (None, 1)
        assert killed is not None
        assert killed.startswith("graph 6, ")
        assert "1 ended a process, and were right as a start runs them" in attack.summary()


@slow
def test_death_of_child_is_a_finding() -> None:
    with closing(attack_of("reader", "", Path())) as attack:
        assert attack.verdicts([b"no model"]) == [None]
        attack._child.kill()  # type: ignore[attr-defined]
        assert attack.verdicts([b"no model"]) == ["the process died by SIGKILL"]
        assert attack.verdicts([b"no model"]) == [None]


def test_some_drawn_graphs_are_float16() -> None:
    graphs = [of_number(number) for number in (31, 127, 211)]
    assert all(any(t.dtype == "float16" for t in each.tensors) for each in graphs)
    assert not any(t.dtype == "float32" for each in graphs for t in each.tensors)
    ways = ways_of(graphs[0], ())
    assert "resize" in ways
    assert apart.some_nodes(graphs[0], 1) == frozenset()  # because the CPU may lack float16
    assert not any(way.startswith(("exclude_ops", "batch", "called")) for way in ways)
