# SPDX-License-Identifier: Apache-2.0
"""The analytical performance model, with numbers that can be checked by hand."""

from __future__ import annotations

from dataclasses import replace

from delegate.inspect import ExpectedLaunch
from tflite_opencl.compilers.paper import CHIPS, NOT_SEEN, Chip, Estimate, estimate, paper_text
from tflite_opencl.compilers.statistics import Listing

CHIP = Chip("a board", 1000, 1.0, True, {"fast": 10, "slow": 2})
# 4 multiply-adds per iteration: 1000 items of 20 products iterate 5 times.
LISTING = Listing({"fast": 10, "slow": 2, "wait": 99}, {"fast": 8}, products=4, lines=9)
LAUNCH = ExpectedLaunch(items=1000, products=20_000, size_bytes=500)


def test_times_of_units_add_up_for_single_issue() -> None:
    # fast: 1000 x (10 + 5 x 8) / 10 clocks; slow: 1000 x 2 / 2; a clock is 1 ns; 500 bytes 500 ns.
    result = estimate(CHIP, [(LAUNCH, LISTING), (LAUNCH, LISTING)])
    times = {"total": 0.012, "units": 0.012, "memory": 0.001}
    assert result == Estimate(**times, launches=2, without=0, calls=1)
    apart = estimate(CHIP, [(LAUNCH, LISTING), (replace(LAUNCH, call=1), LISTING)])
    assert apart == replace(result, calls=2)


def test_busiest_unit_counts_otherwise() -> None:
    chip = replace(CHIP, has_one_issue=False)
    assert estimate(chip, [(LAUNCH, LISTING)]).total == 0.005
    assert estimate(chip, [(LAUNCH, replace(LISTING, once={"slow": 20}))]).total == 0.010


def test_memory_bound() -> None:
    large = replace(LAUNCH, size_bytes=1_000_000)
    assert estimate(CHIP, [(large, LISTING)]) == Estimate(1.0, 0.006, 1.0, 1, 0, 1)


def test_loop_runs_at_least_once() -> None:
    # A pooling has no multiply-adds, but its kernel may have a loop with some.
    pool = replace(LAUNCH, products=0)
    assert estimate(CHIP, [(pool, LISTING)]).units == round(1e-3 * (1.8 + 1.0), 3)


def test_unknown_kernels_are_left_out_with_note() -> None:
    result = estimate(CHIP, [(LAUNCH, LISTING), (LAUNCH, None)])
    assert (result.launches, result.without, result.total) == (2, 1, 0.006)
    text = paper_text(CHIP, {"a model": result})
    assert "a model: 0.01 ms a run of 2 launches in 1 calls (units 0.01, memory" in text
    assert "0.00); 1 launches left out" in text
    assert "a board at 1000 MHz with 1 GB/s, where a clock does 10 fast, 2 slow:" in text
    assert NOT_SEEN in text


def test_chips_have_units_of_their_compilers() -> None:
    units = {
        "FD": {"float", "half", "integer", "special"},
        "Mali-G5": {"arithmetic", "memory"},
        "Mali-G6": {"multiplier", "converter", "special", "memory"},
        "V3D": {"instruction"},
    }
    for name, chip in CHIPS.items():
        (wanted,) = (each for start, each in units.items() if name.startswith(start))
        assert {*chip.rates} == wanted
