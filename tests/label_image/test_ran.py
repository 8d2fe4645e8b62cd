# SPDX-License-Identifier: Apache-2.0
"""A job on all its paths: what is compared, and what is said where one of them cannot run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import Options, Verdict
from label_image.classify import PathRun
from label_image.compare import distance_entry
from label_image.paths import Comparison
from label_image.ran import Ran
from tests.support.model import graph_of, op, t
from tflite_opencl.common.errors import RunError
from tflite_opencl.common.job import Delegation, Job
from tflite_opencl.common.timing import Times

TIMES = Times(1.0, 1.0, 1.0, 1.0, 1.0)
Outputs = Sequence[NDArray[Any]]
Answer = Outputs | RunError


def path(outputs: Outputs, is_whole: bool = True) -> PathRun:
    verdicts = (Verdict(0, "ADD", None), Verdict(1, "ELU", None if is_whole else "no kernel"))
    return PathRun(TIMES, 1.0, tuple(outputs), Delegation("d", "p", "1", verdicts, ((0,),)))


class Tflite:
    """Stands in for the runs beside OpenCL's: their outputs, or the error they raise."""

    def __init__(self, cpu: Answer, reference: Answer, on_reference: Answer | None = None) -> None:
        """`on_reference`: of OpenCL with the rest on the reference kernels."""
        self.asked: list[Job] = []
        self._answers = cpu, reference, on_reference

    def run(self, job: Job) -> PathRun:
        self.asked.append(job)
        cpu, reference, on_reference = self._answers
        own = reference if job.cpu_kernels == "reference" and len(self.asked) > 1 else cpu
        answer = own if job.opencl is None else on_reference
        if isinstance(answer, RunError):
            raise answer
        assert answer is not None
        return PathRun(TIMES, 1.0, tuple(answer))


def ran_of(tflite: Tflite, gpu: PathRun, floats: bool = False, **job: Any) -> Ran:
    outputs = [t(each.shape, each.dtype.name) for each in gpu.outputs]
    graph = replace(graph_of([op("SPLIT", [outputs[0]], outputs)]), outputs=outputs, nodes=())
    ran = Ran(replace(JOB, **job), tflite.run, graph)
    ran.floats = floats
    ran.run = ran.gpu = gpu
    ran.compare()
    return ran


def compare(tflite: Tflite, gpu: PathRun, floats: bool = False, **job: Any) -> Comparison[PathRun]:
    found = ran_of(tflite, gpu, floats, **job).comparison
    assert found is not None
    assert found.distances is not None
    return found


def bytes_of(*values: int) -> NDArray[np.uint8]:
    return np.array(values, np.uint8)


JOB = Job(model="m", input=bytes_of(0), opencl=Options(), reference=True, profile_rows=9)


def test_distances_are_the_largest_in_quanta() -> None:
    tflite = Tflite([bytes_of(0, 255)], [bytes_of(3, 250)], [bytes_of(3, 251)])
    found = compare(tflite, path([bytes_of(4, 250)], is_whole=False))
    assert found.distances.gpu_to_reference.quanta == 1
    assert found.distances.cpu_to_reference.quanta == 5
    assert found.distances.gpu_to_cpu.quanta == 5


def test_bytes_are_compared_without_wrapping() -> None:
    tflite = Tflite([bytes_of(0)], [bytes_of(0)])
    found = compare(tflite, path([bytes_of(255)]))
    assert found.distances.gpu_to_reference.quanta == 255


def test_the_cpus_runs_have_no_delegate_and_say_nothing() -> None:
    tflite = Tflite([bytes_of(0)], [bytes_of(0)])
    compare(tflite, path([bytes_of(0)]))
    assert [job.opencl for job in tflite.asked] == [None, None]
    assert [job.quiet for job in tflite.asked] == [True, True]
    assert [job.cpu_kernels for job in tflite.asked] == ["auto", "reference"]


def test_reference_kernels_on_the_cpu_are_not_run_twice() -> None:
    tflite = Tflite([bytes_of(7)], RunError("not to be run"))
    found = compare(tflite, path([bytes_of(7)]), cpu_kernels="reference")
    assert len(tflite.asked) == 1
    assert found.distances.gpu_to_reference.quanta == 0


def test_a_reference_that_cannot_run_the_model_says_why() -> None:
    tflite = Tflite([bytes_of(7)], RunError("Failed to allocate tensors!"))
    found = compare(tflite, path([bytes_of(7)]))
    assert found.distances.gpu_to_reference.quanta is None
    assert found.distances.gpu_to_reference.reason == (
        "the reference kernels cannot run this model: Failed to allocate tensors!"
    )
    assert found.distances.gpu_to_cpu.quanta == 0


def test_a_rest_that_has_no_reference_kernels_says_why() -> None:
    tflite = Tflite([bytes_of(7)], [bytes_of(7)], RunError("no kernel for ELU"))
    found = compare(tflite, path([bytes_of(7)], is_whole=False))
    assert (found.distances.gpu_to_reference.quanta, found.distances.gpu_to_reference.reason) == (
        None,
        "no kernel for ELU",
    )


def test_a_cpu_that_cannot_run_the_model_says_why() -> None:
    tflite = Tflite(RunError("Failed to invoke tflite!"), [bytes_of(7)])
    found = compare(tflite, path([bytes_of(7)]))
    assert found.cpu is None
    assert found.cpu_failure == "Failed to invoke tflite!"
    assert found.distances.gpu_to_cpu.reason == "Failed to invoke tflite!"
    assert found.distances.gpu_to_reference.quanta == 0


def test_float_outputs_are_not_counted_and_need_no_reference_run() -> None:
    floats = np.array([0.5], np.float32)
    tflite = Tflite([floats], RunError("not to be run"))
    found = compare(tflite, path([floats]))
    assert len(tflite.asked) == 1
    assert found.distances.gpu_to_reference.reason == "the outputs are not quantised"
    assert found.distances.gpu_to_cpu.reason == "the outputs are not quantised"


def test_all_quantised_outputs_count() -> None:
    floats = np.array([0.5], np.float32)
    tflite = Tflite([floats, bytes_of(1), bytes_of(5)], [floats, bytes_of(1), bytes_of(5)])
    ours: Outputs = [floats, bytes_of(1), bytes_of(2)]
    assert compare(tflite, path(ours)).distances.gpu_to_reference.quanta == 3


def test_outputs_of_different_shapes_are_not_compared() -> None:
    tflite = Tflite([bytes_of(1, 2)], [bytes_of(1, 2)])
    found = compare(tflite, path([bytes_of(1)]))
    assert found.distances.gpu_to_reference.reason == "the outputs have different shapes"


def test_float_outputs_are_compared_where_asked() -> None:
    ours, theirs = np.array([0.5], np.float32), np.array([0.75], np.float32)
    tflite = Tflite([theirs], [theirs])
    found = compare(tflite, path([ours]), floats=True)
    assert len(tflite.asked) == 2
    assert (found.distances.gpu_to_reference.quanta, found.distances.gpu_to_reference.floats) == (
        None,
        0.25,
    )
    assert distance_entry(found.distances, 0) == {
        "max_difference_reference": 0.25,
        "max_difference_cpu": 0.25,
    }


def test_distances_that_json_does_not_know_are_null() -> None:
    ours, theirs = np.array([np.nan], np.float32), np.array([0.75], np.float32)
    tflite = Tflite([theirs], RunError("Failed to allocate tensors!"))
    found = compare(tflite, path([ours]), floats=True)
    assert distance_entry(found.distances, 0) == {
        "max_difference_reference": None,
        "max_difference_cpu": None,
    }
    assert distance_entry(None, 0) == {}


def test_a_device_that_computes_wrongly_loses_its_results_to_the_cpu(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for cpu in ([bytes_of(1)], RunError("Failed to invoke tflite!")):
        caplog.clear()
        ran = ran_of(Tflite(cpu, [bytes_of(1)]), path([bytes_of(4)]))
        assert ran.failure == (
            "d computes wrongly: its outputs are up to 3 quanta from TFLite's reference kernels"
        )
        assert caplog.messages[0] == ran.failure
        is_left = isinstance(cpu, RunError)
        assert [o.tolist() for o in ran.run.outputs] == ([[4]] if is_left else [[1]])
        assert caplog.messages[1:] == ([] if is_left else ["the results are the CPU's"])
