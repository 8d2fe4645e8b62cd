# SPDX-License-Identifier: Apache-2.0
"""TFLite's interpreter, with or without a delegate: how each is opened, fed, run and read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import OpenCLDelegate, Options
from delegate.inspect import Graph, Subgraphs, read_model
from tflite_opencl.console import bars, interrupts
from tflite_opencl.console.errors import CommandError, RunError, cannot_read, one_line
from tflite_opencl.interpreters.runtime import Runtime

Arrays = list[NDArray[Any]]


@contextlib.contextmanager
def delegates_for(
    graph: Graph | Subgraphs,
    runtime: Runtime,
    opencl: Options | None,
    library: tuple[str, Mapping[str, str]] | None = None,
    is_library_last: bool = False,
) -> Iterator[list[Any]]:
    """Give that of a library, and ours, closed in the end, in the order in which they take nodes.

    `graph`: the model's, as it was read, or all of them, so that none is read again.
    Raises: RunError: the library cannot be used. DelegateError: our delegate cannot.
    """
    found = []
    if library is not None:
        path, options = library
        try:
            found.append(runtime.load_delegate(path, options))
        except (OSError, ValueError, AttributeError, RuntimeError) as error:
            raise RunError(f"cannot load the delegate {path}: {one_line(error)}") from error
    with contextlib.ExitStack() as stack:
        if opencl is not None:
            ours = OpenCLDelegate(graph, options=opencl)
            found.append(stack.enter_context(contextlib.closing(ours)))
        yield found[::-1] if is_library_last else found


def read_graph(path: str, signature: str | None = None) -> Graph:
    """Return the graph of a model that this signature runs; None: the first.

    Raises: CommandError: the file cannot be read. ModelError: it is no model. SignatureError.
    """
    try:
        return read_model(path, signature)
    except OSError as error:
        raise cannot_read(path, error) from error


@contextlib.contextmanager
def delegated(
    model: str,
    graph: Graph,
    options: Options,
    runtime: Runtime,
    cpu_kernels: str,
    is_shown: bool = True,
) -> Iterator[tuple[Any, OpenCLDelegate]]:
    """Give an allocated interpreter with the delegate, and the delegate; closed in the end.

    `graph`: the model's, as it was read. `is_shown`: a terminal shows how far the start is.
    Raises: CommandError: TFLite refuses the model, or the delegate fails. DelegateError: no device.
    """
    with contextlib.ExitStack() as stack:
        with bars.start(os.path.basename(model)) if is_shown else contextlib.nullcontext():
            (delegate,) = stack.enter_context(delegates_for(graph, runtime, options))
            with failures(model, delegate):
                made = allocated(runtime, model, cpu_kernels, [delegate], graph=graph)
        yield made, delegate


@contextlib.contextmanager
def failures(model: str = "the model", delegate: OpenCLDelegate | None = None) -> Iterator[None]:
    """Turn TFLite's errors into a CommandError, which tells what the delegate says of it."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        interrupts.check()  # TFLite makes an error of Ctrl-C
        raise failed(model, (delegate.failure if delegate else None) or error) from error


def failed(model: str, error: object) -> CommandError:
    """Return the error of a model that does not run."""
    return CommandError(f"{model} does not run: {error}")


def allocated(
    runtime: Runtime,
    model: bytes | str,
    cpu_kernels: str,
    delegates: Sequence[object] = (),
    threads: int | None = 1,
    keeps_all: bool = False,
    graph: Graph | None = None,
) -> Any:
    """Return an interpreter with allocated tensors; raises RuntimeError or ValueError.

    `graph`: which of the model's it runs; None: the first.
    """
    made = runtime.interpreter(model, threads, cpu_kernels, delegates, keeps_all, graph)
    made.allocate_tensors()
    return made


def overwrites(graph: Graph) -> bool:
    """Whether TFLite may write over a tensor that is read later, unless it keeps all tensors."""
    # NOTE: a view of DYNAMIC_UPDATE_SLICE's operand, by RESHAPE, reads the updated one.
    return any(node.op == "DYNAMIC_UPDATE_SLICE" for node in graph.nodes)


def run(made: Any, inputs: Sequence[NDArray[Any]]) -> None:
    """Run once on these inputs; raises RuntimeError or ValueError."""
    for detail, values in zip(made.get_input_details(), inputs, strict=True):
        made.set_tensor(detail["index"], values)
    made.invoke()


def invoke(made: Any, inputs: Sequence[NDArray[Any]]) -> Arrays:
    """Return all outputs for these inputs; raises RuntimeError or ValueError."""
    run(made, inputs)
    return outputs_of(made)


def outputs_of(made: Any) -> Arrays:
    """Return copies of all outputs."""
    return [np.asarray(made.get_tensor(detail["index"])) for detail in made.get_output_details()]


def by_picture(outputs: Sequence[NDArray[Any]], batch: int) -> list[tuple[NDArray[Any], ...]]:
    """Return the outputs of each picture of a model that takes so many at once.

    Shapes: (batch, ...) -> (1, ...) each; another output is there for all of them
    """
    if batch == 1:
        return [tuple(outputs)]
    return [
        tuple(each[n : n + 1] if each.shape[:1] == (batch,) else each for each in outputs)
        for n in range(batch)
    ]


def taken_nodes(made: Any, graph: Graph) -> set[int]:
    """Return the nodes of the file that a delegate runs.

    TFLite lists a delegate's nodes after the file's own; what one stands for is found by walking
    from its outputs to its inputs. What no output needs, as an ASSIGN_VARIABLE, is found nowhere:
    it counts as taken where all else is.
    """
    found: set[int] = set()
    for detail in made._get_ops_details()[len(graph.nodes) :]:
        stop = {int(index) for index in detail["inputs"]}
        found |= _needed(graph, detail["outputs"], stop)
    is_whole = found and _needed(graph, [each.index for each in graph.outputs]) <= found
    return {step.index for step in graph.nodes} if is_whole else found


def _needed(graph: Graph, tensors: Iterable[int], stop: Collection[int] = ()) -> set[int]:
    """Return the nodes that compute these tensors; those of `stop` are given."""
    producers = {output.index: step for step in graph.nodes for output in step.outputs}
    found: set[int] = set()
    ahead = [int(index) for index in tensors]
    while ahead:
        step = producers.get(ahead.pop())
        if step is not None and step.index not in found:
            found.add(step.index)
            ahead += [t.index for t in step.inputs if t is not None and t.index not in stop]
    return found
