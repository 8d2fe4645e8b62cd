# SPDX-License-Identifier: Apache-2.0
"""The table of the paths and the JSON document, of one picture and of many."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo, Verdict
from delegate.inspect import Portion
from label_image import document as documents
from label_image import report, sinks
from label_image.compare import CPU as ON_CPU
from label_image.compare import Distances, Outcome, Totals
from label_image.decode_outputs import Meaning
from label_image.heads.view import View
from label_image.judgement import Judgement, PathResults
from label_image.result import Result
from label_image.run_result import RunResult
from label_image.scene import Class, Scene
from tests.support.compare import RUNTIME
from tests.support.model import graph_of, op
from tests.support.nets import image
from tflite_opencl.cli.messages import stamped
from tflite_opencl.harness.job import Delegation, Job
from tflite_opencl.oracle.difference import Difference
from tflite_opencl.timing.timing import Times

GRAPH = graph_of([op("ADD", [image(), image()], [image()])])
TIMES = Times(20.5, min_ms=18.25, median_ms=19.125, total_ms=246.0, cpu_load=1.984, runs=12)
CPU = RunResult(7.0, times=replace(TIMES, average_ms=41.0, median_ms=38.25))
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


@dataclass(frozen=True)
class Beside:
    """What OpenCL's path was compared with."""

    cpu: RunResult | None
    cpu_failure: str
    distances: Distances


EQUAL = Beside(CPU, "", Distances(Difference(0), Difference(5), Difference(5)))


def gpu(delegation: Delegation = ALL) -> RunResult:
    return RunResult(371.25, delegation=delegation, times=TIMES)


def judgement_of(
    gpu: RunResult | None, beside: Beside | None, cpu: RunResult | None = None
) -> Judgement:
    """Return that of one picture; `cpu`: what ran alone."""
    job = Job(b"", np.zeros(1), is_timed=True)
    results = PathResults(job, RUNTIME, GRAPH, gpu, substitute=cpu)
    if beside is None:
        return Judgement(results)
    results = replace(
        results, beside={} if beside.cpu is None else {ON_CPU: beside.cpu},
        reasons={ON_CPU: beside.cpu_failure},
    )  # fmt: skip
    return Judgement(results, Totals(distances=beside.distances))


def comparison_text(gpu: RunResult, beside: Beside | None, width: int = 80) -> str:
    return report.summary_text(judgement_of(gpu, beside), "XNNPACK", width)


def document(
    about: Mapping[str, Any],
    judgement: Judgement,
    threads: int | None = 4,
    results: Mapping[str, Any] = NONE_FOUND,
) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(documents.document(about, judgement, threads, results))
    return document


def text_of(delegation: Delegation, beside: Beside | None = EQUAL) -> str:
    """Return the report with single blanks, so that wrapped lines read as one."""
    return " ".join(comparison_text(gpu(delegation), beside).split())


def test_the_table_shows_both_paths() -> None:
    lines = comparison_text(gpu(), EQUAL).strip().splitlines()
    rows = {cells[0]: cells[1:] for cells in (re.split(r"\s{2,}", line.strip()) for line in lines)}
    assert lines[0].split() == ["OpenCL", "CPU,", "XNNPACK"]
    assert rows["average, ms"] == ["20.500", "41.000"]
    assert rows["minimum, ms"] == ["18.250", "18.250"]
    assert rows["median, ms"] == ["19.125", "38.250"]
    assert rows["runs"] == ["12", "12"]
    assert rows["load, ms"] == ["371.2", "7.0"]
    assert rows["CPU load"] == ["1.98 cores", "1.98 cores"]
    assert "GPU load" not in rows


def test_the_load_of_a_gpu_is_shown_where_it_is_known() -> None:
    run = replace(gpu(), times=replace(TIMES, gpu_load=0.375))
    (row,) = (line for line in comparison_text(run, EQUAL).splitlines() if "GPU load" in line)
    assert row.split() == ["GPU", "load", "0.38", "-"]
    assert document({}, judgement_of(run, EQUAL))["gpu"]["gpu_load"] == 0.375


def test_what_a_comparison_ran_longer_is_what_its_table_shows() -> None:
    longer = replace(TIMES, average_ms=7.0, median_ms=6.0, runs=99)
    run = replace(gpu(), longer=longer, load_parts={"build": 300.0, "tune": 50.25})
    text = comparison_text(run, EQUAL)
    rows = {row[0]: row[1:] for line in text.splitlines() if (row := line.split())}
    assert rows["average,"] == ["ms", "7.000", "41.000"]
    assert rows["runs"] == ["99", "12"]
    assert (rows["build"], rows["tune"]) == (["300.0"], ["50.2"])
    assert rows["speedup"][0] == "6.38"
    entry = document({}, judgement_of(run, EQUAL))["gpu"]
    assert entry["average_ms"] == 20.5  # label_image's own, of --count runs
    assert entry["compared"]["average_ms"] == 7.0
    assert entry["compared"]["runs"] == 99
    assert entry["load"] == {"build_ms": 300.0, "tune_ms": 50.25}


def test_unfinished_tuning_is_reported() -> None:
    assert "not finished" not in text_of(ALL)
    pending = replace(ALL, tuning_left=1)
    assert "tuning 1 choice not measured: --tune full" in text_of(pending)
    entry = document({}, judgement_of(gpu(pending), EQUAL))
    assert entry["gpu"]["tuning_left"] == 1


def test_the_report_names_device_nodes_and_speedup() -> None:
    text = text_of(ALL)
    assert "speedup 2.00 (median of the CPU over OpenCL's)" in text
    assert "device Vivante GC7000 (rusticl, driver 24.3)" in text
    assert "nodes 2 of 2 on OpenCL, in 1 partition " in text
    assert "left to the CPU" not in text


def short_text(judgement: Judgement, flag: str = "--compare") -> list[str]:
    """Return the lines of the summary without the table, with single blanks."""
    text = report.summary_text(judgement, "XNNPACK", 200, flag=flag)
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_summary_without_the_table_is_a_few_lines() -> None:
    tuned = replace(ALL, tuning_left=3)
    assert short_text(judgement_of(gpu(tuned), EQUAL)) == [
        "",
        "average OpenCL 20.500 ms, CPU (XNNPACK) 41.000 ms; 2.00 times as fast by medians",
        "device Vivante GC7000 (rusticl)",
        "nodes 2 of 2 on OpenCL, in 1 partition",
        "outputs equal to TFLite's reference kernels: 0 quanta",
        "--compare shows all times, loads and the tuning",
    ]
    few = replace(gpu(), times=replace(TIMES, runs=9))
    _, average, *_, last = short_text(judgement_of(few, EQUAL), flag="")
    assert average.endswith("CPU (XNNPACK) 41.000 ms: too few runs to compare")
    assert last.startswith("outputs equal")


def test_the_summary_without_the_table_hides_no_verdict() -> None:
    apart = replace(EQUAL, distances=EQUAL.distances._replace(gpu_to_reference=Difference(1)))
    shown = short_text(judgement_of(gpu(PARTLY), apart))
    assert "nodes 1 of 4 on OpenCL, in 1 partition" in shown
    (outputs,) = (line for line in shown if line.startswith("outputs"))
    assert outputs.startswith("outputs DIFFER from TFLite's reference kernels, which judge")
    assert f"CONV_2D 2 {WHY} 0, 2" in shown
    failed = short_text(judgement_of(gpu(), replace(EQUAL, cpu=None, cpu_failure="no kernel")))
    assert failed[1] == "average OpenCL 20.500 ms"
    assert "CPU failed: no kernel" in failed
    assert "outputs not compared: --compare=false" in short_text(judgement_of(gpu(), None))


def test_few_runs_make_no_speedup() -> None:
    few = replace(TIMES, runs=9)
    assert "speedup  too few runs" in comparison_text(replace(gpu(), times=few), EQUAL)
    slow = replace(few, total_ms=3000.0)
    assert "speedup  2.00 " in comparison_text(replace(gpu(), times=slow), EQUAL)


def test_equal_outputs_are_distinct_from_tflites_own_difference() -> None:
    text = text_of(ALL)
    assert "outputs equal to TFLite's reference kernels: 0 quanta" in text
    assert (
        "TFLite's own paths differ: 5 quanta between its XNNPACK and its reference kernels" in text
    )


def test_equal_outputs_of_a_part_name_what_ran_the_rest() -> None:
    assert (
        "equal to TFLite's reference kernels, which judge OpenCL's part alone: 0 quanta"
        in text_of(PARTLY)
    )


def test_different_outputs_are_shouted() -> None:
    text = text_of(
        ALL, replace(EQUAL, distances=EQUAL.distances._replace(gpu_to_reference=Difference(1)))
    )
    assert "outputs DIFFER from TFLite's reference kernels: 1 quantum" in text


def test_the_reason_not_to_compare_is_shown() -> None:
    unknown = Difference(None, "the outputs are not quantised")
    text = text_of(ALL, Beside(CPU, "", Distances(unknown, unknown, unknown)))
    assert "not compared with the reference kernels: the outputs are not quantised" in text
    assert "differ" not in text


def test_floats_are_reported_beside_integers_and_alone() -> None:
    both = Difference(0, "", (0, 0.25))
    text = text_of(ALL, Beside(CPU, "", Distances(both, Difference(0, "", (0, 0.5)), both)))
    assert "outputs equal to TFLite's reference kernels: 0 quanta floats up to 0.25 from" in text
    assert "paths differ: up to 0.5 in floats between its XNNPACK and its" in text
    alone = Difference(None, "the outputs are not quantised", (0.0,))
    text = text_of(ALL, Beside(CPU, "", Distances(alone, alone, alone)))
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
    for line in comparison_text(gpu(long_names), EQUAL, width).splitlines():
        assert len(line) <= width


def test_the_report_holds_no_control_characters_and_no_markup() -> None:
    odd = replace(PARTLY, device="[red]x[/red] :smile:")
    text = comparison_text(gpu(odd), EQUAL)
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
    first, second = (Scene(rows=rows, names=1) for rows in (ROWS, [Class("cat", 0.25, 0)]))
    results = {"cpu": first.entry(1), "gpu": second.entry(1)}
    entry = document(about, judgement_of(gpu(PARTLY), EQUAL), 4, results)
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
        "gpu_load": None,
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
        "gpu_load": None,
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
    entry = document({"model": "m"}, judgement_of(None, None, CPU), None)
    assert list(entry) == [*stamped({}), "model", "cpu"]
    assert entry["cpu"]["threads"] is None


def test_float_differences_need_no_reason() -> None:
    alone = Difference(None, "the outputs are not quantised", (0.5,))
    beside = Beside(CPU, "", Distances(alone, alone, alone))
    entry = document({}, judgement_of(gpu(), beside))
    assert entry["max_difference_quanta_reference"] is None
    assert "not_compared" not in entry


def test_what_the_document_does_not_know_is_null_with_a_reason() -> None:
    entry = document({}, judgement_of(gpu(), None))
    assert entry["max_difference_quanta_reference"] is None
    assert entry["max_difference_quanta_cpu"] is None
    assert entry["speedup"] is None
    assert entry["not_compared"] == "--compare=false"


TAKEN = Delegation(
    device="Vivante GC7000",
    platform="rusticl",
    driver="24.3",
    verdicts=(Verdict(0, "CONV_2D", None), Verdict(1, "SOFTMAX", None)),
    partitions=((0, 1),),
)
ROWS = [Class("1", 0.5, 1), Class("cat", 0.25, 0)]


def path(
    pictures: int, seconds: float, batch: int = 1, taken: Delegation | None = None
) -> RunResult:
    return RunResult(
        12.5, batch, taken, pictures=pictures, seconds=seconds, cpu_seconds=1.5 * seconds
    )


@pytest.fixture
def judgement() -> Judgement:
    """A run of 32 pictures, 2 of them unreadable, on OpenCL and the CPU."""
    same, apart = Difference(0), Difference(5)
    totals = Totals(30, 2, 0, 1.0, 4, Distances(same, apart, apart), 30, 0.5, 2.0)
    results = PathResults(
        Job(b"", np.zeros(1)), RUNTIME, GRAPH, path(30, 0.125, 8, TAKEN), {ON_CPU: path(30, 0.25)}
    )
    return Judgement(results, totals)


def with_results(judgement: Judgement, **changes: Any) -> Judgement:
    """Return the judgement with these fields of its results changed."""
    return replace(judgement, results=replace(judgement.results, **changes))


def lines(judgement: Judgement) -> list[str]:
    """Return the lines that are not empty, with single blanks."""
    text = report.summary_text(judgement, "XNNPACK")
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_few_pictures_make_no_speedup(judgement: Judgement) -> None:
    judgement = with_results(judgement, beside={ON_CPU: path(8, 0.25)})
    assert "speedup too few runs" in lines(judgement)
    assert documents.totals_entry(judgement, None)["speedup"] is None


def test_the_table_has_a_column_a_path(judgement: Judgement) -> None:
    shown = lines(judgement)
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


@pytest.fixture
def spread(judgement: Judgement) -> Judgement:
    """A run on two devices, of which one was lost."""
    gpu = DeviceInfo(0, "NVIDIA CUDA", "3.0", "NVIDIA H200", "NVIDIA", "3.0", "580", "gpu")
    cpu = replace(gpu, index=3, platform="PoCL", name="cpu", driver="3.1")
    portions = Portion(gpu, 24, 0.125), Portion(cpu, 6, 0.0, "running: CL_OUT_OF_RESOURCES")
    both = path(30, 0.125, 8, replace(TAKEN, device="NVIDIA H200 + cpu"))
    return with_results(judgement, gpu=replace(both, portions=portions))


def test_each_of_several_devices_has_a_line(spread: Judgement) -> None:
    text = " ".join(lines(spread))
    assert "device 0 24 pictures, 192.0/s: NVIDIA H200 (NVIDIA CUDA, driver 580) device 3" in text
    assert (
        "device 3 6 pictures, 0.0/s: cpu (PoCL, driver 3.1); left out: running: "
        "CL_OUT_OF_RESOURCES nodes 2 of 2 on OpenCL"
    ) in text
    assert "NVIDIA H200 + cpu" not in text
    assert "pictures/s 240.0" in text


def test_each_of_several_devices_is_in_the_document(spread: Judgement) -> None:
    entry, _ = documented(spread, 1)
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


def test_pictures_that_differ_are_counted(judgement: Judgement) -> None:
    assert judgement.totals.distances is not None
    distances = judgement.totals.distances._replace(gpu_to_reference=Difference(3))
    totals = replace(judgement.totals, distances=distances, wrong=7)
    judgement = replace(judgement, totals=totals)
    text = " ".join(report.summary_text(judgement, "XNNPACK").split())
    assert "outputs DIFFER from TFLite's reference kernels: 3 quanta, in 7 of 30 pictures" in text
    assert "compared" not in text.partition("outputs")[2]
    judgement = replace(judgement, totals=replace(totals, compared=9))
    text = " ".join(report.summary_text(judgement, "XNNPACK").split())
    assert "quanta, in 7 of 9 pictures that were compared" in text
    assert judgement.failure.endswith("kernels, in 7 of 9 pictures that were compared")


def test_a_sample_is_marked(judgement: Judgement) -> None:
    assert "compared 30 of 30 pictures, in 0.5 s" in "\n".join(lines(judgement)).splitlines()
    judgement = replace(judgement, totals=replace(judgement.totals, compared=4))
    text = " ".join(report.summary_text(judgement, "XNNPACK").split())
    assert "compared 4 of 30 pictures, in 0.5 s; --compare=all compares each" in text
    assert "TFLite's reference kernels: 0 quanta" in text


def test_many_pictures_have_their_speeds_in_a_line(judgement: Judgement) -> None:
    assert short_text(judgement)[1:4] == [
        "pictures 30 classified, 2 not readable, 15.0/s by the clock",
        "decoding 31.25 ms a picture, in 4 processes: 128.0/s, at the same time",
        "model alone OpenCL 240.0 pictures/s (8 at once), CPU (XNNPACK) 120.0 pictures/s "
        "(one by one); 2.00 times as fast",
    ]


def test_the_cpu_alone_has_one_column(judgement: Judgement) -> None:
    judgement = replace(with_results(judgement, gpu=None), totals=Totals(3, 0, 0, 0.03, 1))
    shown = lines(judgement)
    assert shown[0] == "CPU, XNNPACK, one by one"
    assert shown[-2:] == [
        "pictures 3 classified",
        "decoding 10.00 ms a picture, in 1 process: 100.0/s, at the same time",
    ]


def test_an_external_delegate_has_its_own_name(judgement: Judgement) -> None:
    job = replace(judgement.results.job, external=("a.so", {}))
    results = PathResults(job, RUNTIME, GRAPH, substitute=path(30, 0.25))
    judgement = Judgement(results, judgement.totals)
    assert lines(judgement)[0] == "EXTERNAL, one by one"


def test_the_reason_of_a_failed_cpu_is_shown(judgement: Judgement) -> None:
    judgement = with_results(judgement, beside={}, reasons={ON_CPU: "no kernel"})
    shown = lines(judgement)
    assert shown[0] == "OpenCL, 8 at once"
    assert "CPU failed: no kernel" in shown
    assert not [line for line in shown if line.startswith("speedup")]


def test_what_opencl_left_to_the_cpu_is_listed(judgement: Judgement) -> None:
    verdicts = Verdict(0, "PAD", "no such op"), *TAKEN.verdicts[1:]
    gpu = path(30, 0.125, 8, replace(TAKEN, verdicts=verdicts))
    assert "PAD 1 no such op 0" in lines(with_results(judgement, gpu=gpu))


def test_nothing_read_at_all_is_still_a_table(judgement: Judgement) -> None:
    gpu, beside = path(0, 0.0, 2, TAKEN), {ON_CPU: path(0, 0.0)}
    judgement = with_results(judgement, gpu=gpu, beside=beside)
    judgement = replace(judgement, totals=Totals(0, 2, 0, 0.0, 1))
    text = "\n".join(lines(judgement))
    assert "pictures/s 0.0 0.0" in text
    assert "pictures 0 classified, 2 not readable" in text
    assert "speedup" not in text


OUTCOMES = [
    (Outcome("a.jpg", "", (), Distances(Difference(0), Difference(0), Difference(2))), 2),
    (Outcome("b.jpg", "input file b.jpg not found"), 0),
    (Outcome("c.jpg"), 1),
]


def result(most: int) -> Result:
    decoded = Result(Meaning(View(GRAPH, GRAPH.outputs, GRAPH.inputs[0])), (), None, most)
    decoded.scene = Scene(rows=ROWS, outputs=frozenset({0}), names=1)
    return decoded


def documented(judgement: Judgement, count: int) -> tuple[dict, list[str]]:
    written: list[str] = []
    sink = sinks.Document(written.append, {"model": "m", "runtime": "r"})
    for outcome, most in OUTCOMES[:count]:
        sink.add(documents.picture_entry(outcome, result(most)))
    sink.end(documents.totals_entry(judgement, 4))
    return json.loads("\n".join(written)), written


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_document_has_an_object_a_picture(judgement: Judgement, count: int) -> None:
    entry, _ = documented(judgement, count)
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


def test_the_document_ends_with_the_totals(judgement: Judgement) -> None:
    entry, _ = documented(judgement, 3)
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


def test_what_was_not_compared_is_null_with_a_reason(judgement: Judgement) -> None:
    judgement = replace(with_results(judgement, beside=None), totals=Totals(30, 0, 0, 1.0, 4))
    entry, _ = documented(judgement, 1)
    assert entry["max_difference_quanta_reference"] is None
    assert entry["speedup"] is None
    assert entry["not_compared"] == "--compare=false"
    assert "cpu" not in entry


def test_the_document_has_the_failure(judgement: Judgement) -> None:
    judgement = with_results(judgement, gpu=None, gave_up="CL_OUT_OF_RESOURCES")
    entry, _ = documented(judgement, 1)
    assert entry["failure"] == "CL_OUT_OF_RESOURCES"
    assert "gpu" not in entry


def test_a_picture_is_written_before_the_next_but_one(judgement: Judgement) -> None:
    written: list[str] = []
    sink = sinks.Document(written.append, {"model": "m"})
    for number, (outcome, most) in enumerate(OUTCOMES * 5):
        sink.add(documents.picture_entry(outcome, result(most)))
        assert sum("image" in line for line in written) == number
