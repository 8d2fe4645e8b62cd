# SPDX-License-Identifier: Apache-2.0
"""The folder of results: written case by case, so that a killed run can go on.

results.csv and failures.csv are deqp-runner's; details.jsonl has all that is known of a case.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from tflite_opencl.common.build import Case
from tflite_opencl.common.errors import OneLineError
from tflite_opencl.common.files import write_file
from tflite_opencl.conformance.expectations import Expectations
from tflite_opencl.conformance.outcome import Result

_DETAILS, _RUN = "details.jsonl", "run.json"


class ResultsError(OneLineError):
    """The folder cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Row:
    """A result beside its case and what was expected of it."""

    case: Case
    result: Result
    status: str  # of results.csv
    is_expected: bool


@dataclass(frozen=True, slots=True)
class Report:
    """All that the outputs tell."""

    rows: Sequence[Row]
    delegate: str
    device: str
    runtime: str
    seconds: float

    def counts(self) -> dict[str, int]:
        """Return how many rows have each status, the most frequent first."""
        found: dict[str, int] = {}
        for row in self.rows:
            found[row.status] = found.get(row.status, 0) + 1
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    @property
    def unexpected(self) -> list[Row]:
        """Return the rows that make the run fail."""
        return [row for row in self.rows if not row.is_expected]


class Folder:
    """A folder that results are appended to."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def resume(self, run: dict[str, Any]) -> dict[str, Result]:
        """Return what a run with the same settings has done here.

        Raises: ResultsError: there is none, or of another kind.
        """
        try:
            before = json.loads((self.path / _RUN).read_text("utf-8"))
            lines = (self.path / _DETAILS).read_text("utf-8").splitlines()
        except FileNotFoundError:
            raise ResultsError(f"{self.path} has no run to go on with") from None
        except (OSError, ValueError) as error:
            raise ResultsError(f"cannot read {self.path}: {error}") from None
        if not isinstance(before, dict):
            raise ResultsError(f"cannot read {self.path}: {_RUN} is no description of a run")
        other = [key for key in run if before.get(key) != run[key]]
        if other:
            key = other[0]
            raise ResultsError(
                f"{self.path} is of another run: {key} was {before.get(key)}, now {run[key]}"
            )
        done = {}
        for line in lines:
            # A run that was killed may have left half a line.
            with contextlib.suppress(ValueError, TypeError):
                result = Result(**json.loads(line))
                done[result.name] = result
        return done

    @contextlib.contextmanager
    def writing(
        self, run: dict[str, Any], expectations: Expectations, done: dict[str, Result]
    ) -> Iterator[Writer]:
        """Give what results are told to, from the first of what was done before.

        Raises: ResultsError: the folder cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_file(str(self.path / _RUN), json.dumps(run, indent=1) + "\n")
            with contextlib.ExitStack() as stack:
                details, csv, failures = (
                    stack.enter_context(open(self.path / name, "w", encoding="utf-8"))
                    for name in (_DETAILS, "results.csv", "failures.csv")
                )
                writer = Writer(details, csv, failures, expectations)
                for result in done.values():
                    writer.add(result)
                yield writer
        except OSError as error:
            raise ResultsError(f"cannot write {self.path}: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class Writer:
    """Open files of results."""

    details: TextIO
    csv: TextIO
    failures: TextIO
    expectations: Expectations

    def add(self, result: Result) -> None:
        """Write one result to all files at once."""
        status = self.expectations.status(result)
        self.details.write(json.dumps(dataclasses.asdict(result)) + "\n")
        self.csv.write(f"{result.name},{status},{result.seconds:.4f}\n")
        if not self.expectations.is_expected(status):
            self.failures.write(f"{result.name},{status}\n")
        for stream in (self.details, self.csv, self.failures):
            stream.flush()
