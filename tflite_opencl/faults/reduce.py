# SPDX-License-Identifier: Apache-2.0
"""Makes a fault small: shapes, parameters, work-groups, source. Each step must fail alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from tflite_opencl.faults import shrink
from tflite_opencl.faults.shrink import Candidate
from tflite_opencl.faults.source import programs_of
from tflite_opencl.faults.trial import (
    HANG,
    LIMIT_SECONDS,
    RIGHT,
    FaultCase,
    NoFault,
    Replayer,
    ReplayResult,
    sized,
)
from tflite_opencl.interpreters.runtime import Runtime

REDUCTION_SECONDS = 90  # of candidates; the source follows
# Of a hang each candidate that fails costs its whole limit, and the first and last ones 30 s.
_HANG_REDUCTION_SECONDS, _HANG_SECONDS = 24, 8
_OWN_BUILTINS = ("-D_OPENCL_H_", "-DOWN_BUILTINS")
# The simplest first: parameters are literals, or loaded from memory.
_HOWS: tuple[Mapping[str, bool], ...] = (
    {"is_specialised": True, "in_memory": True},
    {"in_memory": True},
    {"is_specialised": True},
)


# In the dispatch modes a kernel's parameters are an argument or memory, or literals.
_FORMS: tuple[Mapping[str, bool], ...] = ({}, {"is_specialised": True})


class FaultReduction:
    """A fault that gets smaller.

    Attributes:
        fault, outcome: the smallest so far, and how it fails.
    """

    def __init__(
        self, replayer: Replayer, runtime: Runtime, fault: FaultCase, outcome: ReplayResult
    ) -> None:
        """`fault`, `outcome`: as `first_failing` finds them."""
        self._replayer, self._runtime = replayer, runtime
        self.fault, self.outcome = sized(fault, outcome), outcome
        self._seconds = REDUCTION_SECONDS
        self._begin = time.monotonic()

    @property
    def case(self) -> Candidate:
        """The model and the inputs of the fault."""
        assert self.fault.case is not None
        return self.fault.case

    def run(self) -> None:
        """Reduce everything. Raises: NoFault: it does not fail again."""
        original = self.fault
        if self.outcome.kind == HANG:
            self._replayer.limit_seconds = _HANG_SECONDS
            self._seconds = _HANG_REDUCTION_SECONDS
        try:
            if not self._try(lambda: original):
                raise NoFault(f"it failed once ({self.outcome.kind}), and then it did not")
            self._reduce_cases(shrink.smaller, 0.5)
            for how in _HOWS:
                if self._try(partial(self._made, self.case, how)):
                    break
            self._reduce_cases(shrink.simpler, 0.7)
            self._reduce_cases(shrink.smaller, 0.8)
            self._reduce_groups()
            self.reduce_source()
        finally:
            self._replayer.limit_seconds = LIMIT_SECONDS
        # On a busy machine a candidate may have seemed to hang.
        if self.outcome.kind == HANG and not self._try(lambda: self.fault):
            self.fault = original

    def _is_over(self, share: float = 1.0) -> bool:
        return time.monotonic() > self._begin + share * self._seconds

    def _made(self, case: Candidate, how: Mapping[str, bool]) -> FaultCase:
        return self._replayer.fault(case, self.fault.reproducer.alternative or None, how)

    def _try(self, make: Callable[[], FaultCase]) -> bool:
        """Take a candidate if it fails like the fault; return whether it does."""
        try:
            candidate = make()
            outcome = self._replayer.outcome(candidate)
        except NoFault:
            return False
        if outcome.kind != self.outcome.kind:
            return False
        self.fault, self.outcome = sized(candidate, outcome), outcome
        return True

    def _reduce_cases(
        self, candidates_of: Callable[[Candidate, Runtime], Iterator[Candidate]], share: float
    ) -> None:
        """Take the first smaller case that fails, again and again, for a share of the time."""
        is_better = True
        while is_better:
            is_better = False
            for case in sorted(candidates_of(self.case, self._runtime), key=shrink.cost):
                if self._is_over(share):
                    return
                if self._try(partial(self._made, case, self.fault.how)):
                    is_better = True
                    break

    def _reduce_groups(self) -> None:
        """Make work-groups and their number smaller."""
        for items in (1, 2, 4, 8, 16, 32):
            if self._is_over():
                break
            if all(call.local_size <= items for call in self.fault.reproducer.calls) or self._try(
                partial(self._with_groups, items=items)
            ):
                break
        if len(self.fault.reproducer.calls) > 1:
            return  # later calls read what the earlier ones compute
        count = 1
        (call,) = self.fault.reproducer.calls
        while count < call.global_size // call.local_size and not self._is_over():
            if self._try(partial(self._with_groups, count=count)):
                break
            count *= 2

    def _with_groups(self, items: int | None = None, count: int | None = None) -> FaultCase:
        given, calls = self.fault.reproducer, []
        for call in given.calls:
            groups = call.global_size // call.local_size
            groups = groups if count is None else min(count, groups)
            size = call.local_size if items is None else min(items, call.local_size)
            calls.append(replace(call, global_size=groups * size, local_size=size))
        begins_right = self.fault.begins_right or count is not None
        return replace(
            self.fault, reproducer=replace(given, calls=tuple(calls)), begins_right=begins_right
        )

    def reduce_source(self) -> None:
        """Drop the options and macros that the fault does not need."""
        given = self.fault.reproducer
        plain = tuple(option for option in given.options if option not in _OWN_BUILTINS)
        if plain != given.options:
            self._try(lambda: replace(self.fault, reproducer=replace(given, options=plain)))
        given = self.fault.reproducer
        try:
            sources = programs_of(given, self._replayer.raw)
        except ValueError:
            return
        # What -D says is in the source now.
        options = tuple(option for option in given.options if not option.startswith("-DOWN"))
        calls = tuple(
            replace(call, program=replace(call.program, source=sources[call.program.source]))
            for call in given.calls
        )
        smaller = replace(given, calls=calls, options=options)
        self._try(lambda: replace(self.fault, reproducer=smaller))


def first_failing(
    replayer: Replayer, case: Candidate, alternatives: Sequence[str]
) -> tuple[FaultCase, ReplayResult] | None:
    """Return the first of a case's alternatives that fails on the device; None: all are right.

    Each is tried as it is, and with its parameters as literals, in which drivers err, too.
    Raises: NoFault: none can be tried.
    """
    problem: NoFault | None = None
    is_tried = False
    for how, name in product(_FORMS, alternatives):
        try:
            fault = replayer.fault(case, name, how)
            outcome = replayer.outcome(fault)
        except NoFault as error:
            problem = error
            continue
        is_tried = True
        if outcome.kind != RIGHT:
            return fault, outcome
    if problem is not None and not is_tried:
        raise problem
    return None
