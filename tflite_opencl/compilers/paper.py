# SPDX-License-Identifier: Apache-2.0
"""A model on paper: what a run should take, by the compiler's listings and the chip's data sheet.

A launch takes the longer of two times. Its units' time: instructions outside the hot loop once an
item, and those of the loop as often as the node's multiply-adds ask for, over the unit's rate. Its
memory's time: every tensor and constant that it reads or writes, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tflite_opencl.compilers.chips import Chip
from tflite_opencl.compilers.kernel_uses import ExpectedLaunch
from tflite_opencl.compilers.listing import Listing

NOT_SEEN = (
    "a launch's cost in the driver, waiting for memory that too few threads hide, caches, a clock "
    "that falls; outer loops and loops without multiply-adds of floats, which it passes once; "
    "branches that a run leaves out, which it counts"
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """One model's run on one chip; times in milliseconds."""

    total: float
    units: float  # all launches' units, as if memory took no time
    memory: float  # all launches' memory, as if units took no time
    launches: int
    without: int  # launches that are left out: the compiler told nothing of their kernels


def estimate(chip: Chip, launches: Iterable[tuple[ExpectedLaunch, Listing | None]]) -> Estimate:
    """Return what a run takes on paper."""
    totals = units_time = memory_time = 0.0
    count = without = 0
    for launch, listing in launches:
        count += 1
        if listing is None:
            without += 1
            continue
        units = _units_seconds(chip, launch, listing)
        memory = launch.size_bytes / (chip.gigabytes_a_second * 1e9)
        totals += max(units, memory)
        units_time += units
        memory_time += memory
    return Estimate(
        total=round(1e3 * totals, 3),
        units=round(1e3 * units_time, 3),
        memory=round(1e3 * memory_time, 3),
        launches=count,
        without=without,
    )


def _units_seconds(chip: Chip, launch: ExpectedLaunch, listing: Listing) -> float:
    passes = launch.products / (launch.items * listing.products) if listing.products else 0.0
    passes = max(passes, 1.0)
    clocks = [
        launch.items * (listing.once.get(unit, 0) + passes * listing.loop.get(unit, 0)) / rate
        for unit, rate in chip.rates.items()
    ]
    return (sum(clocks) if chip.has_one_issue else max(clocks)) / (chip.megahertz * 1e6)


def paper_text(chip: Chip, estimates: Mapping[str, Estimate]) -> str:
    """Return the models' estimates with their assumptions."""
    rates = ", ".join(f"{rate} {unit}" for unit, rate in chip.rates.items())
    lines = [
        f"On paper, on a {chip.board} at {chip.megahertz} MHz with {chip.gigabytes_a_second:g} "
        f"GB/s, where a clock does {rates}:"
    ]
    for model, each in estimates.items():
        lines.append(
            f"  {model}: {each.total:.2f} ms a run of {each.launches} launches (units "
            f"{each.units:.2f}, memory {each.memory:.2f})"
        )
        if each.without:
            lines[-1] += f"; {each.without} launches left out, whose kernels nothing is told of"
    return "\n".join([*lines, f"It does not see {NOT_SEEN}."])
