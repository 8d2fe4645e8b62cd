# SPDX-License-Identifier: Apache-2.0
"""TFLite's interpreter with or without a delegate: creating, feeding, running and reading it."""

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
    """Yield a library's delegate and ours, in the order in which they take nodes; then close them.

    `graph`: the model's, as read, or all of them, to avoid reading them again.
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
    """Return the graph of a model's signature; None: the first.

    Raises: CommandError: the file cannot be read. ModelError: it is not a model. SignatureError.
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
    threads: int = 1,
) -> Iterator[tuple[Any, OpenCLDelegate]]:
    """Yield an allocated interpreter with the delegate, and the delegate; closed at the end.

    `graph`: the model's, as read. `is_shown`: display start-up progress on a terminal.
    Raises: CommandError: TFLite rejects the model, or the delegate fails. DelegateError: no device.
    """
    with contextlib.ExitStack() as stack:
        with bars.start(os.path.basename(model)) if is_shown else contextlib.nullcontext():
            (delegate,) = stack.enter_context(delegates_for(graph, runtime, options))
            with failures(model, delegate):
                made = allocated(runtime, model, cpu_kernels, [delegate], threads, graph=graph)
        yield made, delegate


@contextlib.contextmanager
def failures(model: str = "the model", delegate: OpenCLDelegate | None = None) -> Iterator[None]:
    """Convert TFLite's errors to a CommandError with the delegate's own error message."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        interrupts.check()  # TFLite turns Ctrl-C into an error
        raise failed(model, (delegate.failure if delegate else None) or error) from error


def failed(model: str, error: object) -> CommandError:
    """Return the error for a model that does not run."""
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

    `graph`: one of the model's; None: the first.
    """
    made = runtime.interpreter(model, threads, cpu_kernels, delegates, keeps_all, graph)
    made.allocate_tensors()
    return made


def overwrites(graph: Graph) -> bool:
    """Whether TFLite may overwrite a tensor that is read later, unless it preserves all tensors."""
    # NOTE: a RESHAPE view of DYNAMIC_UPDATE_SLICE's operand reads the updated data.
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
    """Return the outputs of each picture in a batch.

    Shapes: (batch, ...) -> (1, ...) each; other outputs are shared by all of them
    """
    if batch == 1:
        return [tuple(outputs)]
    return [
        tuple(each[n : n + 1] if each.shape[:1] == (batch,) else each for each in outputs)
        for n in range(batch)
    ]


def taken_nodes(made: Any, graph: Graph) -> set[int]:
    """Return the nodes of the file that a delegate runs.

    TFLite appends a delegate's nodes to the file's own; the originals are found by walking
    from outputs to inputs. Nodes that no output depends on, such as ASSIGN_VARIABLE, count as
    taken if all others are.
    """
    found: set[int] = set()
    for detail in made._get_ops_details()[len(graph.nodes) :]:
        stop = {int(index) for index in detail["inputs"]}
        found |= _needed(graph, detail["outputs"], stop)
    is_whole = found and _needed(graph, [each.index for each in graph.outputs]) <= found
    return {step.index for step in graph.nodes} if is_whole else found


def _needed(graph: Graph, tensors: Iterable[int], stop: Collection[int] = ()) -> set[int]:
    """Return the nodes that compute these tensors, not walking beyond `stop`."""
    producers = {output.index: step for step in graph.nodes for output in step.outputs}
    found: set[int] = set()
    ahead = [int(index) for index in tensors]
    while ahead:
        step = producers.get(ahead.pop())
        if step is not None and step.index not in found:
            found.add(step.index)
            ahead += [t.index for t in step.inputs if t is not None and t.index not in stop]
    return found
