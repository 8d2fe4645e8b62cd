# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from tflite_opencl.cluster.line import Line, SkippedChunk


def sent(line: Line[Any]) -> list[Any]:
    return list(iter(line.next, None))


def test_there_are_as_many_chunks_under_way_as_workers() -> None:
    line = Line("abcdef", True)
    assert sent(line) == []
    line.count(2, 60)
    first, second = sent(line)
    assert (first.number, first.chunk, second.chunk) == (0, "a", "b")
    line.count(3, 60)
    assert [each.chunk for each in sent(line)] == ["c"]


def test_results_wait_for_those_before_them_and_chunks_for_them() -> None:
    line = Line(range(100), True)
    line.count(2, 60)
    first, *_ = others = sent(line)
    for _ in range(20):
        for each in others[1:] if first in others else others:
            line.done(each, "done")
        assert [*line.ready()] == []
        others = sent(line)
    assert others == []  # four a worker wait: no more are taken
    line.done(first, "late")
    assert [*line.ready()] == [(0, "late"), *((number, "done") for number in range(1, 8))]
    assert len(sent(line)) == 2


def test_without_an_order_results_come_at_once() -> None:
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


def test_a_chunk_that_comes_back_is_the_next() -> None:
    line = Line("abc", True)
    line.count(1, 60)
    (first,) = sent(line)
    first.chunk = "A"
    line.again(first)
    assert sent(line) == [first]
    line.done(first, 1)
    assert [*line.ready()] == [("A", 1)]


def test_what_no_worker_is_there_for_is_left_out() -> None:
    line = Line("abcdef" * 10, True)
    line.count(1, 60)
    (first,) = sent(line)
    line.count(0, -1)  # the worker may come back with what it has
    assert sent(line) == [*line.ready()] == []
    line.again(first)
    found: list[Any] = []
    while not line.is_over:
        line.count(0, -1)
        found += line.ready()
    assert found == [(each, SkippedChunk("no worker is there any more")) for each in "abcdef" * 10]
