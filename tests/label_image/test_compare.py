# SPDX-License-Identifier: Apache-2.0
"""Distances between paths, and what is said where one of them cannot run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import Graph, Options
from label_image import compare as module
from label_image.classify import PathRun
from label_image.compare import Difference, compare, difference, distance_entry, judged
from label_image.errors import RunError
from label_image.job import Delegation, Job
from tests.support.model import graph_of, op, t
from tflite_opencl.common.runtime import Runtime
from tflite_opencl.common.timing import Times

TIMES = Times(1.0, 1.0, 1.0, 1.0, 1.0)
GRAPH = Graph((), (), (), ())
RUNTIME = Runtime("fake", "1", None)
Outputs = Sequence[NDArray[Any]]


def path(outputs: Outputs, reference: Outputs | None = None, failure: str = "") -> PathRun:
    reference_outputs = None if reference is None else tuple(reference)
    delegation = Delegation("d", "p", "1", ((0, "ADD", None),), ((0,),), reference_outputs, failure)
    return PathRun(TIMES, 1.0, tuple(outputs), delegation)


@pytest.fixture
def tflite(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Job]]:
    """Stand in for the CPU's runs: their outputs, or the error they raise."""

    def answer(cpu: Outputs | RunError, reference: Outputs | RunError) -> list[Job]:
        asked = []

        def run_path(job: Job, runtime: Runtime, graph: Graph) -> PathRun:
            asked.append(job)
            if isinstance(cpu, RunError):
                raise cpu
            return PathRun(TIMES, 1.0, tuple(cpu))

        def run_once(job: Job, runtime: Runtime, graph: Graph) -> tuple[NDArray[Any], ...]:
            asked.append(job)
            if isinstance(reference, RunError):
                raise reference
            return tuple(reference)

        monkeypatch.setattr(module, "run_path", run_path)
        monkeypatch.setattr(module, "run_once", run_once)
        return asked

    return answer


def bytes_of(*values: int) -> NDArray[np.uint8]:
    return np.array(values, np.uint8)


JOB = Job(model="m", input=bytes_of(0), opencl=Options(), reference=True, profile_rows=9)


def test_distances_are_the_largest_in_quanta(tflite: Callable[..., list[Job]]) -> None:
    tflite([bytes_of(0, 255)], [bytes_of(3, 250)])
    found = compare(JOB, path([bytes_of(4, 250)], [bytes_of(3, 251)]), RUNTIME, GRAPH)
    assert found.distances.gpu_to_reference.quanta == 1
    assert found.distances.cpu_to_reference.quanta == 5
    assert found.distances.gpu_to_cpu.quanta == 5


def test_bytes_are_compared_without_wrapping(tflite: Callable[..., list[Job]]) -> None:
    tflite([bytes_of(0)], [bytes_of(0)])
    found = compare(JOB, path([bytes_of(255)], [bytes_of(255)]), RUNTIME, GRAPH)
    assert found.distances.gpu_to_reference.quanta == 255


def test_the_cpus_runs_have_no_delegate_and_say_nothing(
    tflite: Callable[..., list[Job]],
) -> None:
    asked = tflite([bytes_of(0)], [bytes_of(0)])
    compare(JOB, path([bytes_of(0)], [bytes_of(0)]), RUNTIME, GRAPH)
    assert [job.opencl for job in asked] == [None, None]
    assert [job.quiet for job in asked] == [True, True]
    assert [job.cpu_kernels for job in asked] == ["auto", "reference"]


def test_reference_kernels_on_the_cpu_are_not_run_twice(
    tflite: Callable[..., list[Job]],
) -> None:
    asked = tflite([bytes_of(7)], RunError("not to be run"))
    job = Job(model="m", input=bytes_of(0), opencl=Options(), cpu_kernels="reference")
    found = compare(job, path([bytes_of(7)], [bytes_of(7)]), RUNTIME, GRAPH)
    assert len(asked) == 1
    assert found.distances.gpu_to_reference.quanta == 0


def test_a_reference_that_cannot_run_the_model_says_why(
    tflite: Callable[..., list[Job]],
) -> None:
    tflite([bytes_of(7)], RunError("Failed to allocate tensors!"))
    found = compare(JOB, path([bytes_of(7)], [bytes_of(7)]), RUNTIME, GRAPH)
    assert found.distances.gpu_to_reference.quanta is None
    assert found.distances.gpu_to_reference.reason == (
        "the reference kernels cannot run this model: Failed to allocate tensors!"
    )
    assert found.distances.gpu_to_cpu.quanta == 0


def test_a_rest_that_has_no_reference_kernels_says_why(tflite: Callable[..., list[Job]]) -> None:
    tflite([bytes_of(7)], [bytes_of(7)])
    found = compare(JOB, path([bytes_of(7)], None, "no kernel for ELU"), RUNTIME, GRAPH)
    assert (found.distances.gpu_to_reference.quanta, found.distances.gpu_to_reference.reason) == (
        None,
        "no kernel for ELU",
    )


def test_a_cpu_that_cannot_run_the_model_says_why(tflite: Callable[..., list[Job]]) -> None:
    tflite(RunError("Failed to invoke tflite!"), [bytes_of(7)])
    found = compare(JOB, path([bytes_of(7)], [bytes_of(7)]), RUNTIME, GRAPH)
    assert found.cpu is None
    assert found.cpu_failure == "Failed to invoke tflite!"
    assert found.distances.gpu_to_cpu.reason == "Failed to invoke tflite!"
    assert found.distances.gpu_to_reference.quanta == 0


def test_float_outputs_are_not_counted_and_need_no_reference_run(
    tflite: Callable[..., list[Job]],
) -> None:
    floats = np.array([0.5], np.float32)
    asked = tflite([floats], RunError("not to be run"))
    found = compare(JOB, path([floats], [floats]), RUNTIME, GRAPH)
    assert len(asked) == 1
    assert found.distances.gpu_to_reference.reason == "the outputs are not quantised"
    assert found.distances.gpu_to_cpu.reason == "the outputs are not quantised"


def test_all_quantised_outputs_count(tflite: Callable[..., list[Job]]) -> None:
    floats = np.array([0.5], np.float32)
    tflite([floats, bytes_of(1), bytes_of(5)], [floats, bytes_of(1), bytes_of(5)])
    ours: Outputs = [floats, bytes_of(1), bytes_of(2)]
    assert compare(JOB, path(ours, ours), RUNTIME, GRAPH).distances.gpu_to_reference.quanta == 3


def test_outputs_of_different_shapes_are_not_compared(tflite: Callable[..., list[Job]]) -> None:
    tflite([bytes_of(1, 2)], [bytes_of(1, 2)])
    found = compare(JOB, path([bytes_of(1)], [bytes_of(1)]), RUNTIME, GRAPH)
    assert found.distances.gpu_to_reference.reason == "the outputs have different shapes"


DTYPES = ["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_integers_of_every_type_are_compared_over_their_whole_range(dtype: str) -> None:
    ends = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    least, greatest = (np.array([[end]], dtype) for end in ends)
    apart = int(ends[1]) - int(ends[0])
    assert difference([least], [greatest], "").quanta == apart
    assert difference([greatest], [least], "").quanta == apart
    assert difference([least], [least], "").quanta == 0


def test_scalars_and_empty_outputs_are_compared() -> None:
    outputs = [np.array(3, np.int16), np.zeros((0, 2), np.int32)]
    assert difference(outputs, [np.array(5, np.int16), outputs[1]], "").each == (2, 0)


def test_each_output_has_its_own_distance() -> None:
    ours = [np.array([1.5], np.float32), np.array([True, False]), np.array([7], np.int64)]
    theirs = [np.array([1.25], np.float32), np.array([True, True]), np.array([9], np.int64)]
    found = difference(ours, theirs, "")
    assert found.each == (0.25, 1, 2)
    assert (found.quanta, found.floats) == (2, 0.25)


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.nan], [1.0], np.inf),
        ([np.inf], [np.inf], 0.0),
        ([np.inf], [-np.inf], np.inf),
        ([3.4e38], [-3.4e38], 2 * float(np.float32(3.4e38))),
        ([0.0], [-0.0], 0.0),
    ],
)
def test_floats_that_are_no_numbers_are_compared(
    one: list[float], other: list[float], apart: float
) -> None:
    ours, theirs = np.array(one, np.float32), np.array(other, np.float32)
    assert difference([ours], [theirs], "").floats == apart


def test_text_is_not_compared() -> None:
    words = np.array([b"a", b"b"], object)
    assert difference([words, bytes_of(1)], [words, bytes_of(4)], "").each == (None, 3)


def test_float_outputs_are_compared_where_asked(tflite: Callable[..., list[Job]]) -> None:
    ours, theirs = np.array([0.5], np.float32), np.array([0.75], np.float32)
    asked = tflite([theirs], [theirs])
    found = compare(JOB, path([ours], [ours]), RUNTIME, GRAPH, floats=True)
    assert len(asked) == 2
    assert (found.distances.gpu_to_reference.quanta, found.distances.gpu_to_reference.floats) == (
        None,
        0.25,
    )
    assert distance_entry(found.distances, 0) == {
        "max_difference_reference": 0.25,
        "max_difference_cpu": 0.25,
    }


def test_distances_that_json_does_not_know_are_null(tflite: Callable[..., list[Job]]) -> None:
    ours, theirs = np.array([np.nan], np.float32), np.array([0.75], np.float32)
    tflite([theirs], RunError("Failed to allocate tensors!"))
    found = compare(JOB, path([ours], [ours]), RUNTIME, GRAPH, floats=True)
    assert distance_entry(found.distances, 0) == {
        "max_difference_reference": None,
        "max_difference_cpu": None,
    }
    assert distance_entry(None, 0) == {}


def chosen(middle: str, scale: float | None) -> Graph:
    """Return a net whose integer output follows from values of this type."""
    source, values = t((1, 3), middle, scale), t((1, 3), middle, scale)
    axis, index = t((), "int32", data=1), t((1,), "int64")
    return graph_of([op("RELU", [source], [values]), op("ARG_MAX", [values, axis], [index])])


def test_integers_found_by_floats_may_differ_and_others_may_not() -> None:
    found = difference([np.array([3])], [np.array([8])], "")
    assert judged(found, chosen("int8", 0.5)) == Difference(5)
    assert judged(found, chosen("float32", None)) == Difference(
        None, "integers that floats decide are up to 5 apart, which rounding may explain"
    )
    equal = difference([np.array([3])], [np.array([3])], "")
    assert judged(equal, chosen("float32", None)) == Difference(0)
    assert judged(Difference(None, "why"), chosen("float32", None)) == Difference(None, "why")


def test_quantised_outputs_of_a_net_with_floats_may_not_differ() -> None:
    source, middle, result = t((1, 3)), t((1, 3)), t((1, 3), "int8", 0.5)
    net = graph_of([op("RELU", [source], [middle]), op("QUANTIZE", [middle], [result])])
    assert judged(difference([bytes_of(3)], [bytes_of(4)], ""), net) == Difference(1)
