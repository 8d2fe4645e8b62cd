# SPDX-License-Identifier: Apache-2.0
"""Benchmarks alternatives on a device: timing, and comparison of outputs."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from delegate.errors import DeviceError, KernelBuildError, KilledChild
from delegate.graph.ir import Node, Tensor
from delegate.guard.children import progress
from delegate.guard.children.trials import REFERENCE, WRONG, Trial
from delegate.launch import Alternative, Launch, Schedule, Step, is_temporary, size_bytes
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.planned import planned_executor
from delegate.plan.record import ONE_BY_ONE, PERSISTENT
from delegate.plan.tuning import interleaved_timing
from delegate.plan.tuning.agreement import (
    Outputs,
    Values,
    are_same,
    outputs_of,
    random_inputs,
    right_of,
    same_outputs,
)
from delegate.run.copy_strategies import DIRECT, STRATEGIES
from delegate.run.device import Device
from delegate.run.executor import Executor
from delegate.run.weights import Weights

_LEAST_SECONDS = 2e-4  # of a timed series, so that the final wait does not matter
_MOST_LAUNCHES = 50
_MOST_ROUNDS = 10  # times the rounds wanted, if timings disagree
_SECONDS_A_ROUND = 0.03  # per round wanted; after that no extra round begins
_FUSED_COUNT = 16  # launches that are timed as one
_COMPARED_RUNS = 20  # on different bytes, to compare two copy strategies
# A node and its input values -> its outputs; None: unknown.
Reference = Callable[[Node, Sequence[Values]], Outputs | None]
_log = logging.getLogger("delegate")


class DeviceBench:
    """An opened device to test and time alternatives on.

    Attributes:
        is_exact: equivalent computations have the same bits, those of floats too.
    """

    def __init__(
        self,
        device: Device,
        kernels: Kernels,
        weights: Weights | None = None,
        is_exact: bool = False,
    ) -> None:
        self.is_exact = is_exact
        self._device = device
        self._kernels = kernels
        self._weights = weights or Weights(device)
        self._warm: set[str] = set()

    def check(self, alternative: Alternative) -> str | None:
        """Return why it cannot run here, or None."""
        return self._kernels.check(alternative.launches)

    def source_of(self, launch: Launch) -> str:
        """Return the full source of a launch's kernel."""
        return self._kernels.source_of(launch)

    def warm_up(self, alternative: Alternative) -> None:
        """Run it, unless its programs already ran here: drivers compile per work-group size.

        Raises:
            DeviceError: out of memory, or an OpenCL call fails.
        """
        builds = {run.digest for run in self._kernels.runs(alternative.launches, 1)}
        if builds - self._warm:
            self._warm |= builds
            with self._executor(alternative) as executor:
                outputs_of(executor, random_inputs(executor))

    def warm_up_within(self, launches: Sequence[Launch], seconds: float) -> bool:
        """Build and run each launch that was not run before; return whether time sufficed for all.

        The launches are specialised, and are compared with their generic kernels.

        Raises:
            DeviceError, KernelBuildError: as `warm_up`; or the outputs differ.
        """
        end = time.perf_counter() + seconds
        trials = self._kernels.trials
        pairs = [*zip(self._kernels.runs(launches, 1), launches, strict=True)]
        for run, launch in progress.each(pairs, lambda pair: f"kernel {pair[1].kernel}"):
            if trials.outcome(run) is None:
                if time.perf_counter() >= end:
                    return False
                generic = replace(launch, is_specialised=False)
                one, other = (self._outputs(Alternative("", (e,))) for e in (launch, generic))
                if not are_same(one, other, self.is_exact):
                    trials.note(run, WRONG)
                    _log.warning("%s computes wrongly when specialised", launch.kernel)
                    raise DeviceError(f"{launch.kernel} computes wrongly")
        return True

    def are_correct(
        self, node: Node, alternatives: Sequence[Alternative], reference: Reference
    ) -> list[bool]:
        """Return for each whether it computes the node correctly, on random inputs.

        `reference`: decides if they disagree, if it supports the node.
        """
        read = dict.fromkeys(t for t in node.inputs if t is not None and t.data is None)
        found = []
        for each in alternatives:
            with self._executor(each, ends=(tuple(read), node.outputs)) as executor:
                inputs = random_inputs(executor)
                found.append(outputs_of(executor, inputs))

        def expected() -> Outputs | None:
            trial = Trial.of(REFERENCE, node.op, [(t.shape, t.dtype) for t in read])
            try:
                with self._kernels.trials.attempt(trial):
                    known = reference(node, inputs)
            except KilledChild:
                return None
            if known is None:
                return None
            by_index = zip(node.outputs, known, strict=True)
            return [values for _, values in sorted(by_index, key=lambda pair: pair[0].index)]

        return right_of(found, expected, self.is_exact)

    def fastest(
        self, alternatives: Sequence[Alternative], rounds: int, batch: int, is_fused: bool
    ) -> tuple[int, list[float]]:
        """Return the choice and minimum seconds for a batch, as `interleaved_timing.fastest`.

        `is_fused`: timed inside one launch with others, if the device can do that. Waking threads
        for a launch takes longer than many a layer.
        """
        if len(alternatives) == 1:
            return 0, [0.0]
        dispatch_mode, fused = (PERSISTENT, _FUSED_COUNT) if is_fused else (ONE_BY_ONE, 1)
        with contextlib.ExitStack() as stack:
            made, counts = [], []
            for alternative in alternatives:
                joint = replace(alternative, launches=alternative.launches * fused)
                made.append(stack.enter_context(self._executor(joint, batch, dispatch_mode)))
                if made[-1].dispatch_mode != dispatch_mode:
                    return self.fastest(alternatives, rounds, batch, False)
            for executor in made:
                # Timing may depend on the values, and memory is uninitialised.
                outputs_of(executor, random_inputs(executor))
                once = executor.repeat(1)
                counts.append(max(1, min(_MOST_LAUNCHES, round(_LEAST_SECONDS / once))))
            runs = [
                partial(executor.repeat, count)
                for executor, count in zip(made, counts, strict=True)
            ]
            most, seconds = _MOST_ROUNDS * rounds, _SECONDS_A_ROUND * rounds
            taken, times = interleaved_timing.fastest(runs, rounds, most, seconds)
        return taken, [each / fused for each in times]

    def copy_strategies(self) -> dict[str, Callable[[int], float]]:
        """Return a timing function for each copy strategy available here: count -> seconds a run.

        A run uploads a picture of MobileNet, launches, and downloads its scores. A strategy whose
        outputs differ from the first one's is dropped. The one expected to be fastest comes first.
        """
        made: dict[str, Executor] = {}
        for name in STRATEGIES:
            if name == DIRECT and not self._device.shares_memory:
                continue
            with contextlib.suppress(KilledChild, KernelBuildError):
                executor = planned_executor(
                    self._device, self._kernels, _copy_schedule(), copy_strategy=name
                )
                first = next(iter(made.values()), executor)
                if all(same_outputs(executor, first, seed) for seed in range(_COMPARED_RUNS)):
                    made[name] = executor
                else:
                    _log.warning("'%s' copies wrong bytes on this device and is not used", name)
        # Direct access copies least, so it is expected to be fastest.
        in_order = sorted(made, key=lambda name: name != DIRECT)
        return {name: partial(_seconds_a_run, made[name]) for name in in_order}

    def _executor(
        self,
        alternative: Alternative,
        batch: int = 1,
        dispatch_mode: str = ONE_BY_ONE,
        ends: tuple[tuple[Tensor, ...], tuple[Tensor, ...]] | None = None,
    ) -> Executor:
        """`ends`: the run inputs and outputs; None: all tensors that are read and not written,
        and all that are written and not temporary.
        """
        if ends is None:
            read, written = _touched(alternative)
            ends = read, tuple(t for t in written if not is_temporary(t))
        schedule = Schedule((Step(0, "", alternative),), *ends)
        weights = self._weights
        return planned_executor(
            self._device, self._kernels, schedule, batch, dispatch_mode, weights=weights
        )

    def _outputs(self, alternative: Alternative) -> Outputs:
        """Return everything it writes, temporaries included: it may be part of an alternative."""
        with self._executor(alternative, ends=_touched(alternative)) as executor:
            return outputs_of(executor, random_inputs(executor))


def _touched(alternative: Alternative) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the tensors that are read and not written, and those that are written."""
    written = dict.fromkeys(t for launch in alternative.launches for t in launch.writes)
    read = dict.fromkeys(t for launch in alternative.launches for t in launch.reads)
    return tuple(t for t in read if t.data is None and t not in written), tuple(written)


def _copy_schedule() -> Schedule:
    """Return a schedule of one launch: a MobileNet picture goes in, its scores come out."""
    picture = Tensor(0, "", (224 * 224 * 3,), "uint8")
    scores = Tensor(1, "", (1001,), "uint8")
    launch = Launch(
        "runtime_isa",
        "runtime_isa_order",
        tiles=15,
        group_items=1,
        params={"from": picture, "to": scores},
        reads=(picture,),
        writes=(scores,),
    )
    return Schedule((Step(0, "", Alternative("", (launch,))),), (picture,), (scores,))


def _seconds_a_run(executor: Executor, count: int) -> float:
    plan = executor.plan
    inputs, outputs = (
        [np.zeros(size_bytes(tensor), np.uint8) for tensor in tensors]
        for tensors in (plan.inputs, plan.outputs)
    )
    with executor.trying():
        executor.run(inputs, outputs)
        begin = time.perf_counter()
        for _ in range(count):
            executor.run(inputs, outputs)
        return (time.perf_counter() - begin) / count
