# SPDX-License-Identifier: Apache-2.0
"""Interleaved rounds and comparisons; speed is not checked."""

from __future__ import annotations

import pytest

from benchmarks.measure import BLOCK_RUNS, Contender, compared, in_turns
from tflite_opencl.timing.timing import Times


def block(min_ms: float, median_ms: float) -> Times:
    return Times(median_ms, min_ms, median_ms, median_ms, 1.0, BLOCK_RUNS)


def test_blocks_are_interleaved() -> None:
    calls: list[str] = []
    contenders = [
        Contender("a", lambda: calls.append("a")),
        Contender("b", lambda: calls.append("b")),
        Contender("slow", lambda: calls.append("slow"), every=2),
    ]

    times = in_turns(contenders, runs=2 * BLOCK_RUNS + 1, settle_s=0)

    starts = [call for call, before in zip(calls, ["", *calls], strict=False) if call != before]
    assert starts == ["a", "b", "slow", "b", "a", "b", "slow"]
    assert {name: list(blocks) for name, blocks in times.items()} == {
        "a": [0, 1, 2], "b": [0, 1, 2], "slow": [0, 2]
    }  # fmt: skip
    # All timed blocks have equally many warm-up runs.
    warm_up, rest = divmod(calls.count("a") - 3 * BLOCK_RUNS, 3)
    assert warm_up > 0
    assert rest == 0


def test_comparison_with_the_leader() -> None:
    blocks = {
        "ours": {0: block(1.0, 2.0), 1: block(0.9, 1.0), 2: block(1.0, 1.5)},
        "theirs": {0: block(2.0, 4.0), 1: block(1.8, 4.0), 2: block(3.0, 3.0)},
        "slow": {0: block(10.0, 20.0), 2: block(10.0, 10.0)},
    }

    summary = compared(blocks)

    theirs = summary["theirs"]
    assert (theirs.runs, theirs.min_ms, theirs.median_ms) == (3 * BLOCK_RUNS, 1.8, 4.0)
    assert theirs.ratio == pytest.approx(0.9 / 1.8)
    assert theirs.ratio_of_medians == pytest.approx(1.5 / 4.0)
    assert theirs.ratio_quartiles == pytest.approx((0.375, 0.5))  # of 0.5, 0.25 and 0.5
    assert summary["slow"].ratio_quartiles == pytest.approx((0.1125, 0.1375))  # 0.1 and 0.15
    assert summary["ours"].ratio == 1
    assert summary["ours"].ratio_quartiles == (1, 1)


def test_no_spread_with_one_round() -> None:
    summary = compared({"ours": {0: block(1, 1)}, "theirs": {0: block(2, 2)}})
    assert summary["theirs"].ratio_quartiles == (0.5, 0.5)
