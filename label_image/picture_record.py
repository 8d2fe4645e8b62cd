# SPDX-License-Identifier: Apache-2.0
"""The printed row and JSON entry of one picture of many; can be sent between processes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from label_image.compare import Outcome
from label_image.decode_outputs import Meaning
from label_image.document import picture_entry
from label_image.result import Result


@dataclass(frozen=True, slots=True)
class PictureRecord:
    """A picture's outcome, for people and for JSON."""

    outcome: Outcome
    row: str
    entry: dict[str, Any]


def result_of(meaning: Meaning, outcome: Outcome, most: int) -> Result:
    """Decode a picture's outputs; `most`: results."""
    return Result(meaning, outcome.outputs, outcome.size, most)


def record_of(outcome: Outcome, name: str, result: Result) -> PictureRecord:
    """Return the record of a picture displayed as `name`."""
    error = outcome.error.replace(outcome.path, name)
    outcome = replace(outcome, path=name, error=error)
    return PictureRecord(outcome, "" if error else result.row(name), picture_entry(outcome, result))
