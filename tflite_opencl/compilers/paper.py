# SPDX-License-Identifier: Apache-2.0
"""Run times estimated from compiler listings and GPU data sheets.

The clocks, lanes and memory of the boards' GPUs are from data sheets: no driver reports them.
The delegate uses none of this: it measures.

A launch takes the longer of two times. Compute: instructions outside the hot loop once per
work-item, and those of the loop as often as the node's multiply-adds require, over the unit's rate.
Memory: every tensor and constant read or written, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from delegate.inspect import ExpectedLaunch
from tflite_opencl.compilers.statistics import Listing


@dataclass(frozen=True, slots=True)
class Chip:
    """A GPU on a board."""

    board: str
    megahertz: int
    gigabytes_a_second: float  # between GPU and memory
    has_one_issue: bool  # the units' times add up; otherwise the busiest unit's time counts
    # Unit of the compiler's listing -> work-items that all such units of the GPU serve per clock,
    # with one instruction each.
    rates: Mapping[str, int]

    @property
    def does(self) -> str:
        """Its throughput per clock, for people."""
        return ", ".join(f"{rate} {unit}" for unit, rate in self.rates.items())


# Adreno. Clocks: the operating points of Linux' sdm845.dtsi and sm8550.dtsi. Lanes: 6xx has two
# partitions of 64 floats, 32 integers, 8 special functions (and as many integer multipliers) in
# each of its texture and shader processors: "Inside the Snapdragon 855's iGPU", chipsandcheese.com,
# which measured 90 % of that. 630: 727 GFLOPS at 710 MHz are 512 lanes; 740: 1.8 TFLOPS at 600 MHz
# are 1536. That 740's integer rate is half of that is extrapolated from 6xx.
# Half precision is twice as fast as float, by Qualcomm's guide to OpenCL.
# Mali. Per-core rates are those of Mesa's own statistics (bifrost_compile.c: 24 pairs, one message;
# Valhall: 64, 64 and 16). Cores: A311D has 6 engines of 8 lanes, which are 2 cores; RK3588's
# G610 MP4 has 4.
# V3D: 2 slices of 4 QPUs of 4 lanes at 500 MHz (github.com/Idein/py-videocore6).
# Memory: data rate times bus width of the boards:
# LPDDR4X-3733 of 64 bits, LPDDR5X-8400 of 64, LPDDR4-3200 of 32, LPDDR4X-4224 of 64, LPDDR4-3200 of
# 32.
CHIPS: Mapping[str, Chip] = {
    "FD630": Chip("Snapdragon 845", 710, 29.9, True,
                  {"float": 512, "half": 1024, "integer": 256, "special": 64}),
    "FD740": Chip("Snapdragon 8 Gen 2", 680, 67.2, True,
                  {"float": 1536, "half": 3072, "integer": 768, "special": 192}),
    "Mali-G52 (Panfrost)": Chip("Amlogic A311D (VIM3)", 800, 12.8, False,
                                {"arithmetic": 48, "memory": 2}),
    "Mali-G610 (Panfrost)": Chip("RK3588", 1000, 33.8, False,
                                 {"multiplier": 256, "converter": 256, "special": 64, "memory": 4}),
    "V3D 4.2.14.0": Chip("Raspberry Pi 4", 500, 12.8, True, {"instruction": 32}),
}  # fmt: skip
NOT_SEEN = (
    "a launch's cost in the driver, waiting for memory that too few threads hide, caches, a clock "
    "that falls; outer loops and loops without multiply-adds of floats, which it passes once; "
    "branches that a run leaves out, which it counts"
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """One model's run on one chip; times in milliseconds."""

    total: float
    units: float  # compute time of all launches, with infinitely fast memory
    memory: float  # memory time of all launches, with infinitely fast units
    launches: int
    without: int  # omitted launches, whose kernels have no compiler statistics
    calls: int  # of kernels, where small launches are fused


def estimate(chip: Chip, launches: Iterable[tuple[ExpectedLaunch, Listing | None]]) -> Estimate:
    """Return a run's estimated time."""
    pairs = list(launches)
    known = [(launch, listing) for launch, listing in pairs if listing is not None]
    units = [_units_seconds(chip, launch, listing) for launch, listing in known]
    memory = [launch.size_bytes / (chip.gigabytes_a_second * 1e9) for launch, _ in known]
    longer = map(max, units, memory)
    total, of_units, of_memory = (round(1e3 * sum(each), 3) for each in (longer, units, memory))
    calls = len({launch.call for launch, _ in pairs})
    return Estimate(total, of_units, of_memory, len(pairs), len(pairs) - len(known), calls)


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
    lines = [
        f"On paper, on a {chip.board} at {chip.megahertz} MHz with {chip.gigabytes_a_second:g} "
        f"GB/s, where a clock does {chip.does}:"
    ]
    for model, each in estimates.items():
        lines.append(
            f"  {model}: {each.total:.2f} ms a run of {each.launches} launches in "
            f"{each.calls} calls (units {each.units:.2f}, memory {each.memory:.2f})"
        )
        if each.without:
            lines[-1] += f"; {each.without} launches left out, whose kernels nothing is told of"
    return "\n".join([*lines, f"It does not see {NOT_SEEN}."])
