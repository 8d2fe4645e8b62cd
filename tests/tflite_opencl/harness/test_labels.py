# SPDX-License-Identifier: Apache-2.0
"""Label files, and the top results, compared with label_image's heap."""

import heapq
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tflite_opencl.console.errors import RunError
from tflite_opencl.harness.labels import (
    ClassScore,
    format_row,
    format_score,
    labels_in,
    top_results,
)


def scores_of(output: NDArray[np.generic], input_dtype: type) -> list[np.float32]:
    """Decode one value at a time as get_top_n_impl.h does: in double, stored as float."""
    if input_dtype is np.uint8:
        return [np.float32(float(value) / 255.0) for value in output]
    if input_dtype is np.int8:
        return [np.float32(float(np.float32(value) + np.float32(128)) / 256.0) for value in output]
    return [np.float32(value) for value in output]


def heap_top_n(scores: list[np.float32], count: int) -> list[tuple[int, float]]:
    """Keep the best values in a min-heap of (value, index)."""
    heap: list[tuple[float, int]] = []
    for index, score in enumerate(scores):
        if score < np.float32(0.001):
            continue
        heapq.heappush(heap, (float(score), index))
        if len(heap) > count:
            heapq.heappop(heap)
    return [(index, score) for score, index in sorted(heap, reverse=True)]


def rows(results: list[ClassScore]) -> list[tuple[int, float]]:
    return [(row.index, row.score) for row in results]


@pytest.mark.parametrize("input_dtype", [np.uint8, np.int8, np.float32])
@given(data=st.data())
def test_order_and_ties_follow_the_heap(input_dtype: type, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    few = data.draw(st.sampled_from([3, 256]))  # few distinct values, so many ties
    if input_dtype is np.float32:
        step = st.sampled_from([0.0, 0.0009999, 0.001, 0.0010001, 0.25, -1.0, 1e-40, 3.5])
        output = np.array(data.draw(st.lists(step, max_size=40)), np.float32)
    else:
        low = np.iinfo(input_dtype).min
        values = st.lists(st.integers(low, low + few - 1), max_size=40)
        output = np.array(data.draw(values), input_dtype)

    results = top_results(output[np.newaxis], input_dtype, count)
    assert rows(results) == heap_top_n(scores_of(output, input_dtype), count)


@pytest.mark.parametrize("input_dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("output_dtype", [np.uint8, np.int8, np.float32])
def test_every_value_is_decoded_by_the_inputs_type(input_dtype: type, output_dtype: type) -> None:
    if output_dtype is np.float32:
        output = np.linspace(-200, 300, 997, dtype=np.float32)
    else:
        limits = np.iinfo(output_dtype)
        output = np.arange(limits.min, limits.max + 1).astype(output_dtype)
    expected = heap_top_n(scores_of(output, input_dtype), len(output))
    assert rows(top_results(output[np.newaxis], input_dtype, len(output))) == expected


def test_float_input_shows_raw_values_of_quantised_output() -> None:
    output = np.array([[0, 200, 7]], np.uint8)
    assert rows(top_results(output, np.float32, 5)) == [(1, 200.0), (2, 7.0)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {653: 198, 907: 27, 458: 3, 835: 2, 668: 2},
            "0.776471: 653|0.105882: 907|0.0117647: 458|0.00784314: 835|0.00784314: 668",
        ),
        (
            {653: 230, 835: 7, 907: 3, 458: 3},
            "0.901961: 653|0.027451: 835|0.0117647: 907|0.0117647: 458",
        ),
    ],
    ids=["mobilenet-v1", "mobilenet-v2"],
)
def test_rows_equal_label_images(values: dict[int, int], expected: str) -> None:
    output = np.zeros((1, 1001), np.uint8)
    for index, value in values.items():
        output[0, index] = value
    results = top_results(output, np.uint8, 5)
    assert "|".join(format_row(row, []) for row in results) == expected


def test_lower_class_is_dropped_among_ties() -> None:
    assert [row.index for row in top_results(np.full((1, 6), 9, np.uint8), np.uint8, 2)] == [5, 4]


def test_nan_is_dropped_and_infinity_comes_first() -> None:
    output = np.array([[np.nan, 0.5, np.inf, np.nan]], np.float32)
    assert rows(top_results(output, np.float32, 5)) == [(2, np.inf), (1, 0.5)]


@pytest.mark.parametrize(
    ("shape", "indices"), [((1, 2, 3), [2, 1, 0]), ((), [0]), ((1, 0), [])], ids=str
)
def test_only_last_dimension_counts(shape: tuple[int, ...], indices: list[int]) -> None:
    output = np.full(shape, 0.5, np.float32)
    assert [row.index for row in top_results(output, np.float32, 9)] == indices


def test_other_input_types_are_refused() -> None:
    with pytest.raises(ValueError, match="int16"):
        top_results(np.zeros((1, 4), np.int16), np.int16, 5)


@pytest.mark.parametrize(
    ("output", "fed", "scale", "zero_point"),
    [
        (np.array([[16384, 8192]], np.int16), "int16", 2**-15, 0),
        (np.array([[16384, 8192]], np.int16), "uint8", 2**-15, 0),
        (np.array([[64, 0]], np.int8), "int32", 2**-8, -64),
        (np.array([[0.5, 0.25]], np.float32), "int32", 0.0, 0),
        (np.array([[0.5, 0.25]], np.float32), "int16", 0.0, 0),
    ],
    ids=["int16", "int16-of-uint8", "int8-of-int32", "float-of-int32", "float-of-int16"],
)
def test_other_types_use_scale_of_output(
    output: NDArray[np.generic], fed: str, scale: float, zero_point: int
) -> None:
    rows = top_results(output, fed, 5, scale=scale, zero_point=zero_point)
    assert rows == [ClassScore(0, 0.5), ClassScore(1, 0.25)]


def test_scale_of_output_is_ignored_like_label_image() -> None:
    output = np.array([[255]], np.uint8)
    assert top_results(output, np.uint8, 5, scale=0.25, zero_point=7) == [ClassScore(0, 1.0)]


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (np.float32(198) / np.float32(255), "0.776471"),
        (np.float32(230) / np.float32(255), "0.901961"),
        (np.float32(2) / np.float32(255), "0.00784314"),
        (np.float32(1), "1"),
        (np.float32(0.25), "0.25"),
        (np.float32(1234567), "1.23457e+06"),
        (np.float32(0.00001), "1e-05"),
        (np.float32(np.inf), "inf"),
    ],
)
def test_scores_have_six_significant_digits(score: np.float32, text: str) -> None:
    assert format_score(float(score)) == text


def test_class_without_label_has_index() -> None:
    labels = ["background", "tench"]
    assert format_row(ClassScore(1, 0.5), labels) == "0.5: 1 tench"
    assert format_row(ClassScore(2, 0.5), labels) == "0.5: 2"


@pytest.mark.parametrize(
    ("data", "labels"),
    [
        (b"", []),
        (b"cat\ndog\n", ["cat", "dog"]),
        (b"cat\ndog", ["cat", "dog"]),
        (b"cat\r\ndog\r\n", ["cat", "dog"]),
        (b"\n cat \n\n", ["", " cat ", ""]),
        ("cat\x0b\u2028x\x85\rdog".encode(), ["cat\x0b\u2028x\x85\rdog"]),
        (b"\xef\xbb\xbfcat", ["cat"]),
        (b"caf\xe9\nvipers bugloss\n", ["caf\ufffd", "vipers bugloss"]),
    ],
    ids=[
        "empty file",
        "one a line",
        "last line without its end",
        "Windows line ends",
        "spaces and empty lines stay",
        "only a line feed ends a line",
        "byte order mark",
        "not UTF-8",
    ],
)
def test_label_files(tmp_path: Path, data: bytes, labels: list[str]) -> None:
    path = tmp_path / "labels.txt"
    path.write_bytes(data)
    assert labels_in(str(path)) == labels


def test_missing_label_file(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"none\.txt not found"):
        labels_in(str(tmp_path / "none.txt"))
