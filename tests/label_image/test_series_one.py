# SPDX-License-Identifier: Apache-2.0
"""A series of one picture: what is compared, what is said where a path cannot run, how it ends."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import Options, Verdict
from label_image.compare import CPU, Distances, distance_entry
from label_image.judgement import Judgement
from label_image.path import Path
from label_image.paths import Paths
from tests.support.compare import RUNTIME
from tests.support.model import graph_of, op, t
from tflite_opencl.console.errors import RunError
from tflite_opencl.harness.job import Delegation, Job
from tflite_opencl.oracle.node_kernels import JUDGE
from tflite_opencl.timing.timing import Times

TIMES = Times(1.0, 1.0, 1.0, 1.0, 1.0)
Outputs = Sequence[NDArray[Any]]
Answer = Outputs | RunError


def path(outputs: Outputs, is_whole: bool = True) -> Path:
    verdicts = (Verdict(0, "ADD", None), Verdict(1, "ELU", None if is_whole else "no kernel"))
    taken = Delegation("d", "p", "1", verdicts, ((0,),))
    return Path(1.0, delegation=taken, outputs=tuple(outputs), times=TIMES)


class Tflite:
    """Stands in for the runs beside OpenCL's: their outputs, or the error they raise."""

    def __init__(self, cpu: Answer, reference: Answer, on_reference: Answer | None = None) -> None:
        """`on_reference`: of OpenCL with the rest on the reference kernels."""
        self.asked: list[Job] = []
        self._answers = cpu, reference, on_reference

    def run(self, job: Job, is_beside: bool) -> Path:
        self.asked.append(job)
        cpu, reference, on_reference = self._answers
        own = reference if job.cpu_kernels == JUDGE else cpu
        answer = own if job.opencl is None else on_reference
        if isinstance(answer, RunError):
            raise answer
        assert answer is not None
        return Path(1.0, outputs=tuple(answer), times=TIMES)


def compared(tflite: Tflite, gpu: Path, floats: bool = False, **job: Any) -> Judgement:
    """Return what one picture comes to, of which OpenCL's path has run."""
    outputs = [t(each.shape, each.dtype.name) for each in gpu.outputs]
    graph = replace(graph_of([op("SPLIT", [outputs[0]], outputs)]), outputs=outputs, nodes=())
    paths = Paths(replace(JOB, **job), RUNTIME, graph, floats=floats)
    paths.run = tflite.run  # type: ignore[method-assign]
    paths.judgement = replace(paths.judgement, gpu=gpu, answer=gpu.outputs)
    paths.compare_one()
    return paths.judgement


def compare(tflite: Tflite, gpu: Path, floats: bool = False, **job: Any) -> Distances:
    found = compared(tflite, gpu, floats, **job).totals.distances
    assert found is not None
    return found


def bytes_of(*values: int) -> NDArray[np.uint8]:
    return np.array(values, np.uint8)


JOB = Job("m", bytes_of(0), True, opencl=Options(), reference=True, profile_rows=9)


FLOATS = np.array([0.5], np.float32)
NONE, NOT_TO_BE_RUN = RunError("Failed to invoke tflite!"), RunError("not to be run")
# OpenCL's outputs; the CPU's, the reference kernels' and, of a model that OpenCL has not taken
# whole, OpenCL's with the rest on these; quanta from the reference and the CPU, or why none.
APART: dict[str, tuple[Outputs, tuple[Answer, ...], int | str, int | str]] = {
    "largest": (
        [bytes_of(4, 250)],
        ([bytes_of(0, 255)], [bytes_of(3, 250)], [bytes_of(3, 251)]),
        1, 5,
    ),
    "no-wrapping": ([bytes_of(255)], ([bytes_of(0)], [bytes_of(0)]), 255, 255),
    "no-reference": (
        [bytes_of(7)], ([bytes_of(7)], NONE),
        "the reference kernels cannot run this model: Failed to invoke tflite!", 0,
    ),
    "no-rest": ([bytes_of(7)], ([bytes_of(7)], [bytes_of(7)], NONE), str(NONE), 0),
    "no-cpu": ([bytes_of(7)], (NONE, [bytes_of(7)]), 0, str(NONE)),
    "floats": (
        [FLOATS], ([FLOATS], NOT_TO_BE_RUN),
        "the outputs are not quantised", "the outputs are not quantised",
    ),
    "all-integers": (
        [FLOATS, bytes_of(1), bytes_of(2)], ([FLOATS, bytes_of(1), bytes_of(5)],) * 2, 3, 3,
    ),
    "shapes": (
        [bytes_of(1)], ([bytes_of(1, 2)],) * 2,
        "the outputs have different shapes", "the outputs have different shapes",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("ours", "others", "reference", "cpu"), APART.values(), ids=APART)
def test_how_far_the_paths_are_apart(
    ours: Outputs, others: tuple[Answer, ...], reference: int | str, cpu: int | str
) -> None:
    series = compared(Tflite(*others), path(ours, is_whole=len(others) == 2))
    found = series.totals.distances
    assert found is not None
    told = [
        each.reason if each.quanta is None else each.quanta
        for each in (found.gpu_to_reference, found.gpu_to_cpu)
    ]
    assert told == [reference, cpu]
    is_failed = isinstance(others[0], RunError)
    assert (series.cpu is None, series.reasons.get(CPU)) == (
        is_failed,
        str(NONE) if is_failed else None,
    )


def test_the_cpu_is_apart_from_the_reference_itself() -> None:
    found = compare(Tflite([bytes_of(0)], [bytes_of(5)]), path([bytes_of(5)]))
    assert found.cpu_to_reference.quanta == 5


def test_the_cpus_runs_have_no_delegate_and_say_nothing() -> None:
    tflite = Tflite([bytes_of(0)], [bytes_of(0)])
    compare(tflite, path([bytes_of(0)]))
    assert [job.opencl for job in tflite.asked] == [None, None]
    assert [job.quiet for job in tflite.asked] == [True, True]
    assert [job.cpu_kernels for job in tflite.asked] == ["auto", JUDGE]


def test_reference_kernels_on_the_cpu_are_no_judge() -> None:
    """They may compute a node wrongly, and they lack some."""
    tflite = Tflite([bytes_of(7)], [bytes_of(5)])
    found = compare(tflite, path([bytes_of(5)]), cpu_kernels="reference")
    assert [job.cpu_kernels for job in tflite.asked] == ["reference", JUDGE]
    assert found.gpu_to_reference.quanta == 0


def test_the_judge_leaves_the_cpus_part_to_the_kernels_that_run_it_beside_opencl() -> None:
    given = [bytes_of(7)]
    tflite = Tflite(given, given, given)
    compare(tflite, path(given, is_whole=False))
    kernels = [(job.opencl is None, job.cpu_kernels, job.left) for job in tflite.asked]
    assert kernels == [(True, "auto", ()), (True, JUDGE, (1,)), (False, "builtin", ())]
    for kernels, left in (("builtin", (1,)), ("reference", ())):  # OpenCL's own path is judged
        tflite = Tflite(given, given)
        compare(tflite, path(given, is_whole=False), cpu_kernels=kernels)
        assert [job.left for job in tflite.asked] == [(), left]


def test_float_outputs_are_compared_where_asked() -> None:
    ours, theirs = np.array([0.5], np.float32), np.array([0.75], np.float32)
    tflite = Tflite([theirs], [theirs])
    found = compare(tflite, path([ours]), floats=True)
    assert len(tflite.asked) == 2
    assert (found.gpu_to_reference.quanta, found.gpu_to_reference.floats) == (
        None,
        0.25,
    )
    assert distance_entry(found, 0) == {
        "max_difference_reference": 0.25,
        "max_difference_cpu": 0.25,
    }


def test_distances_that_json_does_not_know_are_null() -> None:
    ours, theirs = np.array([np.nan], np.float32), np.array([0.75], np.float32)
    tflite = Tflite([theirs], RunError("Failed to allocate tensors!"))
    found = compare(tflite, path([ours]), floats=True)
    assert distance_entry(found, 0) == {
        "max_difference_reference": None,
        "max_difference_cpu": None,
    }
    assert distance_entry(None, 0) == {}


def test_a_device_that_computes_wrongly_loses_its_results_to_the_cpu(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for cpu in ([bytes_of(1)], RunError("Failed to invoke tflite!")):
        caplog.clear()
        series = compared(Tflite(cpu, [bytes_of(1)]), path([bytes_of(4)]))
        assert series.failure == (
            "d computes wrongly: its outputs are up to 3 quanta from TFLite's reference kernels"
        )
        assert caplog.messages[0] == series.failure
        is_left = isinstance(cpu, RunError)
        assert [o.tolist() for o in series.answer] == ([[4]] if is_left else [[1]])
        assert caplog.messages[1:] == ([] if is_left else ["the results are the CPU's"])


def judgement(failure: str, lost: int | None) -> Judgement:
    """Return that of four nodes, of which so many were lost; None: without OpenCL."""
    made = Judgement(Job("m", np.zeros(1)), RUNTIME, gave_up=failure)
    if lost is None:
        return made
    verdicts = [Verdict(n, "ADD", "it died" if n < lost else None) for n in range(4)]
    taken = Delegation("a device", "a platform", "1", verdicts, [], lost=lost)
    return replace(made, gpu=Path(1.0, delegation=taken))


@pytest.mark.parametrize(
    ("failure", "lost", "code"),
    [("", 0, 0), ("", 2, 0), ("", 3, 3), ("", 4, 3), ("computes wrongly", 4, 2)],
)
def test_most_nodes_lost_is_an_error_of_its_own(
    failure: str, lost: int, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "label_image"):
        assert judgement(failure, lost).exit_code() == code
    said = [line.split(":")[0] for line in caplog.messages]
    because = "because child processes died of their OpenCL kernels"
    assert said == ([f"the CPU ran {lost} of 4 nodes, {because}"] if code == 3 else [])


def test_a_run_on_the_cpu_has_lost_nothing() -> None:
    assert judgement("", None).exit_code() == 0
