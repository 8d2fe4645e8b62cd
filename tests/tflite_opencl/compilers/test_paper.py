# SPDX-License-Identifier: Apache-2.0
"""The model on paper: its arithmetic, on numbers that can be checked by hand."""

from __future__ import annotations

from dataclasses import replace

from delegate.inspect import ExpectedLaunch
from tflite_opencl.compilers.paper import CHIPS, NOT_SEEN, Chip, Estimate, estimate, paper_text
from tflite_opencl.compilers.statistics import Listing

CHIP = Chip("a board", 1000, 1.0, True, {"fast": 10, "slow": 2})
# 4 multiply-adds a pass: 1000 items of 20 products pass the loop 5 times.
LISTING = Listing({"fast": 10, "slow": 2, "wait": 99}, {"fast": 8}, products=4, lines=9)
LAUNCH = ExpectedLaunch(items=1000, products=20_000, size_bytes=500)


def test_the_units_times_add_up_where_one_issues() -> None:
    # fast: 1000 x (10 + 5 x 8) / 10 clocks; slow: 1000 x 2 / 2; a clock is 1 ns; 500 bytes 500 ns.
    found = estimate(CHIP, [(LAUNCH, LISTING), (LAUNCH, LISTING)])
    assert found == Estimate(total=0.012, units=0.012, memory=0.001, launches=2, without=0)


def test_else_the_busiest_unit_counts() -> None:
    chip = replace(CHIP, has_one_issue=False)
    assert estimate(chip, [(LAUNCH, LISTING)]).total == 0.005
    assert estimate(chip, [(LAUNCH, replace(LISTING, once={"slow": 20}))]).total == 0.010


def test_memory_may_take_longer() -> None:
    large = replace(LAUNCH, size_bytes=1_000_000)
    assert estimate(CHIP, [(large, LISTING)]) == Estimate(1.0, 0.006, 1.0, 1, 0)


def test_a_loop_is_passed_once_at_least() -> None:
    # A pooling has no multiply-adds, but its kernel may have a loop of some.
    pool = replace(LAUNCH, products=0)
    assert estimate(CHIP, [(pool, LISTING)]).units == round(1e-3 * (1.8 + 1.0), 3)


def test_what_nothing_is_told_of_is_left_out_and_said() -> None:
    found = estimate(CHIP, [(LAUNCH, LISTING), (LAUNCH, None)])
    assert (found.launches, found.without, found.total) == (2, 1, 0.006)
    text = paper_text(CHIP, {"a model": found})
    assert "a model: 0.01 ms a run of 2 launches (units 0.01, memory 0.00); 1 launches left" in text
    assert "a board at 1000 MHz with 1 GB/s, where a clock does 10 fast, 2 slow:" in text
    assert NOT_SEEN in text


def test_every_chip_has_the_units_of_its_compilers_listing() -> None:
    units = {
        "FD": {"float", "half", "integer", "special"},
        "Mali-G5": {"arithmetic", "memory"},
        "Mali-G6": {"multiplier", "converter", "special", "memory"},
        "V3D": {"instruction"},
    }
    for name, chip in CHIPS.items():
        (wanted,) = (each for start, each in units.items() if name.startswith(start))
        assert {*chip.rates} == wanted
