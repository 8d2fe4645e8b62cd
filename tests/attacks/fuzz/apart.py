# SPDX-License-Identifier: Apache-2.0
"""Drawn graphs of which nodes stay on the CPU at random: run, resized, and run again.

What TFLite's kernels and the delegate make of each other's tensors over runs and sizes, sizes that
make tensors empty among them, is what TFLite's reference kernels make of them alone.
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
# The batches that inputs of batch 1 get; 0 leaves no elements.
_BATCHES = (3, 0, 2, 1)
_WHY = "excluded by the fuzzer"
_M_PERTURB = -6  # glibc's malloc.h


def ways(graph: Graph) -> list[str]:
    """Return the ways to leave nodes to the CPU."""
    return [f"apart {seed}" for seed in range(_SEEDS)] if len(graph.nodes) > 1 else []


@contextlib.contextmanager
def left_to_the_cpu(nodes: frozenset[int]) -> Iterator[None]:
    """Refuse these nodes, by their index, in all graphs that are judged."""
    judged = Claim._judge

    def judge(self: Claim) -> Any:
        return [v.refused(_WHY) if v.node in nodes else v for v in judged(self)]

    with mock.patch.object(Claim, "_judge", judge):
        yield


def some_nodes(graph: Graph, seed: int) -> frozenset[int]:
    """Return the nodes that stay on the CPU: some, not all, and none that it lacks."""
    rng, count = random.Random(seed), len(graph.nodes)
    share = rng.choice((0.2, 0.5, 0.8))
    found = [index for index in range(count) if rng.random() < share]
    some = frozenset(found or [rng.randrange(count)]) - {rng.randrange(count)}
    return frozenset(index for index in some if _is_on_the_cpu(graph.nodes[index]))


def _is_on_the_cpu(node: Node) -> bool:
    """Whether TFLite runs a node; that it lacks a type some kernels only tell in a run."""
    if not has_float16(node):
        return True
    if float_result(node.op).kind not in (COPY, SELECTION):
        return False  # TFLite's own kernels know of float16 some that move values, and few others
    alone = graph_of([node])
    try:
        made = allocated(find_runtime(), write_model(alone), "reference")
        run(made, [np.zeros(each.shape, each.dtype) for each in alone.inputs])
    except (RuntimeError, ValueError):
        return False
    return True


def run_apart(job: CaseJob, known: Oracle, seed: int) -> CaseResult:
    """Return what came of a graph of which some nodes are left to the CPU."""
    with left_to_the_cpu(some_nodes(job.graph, seed)):
        try:
            opened, taken = open_job(job, known)
        except NotDelegated as error:
            return CaseResult(SKIP, f"what is left reads what is dynamic: {error}")
        for turn in range(_runs(job)):
            number = turn % len(job.sets)
            expect(job, known, number, invoke_of(opened, job.sets[number]), f"run {turn}")
        found = resized(job, known, opened, _BATCHES, _runs(job))
    return found or CaseResult(PASS, taken=taken)


def _runs(job: CaseJob) -> int:
    """Return how often to run: of a graph with state each set once, as the oracle did."""
    return min(RUNS, len(job.sets)) if has_state(job) else RUNS


def resized(
    job: CaseJob, known: Oracle, opened: Any, batches: tuple[int, ...], runs: int
) -> CaseResult | None:
    """Run with these batches, as TFLite's own interpreter runs them; None: all is right.

    A batch that TFLite does not run is left out, and so is one at which its own IF would write to
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
            continue  # no batch for TFLite, too
        resize_to(opened.interpreter, count)
        if any("TFLite reads past the end" in (v.reason or "") for v in opened.delegate.verdicts):
            continue
        if has_state(job):  # which a size that stays does not reset
            opened.interpreter.reset_all_variables()
        for turn in range(runs):
            number = turn % len(sets)
            got = _invoked(opened.interpreter, sets[number])
            bounds, where = known.bounds[number], f"at batch {count}"
            if found := _wrong(got, expected[number], bounds, undefined, where):
                return found
    return None


def has_state(job: CaseJob) -> bool:
    """Whether what a run gives depends on the runs before."""
    return any(tensor.is_variable for tensor in job.graph.tensors)


def _on_tflite(
    job: CaseJob, known: Oracle, sets: list[Arrays], count: int
) -> tuple[list[Arrays], set[int]]:
    """Return what TFLite alone gives for each set of a batch, and which outputs are undefined.

    Raises: RuntimeError, ValueError: TFLite does not run it.
    """
    made = _sized(job, known, count, overwrites(job.graph))
    expected = [_invoked(made, inputs) for inputs in sets]
    if not any(0 in each["shape"] for each in made.get_tensor_details()):
        return expected, set()
    return expected, _undefined(job.graph, partial(_sized, job, known, count, True), sets[0])


def _sized(job: CaseJob, known: Oracle, count: int, keeps_all: bool) -> Any:
    model = model_in_builtins(job.graph, job.model)
    made = allocated(job.subject.runtime, model, known.cpu_kernels, keeps_all=keeps_all)
    resize_to(made, count)
    return made


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
    for batch, found in ((1, before), (count, after)):
        made = _sized(job, known, batch, False)
        run(made, _batch(job.sets[0], batch))
        found += parting(made, whole)
    return any(
        index in left and not parted and parts
        for index, parted, parts in zip(calling, before, after, strict=True)
    )


def _undefined(graph: Graph, open_: Callable[[], Any], inputs: Arrays) -> set[int]:
    """Return the places of the outputs that follow from memory that no kernel has written.

    TFLite's STRIDED_SLICE, STABLEHLO_GATHER and EMBEDDING_LOOKUP leave their outputs as they are
    where an operand is empty. Such a tensor then depends on what its memory held before.
    `open_`: makes an interpreter in which no tensor shares memory with another one.
    """
    tensors = [tensor.index for each in graph.nodes for tensor in each.outputs]
    seen = []
    for byte in (0x55, 0xAA):
        with _filled(byte):
            made = open_()
            run(made, inputs)
            seen.append([_bytes_of(made, index) for index in tensors])
    unwritten = {index for index, *both in zip(tensors, *seen, strict=True) if both[0] != both[1]}
    for each in graph.nodes:
        if any(tensor is not None and tensor.index in unwritten for tensor in each.inputs):
            unwritten |= {tensor.index for tensor in each.outputs}
    return {place for place, tensor in enumerate(graph.outputs) if tensor.index in unwritten}


@contextlib.contextmanager
def _filled(byte: int) -> Iterator[None]:
    """Fill what this process allocates with a byte."""
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_M_PERTURB, byte ^ 0xFF)
    try:
        yield
    finally:
        mallopt(_M_PERTURB, 0)


def _bytes_of(made: Any, index: int) -> bytes:
    """Return a tensor's bytes; none of one that has no values, as a resource."""
    try:
        return bytes(made.get_tensor(index).tobytes())
    except ValueError:
        return b""


def _invoked(made: Any, inputs: Arrays) -> Arrays:
    """Return the outputs; get_tensor refuses a dynamic one that is empty, also of TFLite's own."""
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
        found = compare(one, other, most, 0, where)
        if found is not None and found.is_beyond:
            return CaseResult(FAIL, str(found), found.greatest)
    return None


def resize_to(made: Any, count: int) -> None:
    """Give all inputs of an interpreter this batch."""
    for each in made.get_input_details():
        made.resize_tensor_input(each["index"], [count, *each["shape"][1:]])
    made.allocate_tensors()


def _survives(on_tflite: Callable[[], object]) -> bool:
    """Whether TFLite itself runs a batch of nothing; some of its kernels divide by its size."""
    child = os.fork()
    if not child:
        status = 1
        with contextlib.suppress(Exception):
            on_tflite()
            status = 0
        os._exit(status)
    return os.waitpid(child, 0)[1] == 0
