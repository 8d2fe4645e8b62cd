# SPDX-License-Identifier: Apache-2.0
"""The tflite-delegate-test command: cases -> workers -> reports. Nothing else prints or exits."""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from delegate import ProfileError
from delegate.inspect import write_model
from tflite_opencl.cli.flags import prepare_environment
from tflite_opencl.cli.messages import printable, version_lines
from tflite_opencl.cli.outputs import keep_inputs
from tflite_opencl.cli.scheduler import require_distributed
from tflite_opencl.conformance import (
    corpus,
    flags,
    kernelci,
    reduce,
    reports,
    results,
    telling,
)
from tflite_opencl.conformance.progress import Tally, told
from tflite_opencl.conformance.results import (
    NOT_DELEGATED,
    PASS,
    SKIP,
    CaseResult,
    ConformanceReport,
    Expectations,
    ReportRow,
)
from tflite_opencl.conformance.runner import CannotRun, Workers
from tflite_opencl.conformance.selection import item_of, select
from tflite_opencl.conformance.subject import COMPILED_MODEL, OPENCL, require_options
from tflite_opencl.console import bars
from tflite_opencl.console.errors import OneLineError, code_of, make_folder, require_writable, write
from tflite_opencl.console.exit_codes import NOT_SO, NOTHING_RUN, SUCCESS
from tflite_opencl.console.files import file_obstacle, write_file
from tflite_opencl.console.start import OutputError
from tflite_opencl.console.tables import terminal_width
from tflite_opencl.models.build import Case

_SHOWN = 20  # unexpected results on the terminal
_OUTPUTS: dict[str, Callable[[ConformanceReport], str]] = {
    "junit": reports.junit,
    "ktap": reports.ktap,
    "lava": reports.lava,
    "kernelci": kernelci.kernelci,
    "json": reports.as_json,
    "html": reports.html,
    "coverage": reports.table,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    prepare_environment()
    try:
        return _command(flags.parse(sys.argv[1:] if arguments is None else arguments))
    except CannotRun as error:
        _complain(f"SKIP: {error}")
        return NOTHING_RUN
    except OutputError:  # stdout and stderr cannot be written
        raise
    except (OneLineError, ProfileError) as error:
        _complain(f"ERROR: {error}")
        return code_of(error)


def _command(options: argparse.Namespace) -> int:
    if options.version:
        print("\n".join(map(printable, version_lines("tflite-delegate-test"))))
        return SUCCESS
    if options.delegate == OPENCL:
        require_options(options.delegate_options)
    given = vars(options) | ({"baseline": None} if options.update_baseline else {})
    keep_inputs(given)
    require_writable(options.output, is_folder=True)
    if options.reduce is not None:
        for line in reduce.reduce(options.reduce, _workers(options), Path(options.output)):
            print(line, flush=True)
        return SUCCESS
    if options.corpus is not None:
        return _print_corpus(options)
    cases = select(options)
    if options.minutes is not None:
        cases = telling.ordered(cases, telling.failed_before(options.earlier), options.seed)
    if options.list:
        print("\n".join(case.name for case in cases))
        return SUCCESS
    if options.write_models is not None:
        _write_models(cases, options.write_models)
        return SUCCESS
    for name in (*_OUTPUTS, *(["baseline"] if options.update_baseline else [])):
        target = getattr(options, name)
        if target in (None, "-") or Path(target).parent == Path(options.output):
            continue  # the run makes this folder
        if obstacle := file_obstacle(target):
            raise OneLineError(f"cannot write --{name} {target}: {obstacle}")
    files = options.baseline, options.skips, options.flakes
    known = results.read(*files, options.allow_not_delegated, options.update_baseline)
    if options.scheduler:
        return _run_fleet(options, cases, known)
    return _run(options, cases, known)


def _write_models(cases: Sequence[Case], folder: str) -> None:
    for case in cases:
        path = Path(folder) / f"{case.name}.tflite"
        make_folder(path.parent)
        write(str(path), write_model(case.make()))


def _print_corpus(options: argparse.Namespace) -> int:
    made = corpus.corpus(options.corpus)
    if options.html not in (None, "-"):
        _write(options.html, corpus.html(made))
    else:
        text = corpus.html(made) if options.html else corpus.markdown(made)
        print(text, end="")
    return SUCCESS


def _run_fleet(options: argparse.Namespace, cases: list[Case], known: Expectations) -> int:
    require_distributed()
    # An optional dependency that takes half a second to import.
    from tflite_opencl.conformance.fleet import matrix, run

    settings = _settings(options)
    fleet = run.run_fleet(options, cases, known, settings, _described(options), _complain)
    text = matrix.text_of(fleet, terminal_width())
    print(printable(text, kept="\n"), file=sys.stderr if options.json == "-" else sys.stdout)
    if options.json == "-":
        print(matrix.as_json(fleet), end="")
    elif options.json is not None:
        _write(options.json, matrix.as_json(fleet))
    return NOT_SO if fleet.unexpected or fleet.why_not else SUCCESS


def _run(options: argparse.Namespace, cases: list[Case], known: Expectations) -> int:
    begun, date = time.monotonic(), results.date_and_time()
    until_s = math.inf if options.minutes is None else begun + 60 * options.minutes
    rows, device, runtime = _rows(options, cases, known, until_s)
    report = ConformanceReport(
        rows,
        options.delegate + (" --compile_only" if options.compile_only else ""),
        device,
        runtime,
        time.monotonic() - begun,
        date,
        len(cases) - len(rows),
        options.kernelci_build or "",
    )
    if options.update_baseline:
        comment = f"{options.delegate} on {report.device}"
        found = (row.result for row in rows)
        _write(options.baseline, results.baseline_text(found, known.baseline, comment))
    _summary(report, options)  # first: a file may have become unwritable
    for name, text_of in _OUTPUTS.items():
        target = getattr(options, name)
        if target == "-":
            print(text_of(report), end="")
        elif target is not None:
            _write(target, text_of(report), is_placed=name == "coverage")
    if options.update_baseline:
        return SUCCESS
    if all(row.result.result == SKIP for row in rows):
        return NOTHING_RUN
    return NOT_SO if report.unexpected else SUCCESS


def _rows(
    options: argparse.Namespace, cases: list[Case], known: Expectations, until_s: float
) -> tuple[list[ReportRow], str, str]:
    """Run the cases, except finished ones; return the rows, the device and the runtime.

    Cases that `until_s` of time.monotonic() left out have no row.
    """
    folder, run = Path(options.output), _described(options)
    before = results.resumed(folder, run) if options.resume else {}
    for case in cases:
        if known.is_skipped(case.name):
            before.setdefault(case.name, CaseResult(SKIP, "listed in --skips", name=case.name))
    todo = [case for case in cases if case.name not in before]
    by_name, rows = {case.name: case for case in cases}, dict[str, ReportRow]()
    found = ["no device", "no runtime"]

    def ready(device: str, runtime: str) -> None:
        if options.expect_device and not re.search(options.expect_device, device):
            raise CannotRun(f"the device is {device}, not {options.expect_device}")
        found[:] = device, runtime

    tally = Tally(len(cases), time.monotonic())
    bars.be_quiet(options.quiet)
    try:
        with results.writing(folder, run) as write, told(tally, _complain, options.quiet) as show:

            def add(result: CaseResult) -> None:
                status = known.status(result)
                row = ReportRow(by_name[result.name], result, status, known.is_expected(status))
                rows[result.name] = row
                write(row)
                tally.add(status, result.name, result.name in before)
                show()

            for case in cases:
                if case.name in before:
                    add(before[case.name])
            left = [item_of(case) for case in todo]
            _workers(options, ready).run(left, options.jobs, add, until_s=until_s)
    except BaseException:
        if len(rows) > len(cases) - len(todo):
            _complain(f"{len(rows)} of {len(cases)} cases are done; --resume goes on with them")
        raise
    device, runtime = found
    return [rows[case.name] for case in cases if case.name in rows], device, runtime


def _described(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that results depend on: --resume requires the same."""
    return {
        "delegate": options.delegate,
        "delegate_options": options.delegate_options,
        "device": options.device,
        "runtime": options.runtime,
        "tolerance": options.tolerance,
        "alternatives": options.alternatives or None,  # as in folders written without this key
        "compile_only": options.compile_only or None,
    }


def _workers(
    options: argparse.Namespace,
    ready: Callable[[str, str], None] = lambda device, runtime: None,
) -> Workers:
    return Workers(**_settings(options), on_ready=ready)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `Workers`."""
    spec = options.delegate
    if spec.startswith(COMPILED_MODEL):
        spec = COMPILED_MODEL + str(Path(spec.removeprefix(COMPILED_MODEL)).resolve())
    elif spec not in ("opencl", "xnnpack") and not spec.startswith("python:"):
        # Workers have another working directory; a bare name is left to the loader.
        spec = str(Path(spec).resolve()) if "/" in spec or Path(spec).exists() else spec
    return {
        "delegate": spec,
        "options": options.delegate_options,
        "device": options.device,
        "runtime": options.runtime,
        "tolerance": options.tolerance,
        "timeout": options.timeout,
        "alternatives": options.alternatives,
        "compile_only": options.compile_only,
    }


def _write(path: str, text: str, is_placed: bool = False) -> None:
    """Write a file; `is_placed`: in an existing page, replace only its table.

    Raises: OneLineError: it cannot be written or updated.
    """
    try:
        if is_placed and Path(path).is_file():
            text = reports.placed(Path(path).read_text("utf-8"), text)
        write_file(path, text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OneLineError(f"cannot write {path}: {reason}") from None


def _summary(report: ConformanceReport, options: argparse.Namespace) -> None:
    out = sys.stderr if "-" in (getattr(options, name) for name in _OUTPUTS) else sys.stdout
    wrong = [row for row in report.unexpected if row.status != NOT_DELEGATED]
    for row in wrong[:_SHOWN]:
        print(printable(f"{row.status} {row.case.name}: {row.result.detail}"), file=out)
    if len(wrong) > _SHOWN:
        print(f"and {len(wrong) - _SHOWN} more: see failures.csv", file=out)
    counts = ", ".join(f"{status} {count}" for status, count in report.counts().items())
    print(printable(f"{report.delegate} on {report.device}, {report.runtime}"), file=out)
    print(f"{len(report.rows)} cases in {report.seconds:.0f} s: {counts}", file=out)
    if report.not_run:
        print(f"{report.not_run} more were not run: --minutes {options.minutes:g}", file=out)
    if report.rows and all(row.result.result != PASS for row in report.rows):
        print("nothing passed: is this the right delegate and device?", file=out)


def _complain(text: str) -> None:
    print(printable(text), file=sys.stderr)
