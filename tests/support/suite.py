# SPDX-License-Identifier: Apache-2.0
"""A few cases of the conformance suite, run in one worker process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.conformance.results import CaseResult
from tflite_opencl.conformance.runner import Workers
from tflite_opencl.conformance.selection import item_of
from tflite_opencl.models.build import Case

SECONDS = 60.0  # time limit of a case


@cache
def _cases() -> dict[str, Case]:
    return {case.name: case for case in all_cases()}


def run_cases(
    delegate: str,
    names: Sequence[str],
    options: Mapping[str, str],
    device: str | None = None,
    alternatives: bool = False,
    repeat: bool = False,
    limits: Mapping[str, float] | None = None,
    on_ready: Callable[[str, str], None] = lambda device, runtime: None,
) -> dict[str, CaseResult]:
    """Return the results of these cases by name.

    `repeat`: repeat failures. `limits`: time limits other than SECONDS, by case. `on_ready`: called
    when a worker is ready, before its next message is read.
    """
    results: dict[str, CaseResult] = {}

    def add(result: CaseResult) -> None:
        results[result.name] = result

    workers = Workers(
        delegate,
        dict(options),
        device,
        None,
        0,
        SECONDS,
        on_ready=on_ready,
        alternatives=alternatives,
    )
    items = [item_of(_cases()[name]) for name in names]
    limits = limits or {}
    items = [
        replace(item, patience=limits[item.name] / SECONDS) if item.name in limits else item
        for item in items
    ]
    workers.run(items, 1, add, repeat)
    return results
