# SPDX-License-Identifier: Apache-2.0
"""Failures of a CompiledModel are LiteRT's if its CPU alone fails, too; limited time."""

from __future__ import annotations

import threading
import time
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
    """Return the result of a case that ends as `ours`, and the delegates that ran.

    `alone`: its result on the CPU of LiteRT's CompiledModel.
    """
    requests: list[str] = []

    def results(
        self: Workers, items: Sequence[Item], stopped: threading.Event
    ) -> Iterator[tuple[Item, CaseResult]]:
        for item in items:
            requests.append(self.delegate)
            yield item, alone if self.delegate == COMPILED_MODEL else ours

    monkeypatch.setattr(Workers, "_results", results)
    matches: list[CaseResult] = []
    Workers(delegate, {}, None, None, 0, 60).run([Item("case")], 1, matches.append)
    (result,) = matches
    return result, requests


def test_same_failure_on_cpu_is_a_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    result, outcome = result_of("compiledmodel:folder", WRONG, monkeypatch)
    assert (result.result, result.name) == (SKIP, "case")
    assert result.detail == f"LiteRT's CompiledModel fails so on the CPU alone: {WRONG.detail}"
    assert outcome == ["compiledmodel:folder", "compiledmodel:"]


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
def test_other_failures_count(
    ours: CaseResult, alone: CaseResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert result_of("compiledmodel:folder", alone, monkeypatch, ours)[0] == ours


def test_other_delegates_do_not_run_compiled_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert result_of("opencl", WRONG, monkeypatch) == (WRONG, ["opencl"] * 2)


def test_time_ends_run_and_keeps_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    def results(
        self: Workers, items: Sequence[Item], stopped: threading.Event
    ) -> Iterator[tuple[Item, CaseResult]]:
        for number, item in enumerate(items):
            if number == 2:
                assert stopped.wait(60)
            if stopped.is_set():
                return
            yield item, CaseResult((FAIL, PASS)[number], "wrong", nodes=1, name=item.name)

    monkeypatch.setattr(Workers, "_results", results)
    found: dict[str, CaseResult] = {}

    def add(result: CaseResult) -> None:
        found[result.name] = result

    items = [Item(name) for name in "abcd"]
    Workers("opencl", {}, None, None, 0, 60).run(items, 1, add, until_s=time.monotonic() + 0.3)
    assert {name: result.result for name, result in found.items()} == {"a": FAIL, "b": PASS}
    assert found["a"].detail == "wrong (not repeated)"
