# SPDX-License-Identifier: Apache-2.0
"""The folder of results: written case by case, so that a killed run can go on.

results.csv and failures.csv are deqp-runner's; details.jsonl has all that is known of a case.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tflite_opencl.common.build import Case
from tflite_opencl.common.errors import OneLineError
from tflite_opencl.common.files import write_file
from tflite_opencl.conformance.expectations import Expectations
from tflite_opencl.conformance.outcome import Result

_DETAILS, _RUN = "details.jsonl", "run.json"


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
        return dict(Counter(row.status for row in self.rows).most_common())

    @property
    def unexpected(self) -> list[Row]:
        """Return the rows that make the run fail."""
        return [row for row in self.rows if not row.is_expected]


def resumed(folder: Path, run: dict[str, Any]) -> dict[str, Result]:
    """Return what a run with the same settings has done in this folder, by the cases' names.

    Raises: OneLineError: there is none, or of another kind.
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
        # A run that was killed may have left half a line.
        with contextlib.suppress(ValueError, TypeError):
            result = Result(**json.loads(line))
            done[result.name] = result
    return done


@contextlib.contextmanager
def writing(
    folder: Path, run: dict[str, Any], known: Expectations
) -> Iterator[Callable[[Result], None]]:
    """Give a function that writes a result to all files of a folder at once.

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

            def add(result: Result) -> None:
                status = known.status(result)
                details.write(json.dumps(dataclasses.asdict(result)) + "\n")
                csv.write(f"{result.name},{status},{result.seconds:.4f}\n")
                if not known.is_expected(status):
                    failures.write(f"{result.name},{status}\n")

            yield add
    except OSError as error:
        raise OneLineError(f"cannot write {folder}: {error.strerror}") from None
