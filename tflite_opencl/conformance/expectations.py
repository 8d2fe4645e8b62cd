# SPDX-License-Identifier: Apache-2.0
"""Files of expected results as Mesa's CI has them, and the status of a result in their light.

A baseline has lines `name,Fail`; skips and flakes are regular expressions, one a line. In all,
lines that begin with `#` are comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tflite_opencl.common.build import Case
from tflite_opencl.common.errors import OneLineError
from tflite_opencl.conformance.results import (
    CRASH,
    FAIL,
    FLAKE,
    NOT_DELEGATED,
    PASS,
    SKIP,
    TIMEOUT,
    Result,
    Row,
)

EXPECTED_FAIL, KNOWN_FLAKE, IMPROVEMENT = "ExpectedFail", "KnownFlake", "UnexpectedImprovement"
# What a baseline may hold, the best first.
_LISTED = (NOT_DELEGATED, FAIL, TIMEOUT, CRASH)


@dataclass(frozen=True, slots=True)
class Expectations:
    """What is known of a driver."""

    baseline: Mapping[str, str] = field(default_factory=dict)  # name -> result
    skips: Sequence[re.Pattern[str]] = ()
    flakes: Sequence[re.Pattern[str]] = ()
    not_delegated_is_fine: bool = False

    def is_skipped(self, name: str) -> bool:
        """Whether a case is not to be run."""
        return any(pattern.search(name) for pattern in self.skips)

    def status(self, result: Result) -> str:
        """Return the word for results.csv: the result, or what the expectations make of it."""
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

    def row(self, case: Case, result: Result) -> Row:
        """Return a result beside its case, with its status."""
        status = self.status(result)
        return Row(case, result, status, self.is_expected(status))

    def is_expected(self, status: str) -> bool:
        """Whether a status leaves the run successful."""
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
    """Return what the files say; `may_be_missing`: a baseline that is to be written.

    Raises: OneLineError: a file cannot be read; the text names file and line.
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


def baseline_text(results: Iterable[Result], old: Mapping[str, str], comment: str) -> str:
    """Return a baseline of these results; what was not run stays as it was."""
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
