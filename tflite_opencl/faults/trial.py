# SPDX-License-Identifier: Apache-2.0
"""Runs reproducers in a child process, and says what is wrong with their results."""

from __future__ import annotations

import contextlib
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import DeviceInfo, Options
from delegate.guard.children.child import Child, ChildDied, command_of
from delegate.inspect import BITS, Replay, Reproducer, TensorSlice, with_sizes, write_model
from tflite_opencl.faults.shrink import Candidate
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.models.build import Array
from tflite_opencl.oracle.bounds import float_bounds
from tflite_opencl.oracle.judge import judged_graph, judged_outputs
from tflite_opencl.oracle.node_kernels import NoOracle
from tflite_opencl.oracle.values import compare

RIGHT, WRONG, BUILD, ERROR, ABORT, HANG, ACCESS = (
    "right", "wrong result", "build failure", "error", "abort", "hang", "access"
)  # fmt: skip
START_SECONDS = 120  # with the self-tests of a new driver
LIMIT_SECONDS = 30  # for a replay
_CHILD = "delegate.guard.replay_child"
# What Oclgrind reports on stderr.
_ACCESS = re.compile(r"(?:Invalid (?:read|write)|data race|[Uu]ninitialized value)[^\n]*")
Bounds = Sequence[NDArray[np.float64] | None]


class NoFault(Exception):
    """A node cannot be written as a program; the text is the reason."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """How a replay ended."""

    kind: str  # RIGHT or what is wrong
    detail: str = ""
    log: str = ""  # of a build, or the last lines on stderr
    sizes: tuple[int, ...] = ()  # of the work-groups


@dataclass(frozen=True, slots=True, eq=False)
class FaultCase:
    """A reproducer, and what it should compute."""

    case: Candidate | None  # None: of no model
    reproducer: Reproducer
    expected: Sequence[Array]
    bounds: Bounds
    how: Mapping[str, bool] = field(default_factory=dict)  # arguments of node_reproducer
    # Whether outputs hold the right values before the run, so that fewer work-groups can run.
    begins_right: bool = False

    def filled(self) -> Reproducer:
        """Return the reproducer with the outputs' bytes before the run."""
        arena = self.reproducer.arena.copy()
        for place, values in zip(self.reproducer.outputs, self.expected, strict=True):
            content = bytes_of(values, place.dtype)
            part = content if self.begins_right else ~content
            arena[place.offset : place.offset + place.size_bytes] = part
        for place in self.reproducer.inputs:  # an output may take an input's place later
            own = slice(place.offset, place.offset + place.size_bytes)
            arena[own] = self.reproducer.arena[own]
        return replace(self.reproducer, arena=arena)


def bytes_of(values: Array, dtype: str) -> NDArray[np.uint8]:
    """Return an array's bytes. Raises: NoFault: several elements share a byte."""
    if dtype in BITS:
        raise NoFault(f"tensors of {dtype} are not supported")
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


class Replayer:
    """A device in a child process, which is replaced when it dies.

    Attributes:
        info: of the device; limit_seconds: for a replay.
    Raises:
        NoFault: the device cannot be opened.
    """

    def __init__(self, options: Options, runtime: Runtime, is_bare: bool = False) -> None:
        """`is_bare`: without self-tests, for `outcome` and `raw` alone."""
        self._options, self._runtime = options, runtime
        self._opening = "open_bare" if is_bare else "open"
        self.limit_seconds: float = LIMIT_SECONDS
        self._child: Child | None = None
        try:
            self.info: DeviceInfo = self._asked(START_SECONDS, self._opening, options)
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Replayer:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def alternatives(self, case: Candidate) -> list[tuple[str, tuple[str, ...]]]:
        """Return the alternatives of a node with their kernel files. Raises: NoFault."""
        found: list[tuple[str, tuple[str, ...]]] = self._asked(
            START_SECONDS, "alternatives", write_model(case.graph)
        )
        return found

    def fault(self, case: Candidate, alternative: str | None, how: Mapping[str, bool]) -> FaultCase:
        """Return a case's calls with the right outputs. Raises: NoFault: it has none."""
        model = write_model(case.graph)
        try:
            expected = judged_outputs(self._runtime, case.graph, model, case.inputs)

            def run(graph: Any, inputs: Any) -> list[Array]:
                return judged_graph(self._runtime, graph, inputs)

            bounds = float_bounds(run, case.graph, [*case.inputs], expected)
        except (NoOracle, RuntimeError, ValueError) as error:
            raise NoFault(str(error)) from error
        pairs = zip(case.graph.inputs, case.inputs, strict=True)
        inputs = [bytes_of(values, tensor.dtype) for tensor, values in pairs]
        made: Reproducer = self._asked(START_SECONDS, "make", model, inputs, alternative, dict(how))
        order = {tensor.index: at for at, tensor in enumerate(case.graph.outputs)}
        places = [order[place.index] for place in made.outputs]
        values = [expected[at] for at in places]
        return FaultCase(case, made, values, [bounds[at] for at in places], how)

    def outcome(self, fault: FaultCase) -> ReplayResult:
        """Replay a fault's calls."""
        given = fault.filled()
        if self._child is None:
            self._asked(START_SECONDS, self._opening, self._options)
        assert self._child is not None
        try:
            result: Replay = self._answer(self.limit_seconds, "replay", given)
        except ChildDied as died:
            self._end()
            kind = HANG if died.exit.is_late else ABORT
            return ReplayResult(kind, str(died.exit), died.exit.stderr[-2000:])
        if result.log:
            return ReplayResult(BUILD, _first_error(result.log), result.log)
        if result.failure:
            return ReplayResult(ERROR, result.failure, sizes=result.group_sizes)
        if found := [match[0] for match in _ACCESS.finditer(self._child.stderr())]:
            return ReplayResult(ACCESS, found[0], "\n".join(found[:20]), result.group_sizes)
        for number, got in enumerate(result.outputs):
            expected, bound = fault.expected[number], fault.bounds[number]
            values = got.view(expected.dtype).reshape(expected.shape)
            if (apart := compare(values, expected, bound, 0, f"output {number}")) is not None:
                return ReplayResult(WRONG, apart.plain(), sizes=result.group_sizes)
        return ReplayResult(RIGHT, sizes=result.group_sizes)

    def raw(self, given: Reproducer) -> tuple[NDArray[np.uint8], ...]:
        """Return the outputs of a reproducer without right ones; () if it fails."""
        try:
            result: Replay = self._asked(self.limit_seconds, "replay", given)
        except NoFault:
            return ()
        return result.outputs

    def _asked(self, seconds: float, method: str, *arguments: Any) -> Any:
        """Return the child's answer. Raises: NoFault: it refuses, or dies."""
        try:
            if self._child is None and method != self._opening:
                self._asked(START_SECONDS, self._opening, self._options)
            if self._child is None:
                self._child = Child(command_of(_CHILD))
            return self._answer(seconds, method, *arguments)
        except ChildDied as died:
            self._end()
            raise NoFault(died.exit.sentence) from died
        except OSError as error:
            raise NoFault(str(error)) from error

    def _answer(self, seconds: float, method: str, *arguments: Any) -> Any:
        assert self._child is not None
        message = self._child.ask(seconds, pickle.dumps((method, arguments)))
        while "payload" not in message and "refusal" not in message:
            message = self._child.event(seconds)
        if "refusal" in message:
            raise NoFault(message["refusal"])
        return pickle.loads(message["payload"])

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with contextlib.suppress(OSError):
                child.close()


def sized(fault: FaultCase, outcome: ReplayResult) -> FaultCase:
    """Return a fault with the work-group sizes that its replay had."""
    return replace(fault, reproducer=with_sizes(fault.reproducer, outcome.sizes))


def tensor_text(place: TensorSlice) -> str:
    """Return "int8[1, 4, 4, 8]"."""
    return f"{place.dtype}{[*place.shape]}"


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
