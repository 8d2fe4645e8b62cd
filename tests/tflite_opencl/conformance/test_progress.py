# SPDX-License-Identifier: Apache-2.0
"""Progress of a run: finished and remaining cases, and the remaining time."""

from __future__ import annotations

import pytest

from tflite_opencl.conformance.progress import Tally


def test_line_has_finished_and_remaining_cases() -> None:
    tally = Tally(40, now_s=100.0)
    assert tally.line(112.0) == "0 of 40 cases in 12 s: the first one is not done yet"
    for number in range(9):
        tally.add("Pass", f"add/int8/{number}")
    tally.add("Fail", "add/int8/last")
    assert tally.line(120.0) == (
        "10 of 40 cases in 20 s, about 60 s left: Pass 9, Fail 1; last add/int8/last"
    )


def test_resumed_cases_took_no_time() -> None:
    tally = Tally(40, now_s=0.0)
    for number in range(20):
        tally.add("Pass", str(number), is_known=True)
    assert tally.line(10.0).endswith("not done yet")
    tally.add("Pass", "new")
    assert tally.line(10.0) == "21 of 40 cases in 10 s, about 3 min left: Pass 21; last new"


@pytest.mark.parametrize(
    ("seconds", "words"), [(99, "99 s"), (150, "2 min"), (7200, "2.0 h")], ids=str
)
def test_durations(seconds: float, words: str) -> None:
    assert Tally(1, 0.0).line(seconds).startswith(f"0 of 1 cases in {words}:")
