# SPDX-License-Identifier: Apache-2.0
"""What came of cases: the words for it, the records, and the folder that is written case by case.

So a killed run can go on. results.csv and failures.csv are deqp-runner's; details.jsonl has all
that is known of a case.
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

PASS, FAIL, NOT_DELEGATED, SKIP = "Pass", "Fail", "NotDelegated", "Skip"
# These a worker cannot say of itself.
CRASH, TIMEOUT, FLAKE = "Crash", "Timeout", "Flake"
_DETAILS, _RUN = "details.jsonl", "run.json"


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one case."""

    result: str  # one of the words above
    detail: str = ""
    quanta: float = 0  # the greatest difference, also one that was tolerated
    taken: int = 0  # nodes the delegate ran
    nodes: int = 0
    alternative: str = ""  # whose result it is, where several ran; the detail begins with it
    name: str = ""  # the case's: a check does not know it
    seconds: float = 0
    stderr: str = ""  # what the driver wrote meanwhile


def named(alternative: str, detail: str) -> str:
    """Return a detail that begins with the alternative, if there is one."""
    return f"{alternative}: {detail}" if alternative else detail


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
def writing(folder: Path, run: dict[str, Any]) -> Iterator[Callable[[Row], None]]:
    """Give a function that writes a row to all files of a folder at once.

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

            def add(row: Row) -> None:
                details.write(json.dumps(dataclasses.asdict(row.result)) + "\n")
                csv.write(f"{row.case.name},{row.status},{row.result.seconds:.4f}\n")
                if not row.is_expected:
                    failures.write(f"{row.case.name},{row.status}\n")

            yield add
    except OSError as error:
        raise OneLineError(f"cannot write {folder}: {error.strerror}") from None
