# SPDX-License-Identifier: Apache-2.0
"""The tflite-delegate-test command: cases -> workers -> reports. Nothing else prints or exits."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from delegate import ProfileError
from delegate.inspect import read_device_profile
from tflite_opencl.common.build import Case
from tflite_opencl.common.environment import prepare_environment
from tflite_opencl.common.errors import OneLineError, UsageError, code_of
from tflite_opencl.common.exit_codes import NOT_SO, NOTHING_RUN, SUCCESS
from tflite_opencl.common.files import file_obstacle, write_file
from tflite_opencl.common.standard_streams import OutputError
from tflite_opencl.common.text import printable
from tflite_opencl.common.words import version_lines
from tflite_opencl.conformance import coverage, expectations, flags, page, reduce, reports
from tflite_opencl.conformance.flags import Settings
from tflite_opencl.conformance.outcome import NOT_DELEGATED, PASS, SKIP, Result
from tflite_opencl.conformance.process import CannotRun
from tflite_opencl.conformance.results import Folder, Report, ResultsError, Row
from tflite_opencl.conformance.runner import Workers
from tflite_opencl.conformance.selection import item_of, select
from tflite_opencl.conformance.subject import OPENCL, OPENCL_OPTIONS
from tflite_opencl.conformance.tally import Tally

LINE_SECONDS = 10.0  # between two lines without a terminal
_SHOWN = 20  # unexpected results on the terminal

_OUTPUTS: dict[str, Callable[[Report], str]] = {
    "junit": reports.junit,
    "ktap": reports.ktap,
    "lava": reports.lava,
    "json": reports.as_json,
    "html": page.html,
    "coverage": coverage.table,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    prepare_environment()
    try:
        return _command(flags.parse(sys.argv[1:] if arguments is None else arguments))
    except CannotRun as error:
        _complain(f"SKIP: {error}")
        return NOTHING_RUN
    except OutputError:  # no line of ours may be written
        raise
    except (OneLineError, ProfileError) as error:
        _complain(f"ERROR: {error}")
        return code_of(error)


def _command(settings: Settings) -> int:
    if settings.version:
        print("\n".join(map(printable, version_lines("tflite-delegate-test"))))
        return SUCCESS
    if settings.delegate == OPENCL:
        _check_options(settings.delegate_options)
    if settings.reduce is not None:
        workers = _workers(settings, lambda device, runtime: None)
        for line in reduce.reduce(settings.reduce, workers, Path(settings.output)):
            print(line, flush=True)
        return SUCCESS
    cases = select(settings)
    if settings.list:
        print("\n".join(case.name for case in cases))
        return SUCCESS
    for name in (*_OUTPUTS, *(["baseline"] if settings.update_baseline else [])):
        target = getattr(settings, name)
        if target not in (None, "-") and (obstacle := file_obstacle(target)):
            raise ResultsError(f"cannot write --{name} {target}: {obstacle}")
    known = expectations.read(
        settings.baseline,
        settings.skips,
        settings.flakes,
        settings.allow_not_delegated,
        settings.update_baseline,
    )
    return _run(settings, cases, known)


def _check_options(options: Mapping[str, str]) -> None:
    """Raise UsageError or ProfileError where opencl has no such option or profile."""
    if unknown := sorted(set(options) - set(OPENCL_OPTIONS)):
        known = ", ".join(OPENCL_OPTIONS)
        raise UsageError(f"--delegate_options {unknown[0]}: opencl has {known}")
    if "device_profile" in options:
        read_device_profile(options["device_profile"])


def _run(settings: Settings, cases: list[Case], known: expectations.Expectations) -> int:
    begun = time.monotonic()
    results, device, runtime = _results(settings, cases, known)
    rows = [_row(case, results[case.name], known) for case in cases]
    seconds = time.monotonic() - begun
    report = Report(
        rows, settings.delegate, device or "no device", runtime or "no runtime", seconds
    )
    if settings.update_baseline and settings.baseline is not None:
        comment = f"{settings.delegate} on {report.device}"
        text = expectations.baseline_text(results.values(), known.baseline, comment)
        with _writing(settings.baseline):
            write_file(settings.baseline, text)
    _summary(report, settings)  # first: a file may not be writable any more
    _write(settings, report)
    if settings.update_baseline:
        return SUCCESS
    if all(row.result.result == SKIP for row in rows):
        return NOTHING_RUN
    return NOT_SO if report.unexpected else SUCCESS


def _results(
    settings: Settings, cases: list[Case], known: expectations.Expectations
) -> tuple[dict[str, Result], str, str]:
    """Run the cases, but for those done before; return their results, the device, the runtime."""
    folder, run = Folder(settings.output), _described(settings)
    done = folder.resume(run) if settings.resume else {}
    wanted = {case.name for case in cases}
    results = {name: result for name, result in done.items() if name in wanted}
    for case in cases:
        if known.is_skipped(case.name):
            results.setdefault(case.name, Result(case.name, SKIP, "listed in --skips"))
    left = [item_of(case, settings.models) for case in cases if case.name not in results]
    before = len(results)
    facts = {"device": "", "runtime": ""}

    def ready(device: str, runtime: str) -> None:
        if settings.expect_device and not re.search(settings.expect_device, device):
            raise CannotRun(f"the device is {device}, not {settings.expect_device}")
        facts.update(device=device, runtime=runtime)

    try:
        with folder.writing(run, known, results) as writer, _progress(len(cases), known) as show:
            for result in results.values():
                show(result, is_known=True)

            def add(result: Result) -> None:
                results[result.name] = result
                writer.add(result)
                show(result)

            _workers(settings, ready).run(left, settings.jobs, add)
    except BaseException:
        if len(results) > before:
            _complain(f"{len(results)} of {len(cases)} cases are done; --resume goes on with them")
        raise
    return results, facts["device"], facts["runtime"]


def _described(settings: Settings) -> dict[str, Any]:
    """Return the settings that results depend on: --resume goes on only with the same."""
    return {
        "delegate": settings.delegate,
        "delegate_options": settings.delegate_options,
        "device": settings.device,
        "runtime": settings.runtime,
        "tolerance": "teflon" if settings.tolerance is None else settings.tolerance,
        "alternatives": settings.alternatives or None,  # as in folders that know of none
    }


def _row(case: Case, result: Result, known: expectations.Expectations) -> Row:
    status = known.status(result)
    return Row(case, result, status, known.is_expected(status))


def _workers(settings: Settings, ready: Callable[[str, str], None]) -> Workers:
    spec = settings.delegate
    if spec not in ("opencl", "xnnpack") and not spec.startswith("python:"):
        # A worker has another folder; a bare name is for the loader to find.
        spec = str(Path(spec).resolve()) if "/" in spec or Path(spec).exists() else spec
    return Workers(
        spec,
        settings.delegate_options,
        settings.device,
        settings.runtime,
        settings.tolerance,
        settings.timeout,
        ready,
        settings.alternatives,
    )


def _write(settings: Settings, report: Report) -> None:
    for name, text_of in _OUTPUTS.items():
        target = getattr(settings, name)
        if target is None:
            continue
        text = text_of(report)
        if target == "-":
            print(text, end="")
            continue
        if name == "coverage" and Path(target).is_file():
            with _writing(target):
                text = coverage.placed(Path(target).read_text("utf-8"), text)
        with _writing(target):
            write_file(target, text)


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    """Turn an error of writing, or renewing, this file into a ResultsError."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ResultsError(f"cannot write {path}: {reason}") from None


def _summary(report: Report, settings: Settings) -> None:
    out = sys.stderr if "-" in (getattr(settings, name) for name in _OUTPUTS) else sys.stdout
    wrong = [row for row in report.unexpected if row.status != NOT_DELEGATED]
    for row in wrong[:_SHOWN]:
        print(printable(f"{row.status} {row.case.name}: {row.result.detail}"), file=out)
    if len(wrong) > _SHOWN:
        print(f"and {len(wrong) - _SHOWN} more: see failures.csv", file=out)
    counts = ", ".join(f"{status} {count}" for status, count in report.counts().items())
    print(printable(f"{report.delegate} on {report.device}, {report.runtime}"), file=out)
    print(f"{len(report.rows)} cases in {report.seconds:.0f} s: {counts}", file=out)
    if report.rows and all(row.result.result != PASS for row in report.rows):
        print("nothing passed: is this the right delegate and device?", file=out)


def _complain(text: str) -> None:
    print(printable(text), file=sys.stderr)


@contextlib.contextmanager
def _progress(total: int, known: expectations.Expectations) -> Iterator[Callable[..., None]]:
    """Give a function to call after each case; it tells on stderr how far the run is.

    On a terminal that is a bar, elsewhere a line each 10 seconds.
    """
    tally = Tally(total, time.monotonic())

    with _bar(total, tally) if sys.stderr.isatty() else _lines(tally) as step:

        def show(result: Result, is_known: bool = False) -> None:
            tally.add(known.status(result), result.name, is_known)
            step()

        yield show


@contextlib.contextmanager
def _bar(total: int, tally: Tally) -> Iterator[Callable[[], None]]:
    columns = (
        BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("opening the delegate", total=total)
        yield lambda: bar.update(task, advance=1, description=tally.counts)


@contextlib.contextmanager
def _lines(tally: Tally) -> Iterator[Callable[[], None]]:
    is_over = threading.Event()

    def tell() -> None:
        while not is_over.wait(LINE_SECONDS):
            _complain(tally.line(time.monotonic()))

    teller = threading.Thread(target=tell, daemon=True)  # a case may hang
    teller.start()
    try:
        yield lambda: None
    finally:
        is_over.set()
        teller.join()
