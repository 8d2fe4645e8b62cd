# SPDX-License-Identifier: Apache-2.0
"""compare --scheduler: each board's worker compares all models, as on a single machine."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from delegate import DelegateError
from delegate.inspect import with_input_shapes
from tflite_opencl.cli.scheduler import Scheduler
from tflite_opencl.cluster.client import Cluster
from tflite_opencl.cluster.line import SkippedChunk
from tflite_opencl.cluster.work import Work
from tflite_opencl.compare.records import FleetReport, Report, RunPath
from tflite_opencl.compare.report import report_of
from tflite_opencl.compare.runs import CompareSettings, Given
from tflite_opencl.console import bars
from tflite_opencl.console.errors import OneLineError, reason_of
from tflite_opencl.interpreters.interpreter import read_graph


@dataclass(frozen=True, slots=True)
class Packed:
    """A model to send; `given` lacks the graph, which is read from the content."""

    content: bytes
    given: Given


class CompareWork(Work):
    """Compares the paths of models; a chunk is the complete comparison of one board.

    Two workers of one board therefore never time simultaneously.
    """

    def __init__(
        self,
        models: Sequence[Packed],
        paths: Sequence[RunPath] | None,
        settings: CompareSettings,
        *about: Any,
    ) -> None:
        """`paths`: None: all that the board has. `about`: as for `Work`."""
        super().__init__(*about)
        self._models, self._paths, self._settings = models, paths, settings

    def run(self, chunk: str) -> Report | str:
        """Return this board's report, or why it cannot start; `chunk`: the board's name."""
        try:
            with tempfile.TemporaryDirectory(prefix="compare-") as folder:
                models = [
                    self._unpacked(each, Path(folder, str(number)))
                    for number, each in enumerate(self._models)
                ]
                return report_of(models, self._paths, self._settings)
        except (OneLineError, DelegateError, OSError) as error:
            return reason_of(error)

    def _unpacked(self, packed: Packed, folder: Path) -> Given:
        folder.mkdir()
        file = folder / Path(packed.given.model).name
        file.write_bytes(packed.content)
        graph = read_graph(str(file), self._settings.signature)
        shapes = {number: each.shape for number, each in enumerate(packed.given.inputs)}
        graph = with_input_shapes(graph, shapes)  # of inputs that the file leaves open
        return replace(packed.given, model=str(file), graph=graph)


def compared_on_boards(
    scheduler: Scheduler,
    models: Sequence[Given],
    paths: Sequence[RunPath] | None,
    settings: CompareSettings,
) -> FleetReport:
    """Return the report of each available board for the models.

    `paths`, `settings`: as for `report_of`. Raises: OneLineError: no board is available.
    """
    # Its constants would be sent twice.
    packed = [
        Packed(Path(each.model).read_bytes(), replace(each, graph=cast(Any, None)))
        for each in models
    ]
    found: dict[str, Report] = {}
    why_not: dict[str, str] = {}
    with Cluster(scheduler, needs_device=False) as cluster:
        about = cluster.name, None, scheduler.is_local, 0.0
        cluster.begin(CompareWork(packed, paths, settings, *about))
        boards = cluster.boards()
        results = cluster.results({board: [board] for board in boards}, is_ordered=False)
        with bars.waiting("") as tell:
            tell(f"{len(boards)} boards compare")
            for board, came in results:
                if isinstance(came, SkippedChunk):
                    why_not[board] = came.why
                elif isinstance(came.result, str):
                    why_not[board] = came.result
                else:
                    found[board] = came.result
                tell(f"{len(found) + len(why_not)} of {len(boards)} boards are done")
    return FleetReport({name: found[name] for name in boards if name in found}, why_not)
