# SPDX-License-Identifier: Apache-2.0
"""Which paths OpenCL's is comparison with, and why some are missing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from delegate import Options, Verdict
from label_image.compare import CPU, GPU_JUDGED, NO_REFERENCE, REFERENCE
from label_image.comparison_jobs import comparison_jobs, run_comparison
from label_image.judgement import ENDED, PathResults
from label_image.run_result import RunResult
from tests.support.compare import RUNTIME
from tests.support.model import graph_of, op, t
from tflite_opencl.console import interrupts
from tflite_opencl.console.errors import RunError
from tflite_opencl.harness.job import Delegation, Job
from tflite_opencl.oracle.difference import NOT_QUANTISED
from tflite_opencl.oracle.node_kernels import JUDGE


def results_of(dtype: str = "uint8", is_whole: bool = True, kernels: str = "auto") -> PathResults:
    """Return the results of OpenCL's path; `is_whole`: it runs both nodes."""
    tensor = t((1,), dtype)
    graph = graph_of([op("ADD", [tensor, tensor], [t((1,), dtype)])])
    verdicts = (Verdict(0, "ADD", None), Verdict(1, "ELU", None if is_whole else "no kernel"))
    taken = Delegation("d", "p", "1", verdicts, ((0,),))
    job = Job(
        "m", np.zeros(1, dtype), True, opencl=Options(), reference=True, profile_rows=9,
        cpu_kernels=kernels,
    )  # fmt: skip
    return PathResults(job, RUNTIME, graph, RunResult(1.0, delegation=taken))


# Arguments of results_of -> of each job: its name, kernels, nodes that the CPU runs.
JOBS: dict[str, tuple[dict[str, Any], list[tuple[str, str, tuple[int, ...]]]]] = {
    "whole": ({}, [(CPU, "auto", ()), (REFERENCE, JUDGE, ())]),
    "floats": ({"dtype": "float32"}, [(CPU, "auto", ())]),
    # They may compute a node wrongly, and they lack some.
    "reference": ({"kernels": "reference"}, [(CPU, "reference", ()), (REFERENCE, JUDGE, ())]),
    "part": (
        {"is_whole": False},
        [(CPU, "auto", ()), (REFERENCE, JUDGE, (1,)), (GPU_JUDGED, "builtin", ())],
    ),
    "part-builtin": (
        {"is_whole": False, "kernels": "builtin"},
        [(CPU, "builtin", ()), (REFERENCE, JUDGE, (1,))],
    ),
    "part-reference": (
        {"is_whole": False, "kernels": "reference"},
        [(CPU, "reference", ()), (REFERENCE, JUDGE, ())],
    ),
}


@pytest.mark.parametrize(("given", "expected"), JOBS.values(), ids=JOBS)
def test_jobs(given: dict[str, Any], expected: list[tuple[str, str, tuple[int, ...]]]) -> None:
    jobs = comparison_jobs(results_of(**given), floats=False)
    assert [(name, job.cpu_kernels, job.left) for name, job in jobs.items()] == expected
    for name, job in jobs.items():
        assert (job.opencl is None) == (name != GPU_JUDGED)
        assert (job.is_silent, job.profile_rows) == (True, 0)


def test_floats_have_a_reference_if_requested() -> None:
    assert [*comparison_jobs(results_of("float32"), floats=True)] == [CPU, REFERENCE]


def comparison_of(
    results: PathResults, failing: str = "", interrupted: str = ""
) -> tuple[list[str], PathResults]:
    """Return the names of paths that ran; those with these kernels fail, or press Ctrl-C."""
    names = []

    def run(name: str, job: Job) -> None:
        if job.cpu_kernels == failing:
            raise RunError("Failed to invoke tflite!")
        if job.cpu_kernels == interrupted:
            signal.raise_signal(signal.SIGINT)
        names.append(name)

    return names, run_comparison(results, False, run)


@pytest.mark.parametrize(
    ("dtype", "failing", "ran", "reasons"),
    [
        ("uint8", "", [CPU, REFERENCE], {}),
        ("uint8", "auto", [REFERENCE], {CPU: "Failed to invoke tflite!"}),
        ("uint8", JUDGE, [CPU], {REFERENCE: f"{NO_REFERENCE}: Failed to invoke tflite!"}),
        ("float32", "", [CPU], {REFERENCE: NOT_QUANTISED}),
    ],
)
def test_a_missing_path_has_a_reason(
    dtype: str, failing: str, ran: list[str], reasons: dict[str, str]
) -> None:
    names, results = comparison_of(results_of(dtype), failing)
    assert (names, results.reasons, results.is_interrupted) == (ran, reasons, False)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    with interrupts.remembered():
        yield


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_leaves_the_paths_so_far() -> None:
    names, results = comparison_of(results_of(), interrupted=JUDGE)
    assert (names, results.reasons, results.is_interrupted) == ([CPU], {REFERENCE: ENDED}, True)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_the_judge_starts_leaves_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("label_image.comparison_jobs.cpu_kernels_beside", start)
    names, results = comparison_of(results_of(is_whole=False))
    assert (names, results.is_interrupted) == ([], True)
    assert results.reasons == {CPU: ENDED, REFERENCE: ENDED}
