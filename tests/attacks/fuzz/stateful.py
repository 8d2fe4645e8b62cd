# SPDX-License-Identifier: Apache-2.0
"""Random graphs with state: resource variables, variable tensors, and Model's `carry`.

Some results of a graph are assigned to variables, whose old values are read instead of
inputs of the same type, or are outputs. Or some inputs are variable tensors, which the caller sets
and resets now and then. A node beside the graph has an input whose rows change. Runs go against an
interpreter of TFLite's reference kernels that runs as often, with resets, resizes and a second
interpreter between, which may run at the same time. Or another signature of the file reads and
assigns the variables, too.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from delegate import Model, Unsupported
from delegate.graph.persistent import name_of, persistent_tensors
from delegate.graph.persistent import with_variables as kept_graph
from delegate.inspect import Graph, Node, Tensor, read_model, write_model
from delegate.plan.record import DISPATCH_MODES
from delegate.plan.tuning.dispatch import KERNEL_KINDS
from tests.support.subgraphs import write_subgraphs
from tests.support.variables import beginning, handle
from tflite_opencl.conformance.checks.job import CaseJob, invoke_of
from tflite_opencl.conformance.results import FAIL, PASS, SKIP, CaseResult
from tflite_opencl.conformance.subject import Opened
from tflite_opencl.interpreters.interpreter import allocated, invoke, overwrites
from tflite_opencl.models.build import graph, node, tensor
from tflite_opencl.oracle.oracle import Oracle
from tflite_opencl.oracle.values import Arrays

RUNS = 20
_MOST = 3  # most variables of a graph
_TYPES = ("bool", "float32", "int8", "int16", "int32", "int64", "uint8")
# How a graph with variables is run: what OpenCLDelegate is told; "model": without TFLite.
HOWS = ("plain", "form", "without", "passes", "profiling", "threads", "model")
SHARED = "variables signatures"
KINDS = ("variables", "tensors", "carry")
_BESIDE = (2, 3)  # shape of the input whose rows change


def ways() -> list[str]:
    """Return the ways to run a graph with state."""
    return [*(f"{kind} {how}" for kind in KINDS[:2] for how in HOWS), SHARED, "carry 1", "carry 3"]


def run_stateful(job: CaseJob, known: Oracle, way: str) -> CaseResult:
    """Return the result of a stateful graph that is run this way."""
    kind, how = way.split()
    if any(bound is not None for bound in known.bounds[0]):
        return CaseResult(SKIP, "the reference kernels tell floats within bounds, which add up")
    rng = random.Random(f"{way} {len(job.graph.nodes)} {job.graph.nodes[0].op}")
    if kind == "carry":
        try:
            return _carried(job, known, int(how), rng)
        except Unsupported as error:
            if "these are persistent" not in str(error):
                raise
            return CaseResult(SKIP, f"an index or a divisor is carried: {error}")
    if way == SHARED:
        return _shared(job, known, rng)
    if kind == "tensors":
        model = with_variable_tensors(job.graph, rng)
        if not model.held:
            return CaseResult(SKIP, "no input can be a variable tensor")
    else:
        model = with_variables(job.graph, rng)
    if how == "model":
        return _by_model(job, known, model, rng)
    return _delegated(job, known, model, how, rng)


class _Model(NamedTuple):
    """`free`: remaining inputs. `held`: index of a variable tensor -> the input that it replaced.

    They are followed by the input of the separate node.
    """

    content: bytes
    free: Sequence[int]
    held: Mapping[int, int]


def with_variables(of: Graph, rng: random.Random) -> _Model:
    """Return a model of the graph with resource variables."""
    nodes, inputs, outputs, begun = _assigning(of, rng)
    once = dataclasses.replace(node("CALL_ONCE", [], []), body=beginning(_values(begun, rng)))
    main = _beside([once, *nodes], inputs, outputs)
    return _Model(write_model(main), [of.inputs.index(each) for each in inputs], {})


def _assigning(
    of: Graph, rng: random.Random
) -> tuple[list[Node], list[Tensor], list[Tensor], dict[str, Tensor]]:
    """Return nodes, inputs, outputs and variables by name of the graph with variables."""
    makers = {t: n for n in of.nodes for t in n.outputs if t.dtype != "float32" and t.data is None}
    chosen = rng.sample(list(makers), min(len(makers), rng.randint(1, _MOST)))
    begun, late, seen = {}, [], []
    head: list[Node] = []
    after: dict[Node, list[Node]] = {}
    instead: dict[Tensor, Tensor] = {}
    for number, value in enumerate(chosen):
        named, held = handle(name := f"variable {number}")
        before, again = (dataclasses.replace(value, index=0, name=f"{s} {name}") for s in "ba")
        head += [named, node("READ_VARIABLE", [held], [before])]
        begun[name] = value
        fed = [each for each in of.inputs if same_type(each, value) and each not in instead]
        if fed and rng.random() < 0.8:
            instead[rng.choice(fed)] = before
        else:
            seen.append(before)
        assign = node("ASSIGN_VARIABLE", [held, value], [])
        if rng.random() < 0.5:
            after.setdefault(makers[value], []).append(assign)
        else:
            late.append(assign)
        if rng.random() < 0.4:
            late.append(node("READ_VARIABLE", [held], [again]))
            seen.append(again)
    body = [result for each in of.nodes for result in (_fed(each, instead), *after.get(each, []))]
    inputs = [each for each in of.inputs if each not in instead]
    outputs = [each for each in of.outputs if each not in instead]
    return [*head, *body, *late], inputs, [*outputs, *seen], begun


def _values(variables: Mapping[str, Tensor], rng: random.Random) -> dict[str, NDArray[Any]]:
    return {name: _any(like, rng) for name, like in variables.items()}


def with_variable_tensors(of: Graph, rng: random.Random) -> _Model:
    """Return a model of the graph, some of whose inputs are variable tensors."""
    # A composite with a variable tensor stays on the CPU.
    bound = {*of.outputs, *(t for n in of.nodes if n.body for t in n.inputs)}
    able = [t for t in of.inputs if t.data is None and t not in bound and t.dtype in _TYPES]
    chosen = rng.sample(able, min(len(able), rng.randint(1, _MOST)))
    held = {
        t: dataclasses.replace(t, name=f"held {n}", is_variable=True) for n, t in enumerate(chosen)
    }
    nodes = [_fed(each, held) for each in of.nodes]
    content = write_model(_beside(nodes, [t for t in of.inputs if t not in held], of.outputs))
    named = {tensor.name: tensor.index for tensor in read_model(content).tensors}
    places = {named[held[t].name]: of.inputs.index(t) for t in chosen if held[t].name in named}
    free = [place for place, t in enumerate(of.inputs) if t not in held]
    return _Model(content, free, places)


def _beside(nodes: Sequence[Node], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Graph:
    """Return the graph with a separate node, whose input may have any number of rows."""
    source, result = tensor(_BESIDE, "int32"), tensor(_BESIDE, "int32")
    alone = node("NEG", [source], [result])
    return graph([*nodes, alone], [*inputs, source], [*outputs, result])


def _fed(each: Node, instead: dict[Tensor, Tensor]) -> Node:
    inputs = tuple(None if t is None else instead.get(t, t) for t in each.inputs)
    return dataclasses.replace(each, inputs=inputs)


def _any(like: Tensor, rng: random.Random) -> NDArray[Any]:
    return _random_like(np.empty(like.shape, like.dtype), rng)


def _random_like(like: NDArray[Any], rng: random.Random) -> NDArray[Any]:
    drawn = np.random.default_rng(rng.getrandbits(32)).integers(0, 100, like.shape)
    return np.asarray(drawn).astype(like.dtype)


def same_type(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have one shape, type and quantisation."""
    own, others = (
        (each.shape, each.dtype, (q := each.quantization) and (q.scale, q.zero_point))
        for each in (one, other)
    )
    return own == others


def _shared(job: CaseJob, known: Oracle, rng: random.Random) -> CaseResult:
    """Run two signatures: the graph with variables, and one that reads and assigns them."""
    first, inputs, outputs, variables = _assigning(job.graph, rng)
    second, given, before = [], [], []
    for name, like in variables.items():
        named, held = handle(name)
        given.append(dataclasses.replace(like, name=f"given {name}"))
        before.append(dataclasses.replace(like, name=f"before {name}"))
        second += [named, node("READ_VARIABLE", [held], before[-1:])]
        second += [node("ASSIGN_VARIABLE", [held, given[-1]], [])]
    once = dataclasses.replace(node("CALL_ONCE", [], []), body=beginning(_values(variables, rng)))
    both = graph([once, *first], inputs, outputs), graph([once, *second], given, before)
    content = write_subgraphs(*both, signatures=(0, 1))
    try:
        theirs = allocated(job.subject.runtime, content, known.cpu_kernels)
    except (RuntimeError, ValueError) as error:
        return CaseResult(SKIP, f"TFLite itself does not run it: {error}")
    ours = job.subject.open(read_model(content), content, known.cpu_kernels)
    if left := ours.reasons():
        return CaseResult(FAIL, f"not all taken: {left}")
    places = [job.graph.inputs.index(each) for each in inputs]
    for run in range(RUNS):
        number = rng.randrange(2)
        drawn = rng.choice(job.sets)
        arrays = [*_values(variables, rng).values()] if number else [drawn[at] for at in places]
        named_arrays = {f"x{at}": each for at, each in enumerate(arrays)}
        got, expected = (
            interp.get_signature_runner(f"graph {number}")(**named_arrays)
            for interp in (ours.interpreter, theirs)
        )
        order = [f"y{at}" for at in range(len(expected))]
        result = differ([got[n] for n in order], [expected[n] for n in order], f"run {run}")
        if result:
            return result
    return CaseResult(PASS, taken=len(job.graph.nodes))


def _delegated(
    job: CaseJob, known: Oracle, model: _Model, how: str, rng: random.Random
) -> CaseResult:
    """Run an interpreter with the delegate, resize it and open a second one."""
    content, free, held = model
    from tests.attacks.fuzz.ways import measured_fastest  # which imports this module

    without = rng.choice(sorted({each.op for each in job.graph.nodes}))
    options = {
        "without": {"exclude_ops": (without,)},
        "passes": {"passes": ()},
        "profiling": {"profiling": True},
    }.get(how, {})
    subject = dataclasses.replace(job.subject, options={**job.subject.options, **options})
    whole = read_model(content)

    def opened() -> tuple[Opened, Any]:
        theirs = allocated(job.subject.runtime, content, known.cpu_kernels)
        return subject.open(whole, content, known.cpu_kernels), theirs

    form = measured_fastest(rng.choice(DISPATCH_MODES), rng.choice(KERNEL_KINDS))
    with form if how == "form" else nullcontext():
        try:
            pairs = [opened()]
        except (RuntimeError, ValueError) as error:
            if "OpenCL delegate" in str(error):
                raise
            return CaseResult(SKIP, f"TFLite itself does not run it: {error}")
        if how == "plain" and (left := pairs[0][0].reasons()):
            return CaseResult(FAIL, f"not all taken: {left}")
        if how == "threads":
            pairs.append(opened())
        rows = _BESIDE[0]
        for run in range(RUNS):
            if run == RUNS // 3:
                rows = rng.randint(1, 5)
                _resize(pairs, rows)
            if run == RUNS // 2 and how != "threads":
                pairs.append(opened())
                _resize(pairs[-1:], rows)
            given = [
                [*(rng.choice(job.sets)[place] for place in free), _rows(rows, rng)] for _ in pairs
            ]
            for ours, theirs in pairs:
                both = ours.interpreter, theirs
                for interp in both if rng.random() < 0.1 else ():
                    interp.reset_all_variables()
                for index, values in _drawn(job, held, rng).items():
                    for interp in both:
                        interp.set_tensor(index, values)
            with ThreadPoolExecutor(len(pairs) if how == "threads" else 1) as threads:
                every = [*threads.map(invoke_of, [ours for ours, _ in pairs], given)]
            for number, (got, inputs) in enumerate(zip(every, given, strict=True)):
                expected = invoke(pairs[number][1], inputs)
                if outcome := differ(got, expected, f"interpreter {number}, run {run}"):
                    return outcome
    return CaseResult(PASS, taken=len(job.graph.nodes))


def _resize(pairs: Sequence[tuple[Opened, Any]], rows: int) -> None:
    """Resize the input of the separate node to some rows."""
    for ours, theirs in pairs:
        for interp in (ours.interpreter, theirs):
            index = interp.get_input_details()[-1]["index"]
            interp.resize_tensor_input(index, [rows, *_BESIDE[1:]])
            interp.allocate_tensors()


def _rows(count: int, rng: random.Random) -> NDArray[Any]:
    return _random_like(np.empty((count, *_BESIDE[1:]), np.int32), rng)


def _drawn(job: CaseJob, held: Mapping[int, int], rng: random.Random) -> dict[int, NDArray[Any]]:
    """Return new values of some variable tensors, by index."""
    some = {index: place for index, place in held.items() if rng.random() < 0.3}
    return {index: rng.choice(job.sets)[place] for index, place in some.items()}


def _by_model(job: CaseJob, known: Oracle, model: _Model, rng: random.Random) -> CaseResult:
    """Run a Model, with a reset and with restored state."""
    content, free, held = model
    variables = persistent_tensors(kept_graph(read_model(content)))
    names = {tensor.index: tensor.state_name for tensor in variables}
    try:
        theirs = allocated(job.subject.runtime, content, known.cpu_kernels)
    except (RuntimeError, ValueError) as error:
        return CaseResult(SKIP, f"TFLite itself does not run it: {error}")
    with Model(content, job.subject.device, tune="off", in_child_first=False) as ours:
        for run in range(RUNS):
            if run == RUNS // 2:
                ours.reset()
                theirs = allocated(job.subject.runtime, content, known.cpu_kernels)
            if run % 5 == 4:
                saved = ours.state()
                other = [*(rng.choice(job.sets)[place] for place in free), _rows(_BESIDE[0], rng)]
                ours.run([_batch([each]) for each in other])
                ours.set_state(saved)
            for index, values in _drawn(job, held, rng).items():
                ours.set_state({names[index]: values[np.newaxis]})
                theirs.set_tensor(index, values)
            given = [*(rng.choice(job.sets)[place] for place in free), _rows(_BESIDE[0], rng)]
            got, expected = ours.run([_batch([each]) for each in given]), invoke(theirs, given)
            if result := differ(_alike(got, expected), expected, f"run {run}"):
                return result
    return CaseResult(PASS, taken=len(job.graph.nodes))


def _carried(job: CaseJob, known: Oracle, batch: int, rng: random.Random) -> CaseResult:
    """Run a Model that carries outputs to inputs, compared with explicit inputs."""
    pairs: dict[int, int] = {}  # positions of outputs -> of inputs
    computed = {each for n in job.graph.nodes for each in n.outputs}
    for place, result in enumerate(job.graph.outputs):
        results = [
            number
            for number, each in enumerate(job.graph.inputs)
            if same_type(each, result) and number not in pairs.values()
        ]
        if results and result in computed and job.graph.outputs.count(result) == 1:
            pairs[place] = rng.choice(results)
    if not pairs:
        return CaseResult(SKIP, "no output is of an input's type")
    if any(t.shape[:1] != (1,) for t in job.graph.inputs + job.graph.outputs):
        batch = 1
    carry = {job.graph.outputs[o].index: job.graph.inputs[i].index for o, i in pairs.items()}
    model = write_model(job.graph)
    keeps_all = overwrites(job.graph)
    theirs = allocated(job.subject.runtime, model, known.cpu_kernels, keeps_all=keeps_all)
    device = job.subject.device
    with Model(model, device, batch, carry=carry, tune="off", in_child_first=False) as ours:
        zeros = {of: each[0] for of, each in ours.state().items()}
        names = {i: name_of(t, job.graph) for i, t in enumerate(job.graph.inputs)}
        held = [{i: zeros[names[i]] for i in pairs.values()} for _ in range(batch)]
        for run in range(RUNS):
            if run == RUNS // 2:
                ours.reset()
                held = [{i: zeros[names[i]] for i in pairs.values()} for _ in range(batch)]
            if run % 5 == 2:  # zeros may stay zero
                drawn = {of: _random_like(each, rng) for of, each in ours.state().items()}
                ours.set_state(drawn)
                held = [{i: drawn[names[i]][n] for i in pairs.values()} for n in range(batch)]
            sets = [rng.choice(job.sets) for _ in range(batch)]
            expected = []
            for stream, own in enumerate(sets):
                given = [held[stream].get(i, each) for i, each in enumerate(own)]
                outputs = invoke(theirs, given)
                held[stream] = {i: outputs[o].copy() for o, i in pairs.items()}
                expected.append([e for o, e in enumerate(outputs) if o not in pairs])
            free = [i for i in range(len(job.graph.inputs)) if i not in pairs.values()]
            stacked = [_batch([own[i] for own in sets]) for i in free]
            got = ours.run_async(stacked).result() if run % 2 else ours.run(stacked)
            wanted = [_batch(each) for each in zip(*expected, strict=True)]
            if wrong := differ(_alike(got, wanted), wanted, f"run {run}"):
                return wrong
    return CaseResult(PASS, taken=len(job.graph.nodes))


def _batch(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    whole = parts[0].shape[:1] == (1,)
    return np.concatenate(parts) if whole else np.stack(parts)


def _alike(got: Arrays, expected: Arrays) -> Arrays:
    """Return a batch's outputs with the shapes of these."""
    return [ours.reshape(theirs.shape) for ours, theirs in zip(got, expected, strict=True)]


def differ(got: Arrays, expected: Arrays, where: str) -> CaseResult | None:
    """Return the first output with other bytes; None if all are equal."""
    for number, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        if ours.shape != theirs.shape or ours.tobytes() != theirs.tobytes():
            return CaseResult(FAIL, f"{where}, output {number}: other bytes than the reference's")
    return None
