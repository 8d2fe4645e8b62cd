# SPDX-License-Identifier: Apache-2.0
"""The worker's side of a cluster run: keeps paths open from the first chunk on."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from delegate.inspect import read_model
from label_image.cluster.chunks import Chunk
from label_image.compare import Outcome
from label_image.decode_outputs import Meaning
from label_image.decoders import Decoders
from label_image.paths import open_paths
from label_image.picture_record import PictureRecord, record_of, result_of
from label_image.series import Series
from tflite_opencl.cluster.work import Work
from tflite_opencl.harness.job import Job
from tflite_opencl.interpreters.runtime import runtime_if_any


@dataclass(frozen=True, slots=True)
class ClassifierSettings:
    """The settings of a worker's paths; `meaning` lacks the graph, which comes with the model."""

    job: Job
    meaning: Meaning
    floats: bool
    compares_all: bool
    most: int  # results per picture
    keeps_outputs: bool  # whether to send outputs back
    processes: int | None  # decoding processes; None: one per core


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """The outcomes of a chunk."""

    records: Sequence[PictureRecord]
    device: str  # display name of the device
    failure: str  # why OpenCL did not run it or computed wrong results; "": neither


class ClassificationWork(Work):
    """Classifies chunks of pictures."""

    loggers = (*Work.loggers, logging.getLogger("label_image"))

    def __init__(self, settings: ClassifierSettings, *about: Any) -> None:
        """`about`: as for `Work`."""
        super().__init__(*about)
        self._settings = settings
        self._stack = contextlib.ExitStack()  # of the open paths
        self._series: Series | None = None
        self._meaning = settings.meaning
        self._decoders: Decoders | None = None
        self._files: deque[str] = deque()

    def run(self, chunk: Chunk) -> ChunkResult | None:
        """Return each picture's outcome; None: the files are not the client's."""
        if not all(picture.is_there() for picture in chunk):
            return None
        series = self._series = self._series or self._open_series()
        with contextlib.ExitStack() as stack:
            stack.callback(self._end_decoders_if_failed)
            records = [*self._records(series, chunk)]
            stack.pop_all()
        judgement = series.judgement
        gpu = judgement.results.gpu
        taken = gpu.delegation if gpu else None
        return ChunkResult(records, taken.device if taken else "CPU", judgement.failure)

    def _records(self, series: Series, chunk: Chunk) -> Iterator[PictureRecord]:
        settings = self._settings
        with tempfile.TemporaryDirectory() as folder:
            self._files.extend(_path(picture, folder) for picture in chunk)
            self._decoders = self._decoders or Decoders(
                self._next_paths(), self._meaning.format, settings.processes
            )
            pictures = iter(chunk)
            for outcome in series.outcomes_of(_Few(self._decoders, len(chunk))):
                result = result_of(self._meaning, outcome, settings.most)
                record = record_of(outcome, next(pictures).name, result)
                if not settings.keeps_outputs:
                    record = replace(record, outcome=replace(record.outcome, outputs=()))
                yield record

    def _next_paths(self) -> Iterator[str | None]:
        while True:
            yield self._files.popleft() if self._files else None

    def _open_series(self) -> Series:
        settings = self._settings
        graph = settings.job.on(read_model(settings.job.model))
        view = replace(settings.meaning.view, graph=graph)
        self._meaning = replace(settings.meaning, view=view)
        paths = self._stack.enter_context(
            open_paths(
                settings.job, runtime_if_any(), graph, floats=settings.floats,
                compares_all=settings.compares_all,
            )
        )  # fmt: skip
        # The command reports NaN: it knows the pictures of all workers.
        return Series(paths, compares_all=settings.compares_all, is_quiet=True)

    def _end_decoders_if_failed(self) -> None:
        """After an interrupted chunk the decoders' queues are in an unknown state."""
        self._files.clear()
        if self._decoders is not None:
            self._decoders.close()
            self._decoders = None

    def close(self) -> None:
        self._end_decoders_if_failed()
        self._stack.close()
        self._series = None


class _Few:
    """The next few pictures of long-lived decoders, as the source of a series."""

    def __init__(self, decoders: Decoders, count: int) -> None:
        self._decoders, self._pending = decoders, count
        self.is_closed = False

    @property
    def processes(self) -> int:
        return self._decoders.processes

    def next_into(self, tensor: NDArray[Any]) -> Outcome | None:
        if self._pending == 0:
            return None
        self._pending -= 1
        return self._decoders.next_into(tensor)

    def close(self) -> None:
        self.is_closed = True


def _path(picture: Any, folder: str) -> str:
    """Return a readable path; pictures sent by content are written to the folder."""
    if picture.content is None:
        return str(picture.path)
    path = os.path.join(folder, f"{picture.number}_{os.path.basename(picture.path)}")
    with open(path, "wb") as file:
        file.write(picture.content)
    return path
