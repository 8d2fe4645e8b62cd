# SPDX-License-Identifier: Apache-2.0
"""The ways to run a random graph: each has the outputs of TFLite's reference kernels.

A way is a few words, such as "form persistent specialised", by which it is reported and replayed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from delegate import Model
from delegate.format.schema import numpy_dtype
from delegate.graph.float16 import has_float16
from delegate.graph.float_results import float_result
from delegate.inspect import Graph, device_profile_names, with_tensors
from delegate.isa import FEATURES
from delegate.plan import call_groups
from delegate.plan.passes import PASSES
from delegate.plan.record import DISPATCH_MODES, FUSED, ONE_BY_ONE
from delegate.plan.tuning.chooser import FULL, Choice, Chooser
from delegate.plan.tuning.dispatch import GENERIC, KERNEL_KINDS, DispatchChooser
from tests.attacks.fuzz import apart, called, placed, stateful
from tests.attacks.fuzz.ieee import on_every_device
from tests.attacks.fuzz.nan_rows import outputs_of_nan_rows
from tflite_opencl.conformance.checks.job import (
    CaseJob,
    NotDelegated,
    differences,
    expect,
    open_job,
    values,
)
from tflite_opencl.conformance.results import FAIL, PASS, SKIP, CaseResult
from tflite_opencl.models.build import graph, node, tensor
from tflite_opencl.oracle.bounds import Bounds, float_bounds
from tflite_opencl.oracle.difference import distances
from tflite_opencl.oracle.oracle import Oracle, run_graph
from tflite_opencl.oracle.values import Arrays

PLAIN = "as it is"
START = "start"  # as for a user: with a child, and fully tuned
_SHAKEN = 4  # runs of the reference kernels with perturbed values
_HUGE = 1e37  # ten of these overflow float32
_LARGE = 1e3  # ten of these do not overflow fp16, nor does a sum of many
_PLACES = 2.0**-21  # perturbation: a few units in the last place of float32


def ways_of(graph: Graph, names: Sequence[str]) -> list[str]:
    """Return every way to run a graph; `names`: of its nodes' alternatives.

    A graph with variable tensors runs its input sets in order: not in a batch, whose
    pictures have separate state, and not with other variables, whose runs have another order.
    """
    several = [f"passes {name}" for name in (*PASSES, "none")] if len(graph.nodes) > 1 else []
    # The reference kernels do not run float16 nodes, alone or in called graphs.
    is_narrow = any(map(has_float16, graph.nodes))
    # A Model returns no packed values, and variables hold none.
    is_packed = any(numpy_dtype(each.dtype) is None for each in graph.outputs)
    if len(graph.nodes) > 2 and not is_narrow:
        several += [f"exclude_ops {op}" for op in sorted({each.op for each in graph.nodes})]
    return [
        *(f"alternative {name}" for name in names),
        *(f"form {form}, {number}" for form in DISPATCH_MODES for number in KERNEL_KINDS),
        *several,
        *(f"exclude_isa {name}" for name in ("all", *(feature.name for feature in FEATURES))),
        *(f"device_profile {name}" for name in device_profile_names()),
        *([] if remembers(graph) or is_narrow or is_packed else _ways_of_runs_in_another_order()),
        *(["halves"] if _may_have_halves(graph) else []),
        *([] if is_narrow else ["ieee"]),
        *apart.ways(graph),
        *placed.ways(graph),
        "resize",
        "profiling",
    ]


def _may_have_halves(graph: Graph) -> bool:
    """Whether fp16 changes outputs only a little: no discontinuities, no float to integer."""
    makes_floats = (
        all(t.dtype == "float32" for t in each.outputs) and not float_result(each.op).is_steep
        for each in graph.nodes
        if any(t is not None and t.dtype == "float32" and t.data is None for t in each.inputs)
    )
    return not remembers(graph) and all(makes_floats)


def _ways_of_runs_in_another_order() -> list[str]:
    return [*(f"batch {count}" for count in (1, 2, 3, 5)), *stateful.ways(), *called.ways()]


def remembers(graph: Graph) -> bool:
    """Whether outputs depend on earlier runs."""
    return any(tensor.is_variable for tensor in graph.tensors)


def some_of(ways: Sequence[str], count: int, seed: int) -> list[str]:
    """Return some of the ways, of different kinds."""
    rng = random.Random(seed)
    kinds: dict[str, list[str]] = {}
    for way in ways:
        kinds.setdefault(way.split()[0], []).append(way)
    return [rng.choice(kinds[kind]) for kind in rng.sample(list(kinds), min(count, len(kinds)))]


def run_way(way: str, job: CaseJob, known: Oracle) -> CaseResult:
    """Return the result of a graph that is run this way."""
    kind, _, rest = way.partition(" ")
    if kind == "batch":
        return _batch(job, known, int(rest))
    if kind in ("variables", "tensors", "carry"):
        return stateful.run_stateful(job, known, way)
    if kind == "called":
        return called.run_called(job, known, way)
    if kind == "resize":
        return _resized(job, known)
    if kind == "apart":
        return apart.run_apart(job, known, int(rest))
    if kind == "halves":
        return _in_halves(job, known)
    if kind == "ieee":
        return on_every_device(job, known)
    if kind == "form":
        form, number = rest.split(", ")
        with measured_fastest(form, number):
            return values(job, known)
    options: dict[str, Any] = {
        "alternative": {"alternative": rest},
        "passes": {"passes": () if rest == "none" else (rest,)},
        "exclude_ops": {"exclude_ops": (rest,)},
        "exclude_isa": {"exclude_isa": (rest,)},
        "device_profile": {"device_profile": rest},
        # TFLite's kernels may crash on random values, so a child runs them first.
        "placement": {"placement": "fastest", "in_child_first": rest == placed.MEASURED},
        "profiling": {"profiling": True},
        START: {"in_child_first": True, "tune": "full"},
    }.get(kind, {})
    subject = dataclasses.replace(job.subject, options={**job.subject.options, **options})
    try:
        with placed.placed(rest) if kind == "placement" else contextlib.nullcontext():
            outcome = values(dataclasses.replace(job, subject=subject), known)
    except NotDelegated as error:
        return CaseResult(FAIL if way == PLAIN else PASS, f"no node is taken: {error}")
    count = len(job.graph.nodes)
    if way == PLAIN and outcome.result == PASS and outcome.taken < count:
        return dataclasses.replace(outcome, result=FAIL, detail=f"not all taken: {outcome.detail}")
    return outcome


def _in_halves(job: CaseJob, known: Oracle) -> CaseResult:
    """Run with fp16, with inputs for which no node overflows fp16."""
    run = partial(run_graph, job.subject.runtime)
    if any(_are_large(each) for inputs in job.sets for each in inputs) or any(
        _may_overflow(run, job.graph, inputs, _LARGE) for inputs in job.sets
    ):
        return CaseResult(SKIP, "a half may not hold what its nodes make")
    subject = dataclasses.replace(job.subject, options={**job.subject.options, "precision": "fp16"})
    return values(dataclasses.replace(job, subject=subject), known.in_halves())


def _are_large(values_: Any) -> bool:
    return values_.dtype == np.float32 and np.any(np.isfinite(values_) & (np.abs(values_) > _LARGE))


class _Decided:
    """Chooses a dispatch mode and a kind of kernels as if they had been measured to be fastest."""

    mode, seconds_left = FULL, math.inf

    def __init__(self, form: str, numbers: str) -> None:
        self._wanted = f"0, {form}", numbers

    def choose(self, choice: Choice, measure: Callable[[], str | None]) -> str | None:
        return measure()

    def fastest(self, repeat: Mapping[str, object]) -> str | None:
        return next((each for each in (*self._wanted, *repeat) if each in repeat), None)


@contextlib.contextmanager
def measured_fastest(form: str, numbers: str) -> Iterator[None]:
    """Make programs run in a dispatch mode and kind of kernels, unless these are wrong."""
    result, forms = DispatchChooser.__init__, DispatchChooser._modes

    def make(self: DispatchChooser, chooser: Chooser, *others: Any) -> None:
        result(self, _Decided(form, numbers), *others)  # type: ignore[arg-type]
        if form == FUSED:  # a device that orders memory does not try it otherwise
            self._fewer_calls = FUSED

    def fewer(self: DispatchChooser, programs: Any, batch: int) -> dict[str, Any]:
        outcome = forms(self, programs, batch).items()
        return {name: each for name, each in outcome if each[1] in (ONE_BY_ONE, form)}

    # Random tensors are small: with fewer tiles, launches also run side by side.
    tiles = 1 if (form, numbers) == (FUSED, GENERIC) else call_groups._MOST_TILES
    with (
        mock.patch.object(DispatchChooser, "__init__", make),
        mock.patch.object(DispatchChooser, "_modes", fewer),
        mock.patch.object(call_groups, "_MOST_TILES", tiles),
    ):
        yield


def _batch(job: CaseJob, known: Oracle, count: int) -> CaseResult:
    """Run several input sets as a batch of a Model, then as a partial one."""
    if not job.graph.inputs:
        return CaseResult(SKIP, "no input says how many pictures there are")
    model = job.model if isinstance(job.model, bytes) else open(job.model, "rb").read()  # noqa: SIM115
    device = job.subject.device
    with Model(model, device, count, tune="off", in_child_first=False) as opened_model:
        sets = [number % len(job.sets) for number in range(count)]
        given = [
            _stacked([job.sets[number][place] for number in sets], each.shape)
            for place, each in enumerate(job.graph.inputs)
        ]
        for full in (count, max(1, count - 1)):
            got = opened_model.run([each[:full] for each in given])
            for place, number in enumerate(sets[:full]):
                outputs = [
                    each[place : place + 1] if tensor.shape[:1] == (1,) else each[place]
                    for each, tensor in zip(got, job.graph.outputs, strict=True)
                ]
                expect(job, known, number, outputs, f"picture {place} of {full}")
    return CaseResult(PASS, taken=len(job.graph.nodes))


def _stacked(parts: Arrays, shape: Sequence[int]) -> Any:
    return np.concatenate(parts) if tuple(shape[:1]) == (1,) else np.stack(parts)


def _resized(job: CaseJob, known: Oracle) -> CaseResult:
    """Resize the inputs to other batches, like TFLite's interpreter, and back."""
    if not job.graph.inputs or any(each.shape[:1] != (1,) for each in job.graph.inputs):
        return CaseResult(SKIP, "an input has no batch of 1")
    opened, taken = open_job(job, known)
    result = apart.resized(job, known, opened, (3, 2, 0, 1), 1)
    return result or CaseResult(PASS, taken=taken)


def again(earlier: Sequence[tuple[str, Callable[[], Arrays], CaseJob, Oracle]]) -> None:
    """Run earlier graphs again, which share the context.

    Raises: RuntimeError: an output of one of them changed.
    """
    for name, run, job, known in earlier:
        wrong = [each for each in differences(job, known, 0, run()) if each.is_beyond]
        if wrong:
            raise RuntimeError(f"{name}, run again: {wrong[0]}")


def with_wider_bounds(job: CaseJob, known: Oracle) -> Oracle:
    """Return the oracle of a float graph with bounds from its sensitivity.

    A clamp or a function hides the size of terms before it, from which the suite derives bounds.
    So the reference kernels run with inputs, constants and dequantised values that differ
    in their last places, and results of GELU perturbed by its argument's rounding: changes that
    these cause in outputs are allowed, including NaN and infinities. Outputs that
    depend on a quantised row with NaN are ignored.
    """
    if len(job.graph.nodes) == 1 or all(bound is None for bound in known.bounds[0]):
        return known
    rng = np.random.default_rng(0)
    run = partial(run_graph, job.subject.runtime)
    moved: list[list[Any]] = [[0.0] * len(each) for each in known.outputs]
    for _ in range(_SHAKEN):
        shaken = _shaken_graph(job.graph, rng)
        for number, inputs in enumerate(job.sets):
            outputs = run(shaken, [_shaken(each, rng) for each in inputs])
            for place, (one, other) in enumerate(zip(outputs, known.outputs[number], strict=True)):
                if other.dtype in (np.float16, np.float32, np.complex64):
                    moved[number][place] = np.maximum(moved[number][place], _moves(one, other))
    bounds: list[Bounds] = []
    of_nan = outputs_of_nan_rows(run, job.graph, job.sets)
    for number, outputs in enumerate(known.outputs):
        own = float_bounds(run, job.graph, job.sets[number], outputs, is_last_alone=True)
        rows = zip(own, moved[number], strict=True)
        wider = [None if bound is None else _wider(bound, moves) for bound, moves in rows]
        overflows = _may_overflow(run, job.graph, job.sets[number])
        wider = [
            np.full_like(bound, np.inf) if bound is not None and (overflows or is_of_nan) else bound
            for bound, is_of_nan in zip(wider, of_nan[number], strict=True)
        ]
        bounds.append(wider)
    return dataclasses.replace(known, bounds=bounds)


def _may_overflow(
    run: Callable[[Graph, Arrays], Arrays], whole: Graph, inputs: Arrays, huge: float = _HUGE
) -> bool:
    """Whether a float is so large that a sum's order decides between it, inf and NaN.

    TFLite clamps infinities to the largest float without an activation, so the nodes
    after it sum such numbers. Fourier transforms of infinities depend on the order, too.
    """
    results_ = [each for result in whole.nodes for each in result.outputs]
    floats = {each for each in results_ if each.dtype in ("float16", "float32")}
    outputs = tuple(each for each in whole.tensors if each in floats)
    result = zip(outputs, run(dataclasses.replace(whole, outputs=outputs), inputs), strict=True)
    known = {tensor: np.abs(values) for tensor, values in result}
    if any(np.any(np.isfinite(each) & (each > huge)) for each in known.values()):
        return True
    if any(each.dtype == np.float16 and not np.all(each <= _LARGE) for each in known.values()):
        return True
    known |= zip(whole.inputs, inputs, strict=True)
    turned = (node.inputs[0] for node in whole.nodes if node.op == "RFFT2D")
    return any(each in known and not np.all(np.isfinite(known[each])) for each in turned)


def _moves(one: Any, other: Any) -> Any:
    """Return the distance of outputs; infinite for NaN or another infinity."""
    return np.nan_to_num(distances(one, other), nan=np.inf, posinf=np.inf)


def _wider(bound: Any, moves: Any) -> Any:
    """Return a bound plus the change of the reference's output."""
    if not np.any(bound):
        return bound  # moved values are not rounded
    known = moves[np.isfinite(moves)]
    return bound + 8 * moves + 4 * float(np.mean(known) if known.size else 0)


def _shaken(values_: Any, rng: np.random.Generator) -> Any:
    if values_.dtype not in (np.float16, np.float32):
        return values_
    # An integer may be an exponent, and a perturbed one gives NaN for negative bases.
    factors = _factors(values_.shape, rng, values_.dtype)
    return np.where(values_ == np.rint(values_), values_, values_ * factors)


def _factors(shape: tuple[int, ...], rng: np.random.Generator, dtype: Any = np.float32) -> Any:
    most = _PLACES * (2.0**13 if dtype == np.float16 else 1)  # in the type's last places
    return (1 + rng.uniform(-most, most, shape)).astype(dtype)


def _shaken_graph(whole: Graph, rng: np.random.Generator) -> Graph:
    """Return the graph with perturbed constants, dequantised values and results of GELU."""
    tensors = {
        each: each if each.data is None else dataclasses.replace(each, data=_shaken(each.data, rng))
        for each in whole.tensors
    }
    other, nodes = with_tensors(whole, tensors), []
    plain = {"fused_activation_function": "NONE"}
    for each_node in other.nodes:
        (result, *_), kinds = (
            each_node.outputs,
            [each.dtype for each in each_node.inputs if each is not None],
        )
        is_made = each_node.op in ("CAST", "DEQUANTIZE") and result.dtype == "float32"
        if is_made and kinds[0] not in ("float32", "float16"):
            exact = dataclasses.replace(result, name=f"{result.name} exact")
            factors = tensor(result.shape, data=_factors(result.shape, rng))
            nodes += [dataclasses.replace(each_node, outputs=(exact,))]
            nodes += [node("MUL", [exact, factors], [result], plain)]
        elif each_node.op == "GELU" and result.dtype == "float32":
            # Its tail is a difference of values as large as its argument, or 0 if tanh is -1.
            exact = dataclasses.replace(result, name=f"{result.name} exact")
            error = tensor(result.shape, name=f"{result.name} error")
            factors = tensor(result.shape, data=_factors(result.shape, rng) - np.float32(1))
            nodes += [dataclasses.replace(each_node, outputs=(exact,))]
            nodes += [node("MUL", [each_node.inputs[0], factors], [error], plain)]
            nodes += [node("ADD", [exact, error], [result], plain)]
        else:
            nodes.append(each_node)
    return graph(nodes, other.inputs, other.outputs)
