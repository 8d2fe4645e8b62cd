# SPDX-License-Identifier: Apache-2.0
"""A run on many pictures distributed over a cluster; rows and files are written by the client."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO, cast

from rich.table import Table

from delegate.inspect import usable_processors
from label_image.cluster.chunks import Chunk, Chunks
from label_image.cluster.classifier import ChunkResult, ClassificationWork, ClassifierSettings
from label_image.compare import Outcome, Totals
from label_image.document import count_entry, difference_entry
from label_image.heads.classes import CLASSIFICATION
from label_image.many_pictures import ManyPictures
from label_image.picture_record import PictureRecord, record_of, result_of
from label_image.prepare import PreparedRun
from label_image.report import count_facts, table_of
from label_image.sinks import Sinks
from tflite_opencl.cli.flags import device_asked
from tflite_opencl.cli.scheduler import Scheduler
from tflite_opencl.cluster.client import ANYWHERE, Cluster
from tflite_opencl.cluster.line import SkippedChunk
from tflite_opencl.cluster.work import Answer
from tflite_opencl.console import bars, interrupts
from tflite_opencl.console.exit_codes import NO_DEVICE, NOT_SO, SUCCESS
from tflite_opencl.console.tables import render

log = logging.getLogger("label_image")


@dataclass(slots=True)
class WorkerTotals:
    """The totals of one worker."""

    host: str
    device: str = ""
    chunks: int = 0
    pictures: int = 0
    timed: int = 0  # pictures after the first chunk, which opens the model
    seconds: float = 0.0  # of these
    failure: str = ""

    @property
    def per_second(self) -> float | None:
        """Pictures per second; None: unknown."""
        return self.timed / self.seconds if self.seconds else None


class SpreadPictures(ManyPictures):
    """A run on several pictures, distributed over workers."""

    def __init__(
        self, prepared: PreparedRun, out: TextIO, width: int, scheduler: Scheduler
    ) -> None:
        """`width`: of the text on stderr."""
        super().__init__(prepared, out, width)
        self._scheduler = scheduler
        self._totals, self._workers = Totals(), dict[str, WorkerTotals]()
        self._chunks = Chunks(self._settings.chunk, self._settings.batch or 1)
        self._begin_s = 0.0
        self._are_finite = True  # all results so far are finite

    def run(self) -> int:
        """Classify all pictures, print and write the results, and return the exit code.

        Raises: RunError, CommandError: no picture can be classified.
        """
        with contextlib.ExitStack() as stack:
            work = self._work(stack)
            sinks = Sinks(stack, self._prepared, self._out)
            self._done.update(sinks.resume())
            cluster = stack.enter_context(Cluster(self._scheduler, self._settings.use_gpu))
            cluster.begin(work(cluster))
            count = cluster.places()[ANYWHERE]
            log.info("%d workers at %s", count, self._scheduler.address)
            sinks.open_lines()
            self._begin_s = time.perf_counter()
            with contextlib.suppress(KeyboardInterrupt):  # print and write the results so far
                self._spread(cluster, sinks)
            with interrupts.held():
                sinks.end(self._header, self._entry(cluster))
        code = self._ended(self._text(cluster, sinks), self._totals.unreadable, sinks)
        is_wrong = self._totals.wrong or any(each.failure for each in self._workers.values())
        return code or (NO_DEVICE if is_wrong else SUCCESS if self._are_finite else NOT_SO)

    def _work(self, stack: contextlib.ExitStack) -> Callable[[Cluster], ClassificationWork]:
        """Return the factory of the workers' job. Raises: as `ManyPictures.run`."""
        prepared, settings = self._prepared, self._settings
        job = self._job(stack)
        if isinstance(job.model, str):
            job = replace(job, model=Path(job.model).read_bytes())
        # Its constants would be sent twice.
        view = replace(prepared.meaning.view, graph=cast(Any, None))
        local = self._scheduler.workers
        known = ClassifierSettings(
            replace(job, is_silent=True), replace(prepared.meaning, view=view),
            floats=prepared.meaning.head is not CLASSIFICATION,
            compares_all=settings.compares_all, most=settings.num_results_of_several,
            keeps_outputs=settings.output_dir is not None,
            processes=max(1, usable_processors() // local) if local else None,
        )  # fmt: skip
        about = device_asked(settings.device), self._scheduler.is_local, settings.chunk_timeout
        return lambda cluster: ClassificationWork(known, cluster.name, *about)

    def _named(self) -> Iterator[tuple[int, str, str]]:
        for number, path in self._pictures(self._skipped):
            if path is not None:
                yield number, self._names.get(path, path), path

    def _spread(self, cluster: Cluster, sinks: Sinks) -> None:
        """Classify all pictures; stop early when the output has no reader."""
        settings = self._settings

        def count() -> int:
            return sum(1 for _ in self._named())

        chunks = {ANYWHERE: self._chunks.of(self._named())}
        results = cluster.results(chunks, self._again, is_ordered=not settings.unordered)
        with bars.steps("classifying", count) as step, contextlib.closing(results):
            for chunk, came in results:
                for picture, record in zip(chunk, self._records_of(chunk, came), strict=True):
                    with interrupts.held():  # print and write a counted picture, too, in full
                        self._count(record.outcome)
                        outcome = record.outcome
                        meaning, most = self._prepared.meaning, settings.num_results_of_several
                        result = result_of(meaning, outcome, most) if outcome.outputs else None
                        is_read = self._show(record, result, picture.path, picture.number, sinks)
                    interrupts.check()
                    step()
                    if not is_read and not sinks.sinks:
                        return  # a closed pipe, as with `| head`

    def _again(self, chunk: Chunk, result: ChunkResult | None) -> Chunk | None:
        if result is not None:
            return None
        if not self._chunks.are_by_bytes:
            log.info("workers do not see the files of this machine: pictures go by bytes")
        return self._chunks.with_bytes(chunk)

    def _records_of(self, chunk: Chunk, came: Answer | SkippedChunk) -> list[PictureRecord]:
        """Return the record of each picture, and update the worker's totals."""
        if isinstance(came, SkippedChunk):
            first, last = chunk[0], chunk[-1]
            which = f"pictures {first.number} to {last.number} ({first.name} to {last.name})"
            if first is last:
                which = f"picture {first.number} ({first.name})"
            log.error("%s: left out, because %s", which, came.why)
            lost = [Outcome(each.name, f"{each.name} is left out: {came.why}") for each in chunk]
            meaning = self._prepared.meaning
            return [record_of(each, each.path, result_of(meaning, each, 1)) for each in lost]
        result: ChunkResult = came.result
        worker = self._workers.setdefault(came.worker, WorkerTotals(came.host))
        worker.chunks, worker.pictures = worker.chunks + 1, worker.pictures + len(chunk)
        worker.device = result.device
        if worker.chunks > 1:
            worker.timed, worker.seconds = worker.timed + len(chunk), worker.seconds + came.seconds
            self._chunks.learn(len(chunk), came.seconds)
        if result.failure and not worker.failure:
            log.error("worker %s: %s", came.worker, result.failure)
        worker.failure = result.failure or worker.failure
        return [*result.records]

    def _count(self, outcome: Outcome) -> None:
        seconds = time.perf_counter() - self._begin_s
        self._totals = self._totals.plus(outcome, outcome.seconds, seconds=seconds)
        if outcome.not_finite and self._are_finite:
            self._are_finite = False
            log.error("%s: %s", outcome.path, outcome.not_finite)

    def _entry(self, cluster: Cluster) -> dict[str, Any]:
        """Return, for JSON, the totals of all workers together and of each."""
        found = self._totals.distances
        workers = [
            {
                "worker": name, "host": worker.host, "device": worker.device,
                "chunks": worker.chunks, "pictures": worker.pictures,
                "pictures_per_second": worker.per_second,
                **({"failure": worker.failure} if worker.failure else {}),
            }
            for name, worker in self._workers.items()
        ]  # fmt: skip
        return {
            **count_entry(self._totals),
            "workers": workers,
            "workers_gone": cluster.gone,
            "compared": self._totals.compared,
            **(difference_entry(found) if found else {}),
        }

    def _text(self, cluster: Cluster, sinks: Sinks) -> str:
        """Return a table with one row per worker, then facts."""
        table = table_of("worker", "host", "device", "chunks", "pictures", "a second", "",
                         numbers=(3, 4, 5))  # fmt: skip
        for name, worker in self._workers.items():
            rate = "-" if worker.per_second is None else f"{worker.per_second:.1f}"
            numbers = str(worker.chunks), str(worker.pictures), rate
            table.add_row(name, worker.host, worker.device, *numbers, worker.failure)
        facts = count_facts(self._totals)
        if found := self._totals.distances:
            quanta, of = found.wrong_by, f"{self._totals.compared} of {self._totals.classified}"
            how = f"DIFFER by {quanta} quanta in {self._totals.wrong}" if quanta else "equal"
            facts.append(("outputs", f"{of} compared with TFLite's reference kernels: {how}"))
        facts += [("workers gone", str(cluster.gone))] if cluster.gone else []
        grid = Table.grid(padding=(0, 2))
        for fact in (*facts, *sinks.facts):
            grid.add_row(*fact)
        return render(self._width, table, grid)
