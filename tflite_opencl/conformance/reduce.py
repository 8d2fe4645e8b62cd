# SPDX-License-Identifier: Apache-2.0
"""A failing case -> the smallest model and input that still fail, and a script that shows it.

Fewer nodes, then smaller shapes, then simpler values; each step's candidates share a worker.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from delegate import DelegateError
from delegate.inspect import Graph, Node, read_model, write_model
from tflite_opencl.common.build import graph, sizes
from tflite_opencl.common.errors import OneLineError
from tflite_opencl.common.interpreter import allocated, invoke
from tflite_opencl.common.runtime import ENVIRONMENT_VARIABLE, Runtime, RuntimeMissing, find_runtime
from tflite_opencl.common.values import Arrays, input_sets
from tflite_opencl.conformance import bug_report, shrink
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.conformance.outcome import CRASH, FAIL, TIMEOUT, Result
from tflite_opencl.conformance.process import Item
from tflite_opencl.conformance.runner import Workers
from tflite_opencl.conformance.shrink import Candidate

_GENERATIONS = 16
_MOST_NODES = 400  # prefixes tried of a whole model


class ReduceError(OneLineError):
    """There is nothing to reduce; the text says why."""


def reduce(name: str, workers: Workers, folder: Path) -> Iterator[str]:
    """Shrink a case or a model's file; yield lines that tell how it goes.

    Raises: ReduceError: no such case, it does not fail, or the folder cannot be written.
    """
    try:
        if workers.runtime:
            os.environ[ENVIRONMENT_VARIABLE] = workers.runtime
        runtime = find_runtime()
    except RuntimeMissing as error:
        raise ReduceError(str(error)) from None
    whole = _graph(name)
    starts = [Candidate(whole, inputs) for inputs in input_sets(whole)]
    failing = _failing(starts, workers)
    if not failing:
        raise ReduceError(f"{name} does not fail with {workers.delegate}")
    found, result = failing[0]
    yield f"{name}: {result.result}: {result.detail}"
    kind = result.result
    workers = _of_one_alternative(workers, result)
    if len(whole.nodes) > 1:
        found, words = _fewer_nodes(found, workers, runtime, kind)
        yield words
    for what, step in (
        ("shapes", shrink.smaller),
        ("values", shrink.simpler),
        ("shapes", shrink.smaller),
    ):
        for _ in range(_GENERATIONS):
            candidates = list(step(found, runtime))
            better = [pair for pair in _failing(candidates, workers) if pair[1].result == kind]
            if not better:
                break
            found, result = min(better, key=lambda pair: shrink.cost(pair[0]))
        inputs = ", ".join(sizes(tensor.shape) for tensor in found.graph.inputs)
        yield f"simpler {what}: {found.size} elements, inputs {inputs}"
    try:
        files = bug_report.write(found, result, workers, runtime, folder)
    except OSError as error:
        raise ReduceError(f"cannot write {folder}: {error.strerror}") from None
    yield f"{result.result}: {result.detail}"
    yield f"wrote {', '.join(files)} to {folder}"


def _of_one_alternative(workers: Workers, result: Result) -> Workers:
    """Return workers for the alternative that failed alone, where each was run."""
    named = {"alternative": result.alternative} if result.alternative else {}
    return dataclasses.replace(workers, alternatives=False, options={**workers.options, **named})


def _graph(name: str) -> Graph:
    if name.endswith(".tflite"):
        try:
            return read_model(name)
        except DelegateError as error:
            raise ReduceError(str(error)) from None
        except OSError as error:
            raise ReduceError(f"cannot read {name}: {error.strerror or error}") from None
    for case in all_cases():
        if case.name == name:
            if case.check != "values":
                raise ReduceError(f"{name} is about behaviour: there is no value to reduce")
            return case.make()
    raise ReduceError(f"there is no case {name} (--list prints all)")


def _failing(candidates: Sequence[Candidate], workers: Workers) -> list[tuple[Candidate, Result]]:
    """Return those that fail, in their order."""
    if not candidates:
        return []
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory() as folder:
        items = []
        for number, candidate in enumerate(candidates):
            model, inputs = (str(Path(folder) / f"{number}.{end}") for end in ("tflite", "npz"))
            Path(model).write_bytes(write_model(candidate.graph))
            arrays: dict[str, Any] = {f"{i:03}": v for i, v in enumerate(candidate.inputs)}
            np.savez(inputs, **arrays)
            items.append(Item(str(number), model, inputs))
        workers.run(items, 1, lambda result: results.update({result.name: result}), repeat=False)
    return [
        (candidate, results[str(number)])
        for number, candidate in enumerate(candidates)
        if results[str(number)].result in (FAIL, CRASH, TIMEOUT)
    ]


def _fewer_nodes(
    start: Candidate, workers: Workers, runtime: Runtime, kind: str
) -> tuple[Candidate, str]:
    """Return the first node that is wrong, alone if it fails alone."""
    nodes = start.graph.nodes
    if len(nodes) > _MOST_NODES:
        return start, f"{len(nodes)} nodes are too many to try each"
    prefixes = [Candidate(_slice(start.graph, nodes[: i + 1]), start.inputs)
                for i in range(len(nodes))]  # fmt: skip
    failing = [c for c, result in _failing(prefixes, workers) if result.result == kind]
    if not failing:
        return start, "no part from the start fails by itself"
    first = failing[0]
    index = next(i for i, prefix in enumerate(prefixes) if prefix is first)
    words = f"the first node whose output is wrong: {index}, {nodes[index].op}"
    for count in range(1, min(index + 1, 4) + 1):
        part = _part(start, nodes[index + 1 - count : index + 1], runtime)
        if part is not None and any(r.result == kind for _, r in _failing([part], workers)):
            enough = f"{count} nodes are enough" if count > 1 else "it is enough"
            return part, f"{words}; {enough}"
    return first, f"{words}; only with all before it"


def _slice(whole: Graph, nodes: Sequence[Node]) -> Graph:
    """Return the nodes as a graph with the model's inputs, and the last one's outputs."""
    return graph(nodes, whole.inputs, nodes[-1].outputs)


def _part(start: Candidate, nodes: Sequence[Node], runtime: Runtime) -> Candidate | None:
    """Return the nodes with inputs as the reference kernels compute them."""
    produced = {t for node in nodes for t in node.outputs}
    wanted = list(
        dict.fromkeys(
            t for node in nodes for t in node.inputs
            if t is not None and t.data is None and t not in produced
        )
    )  # fmt: skip
    known = dict(zip(start.graph.inputs, start.inputs, strict=True))
    computed = [t for t in wanted if t not in known]
    if computed:
        before = [node for node in start.graph.nodes if node.index < nodes[0].index]
        values = _reference(graph(before, start.graph.inputs, computed), start.inputs, runtime)
        if values is None:
            return None
        known.update(zip(computed, values, strict=True))
    return Candidate(graph(nodes, wanted, nodes[-1].outputs), [known[t] for t in wanted])


def _reference(part: Graph, inputs: Arrays, runtime: Runtime) -> Arrays | None:
    for kernels in ("reference", "builtin"):
        try:
            return invoke(allocated(runtime, write_model(part), kernels), inputs)
        except (RuntimeError, ValueError):
            continue
    return None
