# SPDX-License-Identifier: Apache-2.0
"""A benchmark report with every kind of entry and invented numbers."""

from __future__ import annotations

from benchmarks.measure import PathTimes
from benchmarks.results import (
    BenchmarkReport,
    DelegationStats,
    Figure,
    Goal,
    LayerProfile,
    Layers,
    RowResult,
    Sweep,
)

OF_XNNPACK = Goal("of XNNPACK's time", 0.5, 0.25, against=("XNNPACK",))
RATE = Goal("throughput", 1000, 2000, "pictures/s", is_least=True)


def times(min_ms: float, ours_ms: float) -> PathTimes:
    """Return the times of 100 runs whose median is 10 % above the minimum."""
    ratio = ours_ms / min_ms
    return PathTimes(100, min_ms, min_ms * 1.1, ratio, ratio * 1.1, (ratio * 0.9, ratio * 1.2))


def row(name: str, ratio: float, not_judged: str = "") -> RowResult:
    """Return a row with 1 ms for OpenCL and 1 / `ratio` ms for XNNPACK."""
    return RowResult(
        name,
        f"case of {name}",
        device="a device (a platform, 1.0)",
        paths={"OpenCL": times(1.0, 1.0), "XNNPACK": times(1 / ratio, 1.0)},
        figures=[Figure(OF_XNNPACK, ratio, not_judged)],
        delegation=DelegationStats(31, 30, 1, 29, 150528, 1001, 0.5, 0.4),
        exact="equal to the reference kernels",
        missing={"tinygrad": "not installed"},
        notes=["a note"],
    )


def report() -> BenchmarkReport:
    """Return a report with rows of every verdict, two series and a profiled model."""
    return BenchmarkReport(
        machine={"GPU": "a GPU", "CPU": "a CPU with units", "OpenCL 0": "a device"},
        rows=[
            row("best", 0.2),
            row("good", 0.4),
            row("bad", 0.6),
            row("elsewhere", 3.0, "the figure is for another machine"),
            RowResult("rate", "pictures", figures=[Figure(RATE, 1500)]),
            RowResult("absent", "a case", skipped="there is no such device"),
            RowResult("broken", "a case", failed="it broke"),
        ],
        series=[
            Sweep(
                "threads",
                "Cost against threads",
                "threads",
                "ms a picture",
                {"OpenCL": [(1, 3.0), (2, 1.6)], "XNNPACK": [(1, 9.5), (2, 5.0)]},
                ["a model"],
            ),
            Sweep("batch", "Cost against batch", "", "", {}, ["skipped: there is no such device"]),
        ],
        layers=[
            Layers(
                "a_model",
                "a device",
                peak_multiply_adds=4e11,
                peak_bytes=1e11,
                peak_source="made up",
                layers=[
                    LayerProfile(
                        0, "CONV_2D", "1x4x4x8", "vnni 14x32", 100.0, 20_000_000, 1_000_000
                    ),
                    LayerProfile(1, "CONV_2D", "1x4x4x8", "plain", 50.0, 1_000_000, 4_000_000),
                    LayerProfile(2, "SOFTMAX", "1x1001", "plain", 50.0, 0, 2002),
                ],
            )
        ],
    )
