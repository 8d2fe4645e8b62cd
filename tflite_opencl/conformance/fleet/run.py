# SPDX-License-Identifier: Apache-2.0
"""Runs the suite on each board of a fleet; a board consists of the workers with one name."""

from __future__ import annotations

import argparse
import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tflite_opencl.cluster.client import Cluster
from tflite_opencl.cluster.line import SkippedChunk
from tflite_opencl.cluster.work import Answer
from tflite_opencl.conformance import results
from tflite_opencl.conformance.fleet.board import CaseResults, Cases, ConformanceWork
from tflite_opencl.conformance.fleet.matrix import Fleet, csv_of
from tflite_opencl.conformance.progress import Tally, told
from tflite_opencl.conformance.results import (
    SKIP,
    CaseResult,
    ConformanceReport,
    Expectations,
    ReportRow,
)
from tflite_opencl.conformance.selection import item_of
from tflite_opencl.conformance.subject import OPENCL
from tflite_opencl.console import bars
from tflite_opencl.console.errors import write
from tflite_opencl.models.build import Case

_CHUNK = 120  # cases: run in one child process, as on a single machine


@dataclass(slots=True)
class _Board:
    """The state of a board's run."""

    rows: dict[str, ReportRow] = field(default_factory=dict)
    device: str = ""
    runtime: str = ""
    seconds: float = 0.0
    why_not: str = ""


def run_fleet(
    options: argparse.Namespace,
    cases: Sequence[Case],
    known: Expectations,
    settings: Mapping[str, Any],
    described: dict[str, Any],
    say: Callable[[str], None],
) -> Fleet:
    """Run the cases on each available board, except finished ones.

    `settings`: the arguments of `Workers`. `described`: settings that results depend on. `say`:
    prints a line.
    Raises: OneLineError: no board is available, or a folder cannot be written.
    """
    output, begun = Path(options.output), results.date_and_time()
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(options.scheduler, options.delegate == OPENCL))
        device = options.device if options.delegate == OPENCL else None
        about = cluster.name, device, options.scheduler.is_local, 0.0
        cluster.begin(ConformanceWork(settings, options.jobs, *about))
        boards = {place: _Board() for place in cluster.boards()}
        tally = Tally(len(cases) * len(boards), time.monotonic())
        bars.be_quiet(options.quiet)
        show = stack.enter_context(told(tally, say, options.quiet))
        by_name, add = {case.name: case for case in cases}, {}
        todo: dict[str, Iterator[Cases]] = {}
        for name, board in boards.items():
            folder = output / re.sub(r"[^\w.-]", "_", name)
            before = _before(folder, described, cases, known, options.resume)
            write_row = stack.enter_context(results.writing(folder, described))
            add[name] = _adder(board, by_name, known, write_row, tally)
            for result in before.values():
                add[name](result, True)
            todo[name] = _chunks(name, [case for case in cases if case.name not in before])
        found = cluster.results(todo)
        with contextlib.closing(found):
            for chunk, came in found:
                _take(boards[chunk.board], came, add[chunk.board])
                show()
    fleet = _fleet(options, cases, boards, begun)
    write(str(output / "boards.csv"), csv_of(fleet))
    return fleet


def _before(
    folder: Path,
    described: dict[str, Any],
    cases: Sequence[Case],
    known: Expectations,
    is_resumed: bool,
) -> dict[str, CaseResult]:
    """Return earlier results. Raises: OneLineError: they are of a different run."""
    # A board that joined late has no folder.
    before = results.resumed(folder, described) if is_resumed and folder.exists() else {}
    names = {case.name for case in cases}
    before = {name: result for name, result in before.items() if name in names}
    for name in names:
        if known.is_skipped(name):
            before.setdefault(name, CaseResult(SKIP, "listed in --skips", name=name))
    return before


def _chunks(board: str, cases: Sequence[Case]) -> Iterator[Cases]:
    for start in range(0, len(cases), _CHUNK):
        chunk = cases[start : start + _CHUNK]
        models = {case.name: Path(case.model).read_bytes() for case in chunk if case.model}
        yield Cases(board, [item_of(case) for case in chunk], models)


def _adder(
    board: _Board,
    by_name: Mapping[str, Case],
    known: Expectations,
    write: Callable[[ReportRow], None],
    tally: Tally,
) -> Callable[[CaseResult, bool], None]:
    """Return a function that stores and writes a result of this board."""

    def add(result: CaseResult, is_known: bool = False) -> None:
        status = known.status(result)
        row = ReportRow(by_name[result.name], result, status, known.is_expected(status))
        board.rows[result.name] = row
        write(row)
        tally.add(status, result.name, is_known)

    return add


def _take(
    board: _Board, came: Answer | SkippedChunk, add: Callable[[CaseResult, bool], None]
) -> None:
    if isinstance(came, SkippedChunk):
        board.why_not = came.why
        return
    ran: CaseResults = came.result
    for result in ran.results:
        add(result, False)
    board.device, board.runtime = ran.device or board.device, ran.runtime or board.runtime
    board.seconds += came.seconds
    board.why_not = ran.why_not or board.why_not


def _fleet(
    options: argparse.Namespace, cases: Sequence[Case], boards: Mapping[str, _Board], begun: str
) -> Fleet:
    names = [case.name for case in cases]
    found = {}
    for name, board in boards.items():
        rows = [board.rows[each] for each in names if each in board.rows]
        about = options.delegate, board.device, board.runtime, board.seconds, begun
        found[name] = ConformanceReport(rows, *about)
    why_not = {name: board.why_not for name, board in boards.items() if board.why_not}
    return Fleet(names, found, why_not)
