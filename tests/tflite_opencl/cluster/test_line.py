# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from tflite_opencl.cluster.line import Line, SkippedChunk


def sent(line: Line[Any]) -> list[Any]:
    return list(iter(line.next, None))


def test_one_chunk_per_worker_is_in_flight() -> None:
    line = Line("abcdef", True)
    assert sent(line) == []
    line.count(2, 60)
    first, second = sent(line)
    assert (first.number, first.chunk, second.chunk) == (0, "a", "b")
    line.count(3, 60)
    assert [each.chunk for each in sent(line)] == ["c"]


def test_results_are_ordered_and_reading_ahead_is_limited() -> None:
    line = Line(range(100), True)
    line.count(2, 60)
    first, *_ = others = sent(line)
    for _ in range(20):
        for each in others[1:] if first in others else others:
            line.done(each, "done")
        assert [*line.ready()] == []
        others = sent(line)
    assert others == []  # four for each worker wait, so no more are read
    line.done(first, "late")
    assert [*line.ready()] == [(0, "late"), *((number, "done") for number in range(1, 8))]
    assert len(sent(line)) == 2


def test_unordered_results_are_returned_at_once() -> None:
    line = Line("abc", False)
    line.count(3, 60)
    first, second, third = sent(line)
    line.done(third, 3)
    line.done(first, 1)
    assert [*line.ready()] == [("c", 3), ("a", 1)]
    assert not line.is_over
    line.done(second, 2)
    assert [*line.ready()] == [("b", 2)]
    assert sent(line) == []
    assert line.is_over


def test_returned_chunk_is_next() -> None:
    line = Line("abc", True)
    line.count(1, 60)
    (first,) = sent(line)
    first.chunk = "A"
    line.again(first)
    assert sent(line) == [first]
    line.done(first, 1)
    assert [*line.ready()] == [("A", 1)]


def test_chunk_without_worker_is_left_out() -> None:
    line = Line("abcdef" * 10, True)
    line.count(1, 60)
    (first,) = sent(line)
    line.count(0, -1)  # the worker may return with its result
    assert sent(line) == [*line.ready()] == []
    line.again(first)
    results: list[Any] = []
    while not line.is_over:
        line.count(0, -1)
        results += line.ready()
    assert results == [
        (each, SkippedChunk("no worker is there any more")) for each in "abcdef" * 10
    ]
