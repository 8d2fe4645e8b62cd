# SPDX-License-Identifier: Apache-2.0
"""Results of cases, expectations, and the results folder, written incrementally.

An interrupted run can be resumed. results.csv and failures.csv are deqp-runner's; details.jsonl
has all details of a case. Expectation files are as in Mesa's CI: a baseline has lines
`name,Fail`; skips and flakes are regular expressions, one per line; lines with `#` are comments.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tflite_opencl.console.errors import OneLineError
from tflite_opencl.console.files import write_file
from tflite_opencl.models.build import Case

PASS, FAIL, NOT_DELEGATED, SKIP = "Pass", "Fail", "NotDelegated", "Skip"
# A worker cannot report these about itself.
CRASH, TIMEOUT, FLAKE = "Crash", "Timeout", "Flake"
EXPECTED_FAIL, KNOWN_FLAKE, IMPROVEMENT = "ExpectedFail", "KnownFlake", "UnexpectedImprovement"
# Results allowed in a baseline, best first.
_LISTED = (NOT_DELEGATED, FAIL, TIMEOUT, CRASH)
_DETAILS, _RUN = "details.jsonl", "run.json"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one case."""

    result: str  # one of the constants above
    detail: str = ""
    quanta: float = 0  # the largest difference, even if tolerated
    taken: int = 0  # delegated nodes
    nodes: int = 0
    alternative: str = ""  # the alternative it belongs to, if several ran; prefixes the detail
    name: str = ""  # of the case, unknown to the check
    seconds: float = 0
    stderr: str = ""  # the driver's output


def date_and_time() -> str:
    """Return the current date and time, as in RFC 3339."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def named(alternative: str, detail: str) -> str:
    """Return a detail prefixed by the alternative, if any."""
    return f"{alternative}: {detail}" if alternative else detail


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A result with its case and expectation."""

    case: Case
    result: CaseResult
    status: str  # of results.csv
    is_expected: bool


@dataclass(frozen=True, slots=True)
class ConformanceReport:
    """Everything that reports contain."""

    rows: Sequence[ReportRow]
    delegate: str
    device: str
    runtime: str
    seconds: float
    begun: str = ""  # date and time, as in RFC 3339
    not_run: int = 0  # cases that --minutes left out
    build: str = ""  # the kernel's, in KernelCI's database: "origin:rest"

    def counts(self) -> dict[str, int]:
        """Return how many rows have each status, the most frequent first."""
        return dict(Counter(row.status for row in self.rows).most_common())

    @property
    def unexpected(self) -> list[ReportRow]:
        """Return the rows that make the run fail."""
        return [row for row in self.rows if not row.is_expected]


@dataclass(frozen=True, slots=True)
class Expectations:
    """The expectations for a driver."""

    baseline: Mapping[str, str] = field(default_factory=dict)  # name -> result
    skips: Sequence[re.Pattern[str]] = ()
    flakes: Sequence[re.Pattern[str]] = ()
    not_delegated_is_fine: bool = False

    def is_skipped(self, name: str) -> bool:
        """Whether a case is to be skipped."""
        return any(pattern.search(name) for pattern in self.skips)

    def status(self, result: CaseResult) -> str:
        """Return the status for results.csv: the result adjusted by the expectations."""
        is_flaky = any(pattern.search(result.name) for pattern in self.flakes)
        if is_flaky and result.result in (FLAKE, FAIL, CRASH, TIMEOUT):
            return KNOWN_FLAKE
        known = self.baseline.get(result.name)
        if known is None or result.result in (SKIP, FLAKE):
            return result.result
        if known == result.result:
            return EXPECTED_FAIL
        if result.result == PASS or _LISTED.index(result.result) < _LISTED.index(known):
            return f"{IMPROVEMENT}({result.result})"
        return result.result

    def is_expected(self, status: str) -> bool:
        """Whether the run succeeds with this status."""
        if status == NOT_DELEGATED:
            return self.not_delegated_is_fine
        return status in (PASS, SKIP, EXPECTED_FAIL, KNOWN_FLAKE)


def read(
    baseline: str | None,
    skips: Sequence[str],
    flakes: Sequence[str],
    not_delegated_is_fine: bool,
    may_be_missing: bool = False,
) -> Expectations:
    """Read expectation files; `may_be_missing`: a baseline to be written.

    Raises: OneLineError: a file cannot be read or parsed; the text names file and line.
    """
    known: dict[str, str] = {}
    if baseline is not None and not (may_be_missing and not Path(baseline).exists()):
        for number, line in _lines(baseline):
            name, comma, result = line.rpartition(",")
            if not comma or result not in _LISTED:
                words = f"'{line}' is not NAME,{'|'.join(_LISTED)}"
                raise OneLineError(f"{baseline}:{number}: {words}")
            known[name] = result
    return Expectations(known, _patterns(skips), _patterns(flakes), not_delegated_is_fine)


def baseline_text(results: Iterable[CaseResult], old: Mapping[str, str], comment: str) -> str:
    """Return a baseline of these results; cases that did not run keep their entries."""
    listed = dict(old)
    for result in results:
        listed.pop(result.name, None)
        if result.result in _LISTED:
            listed[result.name] = result.result
    return "".join([f"# {comment}\n", *(f"{name},{listed[name]}\n" for name in sorted(listed))])


def _lines(path: str) -> list[tuple[int, str]]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise OneLineError(f"cannot read {path}: {reason}") from None
    stripped = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line) for number, line in stripped if line and not line.startswith("#")]


def _patterns(paths: Sequence[str]) -> list[re.Pattern[str]]:
    found = []
    for path in paths:
        for number, line in _lines(path):
            try:
                found.append(re.compile(line))
            except re.error as error:
                raise OneLineError(f"{path}:{number}: '{line}': {error}") from None
    return found


def resumed(folder: Path, run: dict[str, Any]) -> dict[str, CaseResult]:
    """Return an earlier run's results with the same settings in this folder, by case.

    Raises: OneLineError: there is none, or it has other settings.
    """
    try:
        before = json.loads((folder / _RUN).read_text("utf-8"))
        lines = (folder / _DETAILS).read_text("utf-8").splitlines()
    except FileNotFoundError:
        raise OneLineError(f"{folder} has no run to go on with") from None
    except (OSError, ValueError) as error:
        raise OneLineError(f"cannot read {folder}: {error}") from None
    if not isinstance(before, dict):
        raise OneLineError(f"cannot read {folder}: {_RUN} is no description of a run")
    for key, value in run.items():
        if before.get(key) != value:
            words = f"{key} was {before.get(key)}, now {value}"
            raise OneLineError(f"{folder} is of another run: {words}")
    done = {}
    for line in lines:
        # A killed run may have left a partial line.
        with contextlib.suppress(ValueError, TypeError):
            result = CaseResult(**json.loads(line))
            done[result.name] = result
    return done


@contextlib.contextmanager
def writing(folder: Path, run: dict[str, Any]) -> Iterator[Callable[[ReportRow], None]]:
    """Yield a function that writes a row immediately to all files of a folder.

    Raises: OneLineError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(str(folder / _RUN), json.dumps(run, indent=1) + "\n")
        with contextlib.ExitStack() as stack:
            details, csv, failures = (
                stack.enter_context(open(folder / name, "w", encoding="utf-8", buffering=1))
                for name in (_DETAILS, "results.csv", "failures.csv")
            )

            def add(row: ReportRow) -> None:
                details.write(json.dumps(dataclasses.asdict(row.result)) + "\n")
                csv.write(f"{row.case.name},{row.status},{row.result.seconds:.4f}\n")
                if not row.is_expected:
                    failures.write(f"{row.case.name},{row.status}\n")

            yield add
    except OSError as error:
        raise OneLineError(f"cannot write {folder}: {error.strerror}") from None
