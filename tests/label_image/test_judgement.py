# SPDX-License-Identifier: Apache-2.0
"""The verdict on results: distances, the answer, what is logged, and the exit code."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import Options, Verdict
from label_image.compare import CPU, GPU_JUDGED, REFERENCE, Distances, distance_entry
from label_image.judgement import ENDED, Judgement, PathResults, judge
from label_image.run_result import RunResult
from tests.support.compare import RUNTIME
from tests.support.model import graph_of, op, t
from tflite_opencl.harness.job import Delegation, Job
from tflite_opencl.oracle.difference import NOT_QUANTISED

Outputs = Sequence[NDArray[Any]]
WHOLE = Delegation("d", "p", "1", (Verdict(0, "ADD", None),), ((0,),))


def bytes_of(*values: int) -> NDArray[np.uint8]:
    return np.array(values, np.uint8)


JOB = Job("m", bytes_of(0), True, opencl=Options(), reference=True)


def both(outputs: Outputs) -> dict[str, Outputs]:
    """Return the same outputs of the CPU and of the reference kernels."""
    return {CPU: outputs, REFERENCE: outputs}


def results_of(gpu: Outputs, beside: dict[str, Outputs], **fields: Any) -> PathResults:
    """Return the results of OpenCL's path and of those beside it."""
    outputs = [t(each.shape, each.dtype.name) for each in gpu]
    graph = replace(graph_of([op("SPLIT", [outputs[0]], outputs)]), outputs=outputs, nodes=())
    return PathResults(
        JOB, RUNTIME, graph, RunResult(1.0, delegation=WHOLE, outputs=tuple(gpu)),
        {name: RunResult(1.0, outputs=tuple(each)) for name, each in beside.items()}, **fields,
    )  # fmt: skip


def distances_of(results: PathResults) -> Distances:
    distances = judge(results).totals.distances
    assert distances is not None
    return distances


FLOATS = np.array([0.5], np.float32)
FAILED, SHAPES = "Failed to invoke tflite!", "the outputs have different shapes"
# OpenCL's outputs; those beside it; why others are missing; quanta from the reference and from
# the CPU, or why they are unknown.
ROWS: dict[str, tuple[Outputs, dict[str, Outputs], dict[str, str], int | str, int | str]] = {
    "largest": (
        [bytes_of(4, 250)],
        {CPU: [bytes_of(0, 255)], REFERENCE: [bytes_of(3, 250)], GPU_JUDGED: [bytes_of(3, 251)]},
        {}, 1, 5,
    ),
    "no-wrapping": (
        [bytes_of(255)], both([bytes_of(0)]), {}, 255, 255,
    ),
    "no-reference": ([bytes_of(7)], {CPU: [bytes_of(7)]}, {REFERENCE: FAILED}, FAILED, 0),
    "not-judged": (
        [bytes_of(7)], both([bytes_of(7)]), {GPU_JUDGED: FAILED}, FAILED, 0,
    ),
    "no-cpu": ([bytes_of(7)], {REFERENCE: [bytes_of(7)]}, {CPU: FAILED}, 0, FAILED),
    "floats": ([FLOATS], {CPU: [FLOATS]}, {REFERENCE: NOT_QUANTISED}, NOT_QUANTISED, NOT_QUANTISED),
    "all-integers": (
        [FLOATS, bytes_of(1), bytes_of(2)],
        both([FLOATS, bytes_of(1), bytes_of(5)]), {}, 3, 3,
    ),
    "shapes": ([bytes_of(1)], both([bytes_of(1, 2)]), {}, SHAPES, SHAPES),
}  # fmt: skip


@pytest.mark.parametrize(("gpu", "beside", "reasons", "reference", "cpu"), ROWS.values(), ids=ROWS)
def test_distances(
    gpu: Outputs,
    beside: dict[str, Outputs],
    reasons: dict[str, str],
    reference: int | str,
    cpu: int | str,
) -> None:
    distances = distances_of(results_of(gpu, beside, reasons=reasons))
    pair = distances.gpu_to_reference, distances.gpu_to_cpu
    texts = [each.reason if each.quanta is None else each.quanta for each in pair]
    assert texts == [reference, cpu]


def test_the_cpu_differs_from_the_reference_itself() -> None:
    distances = distances_of(
        results_of([bytes_of(5)], {CPU: [bytes_of(0)], REFERENCE: [bytes_of(5)]})
    )
    assert distances.cpu_to_reference.quanta == 5


def test_floats_have_a_difference_each() -> None:
    distances = distances_of(results_of([FLOATS], both([np.array([0.75], np.float32)])))
    reference = distances.gpu_to_reference
    assert (reference.quanta, reference.floats) == (None, 0.25)
    assert distance_entry(distances, 0) == {
        "max_difference_reference": 0.25,
        "max_difference_cpu": 0.25,
    }


def test_distances_that_json_lacks_are_null() -> None:
    nan, theirs = np.array([np.nan], np.float32), np.array([0.75], np.float32)
    distances = distances_of(results_of([nan], {CPU: [theirs]}, reasons={REFERENCE: FAILED}))
    assert distance_entry(distances, 0) == {
        "max_difference_reference": None,
        "max_difference_cpu": None,
    }
    assert distance_entry(None, 0) == {}


def test_wrong_results_are_replaced_by_the_cpus() -> None:
    wrong = "d computes wrongly: its outputs are up to 3 quanta from TFLite's reference kernels"
    judgement = judge(results_of([bytes_of(4)], both([bytes_of(1)])))
    assert (judgement.failure, judgement.exit_code) == (wrong, 2)
    assert [output.tolist() for output in judgement.answer] == [[1]]
    assert judgement.wrong_messages(judgement.totals.distances) == [
        (logging.ERROR, wrong),
        (logging.WARNING, "the results are the CPU's"),
    ]


def test_wrong_results_stay_if_the_cpu_has_none() -> None:
    judgement = judge(results_of([bytes_of(4)], {REFERENCE: [bytes_of(1)]}, reasons={CPU: FAILED}))
    assert [output.tolist() for output in judgement.answer] == [[4]]
    messages = judgement.wrong_messages(judgement.totals.distances)
    assert messages == [(logging.ERROR, judgement.failure)]


def test_after_ctrl_c_nothing_is_compared() -> None:
    judgement = judge(results_of([bytes_of(4)], {CPU: [bytes_of(1)]}, is_interrupted=True))
    assert judgement.totals.distances is not None
    assert {each.reason for each in judgement.totals.distances[:3]} == {ENDED}
    assert (judgement.failure, judgement.answer[0].tolist()) == ("", [4])


def test_a_fallback_is_the_answer() -> None:
    results = PathResults(
        JOB, RUNTIME, graph_of([op("ADD", [t((1,), "uint8")], [t((1,), "uint8")])]),
        substitute=RunResult(1.0, outputs=(bytes_of(4),)), gave_up="CL_OUT_OF_RESOURCES",
    )  # fmt: skip
    judgement = judge(results)
    assert (judgement.failure, judgement.exit_code) == ("CL_OUT_OF_RESOURCES", 2)
    assert judgement.answer == results.outputs
    assert list(results.by_name) == ["cpu"]


def judgement_of(failure: str, lost: int | None, not_finite: str = "") -> Judgement:
    """Return that of four nodes, of which so many were lost; None: without OpenCL."""
    results = PathResults(JOB, RUNTIME, graph_of([]), gave_up=failure)
    if lost is not None:
        verdicts = [Verdict(n, "ADD", "it died" if n < lost else None) for n in range(4)]
        taken = Delegation("a device", "a platform", "1", verdicts, [], lost=lost)
        results = replace(results, gpu=RunResult(1.0, delegation=taken))
    return Judgement(results, not_finite=not_finite)


@pytest.mark.parametrize(
    ("failure", "lost", "not_finite", "code"),
    [
        ("", None, "", 0), ("", 0, "", 0), ("", 2, "", 0), ("", 3, "", 3), ("", 4, "", 3),
        ("computes wrongly", 4, "", 2), ("", 0, "NaN", 1), ("", 3, "NaN", 3),
        ("computes wrongly", 0, "NaN", 2),
    ],
)  # fmt: skip
def test_exit_codes(failure: str, lost: int | None, not_finite: str, code: int) -> None:
    judgement = judgement_of(failure, lost, not_finite)
    assert judgement.exit_code == code
    messages = [text.split(":")[0] for _, text in judgement.end_messages]
    because = "because child processes died of their OpenCL kernels"
    assert messages == ([f"the CPU ran {lost} of 4 nodes, {because}"] if code == 3 else [])
