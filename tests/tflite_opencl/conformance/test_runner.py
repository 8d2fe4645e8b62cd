# SPDX-License-Identifier: Apache-2.0
"""Which failures by a CompiledModel are LiteRT's own: those that the CPU alone has, too."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from tflite_opencl.conformance.results import CRASH, FAIL, PASS, SKIP, TIMEOUT, CaseResult
from tflite_opencl.conformance.runner import Item, Workers
from tflite_opencl.conformance.subject import COMPILED_MODEL

WRONG = CaseResult(FAIL, "1 of 2 elements differ", nodes=1, name="case")
DIED = CaseResult(CRASH, "the process died (SIGSEGV)", name="case")
LATE = CaseResult(TIMEOUT, "no answer after 60 seconds", name="case")
SUITE_S = CaseResult(FAIL, "KeyError: x", name="case")


def result_of(
    delegate: str, alone: CaseResult, monkeypatch: pytest.MonkeyPatch, ours: CaseResult = WRONG
) -> tuple[CaseResult, list[str]]:
    """Return what comes of a case that ends as `ours`, and which delegates were asked.

    `alone`: how it ends on the CPU of LiteRT's CompiledModel.
    """
    asked: list[str] = []

    def results(
        self: Workers, items: Sequence[Item], stopped: threading.Event
    ) -> Iterator[tuple[Item, CaseResult]]:
        for item in items:
            asked.append(self.delegate)
            yield item, alone if self.delegate == COMPILED_MODEL else ours

    monkeypatch.setattr(Workers, "_results", results)
    found: list[CaseResult] = []
    Workers(delegate, {}, None, None, 0, 60).run([Item("case")], 1, found.append)
    (result,) = found
    return result, asked


def test_the_same_failure_on_the_cpu_alone_is_a_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = result_of("compiledmodel:folder", WRONG, monkeypatch)
    assert (result.result, result.name) == (SKIP, "case")
    assert result.detail == f"LiteRT's CompiledModel fails so on the CPU alone: {WRONG.detail}"
    assert asked == ["compiledmodel:folder", "compiledmodel:"]


@pytest.mark.parametrize(
    ("ours", "alone"),
    [
        (WRONG, CaseResult(PASS, nodes=1)),
        (WRONG, CaseResult(FAIL, "2 of 2 elements differ", nodes=1)),
        (WRONG, CaseResult(SKIP, WRONG.detail)),
        (WRONG, DIED),
        (DIED, DIED),
        (LATE, LATE),
        (SUITE_S, SUITE_S),
    ],
    ids=["right", "other words", "skipped", "died there", "died", "late", "the suite's"],
)
def test_any_other_failure_stays(
    ours: CaseResult, alone: CaseResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert result_of("compiledmodel:folder", alone, monkeypatch, ours)[0] == ours


def test_other_delegates_are_compared_with_no_compiled_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert result_of("opencl", WRONG, monkeypatch) == (WRONG, ["opencl"] * 2)
