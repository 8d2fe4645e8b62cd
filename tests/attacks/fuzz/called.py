# SPDX-License-Identifier: Apache-2.0
"""Random graphs as subgraphs of a file: of IF, WHILE and two signatures.

Each graph of the file needs verdicts, and must run as on TFLite's reference kernels. If the
branch or the trip count is constant, the IF or WHILE must be inlined.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from delegate.inspect import Graph, Tensor, read_model
from tests.attacks.fuzz.stateful import differ, same_type
from tests.support.subgraphs import write_subgraphs
from tflite_opencl.conformance.checks.job import CaseJob
from tflite_opencl.conformance.results import FAIL, PASS, SKIP, CaseResult
from tflite_opencl.console.errors import one_line
from tflite_opencl.interpreters.interpreter import allocated, invoke, overwrites
from tflite_opencl.models.build import constant, graph, node, numbers, tensor
from tflite_opencl.oracle.oracle import Oracle
from tflite_opencl.oracle.values import Arrays

ROUNDS = 3  # most iterations of a loop
HOWS = ("if", "while", "signatures", "branch", "unrolled")
Runs = Iterator[tuple[str, Callable[[Any], Arrays]]]


def ways() -> list[str]:
    """Return the ways to run a graph as one of several in a file."""
    return [f"called {how}" for how in HOWS]


def run_called(job: CaseJob, known: Oracle, way: str) -> CaseResult:
    """Return the result of a graph that is called this way."""
    if way.split()[1] in _INLINED and any(each.is_variable for each in job.graph.tensors):
        return CaseResult(SKIP, "a graph that keeps state is not inlined")
    if any(bound is not None for bound in known.bounds[0]):
        return CaseResult(SKIP, "the reference kernels tell floats within bounds")
    rng = random.Random(f"{way} {len(job.graph.nodes)} {job.graph.nodes[0].op}")
    make = _MAKERS[way.split()[1]]
    content, called, runs = make(job, rng)
    try:
        theirs = allocated(
            job.subject.runtime, content, known.cpu_kernels, keeps_all=overwrites(job.graph)
        )
    except (RuntimeError, ValueError) as error:
        return CaseResult(SKIP, f"TFLite itself does not run it: {one_line(error)}")
    opened = job.subject.open(read_model(content), content, known.cpu_kernels)
    judged = opened.delegate.subgraph_verdicts
    for number in called:
        if number not in judged:
            return CaseResult(FAIL, f"graph {number} was not judged")
        if left := [f"{each.op}: {each.reason}" for each in judged[number] if not each.is_taken]:
            return CaseResult(FAIL, f"not all taken of graph {number}: {left}")
    for name, run in runs:
        try:
            expected = run(theirs)
        except (RuntimeError, ValueError) as error:
            return CaseResult(SKIP, f"TFLite itself does not run it: {one_line(error)}")
        if result := differ(run(opened.interpreter), expected, name):
            return result
    return CaseResult(PASS, taken=len(job.graph.nodes))


def _choice(
    job: CaseJob, rng: random.Random, is_inlined: bool = False
) -> tuple[bytes, Sequence[int], Runs]:
    """Return a model of an IF between the graph and itself with two swapped inputs.

    `is_inlined`: its condition is a constant.
    """
    of = job.graph
    given, result = _like(of.inputs), _like(of.outputs)
    is_then = constant(np.array(rng.random() < 0.5)) if is_inlined else tensor((), "bool")
    inputs = given if is_inlined else [is_then, *given]
    calls = {"then_subgraph_index": 1, "else_subgraph_index": 2}
    main = graph([node("IF", [is_then, *given], result, calls)], inputs, result)

    def runs() -> Runs:
        for turn in range(4):
            which = [] if is_inlined else [np.array(turn % 2 == 0)]
            yield f"turn {turn}", partial(invoke, inputs=[*which, *rng.choice(job.sets)])

    return write_subgraphs(main, of, _turned(of, rng)), (0,) if is_inlined else (1, 2), runs()


def _loop(
    job: CaseJob, rng: random.Random, is_inlined: bool = False
) -> tuple[bytes, Sequence[int], Runs]:
    """Return a model of a WHILE whose body is the graph: outputs are the inputs of their types.

    `is_inlined`: the counter starts with a constant.

    Each output is also carried separately, so that all are compared.
    """
    of = job.graph
    fed: dict[int, Tensor] = {}  # the next iteration's value of an input, by position
    for result in of.outputs:
        free = [i for i, t in enumerate(of.inputs) if i not in fed and same_type(t, result)]
        if free and result not in of.inputs:
            fed[rng.choice(free)] = result
    number, next_number = tensor((1,), "int32"), tensor((1,), "int32")
    counts_on = node("ADD", [number, numbers([1])], [next_number])
    places = _like(of.outputs)
    carried = [fed.get(i, each) for i, each in enumerate(of.inputs)]
    body = graph(
        [*of.nodes, counts_on], [number, *of.inputs, *places], [next_number, *carried, *of.outputs]
    )
    is_less, own = tensor((1,), "bool"), tensor((1,), "int32")
    inside = [*_like(of.inputs), *_like(of.outputs)]
    condition = graph(
        [node("LESS", [own, numbers([ROUNDS])], [is_less])], [own, *inside], [is_less]
    )
    begins = (ROUNDS - 1, 0, ROUNDS, 1)
    end = tensor((1,), "int32")
    start = numbers([rng.choice(begins)]) if is_inlined else tensor((1,), "int32")
    given, loop_values = ([*_like(of.inputs), *_like(of.outputs)] for _ in range(2))
    calls = {"cond_subgraph_index": 1, "body_subgraph_index": 2}
    looping = node("WHILE", [start, *given], [end, *loop_values], calls)
    main = graph([looping], given if is_inlined else [start, *given], [end, *loop_values])

    def runs() -> Runs:
        empty = [np.zeros(each.shape, each.dtype) for each in of.outputs]
        for begin in begins:
            first = [] if is_inlined else [np.array([begin], np.int32)]
            inputs = [*first, *rng.choice(job.sets), *empty]
            yield f"from {begin}", partial(invoke, inputs=inputs)

    return write_subgraphs(main, condition, body), (0,) if is_inlined else (1, 2), runs()


def _signatures(job: CaseJob, rng: random.Random) -> tuple[bytes, Sequence[int], Runs]:
    """Return a model of two signatures: the graph, and its first nodes."""
    of = job.graph
    first = of.nodes[: rng.randint(1, len(of.nodes))]
    read = {each for step in first for each in step.inputs}
    made = [each for step in first for each in step.outputs]
    ends = [each for each in made if each not in read or each in of.outputs]
    content = write_subgraphs(of, graph(first, of.inputs, ends), signatures=(0, 1))

    def runs() -> Runs:
        for turn in range(4):
            inputs = {f"x{i}": each for i, each in enumerate(rng.choice(job.sets))}

            def run(made: Any, name: str = f"graph {turn % 2}", inputs: Any = inputs) -> Arrays:
                result = made.get_signature_runner(name)(**inputs)
                return [result[f"y{i}"] for i in range(len(result))]

            yield f"turn {turn}", run

    return content, (0, 1), runs()


_INLINED = ("branch", "unrolled")
_MAKERS: Mapping[str, Callable[[CaseJob, random.Random], tuple[bytes, Sequence[int], Runs]]] = {
    "if": _choice,
    "while": _loop,
    "signatures": _signatures,
    "branch": partial(_choice, is_inlined=True),
    "unrolled": partial(_loop, is_inlined=True),
}


def _like(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return new tensors of the same types."""
    return [dataclasses.replace(each, data=None, name="") for each in tensors]


def _turned(of: Graph, rng: random.Random) -> Graph:
    """Return the graph with two inputs of one type swapped, if there are two."""
    pairs = [
        (one, other)
        for place, one in enumerate(of.inputs)
        for other in of.inputs[place + 1 :]
        if same_type(one, other)
    ]
    if not pairs:
        return of
    one, other = rng.choice(pairs)
    inputs = [{one: other, other: one}.get(each, each) for each in of.inputs]
    return graph(of.nodes, inputs, of.outputs)
