# SPDX-License-Identifier: Apache-2.0
"""Clocks, lanes and memory of the boards' GPUs, from data sheets: no driver here can be asked.

A rate is how many work-items a unit of the whole GPU serves in a clock, one instruction each.
The delegate knows none of this: it measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chip:
    """One GPU on one board."""

    board: str
    megahertz: int
    rates: Mapping[str, int]  # unit of the compiler's listing -> instructions a clock
    has_one_issue: bool  # the units' times add up; else the busiest unit's time counts
    gigabytes_a_second: float  # between GPU and memory


# Adreno. Clocks: the operating points of Linux' sdm845.dtsi and sm8550.dtsi. Lanes: 6xx has two
# partitions of 64 floats, 32 integers, 8 special functions (and as many integer multipliers) in
# each of its texture and shader processors: "Inside the Snapdragon 855's iGPU", chipsandcheese.com,
# which measured 90 % of that. 630: 727 GFLOPS at 710 MHz are 512 lanes; 740: 1.8 TFLOPS at 600 MHz
# are 1536. That 740's integers are half as many is taken from 6xx.
# Mali. Rates a core are those of Mesa's own count (bifrost_compile.c: 24 pairs, one message;
# Valhall: 64, 64 and 16). Cores: A311D has 6 engines of 8 lanes, which are 2 cores; RK3588's
# G610 MP4 has 4.
# V3D: 2 slices of 4 QPUs of 4 lanes at 500 MHz (github.com/Idein/py-videocore6).
# Memory: its data rate times its width, as the boards have it.
CHIPS: Mapping[str, Chip] = {
    "FD630": Chip(
        "Snapdragon 845",
        710,
        {"float": 512, "integer": 256, "special": 64},
        has_one_issue=True,
        gigabytes_a_second=29.9,  # LPDDR4X-3733, 64 bits
    ),
    "FD740": Chip(
        "Snapdragon 8 Gen 2",
        680,
        {"float": 1536, "integer": 768, "special": 192},
        has_one_issue=True,
        gigabytes_a_second=67.2,  # LPDDR5X-8400, 64 bits
    ),
    "Mali-G52 (Panfrost)": Chip(
        "Amlogic A311D (VIM3)",
        800,
        {"arithmetic": 48, "memory": 2},
        has_one_issue=False,
        gigabytes_a_second=12.8,  # LPDDR4-3200, 32 bits
    ),
    "Mali-G610 (Panfrost)": Chip(
        "RK3588",
        1000,
        {"multiplier": 256, "converter": 256, "special": 64, "memory": 4},
        has_one_issue=False,
        gigabytes_a_second=33.8,  # LPDDR4X-4224, 64 bits
    ),
    "V3D 4.2.14.0": Chip(
        "Raspberry Pi 4",
        500,
        {"instruction": 32},
        has_one_issue=True,
        gigabytes_a_second=12.8,  # LPDDR4-3200, 32 bits
    ),
}
