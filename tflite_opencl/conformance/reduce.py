# SPDX-License-Identifier: Apache-2.0
"""Reduces a failing case to a minimal model and input, and writes a script to reproduce it.

First nodes, then shapes, then values; the candidates of each step share a worker.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from delegate import DelegateError, Options
from delegate.inspect import Graph, Node, write_model
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.conformance.results import CRASH, FAIL, TIMEOUT, CaseResult
from tflite_opencl.conformance.runner import Item, Workers
from tflite_opencl.conformance.subject import OPENCL, Subject
from tflite_opencl.console.errors import OneLineError
from tflite_opencl.faults import shrink
from tflite_opencl.faults.find import Suspect, write_faults
from tflite_opencl.faults.shrink import Candidate
from tflite_opencl.interpreters.compiled_model import options_text
from tflite_opencl.interpreters.interpreter import read_graph
from tflite_opencl.interpreters.runtime import ENVIRONMENT_VARIABLE, Runtime, find_runtime
from tflite_opencl.models.build import graph, sizes
from tflite_opencl.models.cut import compiled_script_of, runs_others, script_of, write_part
from tflite_opencl.oracle.judge import judged_outputs
from tflite_opencl.oracle.values import input_sets

_GENERATIONS = 16
_MOST_NODES = 400  # prefixes of a model to try


def reduce(name: str, workers: Workers, folder: Path) -> Iterator[str]:
    """Reduce a case or a model file; yield progress lines.

    Raises: OneLineError: no TFLite, unknown case, it does not fail, or the disk is full.
    """
    if workers.runtime:
        os.environ[ENVIRONMENT_VARIABLE] = workers.runtime
    runtime, whole = find_runtime(), _graph(name)
    starts = [Candidate(whole, inputs) for inputs in input_sets(whole)]
    failing = _failing(starts, workers)
    if not failing:
        raise OneLineError(f"{name} does not fail with {workers.delegate}")
    found, result = failing[0]
    yield f"{name}: {result.result}: {result.detail}"
    kind = result.result
    # The only alternative that failed, if each was run.
    named = {"alternative": result.alternative} if result.alternative else {}
    workers = dataclasses.replace(workers, alternatives=False, options={**workers.options, **named})
    if len(whole.nodes) > 1:
        found, words = _fewer_nodes(found, workers, runtime, kind)
        yield words
    stages = {"shapes": shrink.smaller, "values": shrink.simpler}
    for what in ("shapes", "values", "shapes"):
        for _ in range(_GENERATIONS):
            candidates = list(stages[what](found, runtime))
            better = [pair for pair in _failing(candidates, workers) if pair[1].result == kind]
            if not better:
                break
            found, result = min(better, key=lambda pair: shrink.cost(pair[0]))
        inputs = ", ".join(sizes(tensor.shape) for tensor in found.graph.inputs)
        yield f"simpler {what}: {found.size} elements, inputs {inputs}"
    files = _write(found, result, workers, runtime, folder)
    yield f"{result.result}: {result.detail}"
    yield f"wrote {', '.join(files)} to {folder}"
    if workers.delegate == OPENCL:
        yield from _programs(name, found, workers, runtime, folder)


def _programs(
    name: str, found: Candidate, workers: Workers, runtime: Runtime, folder: Path
) -> Iterator[str]:
    """Write the kernel that is wrong as a C program."""
    subject = Subject(OPENCL, workers.options, workers.device, runtime)
    alternative = workers.options.get("alternative")
    alternatives = (alternative,) if alternative else ()
    suspect = Suspect("fault", name, lambda: found, alternatives, is_wrong=True)
    yield from write_faults(folder, [suspect], Options(**subject.opencl_options()), runtime)


def _graph(name: str) -> Graph:
    if name.endswith(".tflite"):
        try:
            found = read_graph(name)
        except DelegateError as error:
            raise OneLineError(str(error)) from None
        _require_alone(name, found)
        # Other signatures' graphs are dropped.
        return graph(found.nodes, found.inputs, found.outputs)
    case = next((case for case in all_cases() if case.name == name), None)
    if case is None:
        raise OneLineError(f"there is no case {name} (--list prints all)")
    if case.check != "values":
        raise OneLineError(f"{name} is about behaviour: there is no value to reduce")
    found = case.make()
    _require_alone(name, found)
    return found


def _require_alone(name: str, whole: Graph) -> None:
    if why := runs_others(whole.nodes):
        raise OneLineError(f"{name} cannot be made smaller: {why}")


def _failing(
    candidates: Sequence[Candidate], workers: Workers
) -> list[tuple[Candidate, CaseResult]]:
    """Return the failing candidates, in order."""
    results: dict[str, CaseResult] = {}
    with tempfile.TemporaryDirectory() as folder:
        items = []
        for number, candidate in enumerate(candidates):
            model, inputs = (str(Path(folder) / f"{number}.{end}") for end in ("tflite", "npz"))
            Path(model).write_bytes(write_model(candidate.graph))
            arrays: dict[str, Any] = {f"{i:03}": v for i, v in enumerate(candidate.inputs)}
            np.savez(inputs, **arrays)
            items.append(Item(str(number), model, inputs))
        workers.run(items, 1, lambda result: results.update({result.name: result}), repeat=False)
    pairs = ((each, results[str(number)]) for number, each in enumerate(candidates))
    return [pair for pair in pairs if pair[1].result in (FAIL, CRASH, TIMEOUT)]


def _fewer_nodes(
    start: Candidate, workers: Workers, runtime: Runtime, kind: str
) -> tuple[Candidate, str]:
    """Return the first wrong node, by itself if it fails by itself."""
    nodes = start.graph.nodes
    if len(nodes) > _MOST_NODES:
        return start, f"{len(nodes)} nodes are too many to try each"
    # Each has the model's inputs, and its last node's outputs.
    prefixes = [
        Candidate(graph(nodes[: i + 1], start.graph.inputs, nodes[i].outputs), start.inputs)
        for i in range(len(nodes))
    ]
    first = next((c for c, result in _failing(prefixes, workers) if result.result == kind), None)
    if first is None:
        return start, "no part from the start fails by itself"
    index = len(first.graph.nodes) - 1
    words = f"the first node whose output is wrong: {index}, {nodes[index].op}"
    for count in range(1, min(index + 1, 4) + 1):
        part = _part(start, nodes[index + 1 - count : index + 1], runtime)
        if part is not None and any(r.result == kind for _, r in _failing([part], workers)):
            enough = f"{count} nodes are enough" if count > 1 else "it is enough"
            return part, f"{words}; {enough}"
    return first, f"{words}; only with all before it"


def _part(start: Candidate, nodes: Sequence[Node], runtime: Runtime) -> Candidate | None:
    """Return the nodes with inputs computed by the reference kernels."""
    produced = {t for node in nodes for t in node.outputs}
    read = dict.fromkeys(t for node in nodes for t in node.inputs if t is not None)
    wanted = [t for t in read if t.data is None and t not in produced]
    known = dict(zip(start.graph.inputs, start.inputs, strict=True))
    computed = [t for t in wanted if t not in known]
    if computed:
        nodes_before = [node for node in start.graph.nodes if node.index < nodes[0].index]
        before = graph(nodes_before, start.graph.inputs, computed)
        try:
            values = judged_outputs(runtime, before, write_model(before), start.inputs)
        except (RuntimeError, ValueError):
            return None
        known.update(zip(computed, values, strict=True))
    return Candidate(graph(nodes, wanted, nodes[-1].outputs), [known[t] for t in wanted])


def _write(
    found: Candidate, result: CaseResult, workers: Workers, runtime: Runtime, folder: Path
) -> list[str]:
    """Write the model, its inputs and a script that prints both results; return the files' names.

    Raises: CommandError: the folder cannot be written.
    """
    name, spec, options = "reduced", workers.delegate, workers.options
    model = f"{name}.tflite"
    if spec == "opencl":
        named = f", alternative={options['alternative']!r}" if "alternative" in options else ""
        made = f"__import__('delegate').OpenCLDelegate({model!r}, device={workers.device!r}{named})"
    elif spec.startswith("python:"):
        where, _, kind = spec.removeprefix("python:").partition(":")
        opened = f"open({model!r}, 'rb').read(), {options}"
        made = f"__import__({where!r}, fromlist=['_']).{kind}({opened})"
    else:
        made = "" if spec == "xnnpack" else f"tflite.load_delegate({spec!r}, {options})"
    why = f"{result.result}: {result.detail}"
    subject = Subject(spec, options, workers.device, runtime)
    if folder_of_library := subject.folder:
        settings = options_text(subject.opencl_options())
        script = compiled_script_of(name, len(found.inputs), folder_of_library, settings, why)
    else:
        script = script_of(name, len(found.inputs), runtime, made, why)
    return write_part(folder, name, found.graph, found.inputs, script=script)
