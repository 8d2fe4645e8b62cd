# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io

from tflite_opencl.compare.fleet_text import csv_of, markdown_of, text_of
from tflite_opencl.compare.records import FleetReport, ModelResult, PathResult, Report, timing_of


def board(quanta: int, device: str = "a GPU", failure: str = "") -> Report:
    timing = timing_of([1.0, 2.0, 3.0], 0.5)
    path = PathResult("opencl", device, failure, timing=timing, quanta=quanta, taken=2, nodes=2)
    return Report({"CPU": "a CPU", "threads": "2"}, [ModelResult("m.tflite", "", "noise", [path])])


FLEET = FleetReport(
    {"one": board(0), "two": board(3, "another GPU"), "three": board(0, failure="it died")},
    {"four": "no worker is there any more"},
)


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_each_board_and_path_has_a_row() -> None:
    result = lines(text_of(FLEET, 100))
    assert result[0] == "m.tflite, noise"
    assert "one opencl 2 2.8 0.50 2 of 2 0" in result
    assert "two opencl 2 2.8 0.50 2 of 2 3" in result


def test_equal_facts_of_boards_are_shown_once() -> None:
    result = lines(text_of(FLEET, 100))
    assert "all boards: CPU: a CPU" in result
    assert "one, three: opencl runs on a GPU" in result
    assert "two: opencl runs on another GPU" in result
    assert "three: m.tflite: opencl: no result: it died" in result
    assert result[-1] == "four: no result: no worker is there any more"


def test_csv_and_markdown() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_of(FLEET))))
    assert [(row["board"], row["path"], row["median_ms"], row["quanta"]) for row in rows] == [
        ("one", "opencl", "2.0", "0"),
        ("two", "opencl", "2.0", "3"),
        ("three", "opencl", "2.0", "0"),
    ]
    text = markdown_of(FLEET)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 3
    assert len({line.count("|") for line in table}) == 1
    assert "- four: no result: no worker is there any more" in text


def test_board_without_result_is_no_success() -> None:
    one = {"one": board(0)}
    assert not FleetReport(one, {}).is_no_result
    assert FleetReport(one, {"two": "it is gone"}).is_no_result
    assert FleetReport({**one, "two": board(0, failure="it died")}, {}).is_no_result


def test_boards_without_results_are_named() -> None:
    assert (
        text_of(FleetReport({}, {"one": "it is gone"}), 100).strip() == "one: no result: it is gone"
    )
