# SPDX-License-Identifier: Apache-2.0
"""Random graphs with random nodes on the CPU: run, resized, and run again.

TFLite's kernels and the delegate exchange tensors over runs and sizes, including sizes that
make tensors empty. The outputs must equal those of TFLite's reference kernels alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from delegate.graph.float16 import has_float16
from delegate.host.claim import Claim
from delegate.inspect import (
    COPY,
    SELECTION,
    Graph,
    Node,
    float_result,
    read_model,
    write_model,
)
from tests.attacks.fuzz.branches import parting
from tflite_opencl.conformance.checks.job import CaseJob, NotDelegated, expect, invoke_of, open_job
from tflite_opencl.conformance.results import FAIL, PASS, SKIP, CaseResult
from tflite_opencl.interpreters.interpreter import allocated, overwrites, run
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.models.build import graph as graph_of
from tflite_opencl.oracle.bounds import Bounds
from tflite_opencl.oracle.in_builtins import model_in_builtins
from tflite_opencl.oracle.oracle import Oracle
from tflite_opencl.oracle.values import Arrays, compare

RUNS = 5
_SEEDS = 8
# Batches for inputs of batch 1; 0 makes tensors empty.
_BATCHES = (3, 0, 2, 1)
_WHY = "excluded by the fuzzer"
_M_PERTURB = -6  # glibc's malloc.h


def ways(graph: Graph) -> list[str]:
    """Return the ways to leave nodes to the CPU."""
    return [f"apart {seed}" for seed in range(_SEEDS)] if len(graph.nodes) > 1 else []


@contextlib.contextmanager
def left_to_the_cpu(nodes: frozenset[int]) -> Iterator[None]:
    """Refuse these nodes, by index, in all verdicts."""
    judged = Claim._judge

    def judge(self: Claim) -> Any:
        return [v.refused(_WHY) if v.node in nodes else v for v in judged(self)]

    with mock.patch.object(Claim, "_judge", judge):
        yield


def some_nodes(graph: Graph, seed: int) -> frozenset[int]:
    """Return the nodes to leave to the CPU: some that it supports, but not all."""
    rng, count = random.Random(seed), len(graph.nodes)
    share = rng.choice((0.2, 0.5, 0.8))
    results = [index for index in range(count) if rng.random() < share]
    some = frozenset(results or [rng.randrange(count)]) - {rng.randrange(count)}
    return frozenset(index for index in some if _is_on_the_cpu(graph.nodes[index]))


def _is_on_the_cpu(node: Node) -> bool:
    """Whether TFLite runs a node: some kernels refuse a type only in a run."""
    if not has_float16(node):
        return True
    if float_result(node.op).kind not in (COPY, SELECTION):
        return False  # TFLite's own kernels know of float16 some that move values, and few others
    alone = graph_of([node])
    try:
        result = allocated(find_runtime(), write_model(alone), "reference")
        run(result, [np.zeros(each.shape, each.dtype) for each in alone.inputs])
    except (RuntimeError, ValueError):
        return False
    return True


def run_apart(job: CaseJob, known: Oracle, seed: int) -> CaseResult:
    """Return the result of a graph with some nodes on the CPU."""
    with left_to_the_cpu(some_nodes(job.graph, seed)):
        try:
            opened, taken = open_job(job, known)
        except NotDelegated as error:
            return CaseResult(SKIP, f"what is left reads what is dynamic: {error}")
        for turn in range(_runs(job)):
            number = turn % len(job.sets)
            expect(job, known, number, invoke_of(opened, job.sets[number]), f"run {turn}")
        result = resized(job, known, opened, _BATCHES, _runs(job))
    return result or CaseResult(PASS, taken=taken)


def _runs(job: CaseJob) -> int:
    """Return the number of runs: with state each input set once, as the oracle ran."""
    return min(RUNS, len(job.sets)) if has_state(job) else RUNS


def resized(
    job: CaseJob, known: Oracle, opened: Any, batches: tuple[int, ...], runs: int
) -> CaseResult | None:
    """Run with these batches, like TFLite's interpreter; None if all outputs are right.

    Batches that TFLite does not run are skipped, and so are those for which its IF would write to
    freed memory, and graphs whose inputs have no batch of 1.
    """
    if not job.graph.inputs or any(each.shape[:1] != (1,) for each in job.graph.inputs):
        return None
    for count in batches:
        sets = [_batch(inputs, count) for inputs in job.sets[:runs]]
        on_tflite = partial(_on_tflite, job, known, sets, count)
        if count == 0 and not _survives(on_tflite):
            continue
        try:
            expected, undefined = on_tflite()
            if _writes_to_freed_memory(job, known, opened, count):
                continue
        except (RuntimeError, ValueError):
            continue  # also no batch for TFLite
        resize_to(opened.interpreter, count)
        if any("TFLite reads past the end" in (v.reason or "") for v in opened.delegate.verdicts):
            continue
        if has_state(job):  # an unchanged size does not reset it
            opened.interpreter.reset_all_variables()
        for turn in range(runs):
            number = turn % len(sets)
            got = _invoked(opened.interpreter, sets[number])
            bounds, where = known.bounds[number], f"at batch {count}"
            if result := _wrong(got, expected[number], bounds, undefined, where):
                return result
    return None


def has_state(job: CaseJob) -> bool:
    """Whether outputs depend on earlier runs."""
    return any(tensor.is_variable for tensor in job.graph.tensors)


def _on_tflite(
    job: CaseJob, known: Oracle, sets: list[Arrays], count: int
) -> tuple[list[Arrays], set[int]]:
    """Return what TFLite alone gives for each set of a batch, and which outputs are undefined.

    Raises: RuntimeError, ValueError: TFLite does not run it.
    """
    result = _sized(job, known, count, overwrites(job.graph))
    expected = [_invoked(result, inputs) for inputs in sets]
    if _has_growing_loop(job, result):
        raise ValueError("a WHILE changes the shape of its state")
    if not any(0 in each["shape"] for each in result.get_tensor_details()):
        return expected, set()
    return expected, _undefined(job.graph, partial(_sized, job, known, count, True), sets[0])


def _has_growing_loop(job: CaseJob, ran: Any) -> bool:
    """Whether a WHILE of an interpreter that ran ended with other shapes than it began with.

    NOTE: TFLite's own WHILE then reads memory that it has freed: in the second run on, its results
    are right, or anything.
    """
    shapes = {each["index"]: tuple(each["shape"]) for each in ran.get_tensor_details()}
    return any(
        before is not None and shapes.get(before.index) != shapes.get(after.index)
        for node in read_model(model_in_builtins(job.graph, job.model)).nodes
        if node.op == "WHILE"
        for before, after in zip(node.inputs, node.outputs, strict=True)
    )


def _sized(job: CaseJob, known: Oracle, count: int, keeps_all: bool) -> Any:
    model = model_in_builtins(job.graph, job.model)
    result = allocated(job.subject.runtime, model, known.cpu_kernels, keeps_all=keeps_all)
    resize_to(result, count)
    return result


def _writes_to_freed_memory(job: CaseJob, known: Oracle, opened: Any, count: int) -> bool:
    """Whether an IF that TFLite runs in this interpreter may end the process at a batch.

    NOTE: where both branches give the same shapes, a run of TFLite's IF has the branch write right
    to the outputs of the IF. Where a resize lets the shapes part, these outputs are dynamic from
    then on, but the branch still writes to where they were, which the resize has freed.
    """
    calling = [each.index for each in job.graph.nodes if each.calls is not None]
    left = set(calling) - opened.taken(job.graph)
    if not left:
        return False
    whole = read_model(model_in_builtins(job.graph, job.model))
    before: list[bool] = []
    after: list[bool] = []
    for batch, result in ((1, before), (count, after)):
        resized_job = _sized(job, known, batch, False)
        run(resized_job, _batch(job.sets[0], batch))
        result += parting(resized_job, whole)
    return any(
        index in left and not parted and parts
        for index, parted, parts in zip(calling, before, after, strict=True)
    )


def _undefined(graph: Graph, open_: Callable[[], Any], inputs: Arrays) -> set[int]:
    """Return the positions of outputs that depend on uninitialised memory.

    TFLite's STRIDED_SLICE, STABLEHLO_GATHER and EMBEDDING_LOOKUP do not write their outputs
    if an operand is empty, so these have the old content of their memory.
    `open_`: creates an interpreter whose tensors do not share memory.
    """
    tensors = [tensor.index for each in graph.nodes for tensor in each.outputs]
    seen = []
    for byte in (0x55, 0xAA):
        with _filled(byte):
            result = open_()
            run(result, inputs)
            seen.append([_bytes_of(result, index) for index in tensors])
    unwritten = {index for index, *both in zip(tensors, *seen, strict=True) if both[0] != both[1]}
    for each in graph.nodes:
        if any(tensor is not None and tensor.index in unwritten for tensor in each.inputs):
            unwritten |= {tensor.index for tensor in each.outputs}
    return {place for place, tensor in enumerate(graph.outputs) if tensor.index in unwritten}


@contextlib.contextmanager
def _filled(byte: int) -> Iterator[None]:
    """Fill allocations of this process with a byte."""
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_M_PERTURB, byte ^ 0xFF)
    try:
        yield
    finally:
        mallopt(_M_PERTURB, 0)


def _bytes_of(made: Any, index: int) -> bytes:
    """Return a tensor's bytes; b"" if it has no values, like a resource."""
    try:
        return bytes(made.get_tensor(index).tobytes())
    except ValueError:
        return b""


def _invoked(made: Any, inputs: Arrays) -> Arrays:
    """Return the outputs; get_tensor refuses empty dynamic ones, even without a delegate."""
    run(made, inputs)
    return [
        np.empty(each["shape"], each["dtype"])
        if 0 in each["shape"]
        else made.get_tensor(each["index"])
        for each in made.get_output_details()
    ]


def _batch(inputs: Arrays, count: int) -> Arrays:
    return [
        np.concatenate([np.roll(each, i) for i in range(count)] or [each[:0]]) for each in inputs
    ]


def _wrong(
    got: Arrays, expected: Arrays, bounds: Bounds, undefined: Collection[int], where: str
) -> CaseResult | None:
    for place, (one, other, bound) in enumerate(zip(got, expected, bounds, strict=True)):
        if one.shape != other.shape:
            return CaseResult(FAIL, f"{where}: shape {one.shape} instead of {other.shape}")
        if place in undefined:
            continue
        most = None if bound is None else np.full(other.shape, 4 * bound.max(initial=0))
        result = compare(one, other, most, 0, where)
        if result is not None and result.is_beyond:
            return CaseResult(FAIL, str(result), result.greatest)
    return None


def resize_to(made: Any, count: int) -> None:
    """Give all inputs of an interpreter this batch."""
    for each in made.get_input_details():
        made.resize_tensor_input(each["index"], [count, *each["shape"][1:]])
    made.allocate_tensors()


def _survives(on_tflite: Callable[[], object]) -> bool:
    """Whether TFLite runs an empty batch: some of its kernels divide by its size."""
    child = os.fork()
    if not child:
        status = 1
        with contextlib.suppress(Exception):
            on_tflite()
            status = 0
        os._exit(status)
    return os.waitpid(child, 0)[1] == 0
