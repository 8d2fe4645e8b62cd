# SPDX-License-Identifier: Apache-2.0
"""What is asked of a delegate for one model: its values, and how it behaves; -> an Outcome.

Runs inside a worker process: whatever a driver does here costs one case.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from delegate import Graph, write_model
from delegate_test.build import Array, tensor
from delegate_test.oracle import NoOracle, Oracle, interpreter, invoke, oracle
from delegate_test.subject import Opened, Subject, unsupported_ops
from delegate_test.values import SETS, Arrays, Difference, compare, input_sets, worst

PASS, FAIL, NOT_DELEGATED, SKIP = "Pass", "Fail", "NotDelegated", "Skip"

TEFLON_OP, TEFLON_MODEL = 2, 8  # Source: Mesa's test_teflon.cpp
_POISON = 0xA5
_ALIGNMENT = 64  # kDefaultTensorAlignment, tflite/util.h
_OPENINGS, _SETTLED = 100, 40
_RUNS = 8
# What the C library and a driver's caches may keep of an opening, on average.
_LEAK_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one case in the worker."""

    result: str
    detail: str = ""
    quanta: float = 0  # the greatest difference, also one that was tolerated
    taken: int = 0  # nodes the delegate ran
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """One case, ready to run."""

    subject: Subject
    graph: Graph
    model: bytes | str  # content, or a file
    tolerance: int | None  # quanta; None: Teflon's
    inputs: Sequence[Arrays] | None  # None: input_sets'
    on_delegate: Callable[[], None]  # told before the delegate is first used

    @property
    def allowed(self) -> int:
        """Quanta that an output may be off."""
        if self.tolerance is not None:
            return self.tolerance
        return TEFLON_OP if len(self.graph.nodes) == 1 else TEFLON_MODEL

    @property
    def sets(self) -> Sequence[Arrays]:
        """The input sets."""
        return input_sets(self.graph) if self.inputs is None else self.inputs


class _NotDelegated(Exception):
    pass


def run_check(check: str, job: Job) -> Outcome:
    """Return what came of a case; only what ends the process escapes."""
    try:
        known = oracle(job.subject.runtime, job.graph, job.model, job.sets)
    except NoOracle as error:
        return Outcome(SKIP, f"TFLite itself does not run it: {error}")
    job.on_delegate()
    count = len(job.graph.nodes)
    try:
        if check != "values":
            known = _own(job, known)
        return dataclasses.replace(_CHECKS[check](job, known), nodes=count)
    except _NotDelegated as error:
        return Outcome(NOT_DELEGATED, str(error), nodes=count)
    except (RuntimeError, ValueError, OSError) as error:
        return Outcome(FAIL, " ".join(str(error).split()) or type(error).__name__, nodes=count)
    finally:
        gc.collect()


def _open(job: Job, known: Oracle) -> tuple[Opened, int]:
    opened = job.subject.open(job.graph, job.model, known.cpu_kernels)
    taken = opened.taken(job.graph)
    if not taken:
        why = "; ".join(dict.fromkeys(opened.reasons()))
        raise _NotDelegated(why or f"left {', '.join(unsupported_ops(job.graph, taken))}")
    return opened, len(taken)


def _own(job: Job, known: Oracle) -> Oracle:
    """Return the delegate's own answers as what is right: how it behaves is another question."""
    opened, _ = _open(job, known)
    outputs = [invoke_of(opened, inputs) for inputs in job.sets]
    return dataclasses.replace(known, outputs=outputs)


def _values(job: Job, known: Oracle) -> Outcome:
    """Compare every input set's outputs with the oracle's."""
    opened, taken = _open(job, known)
    found: list[Difference] = []
    for number, inputs in enumerate(job.sets):
        _poison(opened.interpreter)
        outputs = invoke_of(opened, inputs)
        differences = _differences(job, known, number, outputs)
        if any(one.is_beyond for one in differences):
            why = _kind_of_wrong(outputs, known, number)
            worst_one = worst(differences)
            return Outcome(FAIL, f"{why}{worst_one}", worst_one.greatest if worst_one else 0, taken)
        found += differences
    greatest = worst(found)
    left = unsupported_ops(job.graph, opened.taken(job.graph))
    detail = f"within tolerance: {greatest}" if greatest else ""
    if left:
        detail = "; ".join(filter(None, [detail, f"left {', '.join(left)}"]))
    return Outcome(PASS, detail, greatest.greatest if greatest else 0, taken)


def invoke_of(opened: Opened, inputs: Arrays) -> Arrays:
    """Return the outputs; a failed run says what the delegate says of it."""
    try:
        return invoke(opened.interpreter, inputs)
    except (RuntimeError, ValueError) as error:
        words = " ".join(str(error).split())
        raise RuntimeError(f"the run failed: {opened.failure() or words}") from error


def _differences(job: Job, known: Oracle, number: int, outputs: Arrays) -> list[Difference]:
    name = SETS[number] if job.inputs is None else "the given"
    found = []
    for index, (got, expected, bound) in enumerate(
        zip(outputs, known.outputs[number], known.bounds[number], strict=True)
    ):
        where = f"{name} inputs" + (f", output {index}" if len(outputs) > 1 else "")
        difference = compare(got, expected, bound, job.allowed, where)
        if difference is not None:
            found.append(difference)
    return found


def _kind_of_wrong(outputs: Arrays, known: Oracle, number: int) -> str:
    if any(_is_poison(values) for values in outputs):
        return "the output was never written: "
    if number and all(map(np.array_equal, outputs, known.outputs[number - 1])):
        return "the outputs are those of the run before: "
    for got, expected in zip(outputs, known.outputs[number], strict=True):
        steps = got.astype(np.float64) - expected.astype(np.float64)
        if got.dtype.kind in "iu" and steps.size > 1 and steps.flat[0] and np.ptp(steps) == 0:
            return f"every element is off by {steps.flat[0]:+g}: "
    return ""


def _poison_value(dtype: Any) -> Any:
    size = np.dtype(dtype).itemsize
    return np.frombuffer(bytes([_POISON]) * size, dtype)[0]


def _poison(made: Any) -> None:
    """Fill all outputs, so that one that is not written shows."""
    for detail in made.get_output_details():
        # Of a scalar the runtime gives a copy.
        if len(detail["shape"]) and detail["dtype"] not in (np.bool_, np.bytes_):
            made.tensor(detail["index"])()[...] = _poison_value(detail["dtype"])


def _is_poison(values: Array) -> bool:
    return bool(
        values.size > 3
        and values.dtype != np.bool_
        and np.all(values == _poison_value(values.dtype))
    )


def _expect(job: Job, known: Oracle, number: int, outputs: Arrays, when: str) -> None:
    """Raise where outputs are not the oracle's."""
    beyond = [one for one in _differences(job, known, number, outputs) if one.is_beyond]
    if beyond:
        raise RuntimeError(f"{when}: {_kind_of_wrong(outputs, known, number)}{worst(beyond)}")


def _twice(job: Job, known: Oracle) -> Outcome:
    """Run the same inputs again and again: all results are the first, bit for bit."""
    opened, taken = _open(job, known)
    first = invoke_of(opened, job.sets[0])
    for run in range(2, _RUNS + 1):
        again = invoke_of(opened, job.sets[0])
        for got, before in zip(again, first, strict=True):
            if got.tobytes() != before.tobytes():
                wrong = int(np.count_nonzero(got != before))
                return Outcome(FAIL, f"run {run} differs from run 1 in {wrong} elements", 0, taken)
    _expect(job, known, 0, first, "the first run")
    return Outcome(PASS, taken=taken)


def _inputs(job: Job, known: Oracle) -> Outcome:
    """After a run the inputs hold what was put there."""
    opened, taken = _open(job, known)
    made = opened.interpreter
    for number, inputs in enumerate(job.sets):
        _expect(job, known, number, invoke_of(opened, inputs), "a run")
        for detail, values in zip(made.get_input_details(), inputs, strict=True):
            now = made.get_tensor(detail["index"])
            if now.tobytes() != values.tobytes():
                return Outcome(FAIL, f"input {detail['name']} was changed by the run", 0, taken)
    return Outcome(PASS, taken=taken)


def _guards(job: Job, known: Oracle) -> Outcome:
    """Bytes around the outputs, and inputs that no node reads, are not written to."""
    sizes = [max(1, int(np.prod(out.shape)) * 4) for out in job.graph.outputs]
    guards = [
        dataclasses.replace(
            tensor((size,), "uint8"), index=len(job.graph.tensors) + i, name=f"guard{i}"
        )
        for i, size in enumerate([*sizes, *sizes, 64, 128, *(size // 4 for size in sizes)])
    ]
    graph = dataclasses.replace(
        job.graph,
        tensors=(*job.graph.tensors, *guards),
        inputs=(*job.graph.inputs, *guards),
    )
    wide = dataclasses.replace(job, graph=graph, model=write_model(graph))
    opened, taken = _open(wide, known)
    made = opened.interpreter
    for _ in range(2):
        filled = _fill_guards(made, len(job.graph.inputs))
        outputs = _run_with_guards(opened, job.sets[0], len(job.graph.inputs))
        _expect(job, known, 0, outputs, "with guards")
        for name, before, now in _read_guards(made, len(job.graph.inputs), filled):
            if before != now:
                at = next(i for i, (a, b) in enumerate(zip(before, now, strict=True)) if a != b)
                return Outcome(FAIL, f"wrote outside the outputs: byte {at} {name}", 0, taken)
    if not filled:
        return Outcome(SKIP, "TFLite put no bytes between its tensors", taken=taken)
    return Outcome(PASS, f"{sum(map(len, filled.values()))} guard bytes", taken=taken)


def _run_with_guards(opened: Opened, inputs: Arrays, count: int) -> Arrays:
    made = opened.interpreter
    for detail, values in zip(made.get_input_details()[:count], inputs, strict=True):
        made.set_tensor(detail["index"], values)
    made.invoke()
    return [np.array(made.get_tensor(detail["index"])) for detail in made.get_output_details()]


def _gaps(made: Any) -> list[tuple[int, int, str]]:
    """Return (tensor index, bytes of padding behind it, words)."""
    spans = []
    for detail in [*made.get_input_details(), *made.get_output_details()]:
        if not len(detail["shape"]):
            continue
        view = made.tensor(detail["index"])()
        spans.append((view.__array_interface__["data"][0], view.nbytes, detail["index"]))
    spans.sort()
    found = []
    for (start, size, index), (following, _, _) in itertools.pairwise(spans):
        end = start + size
        # Between neighbours lies nothing but what the alignment leaves.
        if 0 < following - end < _ALIGNMENT:
            found.append((index, following - end, f"behind tensor {index}"))
    return found


def _padding(made: Any, index: int, count: int) -> Array:
    view = made.tensor(index)().reshape(-1).view(np.uint8)
    return as_strided(view, (view.size + count,), (1,))[view.size :]


def _fill_guards(made: Any, count: int) -> dict[str, bytes]:
    filled = {}
    for detail in made.get_input_details()[count:]:
        size = int(np.prod(detail["shape"]))
        made.set_tensor(detail["index"], np.full(size, _POISON, np.uint8))
        filled[f"of {detail['name']}"] = bytes([_POISON]) * size
    for index, size, words in _gaps(made):
        _padding(made, index, size)[:] = _POISON
        filled[words] = bytes([_POISON]) * size
    return filled


def _read_guards(made: Any, count: int, filled: dict[str, bytes]) -> list[tuple[str, bytes, bytes]]:
    found = []
    for detail in made.get_input_details()[count:]:
        name = f"of {detail['name']}"
        found.append((name, filled[name], made.get_tensor(detail["index"]).tobytes()))
    for index, size, words in _gaps(made):
        if words in filled:
            found.append((words, filled[words], _padding(made, index, size).tobytes()))
    return found


def _resized(graph: Graph, batch: int) -> list[tuple[int, list[int]]]:
    return [(i, [batch, *t.shape[1:]]) for i, t in enumerate(graph.inputs) if t.shape]


def _resize_to(made: Any, shapes: Sequence[tuple[int, list[int]]]) -> None:
    details = made.get_input_details()
    for position, shape in shapes:
        made.resize_tensor_input(details[position]["index"], shape)
    made.allocate_tensors()


def _reallocate(job: Job, known: Oracle) -> Outcome:
    """TFLite's tensors may move: allocate again, grow and shrink, and run as before."""
    opened, taken = _open(job, known)
    made = opened.interpreter
    _expect(job, known, 0, invoke_of(opened, job.sets[0]), "the first run")
    made.allocate_tensors()
    _expect(job, known, 1, invoke_of(opened, job.sets[1]), "after allocate_tensors()")
    original = [(i, list(t.shape)) for i, t in enumerate(job.graph.inputs)]
    if _can_resize(job, known):
        _resize_to(made, _resized(job.graph, 7))
        _resize_to(made, original)
        _poison(made)
        outputs = invoke_of(opened, job.sets[2])
        _expect(job, known, 2, outputs, "after resizing there and back")
    return Outcome(PASS, taken=taken)


def _can_resize(job: Job, known: Oracle) -> bool:
    try:
        made = interpreter(job.subject.runtime, job.model, known.cpu_kernels)
        _resize_to(made, _resized(job.graph, 7))
    except (RuntimeError, ValueError):
        return False
    return True


def _resize(job: Job, known: Oracle) -> Outcome:
    """A batch of three gives what its pictures give one by one."""
    shapes = _resized(job.graph, 3)
    reference = interpreter(job.subject.runtime, job.model, known.cpu_kernels)
    try:
        _resize_to(reference, shapes)
    except (RuntimeError, ValueError) as error:
        return Outcome(SKIP, f"TFLite itself does not resize it: {error}")
    opened, taken = _open(job, known)
    single, _ = _open(job, known)
    _expect(job, known, 0, invoke_of(opened, job.sets[0]), "before")
    _resize_to(opened.interpreter, shapes)
    for number, inputs in enumerate(job.sets):
        pictures = [_pictures(values, 3, number) for values in inputs]
        grown = [np.concatenate(parts) for parts in pictures]
        each = [invoke_of(single, list(parts)) for parts in zip(*pictures, strict=True)]
        got = invoke_of(opened, grown)
        for index, one in enumerate(got):
            other = np.concatenate([outputs[index] for outputs in each])
            bound = known.bounds[number][index]
            bound = None if bound is None else np.full(other.shape, bound.max(initial=0) * 4)
            difference = compare(one, other, bound, job.allowed, f"at batch 3, output {index}")
            if difference is not None and difference.is_beyond:
                return Outcome(FAIL, str(difference), difference.greatest, taken)
    return Outcome(PASS, taken=taken)


def _pictures(values: Array, count: int, seed: int) -> list[Array]:
    """Return several pictures, each other than the first."""
    return [np.roll(values, seed + i) for i in range(count)]


def _two(job: Job, known: Oracle) -> Outcome:
    """Two interpreters, in turns and at the same time."""
    (first, taken), (second, _) = _open(job, known), _open(job, known)
    for number in (0, 1, 2):
        one = invoke_of(first, job.sets[number])
        other = invoke_of(second, job.sets[(number + 1) % 3])
        _expect(job, known, number, one, "the first of two")
        _expect(job, known, (number + 1) % 3, other, "the second of two")
    problems: list[str] = []

    def runs(opened: Opened, number: int) -> None:
        try:
            for _ in range(10):
                _expect(job, known, number, invoke_of(opened, job.sets[number]), "side by side")
        except (RuntimeError, ValueError) as error:
            problems.append(str(error))

    threads = [threading.Thread(target=runs, args=pair) for pair in ((first, 0), (second, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Outcome(FAIL if problems else PASS, "; ".join(problems), taken=taken)


def _reopen(job: Job, known: Oracle) -> Outcome:
    """Closed and opened again, the answer is the same."""
    for number in (0, 1, 2, 0):
        opened, taken = _open(job, known)
        _expect(job, known, number, invoke_of(opened, job.sets[number]), "after reopening")
        del opened
        gc.collect()
    return Outcome(PASS, taken=taken)


def _reopen_100(job: Job, known: Oracle) -> Outcome:
    """Memory, file handles and a GPU's memory do not grow over 100 reopenings."""
    seen = {}
    taken = 0
    for number in range(1, _OPENINGS + 1):
        opened, taken = _open(job, known)
        outputs = invoke_of(opened, job.sets[0])
        del opened
        gc.collect()
        if number in (_SETTLED, (_SETTLED + _OPENINGS) // 2, _OPENINGS):
            seen[number] = _held()
            _expect(job, known, 0, outputs, f"opening {number}")
    start, middle, end = seen.values()
    for name, unit, limit in (
        ("file handles", "", 0.05),
        ("memory", " bytes", _LEAK_BYTES),
        ("GPU memory", " bytes", _LEAK_BYTES),
    ):
        half = (_OPENINGS - _SETTLED) / 2
        growth = [(b[name] - a[name]) / half for a, b in ((start, middle), (middle, end))]
        if min(growth) > limit:
            grown = sum(growth) / 2
            return Outcome(FAIL, f"each opening leaks {grown:.4g}{unit} of {name}", 0, taken)
    return Outcome(PASS, taken=taken)


def _held() -> dict[str, int]:
    """Return what this process holds."""
    handles = list(Path("/proc/self/fd").iterdir())
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"file handles": len(handles), "memory": pages * 4096, "GPU memory": _drm_bytes()}


def _drm_bytes() -> int:
    """Return the memory that kernel drivers say this process has; 0 without such a driver."""
    total = 0
    for info in Path("/proc/self/fdinfo").iterdir():
        try:
            lines = info.read_text().splitlines()
        except OSError:
            continue  # it was the handle of the folder itself
        for line in lines:
            # Source: the kernel's Documentation/gpu/drm-usage-stats.rst
            if line.startswith(("drm-memory-", "drm-total-")):
                value = line.split(":")[1].split()
                factor = {"KiB": 1024, "MiB": 1 << 20}.get(value[1] if len(value) > 1 else "", 1)
                total += int(value[0]) * factor
    return total


_CHECKS: dict[str, Callable[[Job, Oracle], Outcome]] = {
    "values": _values,
    "twice": _twice,
    "inputs_unchanged": _inputs,
    "guard_bytes": _guards,
    "reallocate": _reallocate,
    "resize": _resize,
    "two_interpreters": _two,
    "reopen": _reopen,
    "reopen_100": _reopen_100,
}
BEHAVIOURS = tuple(name for name in _CHECKS if name != "values")
# A difference from run to run is itself what they look for.
NOT_REPEATED = frozenset({"twice", "reopen_100"})
