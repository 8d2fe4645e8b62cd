# SPDX-License-Identifier: Apache-2.0
"""Suspected nodes -> a folder for each that fails when its kernels run alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from delegate import Options
from tflite_opencl.console import bars
from tflite_opencl.faults.program import FaultReport, kernel_lines, write_fault
from tflite_opencl.faults.reduce import FaultReduction, first_failing
from tflite_opencl.faults.shrink import Candidate
from tflite_opencl.faults.trial import NoFault, Replayer
from tflite_opencl.interpreters.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Suspect:
    """A node that may be wrong."""

    name: str  # of its folder
    nodes: str  # for README: "node 3 of model.tflite"
    case: Callable[[], Candidate]  # raises NoFault: it cannot be extracted
    alternatives: Sequence[str] = ()  # to try; (): all
    files: frozenset[str] = frozenset()  # only alternatives that launch one of these; none: all
    is_wrong: bool = False  # known to be wrong: if it is right alone, that is said


def write_faults(
    folder: Path, suspects: Iterable[Suspect], options: Options, runtime: Runtime
) -> Iterator[str]:
    """Write a folder for each distinct fault; yield a line for each, and for what is not written.

    Raises: CommandError: a file cannot be written.
    """
    try:
        replayer = Replayer(options, runtime)
    except NoFault as error:
        yield f"{folder} is not written: {error}"
        return
    written: set[tuple[str, ...]] = set()
    with replayer:
        for suspect in suspects:
            begun = time.monotonic()
            try:
                with bars.waiting(f"reducing {suspect.nodes}"):
                    reduction = _reduced(suspect, replayer, runtime, written)
            except NoFault as error:
                if suspect.is_wrong:
                    yield f"{suspect.nodes}: no program: {error}"
                continue
            if reduction is None:
                continue
            fault, outcome = reduction.fault, reduction.outcome
            report = FaultReport(replayer.info, outcome, suspect.nodes)
            write_fault(folder / suspect.name, fault, report)
            yield (
                f"{folder / suspect.name}: {outcome.kind} in {fault.reproducer.op}, "
                f"{kernel_lines(fault)} lines of kernel, {reduction.case.size} elements, "
                f"{time.monotonic() - begun:.0f} s: make && ./fault"
            )


def _reduced(
    suspect: Suspect, replayer: Replayer, runtime: Runtime, written: set[tuple[str, ...]]
) -> FaultReduction | None:
    """Return a suspect's reduced fault; None: it has none that is new.

    Raises: NoFault: it cannot be tried, or is right alone though wrong in the model.
    """
    case, names = suspect.case(), [*suspect.alternatives]
    if not names:
        known = replayer.alternatives(case)
        names = [name for name, files in known if not suspect.files or suspect.files & {*files}]
    found = first_failing(replayer, case, names)
    if found is None:
        if suspect.is_wrong:
            raise NoFault("its kernels are right when they run alone")
        return None
    fault, outcome = found
    key = (outcome.kind, *(call.program.source for call in fault.reproducer.calls))
    if key in written:
        return None
    written.add(key)
    reduction = FaultReduction(replayer, runtime, fault, outcome)
    reduction.run()
    return reduction
