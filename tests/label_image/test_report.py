# SPDX-License-Identifier: Apache-2.0
"""The table of both paths, the JSON document, and how it reaches its file."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo, Verdict
from label_image import report
from label_image.classify import PathRun
from label_image.compare import Distances
from label_image.document import document
from label_image.paths import Comparison
from label_image.scene import Scene
from tflite_opencl.common.difference import Difference
from tflite_opencl.common.job import Delegation
from tflite_opencl.common.labels import Row
from tflite_opencl.common.timing import Times
from tflite_opencl.common.words import stamped

TIMES = Times(average_ms=20.5, min_ms=18.25, median_ms=19.125, total_ms=61.5, cpu_load=1.984)
CPU = PathRun(
    replace(TIMES, average_ms=41.0, median_ms=38.25),
    load_ms=7.0,
    outputs=(np.zeros(3, np.uint8),),
)
WHY = "dilation 2x2: only 1x1 is implemented"
PARTLY = Delegation(
    device="Vivante GC7000",
    platform="rusticl",
    driver="24.3",
    verdicts=(
        Verdict(0, "CONV_2D", WHY),
        Verdict(1, "SOFTMAX", None),
        Verdict(2, "CONV_2D", WHY),
        Verdict(3, "CONV_2D", "excluded by exclude_ops"),
    ),
    partitions=((1,),),
)
ALL = replace(
    PARTLY,
    verdicts=(Verdict(0, "CONV_2D", None), Verdict(1, "SOFTMAX", None)),
    partitions=((0, 1),),
)
NONE = replace(PARTLY, verdicts=(Verdict(0, "CONV_2D", WHY),), partitions=())
NONE_FOUND: dict[str, dict[str, object]] = {"gpu": {}}
EQUAL = Comparison(CPU, "", Distances(Difference(0), Difference(5), Difference(5)))


def gpu(delegation: Delegation = ALL) -> PathRun:
    return PathRun(TIMES, 371.25, (np.zeros(3, np.uint8),), delegation)


def text_of(delegation: Delegation, comparison: Comparison[PathRun] | None = EQUAL) -> str:
    """Return the report with single blanks, so that wrapped lines read as one."""
    return " ".join(report.comparison_text(gpu(delegation), comparison, "XNNPACK").split())


def test_the_table_shows_both_paths() -> None:
    lines = report.comparison_text(gpu(), EQUAL, "XNNPACK").strip().splitlines()
    rows = {cells[0]: cells[1:] for cells in (re.split(r"\s{2,}", line.strip()) for line in lines)}
    assert lines[0].split() == ["OpenCL", "CPU,", "XNNPACK"]
    assert rows["average, ms"] == ["20.500", "41.000"]
    assert rows["minimum, ms"] == ["18.250", "18.250"]
    assert rows["median, ms"] == ["19.125", "38.250"]
    assert rows["runs"] == ["1", "1"]
    assert rows["load, ms"] == ["371.2", "7.0"]
    assert rows["CPU load"] == ["1.98 cores", "1.98 cores"]


def test_what_a_comparison_ran_longer_is_what_its_table_shows() -> None:
    longer = replace(TIMES, average_ms=7.0, median_ms=6.0, runs=99)
    run = replace(gpu(), longer=longer, load_parts={"build": 300.0, "tune": 50.25})
    text = report.comparison_text(run, EQUAL, "XNNPACK")
    rows = {row[0]: row[1:] for line in text.splitlines() if (row := line.split())}
    assert rows["average,"] == ["ms", "7.000", "41.000"]
    assert rows["runs"] == ["99", "1"]
    assert (rows["build"], rows["tune"]) == (["300.0"], ["50.2"])
    assert rows["speedup"][0] == "6.38"
    entry = json.loads(document({}, {"gpu": run}, NONE_FOUND, 4, EQUAL))["gpu"]
    assert entry["average_ms"] == 20.5  # label_image's own, of --count runs
    assert entry["compared"]["average_ms"] == 7.0
    assert entry["compared"]["runs"] == 99
    assert entry["load"] == {"build_ms": 300.0, "tune_ms": 50.25}


def test_tuning_that_is_not_finished_is_said() -> None:
    assert "not finished" not in text_of(ALL)
    left = replace(ALL, tuning_left=1)
    assert "tuning not finished: 1 choice left for later starts; --tune full" in text_of(left)
    entry = json.loads(document({}, {"gpu": gpu(left)}, NONE_FOUND, 4, EQUAL))
    assert entry["gpu"]["tuning_left"] == 1


def test_the_report_names_device_nodes_and_speedup() -> None:
    text = text_of(ALL)
    assert "speedup 2.00 (median of the CPU over OpenCL's)" in text
    assert "device Vivante GC7000 (rusticl, driver 24.3)" in text
    assert "nodes 2 of 2 on OpenCL, in 1 partition " in text
    assert "left to the CPU" not in text


def test_equal_outputs_are_told_apart_from_tflites_own_difference() -> None:
    text = text_of(ALL)
    assert "outputs equal to TFLite's reference kernels: 0 quanta" in text
    assert (
        "TFLite's own paths differ: 5 quanta between its XNNPACK and its reference kernels" in text
    )


def test_equal_outputs_of_a_part_say_what_ran_the_rest() -> None:
    assert (
        "equal to TFLite's reference kernels, which then run the CPU's part too: 0 quanta"
        in text_of(PARTLY)
    )


def test_different_outputs_are_shouted() -> None:
    text = text_of(
        ALL, replace(EQUAL, distances=replace(EQUAL.distances, gpu_to_reference=Difference(1)))
    )
    assert "outputs DIFFER from TFLite's reference kernels: 1 quantum" in text


def test_what_cannot_be_compared_says_why() -> None:
    unknown = Difference(None, "the outputs are not quantised")
    text = text_of(ALL, Comparison(CPU, "", Distances(unknown, unknown, unknown)))
    assert "not compared with the reference kernels: the outputs are not quantised" in text
    assert "differ" not in text


def test_floats_are_reported_beside_integers_and_alone() -> None:
    both = Difference(0, "", (0, 0.25))
    text = text_of(ALL, Comparison(CPU, "", Distances(both, Difference(0, "", (0, 0.5)), both)))
    assert "outputs equal to TFLite's reference kernels: 0 quanta floats up to 0.25 from" in text
    assert "paths differ: up to 0.5 in floats between its XNNPACK and its" in text
    alone = Difference(None, "the outputs are not quantised", (0.0,))
    text = text_of(ALL, Comparison(CPU, "", Distances(alone, alone, alone)))
    assert "outputs floats equal to TFLite's reference kernels'" in text
    assert "not compared" not in text
    assert "differ" not in text


def test_a_cpu_that_fails_leaves_its_column_out() -> None:
    failed = replace(EQUAL, cpu=None, cpu_failure="no kernel for CONV_2D")
    text = text_of(ALL, failed)
    assert "CPU failed: no kernel for CONV_2D" in text
    assert "speedup" not in text
    assert text.startswith("OpenCL ─")


def test_without_comparison_only_opencl_is_shown() -> None:
    text = text_of(ALL, None)
    assert "XNNPACK" not in text
    assert "reference" not in text
    assert "nodes 2 of 2" in text


def test_refusals_are_grouped_by_op_and_reason() -> None:
    text = text_of(PARTLY)
    assert f"CONV_2D 2 {WHY} 0, 2" in text
    assert "CONV_2D 1 excluded by exclude_ops 3" in text
    assert text.index(WHY) < text.index("excluded by")


def test_a_delegate_that_takes_nothing_shows_zero() -> None:
    assert "nodes 0 of 1 on OpenCL, in 0 partitions" in text_of(NONE)


@pytest.mark.parametrize("width", [80, 100])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    long_names = replace(
        PARTLY,
        device="a device with " + "many " * 20 + "words",
        verdicts=tuple(
            Verdict(i, "A_" * 30, "a reason of " + "many " * 20 + "words") for i in range(90)
        ),
    )
    for line in report.comparison_text(gpu(long_names), EQUAL, "XNNPACK", width).splitlines():
        assert len(line) <= width


def test_the_report_holds_no_control_characters_and_no_markup() -> None:
    odd = replace(PARTLY, device="[red]x[/red] :smile:")
    text = report.comparison_text(gpu(odd), EQUAL, "XNNPACK")
    assert "\x1b" not in text
    assert "[red]x[/red] :smile:" in text


def test_the_devices_table_begins_with_what_device_takes() -> None:
    info = DeviceInfo(
        index=3,
        platform="rusticl",
        platform_version="OpenCL 3.0",
        name="llvmpipe",
        vendor="Mesa",
        version="OpenCL 3.0 extra words",
        driver="22.3.6",
        type="cpu",
    )
    line = report.devices_text([info]).splitlines()[-1]
    assert line.split() == ["3", "llvmpipe", "cpu", "rusticl", "3.0", "22.3.6"]


def test_the_document_has_the_written_schema() -> None:
    about = {"model": "m", "image": "i", "runtime": "r"}
    first, second = Scene(rows=[Row(1, 0.5), Row(0, 0.4)]), Scene(rows=[Row(0, 0.25)])
    results = {"cpu": first.entry(["cat"], 1), "gpu": second.entry(["cat"], 1)}
    entry = json.loads(document(about, {"cpu": CPU, "gpu": gpu(PARTLY)}, results, 4, EQUAL))
    assert entry.items() >= stamped({}).items()
    assert list(entry) == [
        "schema", "tflite_opencl", "model", "image", "runtime", "cpu", "gpu",
        "max_difference_quanta_reference", "max_difference_quanta_cpu", "speedup",
    ]  # fmt: skip
    assert entry["cpu"] == {
        "average_ms": 41.0,
        "min_ms": 18.25,
        "median_ms": 38.25,
        "load_ms": 7.0,
        "cpu_load": 1.984,
        "threads": 4,
        "results": [{"index": 1, "label": None, "score": 0.5}],
    }
    assert entry["gpu"] == {
        "device": "Vivante GC7000",
        "platform": "rusticl",
        "driver": "24.3",
        "average_ms": 20.5,
        "min_ms": 18.25,
        "median_ms": 19.125,
        "load_ms": 371.25,
        "cpu_load": 1.984,
        "results": [{"index": 0, "label": "cat", "score": 0.25}],
        "nodes": 4,
        "delegated": 1,
        "partitions": 1,
        "tuning_left": 0,
        "not_delegated": [
            {"node": 0, "op": "CONV_2D", "reason": WHY},
            {"node": 2, "op": "CONV_2D", "reason": WHY},
            {"node": 3, "op": "CONV_2D", "reason": "excluded by exclude_ops"},
        ],
    }
    assert entry["max_difference_quanta_reference"] == 0
    assert entry["max_difference_quanta_cpu"] == 5
    assert entry["speedup"] == 2.0


def test_without_opencl_the_document_has_no_gpu_part() -> None:
    entry = json.loads(document({"model": "m"}, {"cpu": CPU}, {"cpu": {}}, None, None))
    assert list(entry) == [*stamped({}), "model", "cpu"]
    assert entry["cpu"]["threads"] is None


def test_floats_say_themselves_how_far_they_are_apart() -> None:
    alone = Difference(None, "the outputs are not quantised", (0.5,))
    comparison = Comparison(CPU, "", Distances(alone, alone, alone))
    entry = json.loads(document({}, {"gpu": gpu()}, NONE_FOUND, 4, comparison))
    assert entry["max_difference_quanta_reference"] is None
    assert "not_compared" not in entry


def test_what_the_document_does_not_know_is_null_with_a_reason() -> None:
    entry = json.loads(document({}, {"gpu": gpu()}, NONE_FOUND, 4, None))
    assert entry["max_difference_quanta_reference"] is None
    assert entry["max_difference_quanta_cpu"] is None
    assert entry["speedup"] is None
    assert entry["not_compared"] == "--compare=false"
