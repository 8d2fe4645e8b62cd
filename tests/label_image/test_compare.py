# SPDX-License-Identifier: Apache-2.0
"""Distances between paths, their totals, and which pictures are compared."""

from __future__ import annotations

import time

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate.inspect import Graph
from label_image.compare import Distances, Outcome, Sample, Totals, judged
from tests.support.model import graph_of, op, t
from tflite_opencl.oracle.difference import Difference, difference


def bytes_of(*values: int) -> NDArray[np.uint8]:
    return np.array(values, np.uint8)


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
    distance = difference(ours, theirs, "")
    assert distance.each == (0.25, 1, 2)
    assert (distance.quanta, distance.floats) == (2, 0.25)


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


def chosen(middle: str, scale: float | None) -> Graph:
    """Return a net whose integer output follows from values of this type."""
    source, values = t((1, 3), middle, scale), t((1, 3), middle, scale)
    axis, index = t((), "int32", data=1), t((1,), "int64")
    return graph_of([op("RELU", [source], [values]), op("ARG_MAX", [values, axis], [index])])


def test_integers_found_by_floats_may_differ_and_others_may_not() -> None:
    distance = difference([np.array([3])], [np.array([8])], "")
    assert judged(distance, chosen("int8", 0.5)) == Difference(5)
    assert judged(distance, chosen("float32", None)) == Difference(
        None, "integers that floats decide are up to 5 apart, which rounding may explain"
    )
    equal = difference([np.array([3])], [np.array([3])], "")
    assert judged(equal, chosen("float32", None)) == Difference(0)
    assert judged(Difference(None, "why"), chosen("float32", None)) == Difference(None, "why")


def test_quantised_outputs_of_a_net_with_floats_may_not_differ() -> None:
    source, middle, result = t((1, 3)), t((1, 3)), t((1, 3), "int8", 0.5)
    net = graph_of([op("RELU", [source], [middle]), op("QUANTIZE", [middle], [result])])
    assert judged(difference([bytes_of(3)], [bytes_of(4)], ""), net) == Difference(1)


def test_the_first_picture_is_compared_and_others_as_there_is_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 50.0
    monkeypatch.setattr(time, "perf_counter", lambda: now_s)
    sample = Sample(is_all=False)
    assert sample.takes(0)
    sample.count(1, 0.4)
    assert sample.takes(1)  # 0.8 s in all are below a second
    sample.count(1, 0.4)
    assert not sample.takes(2)  # 1.2 s are not
    assert not sample.takes(101)
    now_s += 11.9
    assert not sample.takes(202)
    now_s += 0.2  # a tenth of 12.1 s
    assert sample.takes(202)
    assert not sample.takes(203)


def test_the_largest_difference_of_all_pictures_counts() -> None:
    totals = Totals()
    for quanta in (0, 3, 1):
        ours = Difference(quanta)
        totals = totals.plus(
            Outcome("a", "", (), Distances(ours, Difference(2), Difference(None, "why")))
        )
    totals = totals.plus(Outcome("b", "not there"))
    assert totals.distances is not None
    assert totals.distances.gpu_to_reference == Difference(3)
    assert totals.distances.cpu_to_reference == Difference(2)
    assert totals.distances.gpu_to_cpu == Difference(None, "why")
    assert (totals.classified, totals.unreadable, totals.wrong) == (3, 1, 2)


def test_each_output_has_its_own_largest_difference() -> None:
    totals = Totals()
    for each in ((0, 0.5), (3, 0.25), (1, 0.0)):
        ours = Difference(each[0], "", each)
        totals = totals.plus(Outcome("a", "", (), Distances(ours, ours, ours)))
    assert totals.distances is not None
    largest = totals.distances.gpu_to_reference
    assert (largest.each, largest.quanta, largest.floats) == ((3, 0.5), 3, 0.5)
