# SPDX-License-Identifier: Apache-2.0
"""A failing case -> the smallest model and input that still fail, and a script that shows it.

Fewer nodes, then smaller shapes, then simpler values; each step's candidates share a worker.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from delegate import DelegateError, Graph, Node, Tensor, read_model, write_model
from delegate_test.build import Array, graph, sizes
from delegate_test.cases import all_cases
from delegate_test.checks import FAIL
from delegate_test.oracle import interpreter, invoke
from delegate_test.runner import CRASH, TIMEOUT, Item, Result, Workers
from delegate_test.values import Arrays, input_sets
from tflite_opencl.common.runtime import ENVIRONMENT_VARIABLE, Runtime, RuntimeMissing, find_runtime

_GENERATIONS = 16
_MOST_NODES = 400  # prefixes tried of a whole model


class ReduceError(Exception):
    """There is nothing to reduce; the text says why."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model and an input."""

    graph: Graph
    inputs: Arrays

    @property
    def size(self) -> int:
        """Elements of all tensors: less is simpler."""
        return sum(int(np.prod(tensor.shape)) for tensor in self.graph.tensors)


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
    if len(whole.nodes) > 1:
        found, words = _fewer_nodes(found, workers, runtime, kind)
        yield words
    for what, step in (("shapes", _smaller), ("values", _simpler), ("shapes", _smaller)):
        for _ in range(_GENERATIONS):
            candidates = list(step(found, runtime))
            better = [pair for pair in _failing(candidates, workers) if pair[1].result == kind]
            if not better:
                break
            found, result = min(better, key=lambda pair: _cost(pair[0]))
        shapes = ", ".join(sizes(tensor.shape) for tensor in found.graph.inputs)
        yield f"simpler {what}: {found.size} elements, inputs {shapes}"
    files = _write(found, result, workers, runtime, folder)
    yield f"{result.result}: {result.detail}"
    yield f"wrote {', '.join(files)} to {folder}"


def _graph(name: str) -> Graph:
    if name.endswith(".tflite"):
        try:
            return read_model(name)
        except (DelegateError, OSError) as error:
            raise ReduceError(f"{name}: {error}") from None
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
            return invoke(interpreter(runtime, write_model(part), kernels), inputs)
        except (RuntimeError, ValueError):
            continue
    return None


# Axes that shrink together, by op: input number -> axis.
_CONVOLUTION = ({0: 0}, {0: 1}, {0: 2}, {0: 3, 1: 3}, {1: 0, 2: 0}, {1: 1}, {1: 2})
_TOGETHER: dict[str, tuple[dict[int, int], ...]] = {
    "CONV_2D": _CONVOLUTION,
    "DEPTHWISE_CONV_2D": ({0: 0}, {0: 1}, {0: 2}, {0: 3, 1: 3, 2: 0}, {1: 1}, {1: 2}),
    "FULLY_CONNECTED": ({0: 0}, {0: -1, 1: 1}, {1: 0, 2: 0}),
}


def _smaller(found: Candidate, runtime: Runtime) -> Iterator[Candidate]:
    """Yield the same model with one axis shorter."""
    for group in _groups(found.graph):
        for tensor, axis in list(group.items())[:1]:
            size = tensor.shape[axis]
        for wanted in sorted({1, size // 4, size // 2, 3 * size // 4, size - 1} - {0, size}):
            candidate = _cut(found, group, wanted, runtime)
            if candidate is not None:
                yield candidate


def _groups(whole: Graph) -> Iterator[dict[Tensor, int]]:
    node = whole.nodes[0]
    if len(whole.nodes) == 1 and node.op in _TOGETHER:
        for axes in _TOGETHER[node.op]:
            inputs = {i: t for i, t in enumerate(node.inputs) if t is not None and i in axes}
            group = {t: axis % len(t.shape) for i, t in inputs.items() for axis in [axes[i]]}
            if len({t.shape[axis] for t, axis in group.items()}) == 1:
                yield group
        return
    # Elsewhere: the same place from the right of every tensor that is as long there.
    rank = max((len(t.shape) for t in whole.inputs), default=0)
    for place in range(1, rank + 1):
        group = {t: len(t.shape) - place for t in whole.inputs if len(t.shape) >= place}
        if len(whole.nodes) == 1:
            group |= {
                t: len(t.shape) - place
                for t in node.inputs
                if t is not None and t.data is not None and len(t.shape) == rank
            }
        longest = max((t.shape[axis] for t, axis in group.items()), default=1)
        group = {t: axis for t, axis in group.items() if t.shape[axis] == longest}
        if longest > 1 and (len(whole.nodes) == 1 or place > 1):
            yield group


def _cut(
    found: Candidate, group: dict[Tensor, int], size: int, runtime: Runtime
) -> Candidate | None:
    """Return the candidate with these axes shorter, None where TFLite does not take it."""

    def short(values: Array, axis: int) -> Array:
        index = [slice(None)] * values.ndim
        index[axis] = slice(size)
        return np.ascontiguousarray(values[tuple(index)])

    def cut(tensor: Tensor) -> Tensor:
        axis = group.get(tensor)
        if axis is None:
            return tensor
        shape = tuple(size if i == axis else n for i, n in enumerate(tensor.shape))
        numbers = tensor.quantization
        if numbers is not None and len(numbers.scale) > 1 and numbers.axis == axis:
            numbers = dataclasses.replace(
                numbers, scale=numbers.scale[:size], zero_point=numbers.zero_point[:size]
            )
        data = None if tensor.data is None else short(tensor.data, axis)
        return dataclasses.replace(tensor, shape=shape, data=data, quantization=numbers)

    inputs = [
        short(values, group[tensor]) if tensor in group else values
        for tensor, values in zip(found.graph.inputs, found.inputs, strict=True)
    ]
    return _settled(
        _replaced(found.graph, {t: cut(t) for t in found.graph.tensors}), inputs, runtime
    )


def _settled(rough: Graph, inputs: Arrays, runtime: Runtime) -> Candidate | None:
    """Return the graph with the shapes TFLite computes for it."""
    try:
        made = interpreter(runtime, write_model(rough), "builtin")
    except (RuntimeError, ValueError):
        return None
    shapes = {
        detail["index"]: tuple(int(n) for n in detail["shape"])
        for detail in made.get_tensor_details()
    }
    computed = {t for node in rough.nodes for t in node.outputs}
    changed = {
        t: dataclasses.replace(t, shape=shapes.get(t.index, t.shape)) if t in computed else t
        for t in rough.tensors
    }
    if any(0 in t.shape for t in changed.values()):
        return None
    return Candidate(_replaced(rough, changed), inputs)


def _replaced(whole: Graph, tensors: dict[Tensor, Tensor]) -> Graph:
    return dataclasses.replace(
        whole,
        tensors=tuple(tensors[t] for t in whole.tensors),
        nodes=tuple(
            dataclasses.replace(
                node,
                inputs=tuple(None if t is None else tensors[t] for t in node.inputs),
                outputs=tuple(tensors[t] for t in node.outputs),
            )
            for node in whole.nodes
        ),
        inputs=tuple(tensors[t] for t in whole.inputs),
        outputs=tuple(tensors[t] for t in whole.outputs),
    )


def _simpler(found: Candidate, runtime: Runtime) -> Iterator[Candidate]:
    """Yield the same model with more of its values at their zero points."""
    for position, (tensor, values) in enumerate(zip(found.graph.inputs, found.inputs, strict=True)):
        for simpler in _zeroed(values, _zero(tensor)):
            inputs = list(found.inputs)
            inputs[position] = simpler
            yield Candidate(found.graph, inputs)
    for tensor in found.graph.tensors:
        # Axes and sizes are no values: their tensors have no quantisation and are integers.
        if tensor.data is None or (tensor.quantization is None and tensor.data.dtype.kind != "f"):
            continue
        for simpler in _zeroed(tensor.data, _zero(tensor)):
            changed = {t: t for t in found.graph.tensors}
            changed[tensor] = dataclasses.replace(tensor, data=simpler)
            yield Candidate(_replaced(found.graph, changed), found.inputs)


def _zeroed(values: Array, zero: int) -> Iterator[Array]:
    flat = values.reshape(-1)
    used = np.flatnonzero(flat != np.asarray(zero).astype(flat.dtype))
    if not len(used):
        return
    for part in (
        used,
        *np.array_split(used, 2),
        *(np.array_split(used, 4) if len(used) > 3 else ()),
    ):
        simpler = flat.copy()
        simpler[part] = zero
        yield simpler.reshape(values.shape)


def _zero(tensor: Tensor) -> int:
    return tensor.quantization.zero_point[0] if tensor.quantization else 0


def _cost(candidate: Candidate) -> tuple[int, int]:
    """Return what to make small: elements, then values that are not at their zero points."""
    busy = sum(
        int(np.count_nonzero(values != _zero(tensor)))
        for tensor, values in zip(candidate.graph.inputs, candidate.inputs, strict=True)
    )
    busy += sum(
        int(np.count_nonzero(tensor.data != _zero(tensor)))
        for tensor in candidate.graph.tensors
        if tensor.data is not None
    )
    return candidate.size, busy


def _write(
    found: Candidate, result: Result, workers: Workers, runtime: Runtime, folder: Path
) -> list[str]:
    names = ["reduced.tflite", "reduced.py"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / names[0]).write_bytes(write_model(found.graph))
        for number, values in enumerate(found.inputs):
            names.append(f"reduced_{number}.npy")
            np.save(folder / names[-1], values)
        (folder / names[1]).write_text(_script(result, workers, runtime, len(found.inputs)))
    except OSError as error:
        raise ReduceError(f"cannot write {folder}: {error.strerror}") from None
    return names


def _script(result: Result, workers: Workers, runtime: Runtime, inputs: int) -> str:
    module = {"ai-edge-litert": "ai_edge_litert", "tflite-runtime": "tflite_runtime"}[runtime.name]
    spec, options = workers.delegate, workers.options
    model = "'reduced.tflite'"
    if spec == "opencl":
        made = f"__import__('delegate').OpenCLDelegate({model}, device={workers.device!r})"
    elif spec.startswith("python:"):
        where, _, name = spec.removeprefix("python:").partition(":")
        made = (
            f"__import__({where!r}, fromlist=['_']).{name}(open({model}, 'rb').read(), {options})"
        )
    else:
        made = f"tflite.load_delegate({spec!r}, {options})"
    ways = "dict(experimental_op_resolver_type=tflite.OpResolverType.BUILTIN_REF)"
    other = "{}" if spec == "xnnpack" else (
        f"dict(experimental_delegates=[{made}], "
        "experimental_op_resolver_type=tflite.OpResolverType.BUILTIN_REF)"
    )  # fmt: skip
    return (
        f"# {result.result}: {' '.join(result.detail.split())}\n"
        f"import numpy, {module}.interpreter as tflite\n"
        f"for words in ({ways}, {other}):\n"
        f"    made = tflite.Interpreter({model}, **words); made.allocate_tensors()\n"
        f"    [made.set_tensor(d['index'], numpy.load(f'reduced_{{i}}.npy')) "
        f"for i, d in enumerate(made.get_input_details()[:{inputs}])]; made.invoke()\n"
        "    print([made.get_tensor(d['index']).tolist() for d in made.get_output_details()])\n"
    )
