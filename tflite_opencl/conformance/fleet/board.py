# SPDX-License-Identifier: Apache-2.0
"""A board's worker in a fleet: runs chunks of cases in child processes, like a single machine."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tflite_opencl.cluster.work import Work
from tflite_opencl.conformance.results import CaseResult
from tflite_opencl.conformance.runner import CannotRun, Item, Workers


@dataclass(frozen=True, slots=True)
class Cases:
    """A chunk of cases for one board."""

    board: str
    items: Sequence[Item]
    models: Mapping[str, bytes] = field(default_factory=dict)  # an item's name -> its model file


@dataclass(frozen=True, slots=True)
class CaseResults:
    """The results of a chunk."""

    results: Sequence[CaseResult]
    device: str
    runtime: str
    why_not: str = ""  # why the board cannot run anything


class ConformanceWork(Work):
    """Runs chunks of cases."""

    def __init__(self, settings: Mapping[str, Any], jobs: int, *about: Any) -> None:
        """`settings`: the arguments of `Workers`. `about`: as for `Work`."""
        super().__init__(*about)
        self._settings, self._jobs = settings, jobs

    def run(self, chunk: Cases) -> CaseResults:
        found: list[CaseResult] = []
        device = runtime = ""

        def ready(its_device: str, its_runtime: str) -> None:
            nonlocal device, runtime
            device, runtime = its_device, its_runtime

        with tempfile.TemporaryDirectory() as folder:
            items = [self._item(item, chunk.models, Path(folder)) for item in chunk.items]
            workers = Workers(**self._settings, on_ready=ready)
            try:
                workers.run(items, self._jobs, found.append)
            except CannotRun as error:
                return CaseResults(found, device, runtime, str(error))
        return CaseResults(found, device, runtime)

    def _item(self, item: Item, models: Mapping[str, bytes], folder: Path) -> Item:
        if item.name not in models:
            return item
        path = folder / f"{len([*folder.iterdir()])}.tflite"
        path.write_bytes(models[item.name])
        return dataclasses.replace(item, model=str(path))
