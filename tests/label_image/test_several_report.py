# SPDX-License-Identifier: Apache-2.0
"""The rows, the table and the JSON document of many pictures."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo, Verdict
from delegate.inspect import Portion
from label_image import several_report
from label_image.compare import CPU, Distances
from label_image.meaning import Meaning
from label_image.path import OpenPath
from label_image.paths import Outcome, Totals
from label_image.result import Result
from label_image.scene import Scene
from label_image.series import Series
from tests.support.compare import RUNTIME
from tests.support.model import graph_of, op
from tests.support.nets import image
from tflite_opencl.common.difference import Difference
from tflite_opencl.common.feeds import feeds_of
from tflite_opencl.common.job import Delegation, Job
from tflite_opencl.common.labels import Row
from tflite_opencl.common.words import stamped

GRAPH = graph_of([op("ADD", [image(), image()], [image()])])
TAKEN = Delegation(
    device="Vivante GC7000",
    platform="rusticl",
    driver="24.3",
    verdicts=(Verdict(0, "CONV_2D", None), Verdict(1, "SOFTMAX", None)),
    partitions=((0, 1),),
)
SCENE = Scene(rows=[Row(1, 0.5), Row(0, 0.25)], outputs=frozenset({0}))


def path(
    pictures: int, seconds: float, batch: int = 1, taken: Delegation | None = None
) -> OpenPath:
    made = OpenPath(lambda pixels: [], 12.5, batch, taken)
    made.pictures, made.seconds, made.cpu_seconds = pictures, seconds, 1.5 * seconds
    return made


@pytest.fixture
def series() -> Series:
    """A run of 32 pictures, 2 of them unreadable, on OpenCL and the CPU."""
    made = Series(Job(b"", np.zeros(1)), RUNTIME, GRAPH)
    made.gpu, made._beside = path(30, 0.125, 8, TAKEN), {CPU: path(30, 0.25)}
    same, apart = Difference(0), Difference(5)
    made.totals = Totals(30, 2, 0, 1.0, 4, Distances(same, apart, apart), 30, 0.5, 2.0)
    return made


def lines(series: Series, *arguments: str) -> list[str]:
    """Return the lines that are not empty, with single blanks."""
    text = several_report.summary_text(series, "XNNPACK", *arguments)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_the_table_has_a_column_a_path(series: Series) -> None:
    shown = lines(series)
    assert shown[0] == "OpenCL, 8 at once CPU, XNNPACK, one by one"
    assert "model alone, pictures/s 240.0 120.0" in shown
    assert "model alone, ms a picture 4.167 8.333" in shown
    assert "load, ms 12.5 12.5" in shown
    assert "CPU load 1.50 cores 1.50 cores" in shown
    text = "\n".join(shown)
    assert "speedup 2.00 (OpenCL's pictures/s over the CPU's)" in text
    assert "pictures 30 classified, 2 not readable, 15.0/s by the clock\n" in text
    assert "decoding 31.25 ms a picture, in 4 processes: 128.0/s, at the same time\n" in text
    assert "nodes 2 of 2 on OpenCL, in 1 partition" in text
    assert "outputs equal to TFLite's reference kernels: 0 quanta" in text
    assert "TFLite's own paths differ: 5 quanta between its XNNPACK and its" in text


class Spread(OpenPath):
    """A path over two devices, of which one was lost."""

    @property
    def portions(self) -> tuple[Portion, ...]:
        gpu = DeviceInfo(0, "NVIDIA CUDA", "3.0", "NVIDIA H200", "NVIDIA", "3.0", "580", "gpu")
        cpu = replace(gpu, index=3, platform="PoCL", name="cpu", driver="3.1")
        return Portion(gpu, 24, 0.125), Portion(cpu, 6, 0.0, "running: CL_OUT_OF_RESOURCES")


@pytest.fixture
def spread(series: Series) -> Series:
    series.gpu = Spread(lambda pixels: [], 12.5, 8, replace(TAKEN, device="NVIDIA H200 + cpu"))
    series.gpu.pictures, series.gpu.seconds = 30, 0.125
    return series


def test_each_of_several_devices_has_a_line(spread: Series) -> None:
    text = " ".join(lines(spread))
    assert "device 0 24 pictures, 192.0/s: NVIDIA H200 (NVIDIA CUDA, driver 580) device 3" in text
    assert (
        "device 3 6 pictures, 0.0/s: cpu (PoCL, driver 3.1); left out: running: "
        "CL_OUT_OF_RESOURCES nodes 2 of 2 on OpenCL"
    ) in text
    assert "NVIDIA H200 + cpu" not in text
    assert "pictures/s 240.0" in text


def test_each_of_several_devices_is_in_the_document(spread: Series) -> None:
    entry, _ = document(spread, 1)
    assert entry["gpu"]["device"] == "NVIDIA H200 + cpu"
    assert entry["gpu"]["devices"] == [
        {
            "index": 0,
            "device": "NVIDIA H200",
            "platform": "NVIDIA CUDA",
            "driver": "580",
            "pictures": 24,
            "pictures_per_second": 192.0,
        },
        {
            "index": 3,
            "device": "cpu",
            "platform": "PoCL",
            "driver": "3.1",
            "pictures": 6,
            "pictures_per_second": 0.0,
            "failure": "running: CL_OUT_OF_RESOURCES",
        },
    ]


def test_pictures_that_differ_are_counted(series: Series) -> None:
    assert series.totals.distances is not None
    series.totals.distances = replace(series.totals.distances, gpu_to_reference=Difference(3))
    series.totals.wrong = 7
    text = " ".join(several_report.summary_text(series, "XNNPACK").split())
    assert "outputs DIFFER from TFLite's reference kernels: 3 quanta, in 7 of 30 pictures" in text
    assert "compared" not in text.partition("outputs")[2]
    series.totals.compared = 9
    text = " ".join(several_report.summary_text(series, "XNNPACK").split())
    assert "quanta, in 7 of 9 pictures that were compared" in text
    assert series.failure.endswith("kernels, in 7 of 9 pictures that were compared")


def test_a_sample_says_that_it_is_one(series: Series) -> None:
    assert "compared 30 of 30 pictures, in 0.5 s" in "\n".join(lines(series)).splitlines()
    series.totals.compared = 4
    text = " ".join(several_report.summary_text(series, "XNNPACK").split())
    assert "compared 4 of 30 pictures, in 0.5 s; --compare=all compares each" in text
    assert "TFLite's reference kernels: 0 quanta" in text


def test_the_cpu_alone_has_one_column(series: Series) -> None:
    series.gpu, series.totals = None, Totals(3, 0, 0, 0.03, 1)
    shown = lines(series)
    assert shown[0] == "CPU, XNNPACK, one by one"
    assert shown[-2:] == [
        "pictures 3 classified",
        "decoding 10.00 ms a picture, in 1 process: 100.0/s, at the same time",
    ]


def test_an_external_delegate_has_its_own_name(series: Series) -> None:
    series.gpu = None
    assert lines(series, "EXTERNAL")[0] == "EXTERNAL, one by one"


def test_a_cpu_that_failed_says_why(series: Series) -> None:
    series._beside, series._reasons = {}, {CPU: "no kernel"}
    shown = lines(series)
    assert shown[0] == "OpenCL, 8 at once"
    assert "CPU failed: no kernel" in shown
    assert not [line for line in shown if line.startswith("speedup")]


def test_what_opencl_left_to_the_cpu_is_listed(series: Series) -> None:
    assert series.gpu is not None
    series.gpu.delegation = replace(
        TAKEN, verdicts=(Verdict(0, "PAD", "no such op"), *TAKEN.verdicts[1:])
    )
    assert "PAD 1 no such op 0" in lines(series)


def test_nothing_read_at_all_is_still_a_table(series: Series) -> None:
    series.gpu, series._beside = path(0, 0.0, 2, TAKEN), {CPU: path(0, 0.0)}
    series.totals = Totals(0, 2, 0, 0.0, 1)
    text = "\n".join(lines(series))
    assert "pictures/s 0.0 0.0" in text
    assert "pictures 0 classified, 2 not readable" in text
    assert "speedup" not in text


OUTCOMES = [
    (Outcome("a.jpg", "", (), Distances(Difference(0), Difference(0), Difference(2))), 2),
    (Outcome("b.jpg", "input file b.jpg not found"), 0),
    (Outcome("c.jpg"), 1),
]


def result(labels: list[str], most: int) -> Result:
    made = Result(Meaning(GRAPH, feeds_of(GRAPH, ()), labels), (), None, most)
    made.scene = SCENE
    return made


def document(series: Series, count: int) -> tuple[dict, list[str]]:
    written: list[str] = []
    made = several_report.Document(written.append, {"model": "m", "runtime": "r"})
    for outcome, most in OUTCOMES[:count]:
        made.add(several_report.picture_entry(outcome, result(["cat"], most)))
    made.end(series, 4)
    return json.loads("\n".join(written)), written


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_document_has_an_object_a_picture(series: Series, count: int) -> None:
    entry, _ = document(series, count)
    assert entry.items() >= stamped({}).items()
    results = [
        {"index": 1, "label": None, "score": 0.5},
        {"index": 0, "label": "cat", "score": 0.25},
    ]
    assert (
        entry["pictures"]
        == [
            {
                "image": "a.jpg",
                "results": results,
                "max_difference_quanta_reference": 0,
                "max_difference_quanta_cpu": 2,
            },
            {"image": "b.jpg", "error": "input file b.jpg not found"},
            {"image": "c.jpg", "results": results[:1]},
        ][:count]
    )


def test_the_document_ends_with_what_all_came_to(series: Series) -> None:
    entry, _ = document(series, 3)
    assert list(entry) == [
        *stamped({}),
        "model", "runtime", "pictures", "classified", "unreadable", "seconds",
        "pictures_per_second", "decoding", "cpu", "gpu", "compared",
        "max_difference_quanta_reference", "max_difference_quanta_cpu", "speedup",
    ]  # fmt: skip
    assert (entry["classified"], entry["unreadable"]) == (30, 2)
    assert (entry["seconds"], entry["pictures_per_second"]) == (2.0, 15.0)
    assert entry["compared"] == {"pictures": 30, "seconds": 0.5}
    assert entry["decoding"] == {"average_ms": 31.25, "processes": 4}
    assert entry["cpu"] == {
        "pictures_per_second": 120.0,
        "average_ms": pytest.approx(25 / 3),
        "load_ms": 12.5,
        "cpu_load": 1.5,
        "batch": 1,
        "threads": 4,
    }
    assert entry["gpu"]["device"] == "Vivante GC7000"
    assert (entry["gpu"]["pictures_per_second"], entry["gpu"]["batch"]) == (240.0, 8)
    assert (entry["gpu"]["delegated"], entry["gpu"]["not_delegated"]) == (2, [])
    assert (entry["max_difference_quanta_reference"], entry["speedup"]) == (0, 2.0)


def test_what_was_not_compared_is_null_with_a_reason(series: Series) -> None:
    series.totals = Totals(30, 0, 0, 1.0, 4)
    series._beside = None
    entry, _ = document(series, 1)
    assert entry["max_difference_quanta_reference"] is None
    assert entry["speedup"] is None
    assert entry["not_compared"] == "--compare=false"
    assert "cpu" not in entry


def test_a_failure_is_told(series: Series) -> None:
    series.gpu, series._gave_up = None, "CL_OUT_OF_RESOURCES"
    entry, _ = document(series, 1)
    assert entry["failure"] == "CL_OUT_OF_RESOURCES"
    assert "gpu" not in entry


def test_a_picture_is_written_before_the_next_but_one(series: Series) -> None:
    written: list[str] = []
    made = several_report.Document(written.append, {"model": "m"})
    for number, (outcome, most) in enumerate(OUTCOMES * 5):
        made.add(several_report.picture_entry(outcome, result([], most)))
        assert sum("image" in line for line in written) == number
